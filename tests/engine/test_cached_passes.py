"""What is kept between decisions holds while places are kept for others: passes decide as without a cache."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_objects import options
from test_cached_answers import History

from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.equivalence.decision_cache import DecisionCache, NoCache
from haru.engine.podgroup import decide
from haru.engine.preemption.nominated_placements import with_nominated_pods
from haru.engine.state.decision import Decision, PodKey
from haru.engine.state.overlay import Overlay
from haru.engine.state.pending_reservations import Nomination


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


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(10))
def test_decisions_beside_kept_places_equal_those_without_a_cache_in_long_runs(block: int) -> None:
    assert sum(passes_of(seed) for seed in range(100 * block, 100 * block + 100)) > 200
