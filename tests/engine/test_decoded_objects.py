"""Caches of one process that are shown the same objects: each follows the cluster alone, and shares what is equal."""

from __future__ import annotations

import copy
import gc
import tracemalloc
from collections.abc import Sequence

import orjson
from test_kept_fields import allocated_claim, node, running_pod, slice_of

from haru.engine import SchedulerCache
from haru.engine.state import DecodedObjects, PodKey
from haru.kube.meta import Obj


def two_caches() -> tuple[DecodedObjects, SchedulerCache, SchedulerCache]:
    decoded = DecodedObjects()
    return decoded, SchedulerCache(decoded=decoded), SchedulerCache(decoded=decoded)


def waiting(number: int) -> Obj:
    pod = running_pod(number)
    del pod["spec"]["nodeName"]
    return {**pod, "status": {"phase": "Pending"}}


def test_two_caches_shown_the_same_pod_and_slice_share_what_they_decode() -> None:
    _, one, other = two_caches()
    pod = running_pod(1)
    for cache in (one, other):
        cache.apply(node(0))
        cache.apply(pod)
        cache.apply(slice_of(0))  # not the same object: what is kept of a slice depends on its text alone
    first, second = one.snapshot(), other.snapshot()
    path = "team/job-1-1-abcde"
    assert first.pods[path] is second.pods[path]
    devices = [snapshot.devices.pools["gpu.nvidia.com/node-0"].slices[0].devices for snapshot in (first, second)]
    assert devices[0] is devices[1]


def test_equal_pods_that_are_two_objects_are_not_taken_for_one() -> None:
    _, one, other = two_caches()
    one.apply(running_pod(1))
    other.apply({**running_pod(1), "status": {"phase": "Failed"}})
    pods = [cache.snapshot().pods["team/job-1-1-abcde"] for cache in (one, other)]
    assert [pod.terminal for pod in pods] == [False, True]


def test_pod_assumed_in_one_cache_waits_in_the_other() -> None:
    _, one, other = two_caches()
    pod = waiting(1)
    for cache in (one, other):
        cache.apply(node(0))
        cache.apply(pod)
    key = PodKey("team", "job-1-1-abcde", pod["metadata"]["uid"])
    one.assume_pod(key, "node-0")
    assert [cache.snapshot().pods[key.path].node for cache in (one, other)] == ["node-0", ""]
    one.forget_pod(key)
    assert one.snapshot().pods[key.path].node == ""


def test_slice_that_changes_is_decoded_anew_in_the_cache_that_is_shown_it() -> None:
    _, one, other = two_caches()
    for cache in (one, other):
        cache.apply(slice_of(0))
    changed = copy.deepcopy(slice_of(0))
    changed["spec"]["devices"][0]["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    one.apply(changed)
    pools = [cache.snapshot().devices.pools["gpu.nvidia.com/node-0"] for cache in (one, other)]
    assert [len(pool.slices[0].devices[0].taints) for pool in pools] == [1, 0]


def test_what_no_cache_has_any_more_is_kept_nowhere() -> None:
    decoded, one, other = two_caches()
    for number in range(20):
        for cache, objects in ((one, (running_pod(number), slice_of(number))), (other, (slice_of(number),))):
            for obj in objects:
                cache.apply(obj)
                cache.remove(obj)
                cache.snapshot()
    gc.collect()
    assert not decoded._pods
    assert not decoded.slices._known


def test_interner_of_several_caches_is_renewed_with_what_all_of_them_hold() -> None:
    decoded, one, other = two_caches()
    other.apply(slice_of(0))
    for number in range(1, 5000):
        one.apply(slice_of(number))
        one.remove(slice_of(number))
    assert len(decoded.slices) < 30_000
    one.apply({**slice_of(0), "metadata": {"name": "again", "uid": "u", "resourceVersion": "2"}})
    pool = "gpu.nvidia.com/node-0"
    shapes = [cache.snapshot().devices.pools[pool].slices[0].devices[0].shape for cache in (one, other)]
    assert shapes[0] is shapes[1]


def _bytes_of_second_cache(objects: Sequence[Obj]) -> int:
    _, one, other = two_caches()
    shown = [orjson.loads(orjson.dumps(obj)) for obj in objects]
    for cache in (one, other):
        for number in range(len(objects)):
            cache.apply(node(number))
        cache.snapshot()
    for obj in shown:
        one.apply(obj)
    one.snapshot()
    gc.collect()
    tracemalloc.start()
    try:
        for obj in shown:
            other.apply(obj)
        other.snapshot()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_second_cache_takes_little_beside_the_first() -> None:
    for made, each, most in ((running_pod, 1, 700), (allocated_claim, 1, 1_800), (slice_of, 8, 450)):
        small, large = (_bytes_of_second_cache([made(number) for number in range(count)]) for count in (100, 300))
        assert (large - small) / 200 / each < most, made
