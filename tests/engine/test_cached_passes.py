"""What is kept between decisions holds while places are kept for others: passes decide as without a cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from engine_objects import allocation, device_class, member_with_claim, node, options, pod_group, resource_slice
from test_cached_answers import History

from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.equivalence.decision_cache import DecisionCache, NoCache
from haru.engine.equivalence.filter_runner import FilterRunner
from haru.engine.podgroup import decide
from haru.engine.preemption.nominated_placements import with_nominated_pods
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import ClaimAllocation, Decision, PodKey
from haru.engine.state.overlay import Overlay
from haru.engine.state.pending_reservations import Nomination
from nights import tonight


class HistoryWithKeptPlaces(History):
    """A history in which the places of some decisions are kept for pods that wait for others to go."""

    def _some_bound(self) -> frozenset[PodKey]:
        snapshot = self.cluster.snapshot()
        bound = sorted(pod.key for pod in snapshot.pods.values() if pod.node)
        return frozenset(self.rng.sample(bound, min(len(bound), self.rng.randint(0, 2))))

    def keep(self, decision: Decision) -> None:
        """Keep the places of a decision for its pods: nominated for them, or reserved for the head of the queue."""
        going = self._some_bound()
        evictions = going if self.rng.random() < 0.6 else frozenset[PodKey]()
        kept = [
            Nomination(member.pod, member.node or "", 5, member.allocations, evictions) for member in decision.placed
        ]
        if evictions or self.rng.random() < 0.5:
            self.cluster.nominate(kept)
        else:
            self.cluster.reserve(BackfillReservation(None, 5, tuple(kept), going, None))

    def release(self) -> None:
        """Give up places that are kept."""
        for nomination in list(self.cluster.snapshot().pod_index.nominations.values()):
            if self.rng.random() < 0.5:
                self.cluster.forget_nomination(nomination.pod)
        if self.rng.random() < 0.3:
            self.cluster.reserve(None)


def passes_of(seed: int) -> int:
    """Decide through a history, with what is kept and without; return how many decisions had several passes."""
    history, found = HistoryWithKeptPlaces(seed), 0
    for number in range(16):
        group, pods = history.work()
        snapshot = history.cluster.snapshot()
        seen = with_nominated_pods(snapshot, [snapshot.pods[f"default/{pod['metadata']['name']}"] for pod in pods])
        overlay = Overlay(seen)
        found += overlay.differing_devices is not None and bool(overlay.differing_devices)
        kept = decide(snapshot, pods, group=group, options=options(seed=number))
        for cache in (DecisionCache(), NoCache()):
            alone = replace(snapshot, decision_cache=cache, node_device_classes=None)
            assert kept == decide(alone, pods, group=group, options=options(seed=number)), (seed, number)
        if kept.status != "scheduled":
            for obj in pods:
                history.cluster.remove(obj)
        elif history.rng.random() < 0.5:
            history.keep(kept)
        else:
            history.enact(kept)
        for _ in range(history.rng.randint(0, 2)):
            history.step()
        if history.rng.random() < 0.3:
            history.release()
    return found


@pytest.mark.parametrize("block", range(4))
def test_decisions_beside_kept_places_equal_those_without_a_cache(block: int) -> None:
    assert sum(passes_of(seed) for seed in range(10 * block, 10 * block + 10)) > 20


def test_node_with_a_kept_place_loses_a_device_that_was_taken_by_way_of_another_node() -> None:
    """Of this history, the eleventh decision."""
    passes_of(595)


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(10))
def test_decisions_beside_kept_places_equal_those_without_a_cache_in_long_runs(block: int) -> None:
    assert sum(passes_of(seed) for seed in tonight(range(100 * block, 100 * block + 100))) > 200


def filtered_beside_kept_places(members: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a node is filtered for a gang of so many, while places on 20 of 40 nodes are kept for another one."""
    names = [f"n{number:02}" for number in range(40)]
    cluster = SchedulerCache.of([device_class(), *map(node, names), *(resource_slice(name, 4) for name in names)])
    kept = []
    for number, name in enumerate(names[:20]):
        waiting, claim = member_with_claim(f"kept-{number}", "first")
        cluster.apply(claim)
        cluster.apply(waiting)
        key = PodKey("default", waiting["metadata"]["name"], waiting["metadata"]["uid"])
        named = claim["metadata"]["name"], claim["metadata"]["uid"]
        place = ClaimAllocation("default", *named, allocation(name, "gpu-0"), {})
        kept.append(Nomination(key, name, 5, (place,)))
    cluster.nominate(kept)
    work = [obj for number in range(members) for obj in member_with_claim(f"own-{number}", "gang")]
    group = pod_group("gang", members)
    for obj in [group, *work]:
        cluster.apply(obj)
    calls: list[str] = []
    filter_node = FilterRunner.filter_node

    def counted(self: FilterRunner, *arguments: Any) -> None:
        calls.append(arguments[-1].name)
        filter_node(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(FilterRunner, "filter_node", counted)
        decision = decide(
            cluster.snapshot(), [obj for obj in work if obj["kind"] == "Pod"], group=group, options=options()
        )
    assert decision.status == "scheduled"
    return len(calls)


def test_nodes_with_kept_places_are_not_filtered_again_for_each_member(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (filtered_beside_kept_places(members, monkeypatch) for members in (2, 12))
    assert few >= 20 and many - few <= 3 * 10
