"""The decision cache of a cluster, and maps that know how their versions differ."""

from __future__ import annotations

from weakref import ref

import pytest
from engine_objects import claim, device_class, node, options, pod, resource_slice
from hypothesis import given
from hypothesis import strategies as st

from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.podgroup import decide
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.cow_map import CowMap, Patched, are_same, differing
from haru.engine.state.decision import PodKey

KEYS = st.sampled_from([f"key-{i}" for i in range(12)])
CHANGES = st.dictionaries(KEYS, st.one_of(st.none(), st.integers(0, 3)), max_size=5)


def test_decision_cache_keeps_most_recently_used() -> None:
    cache = DecisionCache()
    first: list[int] = cache.get_or_compute("topic", 1, list, limit=2)
    cache.get_or_compute("topic", 2, list, limit=2)
    assert cache.get_or_compute("topic", 1, list, limit=2) is first
    third: list[int] = cache.get_or_compute("topic", 3, list, limit=2)
    assert cache.get_or_compute("topic", 1, list, limit=2) is first
    assert cache.get_or_compute("topic", 3, list, limit=2) is third
    assert cache.get_or_compute("other", 1, list, limit=2) is not first


def test_dropped_result_is_freed_at_once_where_nobody_releases() -> None:
    cache = DecisionCache()
    dropped = ref(cache.get_or_compute("topic", 1, set, limit=1))
    cache.get_or_compute("topic", 2, set, limit=1)
    assert dropped() is None


def test_dropped_results_are_freed_by_next_event_after_decision() -> None:
    cluster = SchedulerCache.of([node("a"), pod("p")])
    cache = cluster.snapshot().decision_cache
    dropped = [ref(cache.get_or_compute("topic", number, set, limit=1)) for number in range(3)][:2]
    cluster.assume_pod(PodKey("default", "p", "uid-p"), "a")
    assert None not in [one() for one in dropped], "the pod is bound first"
    cluster.apply(pod("q"))
    assert [one() for one in dropped] == [None, None]


def test_few_dropped_results_wait_to_be_freed() -> None:
    cache = DecisionCache()
    cache.release()
    results = [ref(cache.get_or_compute("topic", number, set, limit=1)) for number in range(100)]
    assert [one() is not None for one in results].count(True) <= 17


def test_decision_cache_belongs_to_its_cluster() -> None:
    cluster, other = SchedulerCache.of([node("a")]), SchedulerCache.of([node("a")])
    before = cluster.snapshot().decision_cache
    cluster.apply(pod("p"))
    assert cluster.snapshot().decision_cache is before
    assert other.snapshot().decision_cache is not before


@given(st.lists(CHANGES, max_size=4), CHANGES, CHANGES, CHANGES)
def test_difference_of_map_versions_is_exact(history: list[dict], first: dict, second: dict, late: dict) -> None:  # type: ignore[type-arg]
    live: CowMap[int] = CowMap()
    frozen = [live.freeze()]
    for changes in [*history, late]:
        for key, value in changes.items():
            if value is None:
                live.pop(key, None)
            else:
                live[key] = value
        frozen.append(live.freeze())
    maps = [*frozen, Patched(frozen[0], first), Patched(frozen[-1], second), Patched(Patched(frozen[-1], first), late)]
    for now in [*maps, dict(frozen[-1])]:
        for before in maps:
            expected = {key for key in {*now, *before} if now.get(key, "") is not before.get(key, "")}
            assert differing(now, before) == expected


@pytest.mark.parametrize("writes", [0, 5_000])
def test_difference_of_map_versions_tells_none_from_nothing(writes: int) -> None:
    live: CowMap[int | None] = CowMap()
    live["other"] = 1
    before = live.freeze()
    for number in range(writes):
        live["other"] = number
    live["other"], live["a"] = 1, None
    now = live.freeze()
    assert differing(now, before) == differing(before, now) == {"a"}
    assert differing(Patched(now, {"b": 2}), before) == {"a", "b"}
    assert not are_same(now, before, ["a"])


def test_difference_of_map_versions_is_exact_after_any_number_of_writes() -> None:
    live: CowMap[int] = CowMap()
    frozen = [live.freeze()]
    # Copies with few, many, and very many writes between them: remembered, compared by bucket, and forgotten.
    for writes in (1, 3, 900, 200, 3_000, 5, 1_500, 2, 2_047, 2_048, 2_049, 1):
        for number in range(writes):
            key = f"key-{(number * 7 + len(frozen)) % 1_200}"
            if number % 5:
                live[key] = number % 3
            else:
                live.pop(key, None)
        frozen.append(live.freeze())
    for now in frozen:
        for before in frozen:
            assert differing(now, before) == {key for key in {*now, *before} if now.get(key) is not before.get(key)}


def test_pod_with_claim_does_not_tolerate_what_pod_before_it_does() -> None:
    """Both have as many fields, and claims are left out where specs are compared."""
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    cluster = SchedulerCache.of([node("a", taints=[taint]), device_class(), resource_slice("a", 1), claim("c")])
    tolerant = pod("other", tolerations=[{"operator": "Exists"}])
    assert decide(cluster.snapshot(), [tolerant], group=None, options=options()).status == "scheduled"
    assert decide(cluster.snapshot(), [pod("p", claims=["c"])], group=None, options=options()).status == "unschedulable"
