"""The scheduling queue: what waits, in which order, and what wakes it. Pure in itself: the time is an argument.

A *unit* is what one cycle decides: the unscheduled pods of one PodGroup, or one pod. It is in exactly one place:
held (a PreEnqueue check fails), active, in backoff, unschedulable, or in flight. Events that arrive while a unit is in
flight are kept and weighed when it comes back, so no wake-up is lost.
Source: kube-scheduler's PriorityQueue as behaviour; the group entry is KEP-4671 with one backoff for the whole group.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from enum import Enum

from haru.scheduler.metrics import QueueMetrics

INITIAL_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 10.0
FLUSH_AFTER_SECONDS = 300.0
_STALE_ENTRIES = 1000
_MOST_DOUBLINGS = 64
_FAILURE = "ScheduleAttemptFailure"
_ANY = ("",)
"""Where units are parked that nobody in particular rejected: every event wakes them."""


class QueueStage(Enum):
    """Where a unit is."""

    HELD = "gated"
    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    IN_FLIGHT = "inflight"

    # Members are one object each; an enumeration's own hash is that of its name, computed in Python.
    __hash__ = object.__hash__


Rank = tuple[int, float, tuple[str, str, str]]
_TRIED = (QueueStage.UNSCHEDULABLE, QueueStage.BACKOFF)


@dataclass(slots=True, eq=False)
class QueuedUnit:
    """One entry: the pods that one cycle decides together."""

    key: tuple[str, str, str]
    pods: dict[str, int] = field(default_factory=dict)
    place: QueueStage = QueueStage.HELD
    timestamp: float = 0.0
    attempts: int = 0
    refused: int = 0
    """How many attempts ended with a refusal."""
    errors: int = 0
    """How many attempts ended with an error since the last refusal."""
    ready_at: float = 0.0
    parked_at: float = 0.0
    rejected_by: frozenset[str] = frozenset()
    seen_events: set[str] = field(default_factory=set)
    any_event: bool = False
    ticket: int = 0
    timer: float = -1.0
    first_active: float | None = None
    flushed: bool = False
    refusals: dict[tuple[str, ...], int] = field(default_factory=dict)
    """How many pods each plugin refused at the last attempt, by plugin and profile."""
    held_pods: int = 0
    priorities: dict[int, int] = field(default_factory=dict)
    """How many pods there are by priority."""

    @property
    def rank(self) -> Rank:
        """Smaller goes first: by priority, then by how long it has been waiting."""
        return -self.priority, self.timestamp, self.key

    @property
    def priority(self) -> int:
        """The priority of the best member: a group waits where its best pod waits."""
        return max(self.priorities, default=0)

    def put(self, pod: str, priority: int) -> None:
        """Take in a pod, or its other priority."""
        self.drop(pod)
        self.pods[pod] = priority
        self.priorities[priority] = self.priorities.get(priority, 0) + 1

    def drop(self, pod: str) -> None:
        """Forget a pod."""
        priority = self.pods.pop(pod, None)
        if priority is not None:
            self.priorities[priority] -= 1
            if not self.priorities[priority]:
                del self.priorities[priority]

    @property
    def is_group(self) -> bool:
        """Whether the unit is a PodGroup's."""
        return self.key[0] == "group"


class _Places:
    """What is asked about all units of a place, kept up to date unit by unit."""

    def __init__(self) -> None:
        self.pods: Counter[QueueStage] = Counter()
        """How many pods are in each place."""
        self.tried: list[Rank] = []
        """The ranks of the units that were tried in vain, sorted."""
        self._known: dict[tuple[str, str, str], tuple[QueueStage, int, Rank | None]] = {}

    def see(self, unit: QueuedUnit) -> None:
        """Note where a unit is, with how many pods, and its rank if it was tried."""
        key, place, pods = unit.key, unit.place, len(unit.pods)
        known = self._known.get(key)
        if known is not None and known[0] is place and known[2] is None:
            self._known[key] = place, pods, None
            self.pods[place] += pods - known[1]
            return
        if known is not None:
            self.forget(key)
        rank = unit.rank if place in _TRIED else None
        self._known[key] = place, pods, rank
        self.pods[place] += pods
        if rank is not None:
            insort(self.tried, rank)

    def forget(self, key: tuple[str, str, str]) -> None:
        """Note that a unit is gone."""
        known = self._known.pop(key, None)
        if known is None:
            return
        place, pods, rank = known
        self.pods[place] -= pods
        if rank is not None:
            del self.tried[bisect_left(self.tried, rank)]


class SchedulingQueue:
    """Units in their places. Keys are ("pod", namespace, name) or ("group", namespace, group name).

    With `pop_from_backoff` a backoff keeps nobody waiting while there is nothing else to do, unless an error is behind
    it: of units whose backoffs end within the same second the most important goes first.
    """

    def __init__(
        self,
        initial_backoff: float = INITIAL_BACKOFF_SECONDS,
        max_backoff: float = MAX_BACKOFF_SECONDS,
        *,
        pop_from_backoff: bool = False,
        metrics: QueueMetrics | None = None,
    ) -> None:
        self._metrics = metrics
        self.units: dict[tuple[str, str, str], QueuedUnit] = {}
        self._initial = initial_backoff
        self._max = max_backoff
        self._active: list[tuple[int, float, int, QueuedUnit]] = []
        self._backoff: list[tuple[float, int, QueuedUnit]] = []
        self._early: list[tuple[int, int, float, int, QueuedUnit]] = []
        self._timers: list[tuple[float, int, QueuedUnit]] = []
        self._parked: dict[str, dict[tuple[str, str, str], QueuedUnit]] = {}
        self._in_flight: dict[tuple[str, str, str], QueuedUnit] = {}
        self._pop_from_backoff = pop_from_backoff
        self._tickets = itertools.count(1)
        self._places = _Places()
        self._waiting: OrderedDict[tuple[str, str, str], QueuedUnit] = OrderedDict()
        """The units that wait for an event, those that wait longest first."""

    # -- membership -------------------------------------------------------------------------------------------------

    def put(self, unit_key: tuple[str, str, str], pod_key: str, priority: int, now: float) -> QueuedUnit:
        """Adds a pod to its unit (made if new) and returns the unit; a new unit is held until `release` or `hold`."""
        unit = self.units.get(unit_key)
        if unit is None:
            unit = self.units[unit_key] = QueuedUnit(unit_key, timestamp=now)
        known = unit.pods.get(pod_key)
        unit.put(pod_key, priority)
        self._places.see(unit)
        if known is None and unit.place in (QueueStage.ACTIVE, QueueStage.BACKOFF, QueueStage.UNSCHEDULABLE):
            self._incoming(unit.place, 1)
        if known != priority and unit.place is QueueStage.ACTIVE:
            self._push_active(unit)
        return unit

    def take_out(self, unit_key: tuple[str, str, str], pod_key: str) -> None:
        """Removes a pod that was bound, deleted or finished; an empty unit is forgotten unless it is in flight."""
        unit = self.units.get(unit_key)
        if unit is None:
            return
        unit.drop(pod_key)
        if not unit.pods and unit.place is not QueueStage.IN_FLIGHT:
            self._forget(unit)
            unit.ticket = 0
        else:
            self._places.see(unit)

    def __contains__(self, unit_key: object) -> bool:
        return unit_key in self.units

    # -- places -----------------------------------------------------------------------------------------------------

    def hold(self, unit: QueuedUnit) -> None:
        """Keep a unit out of the queue until `release`, because PreEnqueue rejects it."""
        if unit.place is not QueueStage.IN_FLIGHT:
            self._enter(unit, QueueStage.HELD)
            unit.ticket = 0
            if len(unit.pods) > unit.held_pods:
                # As in 1.36 gated pods are among the unschedulable ones.
                self._incoming(QueueStage.UNSCHEDULABLE, len(unit.pods) - unit.held_pods)
            unit.held_pods = len(unit.pods)

    def release(self, unit: QueuedUnit, now: float) -> None:
        """Queue a unit that PreEnqueue admits or that changed: in backoff if that has not ended, else active."""
        if unit.place is QueueStage.IN_FLIGHT:
            unit.any_event = True
        elif unit.place in (QueueStage.HELD, QueueStage.UNSCHEDULABLE):
            self._wake(unit, now)

    def pop(self, now: float) -> QueuedUnit | None:
        """The next unit to decide, now in flight; None if nothing is ready."""
        self._move_expired(now)
        while self._active or self._early:
            if self._active:
                _, _, ticket, unit = heapq.heappop(self._active)
                place = QueueStage.ACTIVE
            else:
                _, _, _, ticket, unit = heapq.heappop(self._early)
                place = QueueStage.BACKOFF
            if ticket != unit.ticket or unit.place is not place:
                continue
            if place is QueueStage.BACKOFF:
                self._incoming(QueueStage.ACTIVE, len(unit.pods), "PopFromBackoffQ")
            if unit.first_active is None:
                unit.first_active = now
            self._enter(unit, QueueStage.IN_FLIGHT)
            self._in_flight[unit.key] = unit
            unit.ticket = 0
            unit.attempts += 1
            unit.refusals.clear()
            unit.seen_events.clear()
            unit.any_event = False
            return unit
        return None

    def pop_with_equals(self, now: float, most: int) -> list[QueuedUnit]:
        """The next unit to decide, and those right behind it, if all are single pods that nobody has tried yet.

        They have one priority, so that none is kept from its turn by another one.
        """
        first = self.pop(now)
        if first is None:
            return []
        units = [first]
        while len(units) < most and self._is_followed(first) and (unit := self.pop(now)) is not None:
            units.append(unit)
        return units

    def _is_followed(self, first: QueuedUnit) -> bool:
        """Whether the next unit may be decided together with one that was popped."""
        while self._active and self._active[0][2] != self._active[0][3].ticket:
            heapq.heappop(self._active)
        if not self._active or first.attempts > 1 or first.errors or first.is_group:
            return False
        priority, _, _, unit = self._active[0]
        return priority == -first.priority and not (unit.attempts or unit.errors or unit.is_group)

    def put_back(self, unit: QueuedUnit) -> None:
        """A unit that was popped was not tried after all: it is the next one again."""
        self._in_flight.pop(unit.key, None)
        if self._still_there(unit):
            unit.attempts -= 1
            self._push_active(unit)

    def done(self, unit: QueuedUnit) -> None:
        """The cycle placed every pod the unit had: its attempts are forgotten. Pods that are held stay."""
        self._in_flight.pop(unit.key, None)
        unit.attempts = unit.refused = unit.errors = 0
        unit.first_active, unit.flushed = None, False
        if self.units.get(unit.key) is not unit:
            return
        self._enter(unit, QueueStage.HELD)
        if not unit.pods:
            self._forget(unit)

    def reject(self, unit: QueuedUnit, plugins: Iterable[str], now: float) -> None:
        """The cycle found no place: wait for an event that concerns the plugins that said no."""
        self._in_flight.pop(unit.key, None)
        if not self._still_there(unit):
            return
        unit.errors = 0
        unit.refused += 1
        unit.rejected_by = frozenset(plugins)
        unit.ready_at = now + self._backoff_for(unit.refused)
        missed = (
            unit.any_event
            or bool(unit.seen_events & unit.rejected_by)
            or (bool(unit.seen_events) and not unit.rejected_by)
        )
        if missed:
            self._to_backoff(unit, event=_FAILURE)
        else:
            self._incoming(QueueStage.UNSCHEDULABLE, len(unit.pods), _FAILURE)
            self._enter(unit, QueueStage.UNSCHEDULABLE)
            unit.parked_at = now
            for plugin in unit.rejected_by or _ANY:
                self._parked.setdefault(plugin, {})[unit.key] = unit

    def fail(self, unit: QueuedUnit, now: float) -> None:
        """The cycle or the binding failed with an error: try again after a backoff, whatever happens."""
        self._in_flight.pop(unit.key, None)
        if not self._still_there(unit):
            return
        unit.errors += 1
        unit.ready_at = now + self._backoff_for(unit.errors)
        self._to_backoff(unit, failed=True, event=_FAILURE)

    # -- events -----------------------------------------------------------------------------------------------------

    def on_event(self, plugins: frozenset[str], now: float) -> int:
        """A change that may satisfy `plugins`: wakes the units that they rejected. Returns how many were woken."""
        if not plugins:
            return 0
        for unit in self._in_flight.values():
            unit.seen_events |= plugins
        woken = 0
        for plugin in (*plugins, *_ANY):
            if plugin in self._parked:
                began = self._metrics.clock() if self._metrics is not None else 0.0
                woken += self._wake_parked(plugin, now)
                if self._metrics is not None and "/" not in plugin:
                    self._metrics.hinted(plugin, self._metrics.clock() - began)
        return woken

    def _wake_parked(self, plugin: str, now: float) -> int:
        woken = 0
        # Who is not woken by it has left its place in another way.
        for unit in self._parked.pop(plugin, {}).values():
            waits = unit.place is QueueStage.UNSCHEDULABLE and self.units.get(unit.key) is unit
            if waits and plugin in (unit.rejected_by or _ANY):
                self._wake(unit, now)
                woken += 1
        return woken

    def retry(self, unit: QueuedUnit, now: float) -> None:
        """Try a unit again that waits for events: to backoff if that has not run out, else to active."""
        if unit.place is QueueStage.UNSCHEDULABLE:
            self._wake(unit, now)

    def retry_at(self, unit: QueuedUnit, time: float) -> None:
        """Try a unit again at a time at the latest, if it still waits for events then."""
        if unit.timer != time:
            unit.timer = time
            heapq.heappush(self._timers, (time, next(self._tickets), unit))

    def first_waiting(self, but: Container[tuple[str, str, str]]) -> QueuedUnit | None:
        """The first unit, in the order of the queue, that was tried in vain and is none of those."""
        key = next((key for _, _, key in self._places.tried if key not in but), None)
        return self.units[key] if key is not None else None

    def flush_leftovers(self, now: float) -> int:
        """The safety net: units that no event has woken for five minutes are tried again. Held units are not."""
        woken = 0
        while self._waiting and now - (unit := next(iter(self._waiting.values()))).parked_at >= FLUSH_AFTER_SECONDS:
            unit.flushed = True
            self._wake(unit, now, "UnschedulableTimeout")
            woken += 1
        return woken

    def next_wake(self) -> float | None:
        """When the earliest backoff or timer ends; None if none runs."""
        while self._backoff and (
            self._backoff[0][1] != self._backoff[0][2].ticket or self._backoff[0][2].place is not QueueStage.BACKOFF
        ):
            heapq.heappop(self._backoff)
        return min((heap[0][0] for heap in (self._backoff, self._timers) if heap), default=None)

    def pending(self) -> dict[str, int]:
        """Pods by place, under the label values of `scheduler_pending_pods`."""
        shown = (QueueStage.ACTIVE, QueueStage.BACKOFF, QueueStage.UNSCHEDULABLE, QueueStage.HELD)
        return {place.value: self._places.pods[place] for place in shown}

    # -- inside -----------------------------------------------------------------------------------------------------

    def _enter(self, unit: QueuedUnit, place: QueueStage) -> None:
        unit.place = place
        if self.units.get(unit.key) is not unit:
            return
        self._places.see(unit)
        self._waiting.pop(unit.key, None)
        if place is QueueStage.UNSCHEDULABLE:
            self._waiting[unit.key] = unit

    def _forget(self, unit: QueuedUnit) -> None:
        del self.units[unit.key]
        self._places.forget(unit.key)
        self._waiting.pop(unit.key, None)

    def _still_there(self, unit: QueuedUnit) -> bool:
        if self.units.get(unit.key) is unit and unit.pods:
            return True
        if self.units.get(unit.key) is unit:
            self._forget(unit)
        return False

    def _backoff_for(self, attempts: int) -> float:
        # A unit may wait for weeks: the power is bounded, too.
        return min(self._initial * 2.0 ** min(max(attempts - 1, 0), _MOST_DOUBLINGS), self._max)

    def _incoming(self, place: QueueStage, pods: int, event: str = "") -> None:
        """Count pods that enter a place; an empty event stands for the one that is being handled."""
        if self._metrics is not None:
            self._metrics.incoming(place.value, event, pods)

    def _wake(self, unit: QueuedUnit, now: float, event: str = "") -> None:
        if unit.ready_at > now:
            self._to_backoff(unit, event=event)
        else:
            self._incoming(QueueStage.ACTIVE, len(unit.pods), event)
            if unit.first_active is None:
                unit.first_active = now
            self._push_active(unit)

    def _push_active(self, unit: QueuedUnit) -> None:
        unit.held_pods = 0
        self._enter(unit, QueueStage.ACTIVE)
        unit.ticket = next(self._tickets)
        heapq.heappush(self._active, (-unit.priority, unit.timestamp, unit.ticket, unit))

    def _to_backoff(self, unit: QueuedUnit, *, failed: bool = False, event: str = "") -> None:
        self._incoming(QueueStage.BACKOFF, len(unit.pods), event)
        unit.held_pods = 0
        self._enter(unit, QueueStage.BACKOFF)
        unit.ticket = next(self._tickets)
        heapq.heappush(self._backoff, (unit.ready_at, unit.ticket, unit))
        if self._pop_from_backoff and not failed:
            second = int(unit.ready_at)
            heapq.heappush(self._early, (second, -unit.priority, unit.timestamp, unit.ticket, unit))
            if len(self._early) > 2 * len(self.units) + _STALE_ENTRIES:
                # Who went on from backoff in another way has left an entry behind.
                self._early = [e for e in self._early if e[3] == e[4].ticket and e[4].place is QueueStage.BACKOFF]
                heapq.heapify(self._early)

    def _move_expired(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            _, _, unit = heapq.heappop(self._timers)
            unit.timer = -1.0
            if self.units.get(unit.key) is unit:
                self.retry(unit, now)
        while self._backoff and self._backoff[0][0] <= now:
            _, ticket, unit = heapq.heappop(self._backoff)
            if ticket == unit.ticket and unit.place is QueueStage.BACKOFF:
                self._incoming(QueueStage.ACTIVE, len(unit.pods), "BackoffComplete")
                self._push_active(unit)
