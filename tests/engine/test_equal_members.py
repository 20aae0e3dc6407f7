"""Equal members are decided together, and as each of them would be by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from engine_objects import Obj, allocated, allocation, claim, device_class, node, options, pod, resource_slice
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haru.engine.equivalence import NoCache
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand, device_demand_of
from haru.engine.podgroup.equal_members import EqualMembers, members_with_demands
from haru.engine.podgroup.placed import Placed
from haru.engine.podgroup.pod_batching import PodBatch
from haru.engine.podgroup.podgroup_cycle import members_of
from haru.engine.podgroup.schedule_one import PodPlacer, Unschedulable
from haru.engine.state.cache import SchedulerCache, Snapshot
from haru.engine.state.overlay import Overlay
from haru.engine.state.pending_reservations import Nomination
from haru.engine.state.pod_info import PodInfo

NODES = ("n0", "n1", "n2")
OTHER_OWNER = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "other", "uid": "uid-other"}}


def equal_member(name: str, cards: int, cpu: str = "1") -> list[Obj]:
    """A pod that differs from its siblings in its name alone; `cards`: with a claim from a template for so many."""
    made = pod(name, cpu=cpu, claims=[("gpu", "cards", f"{name}-gpu")] if cards else None)
    made["metadata"]["labels"] = {"app": "gang"}
    return [made, claim(f"{name}-gpu", cards, owner=made)] if cards else [made]


def without_name(made: list[Obj]) -> None:
    made[0]["status"].pop("resourceClaimStatuses", None)


def named(made: list[Obj]) -> None:
    if "resourceClaims" in made[0]["spec"]:
        made[0]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"{made[0]['metadata']['name']}-gpu"}]


def deleting(made: list[Obj]) -> None:
    made[-1]["metadata"]["deletionTimestamp"] = "2026-11-26T00:00:00Z"


def foreign(made: list[Obj]) -> None:
    if len(made) > 1:
        made[1] = claim(made[1]["metadata"]["name"], owner=OTHER_OWNER)


def with_allocation(made: list[Obj]) -> None:
    if len(made) > 1:
        made[1] = allocated(made[1], allocation("n0", "gpu-0"), made[0])


ODDITIES: dict[str, Callable[[list[Obj]], object]] = {
    "none": lambda made: None,
    "another label": lambda made: made[0]["metadata"]["labels"].update(app="another"),
    "an index": lambda made: made[0]["metadata"]["labels"].update(index=made[0]["metadata"]["name"]),
    "an owner": lambda made: made[0]["metadata"].update(ownerReferences=[{"kind": "Job", "name": "j", "uid": "u"}]),
    "a node in view": lambda made: made[0]["status"].update(nominatedNodeName="n1"),
    "a selector": lambda made: made[0]["spec"].update(nodeSelector={"kubernetes.io/hostname": "n2"}),
    "an image": lambda made: made[0]["spec"]["containers"][0].update(image="y"),
    "no claim": lambda made: made.__delitem__(slice(1, None)),
    "a claim without name": without_name,
    "a claim by name": named,
    "a claim that goes": deleting,
    "a claim of another": foreign,
    "an allocated claim": with_allocation,
}


def anti_affine(name: str, *values: str) -> Obj:
    """A running pod that wants no pods with these indexes on its node."""
    select = {"matchExpressions": [{"key": "index", "operator": "In", "values": list(values)}]}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": select}
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod(name, cpu="100m", node="n0", affinity=rules)


def service(**selector: str) -> Obj:
    meta = {"name": "s", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": selector}}


RULES: dict[str, list[Obj]] = {
    "none": [],
    "anti-affinity": [anti_affine("keeps-away", "m1", "m3")],
    "service": [service(app="gang")],
    "service of others": [service(app="others")],
    "service of one": [service(index="m2"), pod("m9", cpu="100m", node="n0")],
}


@st.composite
def gangs(draw: st.DrawFn) -> tuple[list[Obj], list[list[Obj]]]:
    """A small cluster, and members of a gang of which most are equal."""
    nodes = [node(name, cpu=draw(st.sampled_from(["2", "4"]))) for name in NODES]
    slices = [resource_slice(name, draw(st.integers(0, 3))) for name in NODES]
    if draw(st.booleans()):
        slices.append(resource_slice("", draw(st.integers(1, 2)), pool="net", allNodes=True))
    kinds = [(1, "1"), (draw(st.integers(0, 2)), draw(st.sampled_from(["1", "3"])))]
    odd = st.sampled_from([*["none"] * 4 * len(ODDITIES), *ODDITIES])
    members = []
    rules, indexed, by_name = RULES[draw(st.sampled_from(sorted(RULES)))], draw(st.booleans()), draw(st.booleans())
    for number, kind in enumerate(draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=2, max_size=8))):
        made = equal_member(f"m{number}", *kinds[kind])
        if indexed:
            ODDITIES["an index"](made)
        if by_name:
            named(made)
        ODDITIES[draw(odd)](made)
        members.append(made)
    return [device_class(), *nodes, *slices, *rules], members


def described(outcome: Placed | Unschedulable) -> object:
    if isinstance(outcome, Placed):
        return outcome.pod.key, outcome.node, [(use.path, found) for use, found in outcome.allocations], outcome.joined
    return outcome.pod.key, outcome.message, outcome.reasons, outcome.plugins, outcome.failed


def cluster_with(objects: list[Obj], members: list[list[Obj]]) -> tuple[SchedulerCache, list[PodInfo]]:
    cluster = SchedulerCache.of([*objects, *(obj for made in members for obj in made)])
    return cluster, members_of(cluster.snapshot(), [made[0] for made in members])


def demands_by_path(snapshot: Snapshot, pods: list[PodInfo]) -> list[object]:
    snapshot = replace(snapshot, decision_cache=NoCache())
    return [device_demand_of(Overlay(snapshot), one, None, options()) for one in pods]


def equals(one: object, other: object) -> bool:
    return one == other and (not isinstance(one, DeviceDemand) or one.asked == getattr(other, "asked", None))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gangs())
def test_runs_are_the_members_in_their_order(situation: tuple[list[Obj], list[list[Obj]]]) -> None:
    cluster, pods = cluster_with(*situation)
    runs = EqualMembers.of(cluster.snapshot(), pods)
    assert [one for run in runs for one in run.pods] == pods
    for run in runs:
        owners = [one.obj["metadata"].get("ownerReferences") for one in run.pods]
        claims = [[(c.name, c.template_name, bool(c.claim_name)) for c in one.claims] for one in run.pods]
        alike = [(p.shape, p.images, asked, owner) for p, asked, owner in zip(run.pods, claims, owners, strict=True)]
        assert alike == alike[:1] * len(alike)
        kept = [{k: v for k, v in one.labels.items() if k not in run.varying} for one in run.pods]
        assert kept == kept[:1] * len(kept)
        assert len(run.pods) == 1 or not any(one.nominated_node for one in run.pods)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gangs(), st.data())
def test_demands_are_those_of_each_pod_whatever_changes(
    situation: tuple[list[Obj], list[list[Obj]]], data: st.DataObject
) -> None:
    cluster, pods = cluster_with(*situation)
    for _ in range(3):
        snapshot = cluster.snapshot()
        overlay = Overlay(snapshot)
        found = [one for _, demands in members_with_demands(overlay, pods, None, options()) for one in demands]
        for one, expected in zip(found, demands_by_path(snapshot, pods), strict=True):
            assert equals(one, expected)
        made = data.draw(st.sampled_from(situation[1]))
        change = data.draw(st.sampled_from(["allocate", "in flight", "remove", "class", "nothing"]))
        if change == "class":
            cluster.apply(device_class(driver="another"))
        elif change != "nothing" and len(made) > 1:
            change_claim(cluster, made[1], made[0], change)


def change_claim(cluster: SchedulerCache, obj: Obj, user: Obj, change: str) -> None:
    if change == "allocate":
        cluster.apply(allocated(obj, allocation("n0", "gpu-0"), user))
    elif change == "remove":
        cluster.remove(obj)
    else:
        cluster.assume_claim(allocated(obj, allocation("n1", "gpu-0"), user))


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gangs(), st.integers(0, 5))
def test_members_are_placed_like_each_by_itself(situation: tuple[list[Obj], list[list[Obj]]], seed: int) -> None:
    cluster, pods = cluster_with(*situation)
    snapshot = cluster.snapshot()
    names = snapshot.node_names
    together = list(PodPlacer(Overlay(snapshot), None, options(seed=seed), names).place_all(pods))
    placer, alone = PodPlacer(Overlay(snapshot), None, options(seed=seed), names), []
    for one in pods:
        alone.append(placer.place(one))
        if isinstance(alone[-1], Unschedulable) and alone[-1].failed:
            break
    assert [described(outcome) for outcome in together] == [described(outcome) for outcome in alone]


def test_what_is_demanded_is_computed_once_for_equal_members(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    module = "haru.engine.podgroup.equal_members"

    def noted(*args: Any) -> object:
        asked.append(args[1])
        return device_demand_of(*args)

    monkeypatch.setattr(f"{module}.device_demand_of", noted)
    cluster, pods = cluster_with(
        [device_class(), node("n0"), resource_slice("n0", 8)], [equal_member(f"m{i}", 1) for i in range(8)]
    )
    ((found, demands),) = members_with_demands(Overlay(cluster.snapshot()), pods, None, options())
    assert list(found.pods) == pods and len(demands) == 8 and asked == []
    assert len({one.pending[0].path for one in demands if isinstance(one, DeviceDemand)}) == 8


def test_members_after_a_refused_one_are_refused_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, pods = cluster_with(
        [device_class(), node("n0"), resource_slice("n0", 2)], [equal_member(f"m{i}", 1) for i in range(6)]
    )
    snapshot = cluster.snapshot()
    placer = PodPlacer(Overlay(snapshot), None, options(), snapshot.node_names)
    asked: list[Any] = []
    place = PodBatch.place
    monkeypatch.setattr(PodBatch, "place", lambda *args: (asked.append(args[1]), place(*args))[1])
    outcomes = list(placer.place_all(pods))
    assert [isinstance(outcome, Placed) for outcome in outcomes] == [True, True, False, False, False, False]
    assert asked == pods[:3]
    assert {outcome.message for outcome in outcomes if isinstance(outcome, Unschedulable)} == {
        "0/1 nodes are available: 1 cannot allocate all claims."
    }


def run_of(count: int, entries: int = 1) -> tuple[Snapshot, EqualMembers]:
    """Equal pods whose claims are made from templates, `entries` each."""
    members: list[list[Obj]] = []
    for number in range(count):
        made = pod(f"m{number}", claims=[(f"gpu-{i}", "cards", f"m{number}-gpu-{i}") for i in range(entries)])
        made["metadata"]["labels"] = {}
        members.append([made, *(claim(f"m{number}-gpu-{i}", owner=made) for i in range(entries))])
    cluster, pods = cluster_with([device_class(), node("n0"), resource_slice("n0", 8)], members)
    (run,) = EqualMembers.of(cluster.snapshot(), pods)
    return cluster.snapshot(), run


def test_claim_that_an_overlay_has_allocated_is_no_equal_demand() -> None:
    snapshot, run = run_of(3)
    overlay = Overlay(snapshot)
    assert run.demands(overlay, None, options()) is not None
    overlay.allocate("default/m1-gpu-0", allocation("n0", "gpu-0"))
    for asked in (run, EqualMembers(run.pods)):
        assert asked.demands(overlay, None, options()) is None


def test_claim_in_flight_is_no_equal_demand() -> None:
    snapshot, run = run_of(3)
    assert run.demands(Overlay(snapshot), None, options()) is not None
    index = snapshot.claim_index.with_in_flight({"default/m2-gpu-0": snapshot.claims["default/m2-gpu-0"]})
    later = Overlay(replace(snapshot, claim_index=index))
    for asked in (run, EqualMembers(run.pods)):
        assert asked.demands(later, None, options()) is None


def test_entries_that_name_one_claim_are_no_equal_demand() -> None:
    snapshot, run = run_of(2, entries=2)
    assert run.demands(Overlay(snapshot), None, options()) is not None
    statuses = run.pods[1].obj["status"]["resourceClaimStatuses"]
    statuses[1]["resourceClaimName"] = statuses[0]["resourceClaimName"]
    assert EqualMembers(run.pods).demands(Overlay(snapshot), None, options()) is None


def members_by_name(count: int, shared: str = "") -> tuple[Snapshot, EqualMembers]:
    """Equal pods that name a claim of their own each, or the second of them another one."""
    members = [[pod(f"m{number}", claims=["gpu"]), claim(f"own-{number}")] for number in range(count)]
    for number, (made, own) in enumerate(members):
        made["metadata"]["labels"] = {}
        name = shared if shared and number == 1 else own["metadata"]["name"]
        made["spec"]["resourceClaims"][0]["resourceClaimName"] = name
    cluster, pods = cluster_with([device_class(), node("n0"), resource_slice("n0", 8)], members)
    (run,) = EqualMembers.of(cluster.snapshot(), pods)
    return cluster.snapshot(), run


def test_pods_that_name_a_claim_of_their_own_are_demanded_and_placed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, run = members_by_name(5)
    demands = run.demands(Overlay(snapshot), None, options())
    assert demands is not None
    assert [use.path for one in demands for use in one.pending] == [f"default/own-{i}" for i in range(5)]
    assert placed_together(list(run.pods), snapshot, monkeypatch) == 4


def test_pods_that_name_one_claim_are_asked_one_by_one() -> None:
    snapshot, run = members_by_name(3, shared="own-0")
    assert run.demands(Overlay(snapshot), None, options()) is None


def test_claim_by_name_that_may_be_the_groups_is_no_equal_demand() -> None:
    snapshot, run = members_by_name(3)
    shared = {"name": "gpu", "resourceClaimName": "own-1"}
    group = {"metadata": {"name": "g", "uid": "uid-g"}, "spec": {"resourceClaims": [shared]}}
    for gate in (False, True):
        asked = options(workload_claims=gate)
        assert (EqualMembers(run.pods).demands(Overlay(snapshot), group, asked) is None) == gate


def placed_together(pods: list[PodInfo], snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many were placed without being compared with the one before."""
    placer = PodPlacer(Overlay(snapshot), None, options(), snapshot.node_names)
    compared: list[PodInfo] = []
    place = placer._place_one
    monkeypatch.setattr(placer, "_place_one", lambda *args: (compared.append(args[0]), place(*args))[1])
    list(placer.place_all(pods))
    return len(pods) - len(compared)


@pytest.mark.parametrize(
    ("rules", "together"),
    [("none", 4), ("service of others", 4), ("service", 0), ("anti-affinity", 0), ("service of one", 0)],
)
def test_labels_that_no_rule_reads_do_not_tell_members_apart(
    rules: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [equal_member(f"m{number}", 1) for number in range(5)]
    for made in members:
        ODDITIES["an index"](made)
    cluster, pods = cluster_with([device_class(), node("n0"), resource_slice("n0", 8), *RULES[rules]], members)
    assert placed_together(pods, cluster.snapshot(), monkeypatch) == together


def test_nominated_members_are_asked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [equal_member(f"m{number}", 1) for number in range(5)]
    cluster, pods = cluster_with([device_class(), node("n0"), resource_slice("n0", 8)], members)
    snapshot = cluster.snapshot()
    index = replace(snapshot.pod_index, nominations={"default/m3": Nomination(pods[3].key, "n0", 0)})
    assert placed_together(pods, replace(snapshot, pod_index=index), monkeypatch) == 0


@pytest.mark.parametrize("seed", range(6))
def test_device_that_several_nodes_see_is_given_out_once(seed: int) -> None:
    slices = [*(resource_slice(name, 1) for name in NODES), resource_slice("", 1, pool="net", allNodes=True)]
    members = [equal_member(f"m{number}", 1) for number in range(6)]
    cluster, pods = cluster_with([device_class(), *(node(name) for name in NODES), *slices], members)
    snapshot = cluster.snapshot()
    outcomes = list(PodPlacer(Overlay(snapshot), None, options(seed=seed), snapshot.node_names).place_all(pods))
    results = [found["devices"]["results"][0] for o in outcomes if isinstance(o, Placed) for _, found in o.allocations]
    assert sorted((result["pool"], result["device"]) for result in results) == [(p, "gpu-0") for p in (*NODES, "net")]
