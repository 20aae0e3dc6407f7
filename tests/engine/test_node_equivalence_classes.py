"""One answer for an equivalence class of nodes equals the answers for each of its nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from engine_objects import Obj, allocated, allocation, claim, device_class, node, options, pod, resource_slice
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haru.engine import decide
from haru.engine.dra.model.model import Features, NodeView
from haru.engine.equivalence import filter_results
from haru.engine.equivalence.claim_query import ClaimQuery
from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.equivalence.filter_results import FilterResultCache
from haru.engine.equivalence.node_class_index import NodeClassIndex
from haru.engine.equivalence.node_feasibility import NodeFeasibility
from haru.engine.framework.interfaces import FilterFailure
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand, device_demand_of
from haru.engine.podgroup.filter_node import FilterPlan
from haru.engine.state import node_equivalence_classes
from haru.engine.state.cache import SchedulerCache, Snapshot
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo

NODES = [f"n{number}" for number in range(8)]
TAINT = {"key": "kept", "value": "x", "effect": "NoSchedule"}
SOFT = {"key": "soft", "effect": "PreferNoSchedule"}
ZONE, APP = "zone", {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
ANTI: Obj = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ZONE, "labelSelector": APP}]}
LIKED: Obj = {"weight": 3, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": APP}}
IN_ONE: Obj = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["1"]}]}
LEANING: Obj = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": IN_ONE}]}
UUID = 'device.attributes["gpu.example.com"].uuid.endsWith("n1-0")'


def host_port(obj: Obj, port: int) -> Obj:
    obj["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return obj


@st.composite
def nodes(draw: st.DrawFn) -> list[Obj]:
    """Nodes of few kinds, some with devices, used in few ways."""
    found: list[Obj] = []
    for number, name in enumerate(NODES):
        kind, use = (
            draw(st.sampled_from(["small", "small", "small", "large", "kept", "soft", "cut", "image", "image"])),
            draw(USES),
        )
        made = node(name, "4" if kind == "large" else "2", {ZONE: str(number % 2)})
        made["spec"]["taints"] = {"kept": [TAINT], "soft": [SOFT]}.get(kind, [])
        made["spec"]["unschedulable"] = kind == "cut"
        if kind == "image":
            made["status"]["images"] = [{"names": ["x:latest"], "sizeBytes": 200_000_000 * (number + 1)}]
        cards = [{"name": f"d{i}", "attributes": {"uuid": {"string": f"{name}-{i}"}}} for i in range(2)]
        found += [made, resource_slice(name, cards)] if use != "bare" else [made]
        found += USED[use](name)
    return found


def holding(name: str) -> list[Obj]:
    user = pod(f"user-{name}", node=name, claims=[f"c-{name}"])
    return [user, allocated(claim(f"c-{name}"), allocation(name, "d0"), user)]


def company(name: str) -> list[Obj]:
    return [pod(f"affine-{name}", cpu="100m", node=name, affinity={"podAntiAffinity": ANTI})]


USED: dict[str, Any] = {
    "nobody": lambda name: [],
    "bare": lambda name: [],
    "cpu": lambda name: [pod(f"cpu-{name}", cpu="1500m", node=name)],
    "port": lambda name: [host_port(pod(f"port-{name}", cpu="100m", node=name), 80)],
    "holding": holding,
    "company": company,
}
USES = st.sampled_from(["nobody", "nobody", "bare", "cpu", "port", "holding", "company"])

PODS: dict[str, Any] = {
    "plain": lambda: [pod("p")],
    "large": lambda: [pod("p", cpu="3")],
    "port": lambda: [host_port(pod("p"), 80)],
    "tolerant": lambda: [pod("p", tolerations=[{"operator": "Exists"}])],
    "selective": lambda: [pod("p", nodeSelector={ZONE: "1"})],
    "liking": lambda: [
        pod("p", affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [LIKED]}})
    ],
    "leaning": lambda: [pod("p", affinity={"nodeAffinity": LEANING})],
    "one card": lambda: [pod("p", claims=["mine"]), claim("mine", 1)],
    "two cards": lambda: [pod("p", claims=["mine"]), claim("mine", 2)],
    "choosy": lambda: [pod("p", claims=["mine"]), claim("mine", requests=[asked(UUID)])],
    "failing": lambda: [pod("p", claims=["mine"]), claim("mine", requests=[asked(UUID.replace("uuid", "none"))])],
    "spread": lambda: [
        pod(
            "p",
            topologySpreadConstraints=[
                {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": APP}
            ],
        )
    ],
}


def asked(expression: str) -> Obj:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    return {"name": "gpu", "exactly": {**exactly, "selectors": [{"cel": {"expression": expression}}]}}


def told(
    snapshot: Snapshot, whole: FilterResultCache, info: PodInfo, demand: DeviceDemand
) -> tuple[NodeFeasibility | None, str]:
    try:
        return whole.feasibility(info, demand), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nodes(), st.sampled_from(sorted(PODS)), st.booleans())
def test_node_equivalence_class_answers_like_each_of_its_nodes(found: list[Obj], kind: str, touched: bool) -> None:
    snapshot = SchedulerCache.of([*found, device_class(), *PODS[kind]()]).snapshot()
    info, boards = snapshot.pods["default/p"], []
    for one_by_one in (False, True):
        seen = replace(snapshot, decision_cache=DecisionCache())
        overlay = Overlay(seen)
        if touched:
            overlay.place(PodInfo.of(pod("other", cpu="1500m")), NODES[2])
        demand = device_demand_of(overlay, info, None, options())
        assert isinstance(demand, DeviceDemand)
        every = FilterResultCache(overlay, options(), seen.node_names)
        if one_by_one:
            every._can_filter_classes = lambda feasibility, demand: False  # type: ignore[method-assign]
        boards.append(told(seen, every, info, demand))
    assert_same(overlay, *boards)


def assert_same(overlay: Overlay, *boards: tuple[NodeFeasibility | None, str]) -> None:
    """Compare what classes of nodes answer with what the nodes do."""
    (lots, failed), (single, expected) = boards
    assert failed == expected
    if lots is None or single is None:
        return
    assert lots.filter_failures(overlay) == single.filter_failures(overlay)
    assert set(lots.candidates) == set(single.candidates)
    assert lots.undecided == single.undecided
    if single.ranking:
        assert lots.ranking.totals() == single.ranking.totals()
        assert lots.ranking.choose(1, "p") == single.ranking.choose(1, "p")


def changes(name: str) -> list[list[Obj]]:
    """What may come to a node, and go."""
    return [
        [node(name, "2")],
        [node(name, "4")],
        [node(name, "2", taints=[TAINT])],
        [pod(f"cpu-{name}", cpu="500m", node=name)],
        company(name),
        holding(name),
        [resource_slice(name, 2)],
        [resource_slice(name, 3)],
        [resource_slice(name, [{"name": "shared", "allowMultipleAllocations": True}])],
    ]


STEPS = st.lists(st.tuples(st.sampled_from(NODES), st.integers(0, 8), st.booleans()), max_size=8)


@given(st.lists(STEPS, min_size=2, max_size=6))
def test_node_classes_followed_through_changes_equal_those_found_anew(rounds: list[Any]) -> None:
    cluster = SchedulerCache.of([device_class(), *(made for name in NODES for made in changes(name)[0])])
    seen: list[tuple[Any, Any]] = []
    for steps in rounds:
        for name, number, comes in steps:
            for obj in changes(name)[number]:
                (cluster.apply if comes else cluster.remove)(obj)
        for snapshot in (cluster.snapshot(), replace(cluster.snapshot(), node_device_classes=None)):
            # On eight nodes every change would be one of all nodes.
            with patch.object(node_equivalence_classes, "_FEW", 3):
                followed = tuple(snapshot.node_classes)
            anew = replace(snapshot, decision_cache=DecisionCache()).node_classes
            assert followed == tuple(anew)
            assert all(one.first is snapshot.nodes[one.names[0]] for one in followed)
            seen.append((followed, [list(one.names) for one in followed]))
    assert all([one.names for one in followed] == names for followed, names in seen)


def test_pod_of_new_shape_sees_shared_devices_that_came_late() -> None:
    """Nodes without devices are equal; one that publishes devices without a class is no longer."""
    cluster = SchedulerCache.of([device_class(), *map(node, NODES), node("small", "100m"), resource_slice("small", 1)])
    for number in (1, 2):
        waiting = [pod(f"p{number}", cpu=f"{number}", claims=[f"c{number}"]), claim(f"c{number}")]
        for obj in waiting:
            cluster.apply(obj)
        decision = decide(cluster.snapshot(), waiting[:1], group=None, options=options())
        assert decision.members[0].node == (None if number == 1 else NODES[3])
        cluster.apply(resource_slice(NODES[3], [{"name": "shared", "allowMultipleAllocations": True}]))


@settings(deadline=None)
@given(st.lists(STEPS, min_size=2, max_size=6), st.sampled_from(sorted(PODS)))
def test_nodes_that_changed_answer_by_class_like_nodes_asked_one_by_one(rounds: list[Any], kind: str) -> None:
    objects = [made for name in NODES for made in changes(name)[0]]
    cluster = SchedulerCache.of([device_class(), *objects, *PODS[kind]()])
    for steps in rounds:
        for name, number, comes in steps:
            for obj in changes(name)[number]:
                (cluster.apply if comes else cluster.remove)(obj)
        kept, boards = cluster.snapshot(), []
        for snapshot in (kept, replace(kept, decision_cache=DecisionCache())):
            overlay, info = Overlay(snapshot), snapshot.pods["default/p"]
            demand = device_demand_of(overlay, info, None, options())
            assert isinstance(demand, DeviceDemand)
            every = FilterResultCache(overlay, options(), snapshot.node_names)
            if snapshot is not kept:
                every._can_filter_classes = lambda feasibility, demand: False  # type: ignore[method-assign]
            with patch.object(filter_results, "_FEW", 1):
                boards.append(told(snapshot, every, info, demand))
        assert_same(overlay, *boards)


def test_pod_of_new_shape_looks_at_the_changed_nodes_only() -> None:
    def calls(nodes: int) -> int:
        names = [f"n{number:04}" for number in range(nodes)]
        objects = [made for name in names for made in (node(name), resource_slice(name, 2))]
        cluster = SchedulerCache.of([device_class(), *objects])
        counted = 0
        for number in range(3):
            waiting = [pod(f"p{number}", cpu=f"{number + 1}", claims=["mine"]), claim("mine", 1)]
            for obj in waiting:
                cluster.apply(obj)
            counted = calls_of(partial(decide, cluster.snapshot(), waiting[:1], group=None, options=options()))
            cluster.assume_pod(PodInfo.of(waiting[0]).key, names[number])
        return counted

    assert calls(800) < 1.2 * calls(200)


def test_one_of_the_nodes_that_changed_alike_is_filtered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SchedulerCache.of([node(f"n{number:02}", cpu="4") for number in range(20)])
    checked: list[str] = []
    check = FilterPlan.check

    def counted(plan: FilterPlan, info: NodeInfo, *recorder: Any) -> Sequence[FilterFailure]:
        checked.append(info.name)
        return check(plan, info, *recorder)

    monkeypatch.setattr(FilterPlan, "check", counted)
    for changed, cpu, expected in ((0, "", "n"), (12, "4", "n1"), (12, "3", "n")):
        for number in range(changed):
            cluster.apply(pod(f"p{number}", cpu=cpu, node=f"n{number:02}"))
        waiting = pod(f"w{cpu}", cpu="1")
        cluster.apply(waiting)
        checked.clear()
        found = decide(cluster.snapshot(), [waiting], group=None, options=options()).members[0].node
        assert found is not None and found.startswith(expected)
        cluster.remove(waiting)
        assert len(checked) <= 2  # of the nodes that have changed, and then the chosen one


def test_node_that_takes_the_number_of_a_dropped_one_gets_its_own_devices() -> None:
    cluster = SchedulerCache.of([device_class("gpu"), *(resource_slice(name, [{"name": "d0"}]) for name in "ab")])
    snapshot = cluster.snapshot()
    index = NodeClassIndex(snapshot.devices, snapshot.allocated, (), lazy=True)
    query = ClaimQuery(index, [claim("c")], Features())
    pools = []
    for name in "ab":
        index.put(NodeView(name, {}))
        (found,) = query.results(index, index.numbers(name)[0], str)
        pools += [result["pool"] for result in found["devices"]["results"]]
        index.drop(name)
    assert pools == ["a", "b"]


def calls_of(action: Callable[[], Any]) -> int:
    """How many functions and methods are called."""
    counted = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return counted


LOADS = st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=12)


@given(LOADS, LOADS)
def test_equally_loaded_nodes_share_one_load_object(one: list[Any], other: list[Any]) -> None:
    ids = DecisionCache()

    def loaded(steps: list[Any]) -> NodeInfo:
        info = NodeInfo.empty("n", ids=ids)
        for adds, number in steps:
            made = host_port(pod(f"p{number}", cpu=f"{number % 2}"), 80 + number // 2)
            path = f"default/p{number}"
            if adds:
                info = info.with_pod(PodInfo.of(made))
            elif path in info.pods:
                info = info.without_pod(path)
        return info

    def content(info: NodeInfo) -> Any:
        taken = {name: amount for name, amount in info.requested.items() if amount}
        return taken, info.scoring_requested, len(info.pods), sorted(info.host_ports)

    first, second = loaded(one), loaded(other)
    assert (first.load is second.load) == (content(first) == content(second))
