"""Random histories of devices of every kind: what is remembered decides as what is read anew, and nothing is overdrawn.

After each change every waiting unit is decided: on the cluster that was followed, on the same one read at once, and now
and then by an engine without a cache. What a decision to bind allocates is added up from the definitions alone
(`device_books`), victims are as few as will do (`needed_evictions`), and where a unit has come to fit its queueing
hints were told.
"""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random
from typing import Any

import pytest
from changing_devices import ChangingDevices, Unit
from device_books import problems
from needed_evictions import vain_evictions
from test_followed_cluster import told
from test_queueing_hints import helped_by, rejected_by

from haru.engine import Decision, Options, Snapshot, decide
from haru.engine.equivalence import NoCache
from haru.engine.framework import DEFAULT_PROFILE, PreemptionOptions
from nights import tonight

Obj = dict[str, Any]
_STEPS = 40
_MOST_WAITING = 2
_WITHOUT_CACHE_EVERY = 4


class History:
    """One history; every third one may evict pods. `happened` counts what there was, by kind."""

    def __init__(self, seed: int) -> None:
        self.world = ChangingDevices(Random(seed))
        self.happened: Counter[str] = Counter()
        self._preempts = seed % 3 == 0
        self._shares = itertools.count()
        self._rejected: dict[str, frozenset[str]] = {}
        self._since: list[tuple[str, Obj | None, Obj | None]] = []

    def play(self) -> None:
        for step in range(_STEPS):
            self._since.append(self.world.change())
            if len(list(self.world.waiting())) < _MOST_WAITING and self.world.chance(2):
                self.world.new_unit()
            self._look(step)

    def _look(self, step: int) -> None:
        """Decide all that waits; carry out one of the decisions to bind."""
        world = self.world
        followed = world.cluster.snapshot()
        others = [world.anew()]
        if step % _WITHOUT_CACHE_EVERY == 0:
            others.append(world.anew(NoCache()))
        fits: Unit | None = None
        wanting: list[tuple[Unit, Decision]] = []
        promised = bool(followed.pod_index.nominations)
        for unit in world.waiting():
            decision = self._asked(followed, unit)
            for other in others:
                assert told(decision) == told(self._asked(other.snapshot(), unit)), f"step {step}, {unit.name}"
            self._woken(step, unit, decision)
            self.happened[decision.status] += 1
            assert not (decision.evictions and unit.polite), f"step {step}, {unit.name}"
            if decision.status != "scheduled":
                wanting.append((unit, decision))
            # Places that are kept for others with devices are known to the scheduler alone.
            if decision.evictions and not promised and not world.halves(decision):
                asked = world.objects, decision, world.members(unit), world.group_of(unit), unit.priority
                assert not list(vain_evictions(*asked)), f"step {step}, {unit.name}"
            if decision.status == "scheduled":
                assert not problems(world.objects, decision), f"step {step}, {unit.name}"
                fits = unit if world.chance(2) else fits
        self._since = []
        if fits is not None:
            # With shares that no other claim has.
            share = Options(new_share_id=lambda: f"held-{next(self._shares)}")
            decision = decide(followed, world.members(fits), group=world.group_of(fits), options=share)
            self._since += world.enact(decision)
            self._rejected.pop(fits.name, None)
        wanting.sort(key=lambda one: one[1].status != "nominated")
        for unit, decision in wanting[:1] if fits is None else ():
            self._wait_for_room(unit, decision)

    def _wait_for_room(self, unit: Unit, decision: Decision) -> None:
        """Carry out a decision to evict, sometimes; the places that were kept for a unit that is refused are lost."""
        before = self.world.cluster.snapshot().pod_index.nominations
        if decision.status == "nominated":
            self.happened["makes room"] += 1
            self._since += self.world.make_room(unit, decision)
        elif decision.status == "unschedulable" and any(f"default/{name}" in before for name in unit.pods):
            self.happened["gives up"] += 1
            self._since += self.world.give_up(unit)
        if self.world.cluster.snapshot().pod_index.nominations != before:
            self._rejected.clear()  # what places that are lost help is another test's

    def _asked(self, snapshot: Snapshot, unit: Unit) -> Decision:
        numbers = itertools.count()
        preemption = PreemptionOptions(preempt_for_pods=self._preempts, preempt_for_groups=self._preempts)
        options = Options(new_share_id=lambda: f"share-{next(numbers)}", preemption=preemption)
        return decide(snapshot, self.world.members(unit), group=self.world.group_of(unit), options=options)

    def _woken(self, step: int, unit: Unit, decision: Decision) -> None:
        """A unit that was refused and fits now was woken by one of the changes since."""
        refused = self._rejected.get(unit.name)
        if refused is not None:
            helped = frozenset[str]().union(*(helped_by(self.world.cluster, *change) for change in self._since))
            if not helped or (refused and not helped & refused):
                self.happened["left alone"] += 1
                assert decision.status != "scheduled", f"step {step}, {unit.name}: {self._since}, by {sorted(refused)}"
                return
            self.happened["woken"] += 1
        self._rejected.pop(unit.name, None)
        if decision.status == "unschedulable":
            self._rejected[unit.name] = rejected_by(decision, self.world.members(unit), DEFAULT_PROFILE)


@pytest.mark.parametrize("seed", range(5))
def test_remembered_cluster_is_decided_as_one_read_anew_and_nothing_is_overdrawn(seed: int) -> None:
    History(seed).play()


@pytest.mark.nightly
def test_many_histories_of_devices_keep_what_short_ones_do() -> None:
    happened: Counter[str] = Counter()
    for seed in tonight(range(5, 2000)):
        history = History(seed)
        history.play()
        happened += history.happened
    # The generator makes something of everything.
    assert min(happened[name] for name in ("scheduled", "makes room", "error", "woken", "left alone")) > 100, happened
