"""The cluster's index: incremental equals rebuilt, snapshots never change, assumptions hold until confirmed."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest
from engine_objects import (
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    node,
    pod,
    pod_group,
    resource_slice,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.engine.dra import DeviceId
from haru.engine.state.cache import SchedulerCache, Snapshot
from haru.engine.state.cow_map import (
    CowMap,
    Patched,
    differing,
    mark_of,
    values_of,
    written_since,
)
from haru.engine.state.decision import GroupKey, PodKey
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo


def digest(snapshot: Snapshot) -> Any:
    """What can be seen of a snapshot, as plain data."""
    return {
        "nodes": {
            name: (sorted(info.pods), dict(sorted(info.requested.items())), sorted(info.host_ports), info.present)
            for name, info in sorted(snapshot.nodes.items())
        },
        "names": snapshot.node_names,
        "pods": {path: p.node for path, p in sorted(snapshot.pods.items())},
        "claims": sorted(snapshot.claims),
        "groups": dict(sorted(snapshot.podgroup_index.states.items())),
        "devices": dict(sorted(snapshot.allocated.devices.items())),
        "pools": sorted(snapshot.devices.pools),
        "anti": sorted(snapshot.pod_index.anti_affinity),
        "nominated": sorted(snapshot.pod_index.nominated),
    }


ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
        ]
    }
}


def objects_of(kind: str, index: int, variant: int) -> Obj:
    """Versions of a few objects: `variant` tells what state it is in."""
    if kind == "Node":
        return node(f"n{index}", cpu=str(4 + variant))
    if kind == "Pod":
        placed = f"n{index % 2}" if variant % 2 else ""
        made = pod(f"p{index}", group="g" if index % 2 else "", node=placed, affinity=ANTI if index == 0 else {})
        if variant == 3:
            made["status"]["phase"] = "Succeeded"
        if variant == 2:
            made["status"]["nominatedNodeName"] = "n0"
        return made
    if kind == "ResourceClaim":
        made = claim(f"c{index}")
        return allocated(made, allocation(f"n{index}", f"gpu-{variant}"), pod("u")) if variant % 2 else made
    return resource_slice(f"n{index}", variant + 1)


EVENTS = st.tuples(
    st.sampled_from(["Node", "Pod", "ResourceClaim", "ResourceSlice"]),
    st.integers(0, 2),
    st.integers(0, 3),
    st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, max_size=25))
def test_updated_cache_equals_rebuilt_cache(events: list[tuple[str, int, int, bool]]) -> None:
    cluster = SchedulerCache()
    live: dict[tuple[str, int], Obj] = {}
    earlier: list[tuple[Snapshot, Any]] = []
    for kind, index, variant, gone in events:
        obj = objects_of(kind, index, variant)
        if gone:
            cluster.remove(live.pop((kind, index), obj))
        else:
            live[kind, index] = obj
            cluster.apply(obj)
        snapshot = cluster.snapshot()
        earlier.append((snapshot, digest(snapshot)))
    assert digest(cluster.snapshot()) == digest(SchedulerCache.of(live.values()).snapshot())
    for snapshot, seen in earlier:
        assert digest(snapshot) == seen


def test_snapshot_is_reused_until_a_change() -> None:
    cluster = SchedulerCache.of([node("a")])
    first = cluster.snapshot()
    assert cluster.snapshot() is first
    cluster.apply(node("b"))
    assert cluster.snapshot().version > first.version
    assert first.node_names == ("a",)


def test_assumed_pod_counts_until_watch_confirms_it() -> None:
    work = pod("p", cpu="2", group="g")
    cluster = SchedulerCache.of([node("a"), node("b"), pod_group("g", 1), work])
    key = PodKey("default", "p", "uid-p")
    cluster.assume_pod(key, "a")
    assert cluster.is_assumed(key)
    assert cluster.snapshot().nodes["a"].requested["cpu"] == 2000
    assert cluster.snapshot().group_state(GroupKey("default", "g")).assumed == {"default/p"}
    cluster.apply({**work, "status": {"phase": "Pending", "message": "patched"}})
    assert cluster.snapshot().pods["default/p"].node == "a"
    cluster.apply(pod("p", cpu="2", group="g", node="b"))
    assert not cluster.is_assumed(key)
    state = cluster.snapshot().group_state(GroupKey("default", "g"))
    assert (state.assigned, state.assumed) == ({"default/p"}, frozenset())
    assert not cluster.snapshot().nodes["a"].pods


@pytest.mark.parametrize(
    ("change", "cpu"),
    [
        ({}, 2000),
        ({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}}, 2000),
        ({"spec": {"overhead": {"cpu": "1"}}}, 3000),
        ({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}}, 4000),
        ({"status": {"phase": "Succeeded"}}, 0),
    ],
)
def test_node_has_confirmed_pod_as_watch_shows_it(change: Obj, cpu: int) -> None:
    work = pod("p", cpu="2")
    cluster = SchedulerCache.of([node("a"), pod("other", node="a"), work])
    cluster.assume_pod(PodKey("default", "p", "uid-p"), "a")
    before = cluster.snapshot().nodes["a"]
    shown = {**work, **change, "spec": {**work["spec"], **change.get("spec", {}), "nodeName": "a"}}
    cluster.apply(shown)
    after, rebuilt = cluster.snapshot(), SchedulerCache.of([node("a"), pod("other", node="a"), shown]).snapshot()
    assert after.nodes["a"] is not before and before.pods["default/p"].obj is work
    assert after.nodes["a"].requested == rebuilt.nodes["a"].requested
    assert after.nodes["a"].requested.get("cpu", 0) - pod_cpu("other") == cpu
    assert {path: info.obj for path, info in after.nodes["a"].pods.items()} == {
        path: info.obj for path, info in rebuilt.nodes["a"].pods.items()
    }


def pod_cpu(name: str) -> int:
    return PodInfo.of(pod(name)).requests.get("cpu", 0)


def test_live_view_shows_what_a_snapshot_would() -> None:
    work = pod("p", group="g")
    cluster = SchedulerCache.of([node("a"), pod_group("g", 1), work, claim("c")])
    live, key = cluster.now, GroupKey("default", "g")
    for change in (
        lambda: cluster.assume_pod(PodKey("default", "p", "uid-p"), "a"),
        lambda: cluster.assume_claim(allocated(claim("c"), allocation("a", "gpu-0"), pod("p"))),
        lambda: cluster.remove(pod_group("g", 1)),
        lambda: cluster.remove(work),
    ):
        change()
        snapshot = cluster.snapshot()
        assert dict(live.pods) == dict(snapshot.pods) and dict(live.nodes) == dict(snapshot.nodes)
        assert dict(live.claims) == dict(snapshot.claims)
        assert live.group_state(key) == snapshot.group_state(key)
        assert live.pod_group(key) is snapshot.pod_group(key)
        for name in ("extended", "by_consumer", "orphaned", "in_flight"):
            assert dict(getattr(live.claim_index, name)) == dict(getattr(snapshot.claim_index, name))


def test_forgotten_pod_releases_its_resources() -> None:
    cluster = SchedulerCache.of([node("a"), pod("p")])
    key = PodKey("default", "p", "uid-p")
    cluster.assume_pod(key, "a")
    cluster.forget_pod(key)
    cluster.forget_pod(key)
    assert not cluster.snapshot().nodes["a"].pods
    assert cluster.snapshot().pods["default/p"].node == ""


def test_replaced_pod_is_not_assumed() -> None:
    cluster = SchedulerCache.of([node("a"), pod("p")])
    with pytest.raises(KeyError, match="deleted or replaced"):
        cluster.assume_pod(PodKey("default", "p", "another-uid"), "a")
    cluster.assume_pod(PodKey("default", "p", "uid-p"), "a")
    fresh = pod("p")
    fresh["metadata"]["uid"] = "second"
    cluster.apply(fresh)
    assert cluster.snapshot().pods["default/p"].node == ""


def test_failed_binding_of_a_pod_leaves_the_next_one_of_its_name_assumed() -> None:
    fresh = pod("p")
    fresh["metadata"]["uid"] = "second"
    cluster = SchedulerCache.of([node("a"), fresh])
    cluster.assume_pod(PodKey("default", "p", "second"), "a")
    cluster.forget_pod(PodKey("default", "p", "uid-p"))
    assert cluster.snapshot().pods["default/p"].node == "a"


def test_claim_is_not_reserved_any_more_for_a_forgotten_pod() -> None:
    shared = allocated(claim("c"), allocation("a", "gpu-0"), pod("first"))
    cluster = SchedulerCache.of([node("a"), pod("first", node="a"), pod("p"), shared])
    key = PodKey("default", "p", "uid-p")
    cluster.assume_pod(key, "a", joined={"default/c": {"resource": "pods", "name": "p", "uid": "uid-p"}})
    assert [user["name"] for user in cluster.snapshot().claims["default/c"]["status"]["reservedFor"]] == ["first", "p"]
    cluster.forget_pod(key)
    assert cluster.snapshot().claims["default/c"] == shared


def test_claim_in_flight_holds_devices_until_watch_shows_allocation() -> None:
    device = DeviceId("gpu.example.com", "a", "gpu-0")
    cluster = SchedulerCache.of([device_class(), node("a"), resource_slice("a", 1), claim("c")])
    cluster.assume_claim(allocated(claim("c"), allocation("a", "gpu-0"), pod("p")))
    assert cluster.snapshot().allocated.devices == {device: "default/c"}
    assert "default/c" in cluster.snapshot().claim_index.in_flight
    touched = claim("c")
    touched["metadata"].update(resourceVersion="2", finalizers=["x"])
    cluster.apply(touched)
    assert cluster.snapshot().allocated.devices == {device: "default/c"}
    written = allocated(touched, allocation("a", "gpu-0"), pod("p"))
    written["metadata"] = {**written["metadata"], "resourceVersion": "3"}
    cluster.apply(written)
    assert "default/c" not in cluster.snapshot().claim_index.in_flight
    assert cluster.snapshot().allocated.devices == {device: "default/c"}


@pytest.mark.parametrize(("seen", "held"), [("4", False), ("2", True)])
def test_written_claim_is_kept_until_watch_catches_up(seen: str, held: bool) -> None:
    cluster = SchedulerCache.of([claim("c")])
    written = allocated(claim("c"), allocation("a", "gpu-0"), pod("p"))
    written["metadata"] = {**written["metadata"], "resourceVersion": "3"}
    cluster.assume_claim(written, written=True)
    later = claim("c")
    later["metadata"]["resourceVersion"] = seen
    cluster.apply(later)
    assert bool(cluster.snapshot().allocated.devices) is held
    cluster.forget_claim("default/c")
    assert not cluster.snapshot().allocated.devices


def at_revision(obj: Obj, revision: int) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}


def test_last_written_claim_counts_after_failed_attempt() -> None:
    """The watch still shows an allocation that was taken back meanwhile: nobody may rely on it."""
    old = at_revision(allocated(claim("c"), allocation("a", "gpu-0"), pod("p")), 2)
    cluster = SchedulerCache.of([device_class(), node("a"), resource_slice("a", 2), old])
    cluster.assume_claim(at_revision(claim("c"), 3), written=True)
    attempt = at_revision(allocated(claim("c"), allocation("a", "gpu-1"), pod("p")), 3)
    for _ in range(2):
        cluster.assume_claim(attempt)
        assert set(cluster.snapshot().allocated.devices) == {DeviceId("gpu.example.com", "a", "gpu-1")}
        cluster.forget_claim("default/c", attempt)
        assert not cluster.snapshot().allocated.devices and not cluster.snapshot().claim_index.in_flight
    cluster.assume_claim(attempt)
    cluster.apply(at_revision(allocated(claim("c"), allocation("a", "gpu-0"), pod("q")), 4))
    cluster.forget_claim("default/c", attempt)
    assert set(cluster.snapshot().allocated.devices) == {DeviceId("gpu.example.com", "a", "gpu-0")}


def test_answer_that_is_older_than_what_the_watch_shows_does_not_count() -> None:
    cluster = SchedulerCache.of([at_revision(claim("c"), 4)])
    cluster.assume_claim(at_revision(allocated(claim("c"), allocation("a", "gpu-0"), pod("p")), 3), written=True)
    assert not cluster.snapshot().allocated.devices


def test_failed_attempt_does_not_bring_back_what_was_taken_before_the_watch_showed_more() -> None:
    cluster = SchedulerCache.of([at_revision(claim("c"), 1)])
    cluster.assume_claim(at_revision(allocated(claim("c"), allocation("a", "gpu-0"), pod("p")), 3), written=True)
    attempt = at_revision(allocated(claim("c"), allocation("a", "gpu-1"), pod("p")), 5)
    cluster.assume_claim(attempt)
    cluster.apply(at_revision(claim("c"), 4))
    cluster.forget_claim("default/c", attempt)
    assert not cluster.snapshot().allocated.devices


def test_failed_attempt_does_not_end_the_next_one() -> None:
    cluster = SchedulerCache.of([claim("c")])
    attempts = [allocated(claim("c"), allocation("a", f"gpu-{number}"), pod("p")) for number in range(2)]
    for attempt in attempts:
        cluster.assume_claim(attempt)
    assert not cluster.forget_claim("default/c", attempts[0])
    assert set(cluster.snapshot().allocated.devices) == {DeviceId("gpu.example.com", "a", "gpu-1")}


def test_claim_made_anew_has_nothing_of_what_was_written_to_the_one_before() -> None:
    cluster = SchedulerCache.of([at_revision(claim("c"), 1)])
    cluster.assume_claim(at_revision(allocated(claim("c"), allocation("a", "gpu-0"), pod("p")), 5), written=True)
    fresh = at_revision(claim("c"), 4)
    fresh["metadata"]["uid"] = "second"
    cluster.apply(fresh)
    assert not cluster.snapshot().allocated.devices


def test_older_claim_event_does_not_end_attempt() -> None:
    cluster = SchedulerCache.of([device_class(), node("a"), resource_slice("a", 2), at_revision(claim("c"), 1)])
    cluster.assume_claim(at_revision(claim("c"), 3), written=True)
    attempt = at_revision(allocated(claim("c"), allocation("a", "gpu-1"), pod("p")), 3)
    cluster.assume_claim(attempt)
    cluster.apply(at_revision(allocated(claim("c"), allocation("a", "gpu-0"), pod("p")), 2))
    assert set(cluster.snapshot().allocated.devices) == {DeviceId("gpu.example.com", "a", "gpu-1")}
    assert "default/c" in cluster.snapshot().claim_index.in_flight
    cluster.apply(at_revision(attempt, 4))
    assert "default/c" not in cluster.snapshot().claim_index.in_flight


def test_pods_of_deleted_node_count_when_it_returns() -> None:
    cluster = SchedulerCache.of([node("a"), pod("p", cpu="2", node="a")])
    cluster.remove(node("a"))
    assert cluster.snapshot().node_names == ()
    cluster.apply(node("a"))
    assert cluster.snapshot().nodes["a"].requested["cpu"] == 2000
    cluster.remove(node("a"))
    cluster.remove(pod("p", node="a"))
    assert "a" not in cluster.snapshot().nodes


def test_overlay_rollback_restores_snapshot() -> None:
    snapshot = SchedulerCache.of([device_class(), node("a"), resource_slice("a", 2), pod("p"), claim("c")]).snapshot()
    before = digest(snapshot)
    overlay = Overlay(snapshot)
    mark = overlay.mark()
    overlay.place(snapshot.pods["default/p"], "a")
    overlay.allocate("default/c", allocation("a", "gpu-0"))
    overlay.reserve("default/c", "p")
    inner = overlay.mark()
    overlay.reserve("default/c", "q")
    overlay.reserve("default/c", "q")
    assert overlay.consumers("default/c") == {"p", "q"}
    overlay.rollback(inner)
    assert overlay.node("a").pods and overlay.allocated.devices and overlay.consumers("default/c") == {"p"}
    overlay.rollback(mark)
    assert not overlay.node("a").pods
    assert not overlay.allocated.devices
    assert not overlay.consumers("default/c")
    assert digest(snapshot) == before


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=40))
def test_frozen_maps_keep_their_contents_after_changes(steps: list[tuple[int, bool]]) -> None:
    live: CowMap[int] = CowMap()
    plain: dict[str, int] = {}
    frozen: list[tuple[Any, dict[str, int]]] = []
    for number, (key, gone) in enumerate(steps):
        if gone:
            live.pop(str(key), None)
            plain.pop(str(key), None)
        else:
            live[str(key)] = plain[str(key)] = number
        frozen.append((live.freeze(), dict(plain)))
    for copy, contents in frozen:
        assert (dict(copy), len(copy)) == (contents, len(contents))
        keys = [str(key) for key in range(20, -1, -1)]
        assert values_of(copy, keys) == values_of(contents, keys) == [contents.get(key) for key in keys]


@given(st.integers(0, 3000), st.lists(st.integers(1, 1400), min_size=1, max_size=6), st.integers(0, 2**32).map(Random))
def test_copies_of_a_map_are_told_apart_by_writes_however_many_there_were_before(
    before: int, steps: list[int], rng: Random
) -> None:
    live: CowMap[int] = CowMap()
    live.freeze()
    for number in range(before):
        live[str(number % 50)] = number
    copies = [(live.freeze(), 0)]
    for step in steps:
        for _ in range(step):
            key = str(rng.randrange(60))
            live.pop(key, None) if rng.random() < 0.3 else live.__setitem__(key, rng.randrange(3))
        copies.append((live.freeze(), copies[-1][1] + step))
    for (one, first), (other, second) in itertools.product(copies, repeat=2):
        keys = {key for key in {**one, **other} if one.get(key) is not other.get(key)}
        assert differing(one, other) == keys
        written = written_since(one, mark_of(other))
        assert written is None or written >= keys
        # No more than so many writes are looked through; a pop of what is not there is none.
        assert written is not None or second > first or first - second > 1000


def test_patched_map_shows_changes_over_its_base() -> None:
    patched = Patched({"a": 1, "b": 2}, {"b": None, "c": 3})
    assert (dict(patched), len(patched), "b" in patched) == ({"a": 1, "c": 3}, 2, False)


def test_quantities_are_integers_rounded_up() -> None:
    made = PodInfo.of(pod("p", cpu="100m"))
    assert made.requests == {"cpu": 100}
    made = PodInfo.of(pod("p", cpu="0.0001"))
    assert made.requests == {"cpu": 1}
