"""The claims of the cluster: what the watch shows, what the scheduler assumes, and their indexes."""

from __future__ import annotations

from typing import Any

from engine_objects import Obj, claim
from hypothesis import given
from hypothesis import strategies as st

from haru.engine.dra.extended_resources import ANNOTATION
from haru.engine.state.claim_cache import ClaimCache
from haru.engine.state.cow_map import CowMap
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.podgroup_state import PodGroupState
from haru.engine.state.reserved_for import ReservedFor
from haru.engine.state.snapshot import ClaimIndex

NO_PODS = CowMap[PodInfo]()
ENTRY: Obj = {"resource": "pods", "name": "p", "uid": "uid-p"}


def allocated(revision: str, *consumers: Obj) -> Obj:
    """Claim default/c with device gpu-0 of pool a."""
    made = claim("c", 1)
    made["metadata"]["resourceVersion"] = revision
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}
    made["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": list(consumers)}
    return made


def empty() -> tuple[ClaimCache, list[tuple[object, object]]]:
    """A cache without claims and without consumers, and the allocations that it reports as old and new."""
    taken: list[tuple[object, object]] = []
    consumers = ReservedFor(NO_PODS, CowMap[Obj](), CowMap[PodGroupState](), ())
    return ClaimCache(consumers, lambda old, new: taken.append((old, new)), lambda _: None), taken


def index_of(cache: ClaimCache) -> ClaimIndex:
    return cache.freeze(NO_PODS.freeze())[2]


def test_assumed_claim_is_in_flight_and_allocated_until_it_is_forgotten() -> None:
    cache, taken = empty()
    cache.apply(claim("c", 1))
    assumed = allocated("")
    cache.assume(assumed, written=False)
    claims, devices, index = cache.freeze(NO_PODS.freeze())
    assert claims["default/c"] is assumed and set(index.in_flight) == {"default/c"}
    assert len(devices.devices) == 1 and taken == [(None, assumed["status"]["allocation"])]
    assert cache.forget("default/c", assumed) and not cache.forget("default/c", assumed)
    claims, devices, index = cache.freeze(NO_PODS.freeze())
    assert "status" not in claims["default/c"] and not index.in_flight and not devices.devices
    assert taken[1:] == [(assumed["status"]["allocation"], None)]


def test_answer_of_an_allocation_is_no_other_allocation() -> None:
    cache, taken = empty()
    cache.apply(claim("c", 1))
    cache.assume(allocated(""), written=False)
    devices = cache.allocated
    answer = allocated("7")
    answer["status"]["allocation"]["allocationTimestamp"] = "2026-11-24T10:00:00Z"
    cache.apply(answer)
    assert cache.claims["default/c"] is answer
    assert len(taken) == 1 and cache.allocated is devices
    other = allocated("8")
    other["status"]["allocation"]["devices"]["results"][0]["device"] = "gpu-1"
    cache.apply(other)
    assert len(taken) == 2 and cache.allocated is not devices


def test_written_claim_counts_until_the_watch_shows_its_revision() -> None:
    cache, _ = empty()
    cache.apply(claim("c", 1))
    cache.assume(allocated("7"), written=True)
    assert [one.obj["metadata"]["resourceVersion"] for one in cache.assumed] == ["7"]
    assert not index_of(cache).in_flight
    cache.apply(allocated("8"))
    assert list(cache.assumed) == []


def test_claim_whose_consumer_is_gone_is_orphaned_and_found_by_consumer() -> None:
    cache, _ = empty()
    cache.apply(allocated("1", ENTRY))
    index = index_of(cache)
    assert set(index.orphaned) == {"default/c"} and index.by_consumer["pods/default/p"] == {"default/c"}
    cache.remove(allocated("1", ENTRY))
    index = index_of(cache)
    assert not index.orphaned and not index.by_consumer


OWNER: Obj = {"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}


def version(reserved: int, uid: str, annotated: bool, owned: bool, device: int, timed: bool, is_allocated: bool) -> Obj:
    """Claim default/c as somebody may have left it: allocated or not, of a pod's extended resources or not."""
    made = allocated("1", *([ENTRY, {**ENTRY, "name": "q"}][:reserved]))
    made["metadata"] |= {"uid": uid, "annotations": {ANNOTATION: "true"} if annotated else {}}
    made["metadata"]["ownerReferences"] = [OWNER] if owned else []
    allocation = made["status"]["allocation"]
    allocation["devices"]["results"][0]["device"] = f"gpu-{device}"
    allocation |= {"allocationTimestamp": "2026-11-27T03:00:00Z"} if timed else {}
    if not is_allocated:
        del made["status"]["allocation"]
    return made


VALUES = ((0, 1, 2), ("1", "2"), (False, True), (False, True), (0, 1), (False, True), (True, False))


@given(st.tuples(*map(st.sampled_from, VALUES)), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=5))
def test_indexes_after_any_changes_are_those_of_the_last_version_alone(
    first: tuple[Any, ...], changes: list[tuple[int, int]]
) -> None:
    histories = [list(first)]
    for field, value in changes:
        histories.append(list(histories[-1]))
        histories[-1][field] = VALUES[field][value % len(VALUES[field])]
    history = [version(*fields) for fields in histories]
    cache, fresh = empty()[0], empty()[0]
    for one in history:
        cache.apply(one)
    fresh.apply(history[-1])
    index, expected = index_of(cache), index_of(fresh)
    assert cache.claims["default/c"] is history[-1]
    for name in ("extended", "by_consumer", "orphaned", "in_flight"):
        assert dict(getattr(index, name)) == dict(getattr(expected, name)), name
    assert all(found is history[-1] for found in index.orphaned.values())
    assert dict(index.owners.by_claim) == dict(expected.owners.by_claim)
    assert cache.allocated.devices == fresh.allocated.devices


def test_pending_reservation_is_part_of_the_claim_until_it_is_dropped() -> None:
    cache, _ = empty()
    cache.apply(allocated("1"))
    cache.reserve("default/p", {"default/c": ENTRY})
    assert cache.freeze(NO_PODS.freeze())[0]["default/c"]["status"]["reservedFor"] == [ENTRY]
    cache.unreserve("default/p")
    assert cache.freeze(NO_PODS.freeze())[0]["default/c"]["status"]["reservedFor"] == []


def test_pods_are_told_when_an_allocated_claim_is_reserved_for_them_and_when_not() -> None:
    told: list[str] = []
    consumers = ReservedFor(NO_PODS, CowMap[Obj](), CowMap[PodGroupState](), ())
    cache = ClaimCache(consumers, lambda _old, _new: None, told.append)
    cache.apply(claim("c", 1))
    cache.apply(allocated("2", {"resource": "pods", "name": "p", "uid": "u"}, {"resource": "podgroups", "name": "g"}))
    cache.apply(allocated("3", {"resource": "pods", "name": "p", "uid": "u"}))
    assert told == ["default/p", "default/p"]
    cache.remove(claim("c", 1))
    assert told == ["default/p"] * 3
