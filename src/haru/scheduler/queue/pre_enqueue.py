"""Run PreEnqueue: hold each unit until enough of its pods may be scheduled.

A held unit has no attempts, no backoff and no writes but one condition for a hold that lasts (KEP-5501).
Source: KEP-4671 (PreEnqueue of the GangScheduling plugin), KEP-3521 (gates), KEP-4381 (claims).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from haru.engine import pre_enqueue
from haru.engine.plugins import claim_name
from haru.engine.podgroup import members_needed
from haru.engine.state import GroupKey, PodInfo
from haru.gangs import is_foreign_group
from haru.scheduler.queue.scheduling_queue import QueuedUnit, QueueStage
from haru.scheduler.shared import SchedulerState

UnitKey = tuple[str, str, str]
_NOBODY: Mapping[str, UnitKey] = MappingProxyType({})
_NONE: Mapping[str, None] = MappingProxyType({})


class Holds:
    """Pods that wait, by path: the claims that each names, and the message of those that are held."""

    def __init__(self) -> None:
        self._messages: dict[str, str] = {}
        self._refused: dict[str, tuple[str, str]] = {}
        self.by_plugin: Counter[tuple[str, str]] = Counter()
        """How many pods are held, by plugin and profile."""
        self._unit_of: dict[str, UnitKey] = {}
        self._held: dict[UnitKey, dict[str, None]] = {}
        self._incomplete: dict[UnitKey, dict[str, None]] = {}
        self._claims_of: dict[str, tuple[str, ...]] = {}
        self._naming: dict[str, dict[str, UnitKey]] = {}
        self.messages: Mapping[str, str] = MappingProxyType(self._messages)

    def held_of(self, unit: UnitKey) -> Mapping[str, None]:
        """The pods of a unit that are held."""
        return self._held.get(unit, _NONE)

    def incomplete_of(self, unit: UnitKey) -> Mapping[str, None]:
        """The pods of a unit that are held because their group is missing or lacks members."""
        return self._incomplete.get(unit, _NONE)

    def naming(self, claim: str) -> Mapping[str, UnitKey]:
        """The pods that name a claim, held or not, with their units."""
        return self._naming.get(claim, _NOBODY)

    def know(self, unit: UnitKey, path: str, claims: Iterable[str]) -> None:
        """A pod of a unit waits, and names these claims."""
        named = tuple(claims)
        if self._claims_of.get(path, ()) == named and all(self._naming[claim][path] == unit for claim in named):
            return
        self._unname(path)
        if named:
            self._claims_of[path] = named
        for claim in named:
            self._naming.setdefault(claim, {})[path] = unit

    def hold(
        self, unit: UnitKey, path: str, message: str, *, incomplete: bool, refused_by: tuple[str, str] = ("", "")
    ) -> None:
        """A pod of a unit is held by a plugin in a profile; `incomplete`: because of its group."""
        self.free(path)
        self._messages[path] = message
        self._refused[path] = refused_by
        self.by_plugin[refused_by] += 1
        self._unit_of[path] = unit
        self._held.setdefault(unit, {})[path] = None
        if incomplete:
            self._incomplete.setdefault(unit, {})[path] = None

    def free(self, path: str) -> None:
        """A pod is held no longer."""
        if self._messages.pop(path, None) is None:
            return
        self.by_plugin[self._refused.pop(path)] -= 1
        unit = self._unit_of.pop(path)
        for kept in (self._held, self._incomplete):
            paths = kept.get(unit, {})
            paths.pop(path, None)
            if not paths:
                kept.pop(unit, None)

    def forget(self, path: str) -> None:
        """A pod does not wait any more."""
        self.free(path)
        self._unname(path)

    def _unname(self, path: str) -> None:
        for claim in self._claims_of.pop(path, ()):
            naming = self._naming[claim]
            naming.pop(path, None)
            if not naming:
                del self._naming[claim]


_log = logging.getLogger(__name__)
_OF_GROUP = frozenset({"PodGroupMissing", "TooFewMembers"})
_PLUGINS = {"Gated": "SchedulingGates"} | dict.fromkeys((*_OF_GROUP, "GangSchedulingOff"), "GangScheduling")
_REFUSED = "UnschedulableAndUnresolvable"


class PreEnqueue:
    """Check pods against the cache, and hold or release their units in the queue."""

    def __init__(self, state: SchedulerState) -> None:
        self._config = state.config
        self._metrics = state.metrics
        self._cluster = state.cluster
        self._queue = state.queue
        self._holds = Holds()
        self.gate_off = ""
        """The gate of gangs that is off, if members of groups are held for that."""

    def gangs_are_off(self, gate: str, *, hold: bool) -> None:
        """PodGroups are served, but not scheduled as such here: half a gang holds what the other half waits for."""
        text = "PodGroups are served, but the gate %s is off here: pods that name a PodGroup are "
        if hold:
            self.gate_off = gate
            text += "held (--feature-gates turns it on, --schedule-group-members-singly schedules them one by one)"
        else:
            text += "scheduled without their group's quorum"
        _log.warning(text, gate)

    @property
    def blocked(self) -> Mapping[str, str]:
        """Return the pods that are held, and why."""
        return self._holds.messages

    @property
    def held_by(self) -> Mapping[tuple[str, str], int]:
        """Return how many pods are held, by plugin and profile."""
        return self._holds.by_plugin

    def forget(self, path: str) -> None:
        """Forget a pod that does not wait any more."""
        self._holds.forget(path)

    def check(self, unit: QueuedUnit, path: str) -> bool:
        """Run PreEnqueue for one pod of a unit."""
        info = self._cluster.now.pods.get(path)
        if info is None:
            return False
        self._holds.know(unit.key, path, _claims_of(info))
        return self._judge(unit, path, info)

    def _judge(self, unit: QueuedUnit, path: str, info: PodInfo, *, is_gang_complete: bool = False) -> bool:
        snapshot = self._cluster.now
        began = self._metrics.clock()
        foreign = info.group is not None and is_foreign_group(info.group.name)
        reason = pre_enqueue(
            snapshot,
            info,
            gang_scheduling=(self._config.gang_scheduling or foreign) and not is_gang_complete,
            workload_claims=self._config.workload_claims,
            gate_off="" if foreign else self.gate_off,
        )
        profile = info.scheduler_name
        seconds = self._metrics.clock() - began
        self._metrics.extension_point("PreEnqueue", "Success" if reason is None else _REFUSED, profile, seconds)
        if reason is None:
            self._holds.free(path)
            return True
        refused_by = _PLUGINS.get(reason.type, "DynamicResources"), profile
        self._holds.hold(unit.key, path, reason.message, incomplete=reason.type in _OF_GROUP, refused_by=refused_by)
        return False

    def recheck(self, unit: QueuedUnit, path: str) -> None:
        """Check one pod; the last one that a gang waits for releases the whole unit."""
        self.check(unit, path)
        if unit.is_group and unit.place is QueueStage.HELD and path not in self._holds.incomplete_of(unit.key):
            # The quorum is the group's: what held the siblings may have ended with this pod.
            self._check_incomplete(unit, but=path)
        self.hold_or_release(unit)

    def recheck_quorum(self, unit: QueuedUnit) -> None:
        """Check again whether a unit has enough members: one of them has found a place."""
        self._check_incomplete(unit)
        self.hold_or_release(unit)

    def member_lost(self, unit: QueuedUnit) -> None:
        """Hold the members that are left if they are too few now; one stands for all as long as they are not."""
        first = next((path for path in unit.pods if path not in self.blocked), None)
        if first is not None and not self.check(unit, first):
            self.recheck_all(unit)

    def _check_incomplete(self, unit: QueuedUnit, but: str = "") -> None:
        """Check the pods that are held because their group lacks members: the first one stands for all."""
        siblings = self._holds.incomplete_of
        first = next((other for other in siblings(unit.key) if other != but), None)
        if first is None:
            return
        is_complete = self.check(unit, first)
        if first not in siblings(unit.key):
            known = self._cluster.now.pods
            for other in list(siblings(unit.key)):
                if (info := known.get(other)) is not None:
                    self._judge(unit, other, info, is_gang_complete=is_complete)

    def recheck_held(self, unit: QueuedUnit) -> None:
        """Check every held pod of a unit."""
        for path in list(self._holds.held_of(unit.key)):
            self.check(unit, path)
        self.hold_or_release(unit)

    def recheck_all(self, unit: QueuedUnit) -> None:
        """Check every pod of a unit."""
        for path in list(unit.pods):
            self.check(unit, path)
        self.hold_or_release(unit)

    def claim_changed(self, path: str) -> None:
        """Check the pods that name a claim which was created or deleted."""
        freed: dict[UnitKey, QueuedUnit] = {}
        lost: dict[UnitKey, QueuedUnit] = {}
        for pod, key in list(self._holds.naming(path).items()):
            unit = self._queue.units.get(key)
            if unit is None or pod not in unit.pods:
                continue
            was_held = pod in self.blocked
            if self.check(unit, pod) == was_held:
                (freed if was_held else lost)[key] = unit
        for unit in freed.values():
            self.hold_or_release(unit)
        for key, unit in lost.items():
            if key not in freed and not self.may_go(unit):
                self.hold_or_release(unit)

    def hold_or_release(self, unit: QueuedUnit) -> None:
        """Hold or release a unit by the last checks of its pods."""
        if self.may_go(unit):
            self._queue.release(unit, self._config.monotonic())
        elif unit.place is not QueueStage.IN_FLIGHT:
            self._queue.hold(unit)

    def may_go(self, unit: QueuedUnit) -> bool:
        """Tell whether enough members are admitted for all that the quorum still needs."""
        free = len(unit.pods) - len(self._holds.held_of(unit.key))
        if free <= 0:
            return False
        # Where members are missing that another scheduler is to place, an attempt says so; a hold would be silent.
        return free >= min(self._needed(unit), len(unit.pods))

    def _needed(self, unit: QueuedUnit) -> int:
        if not unit.is_group:
            return 1
        snapshot = self._cluster.now
        key = GroupKey(unit.key[1], unit.key[2])
        return members_needed(snapshot, key, snapshot.pod_group(key))


def _claims_of(pod: PodInfo) -> Iterator[str]:
    for entry in pod.claims:
        name = claim_name(pod, entry)
        if name:
            yield f"{pod.key.namespace}/{name}"
