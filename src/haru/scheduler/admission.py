"""PreEnqueue: who may be tried at all. A unit is held until enough of its pods are free to go.

Holding costs nothing: no attempts, no backoff, no writes but one condition for a hold that lasts (KEP-5501).
Source: KEP-4671 (PreEnqueue of the GangScheduling plugin), KEP-3521 (gates), KEP-4381 (claims).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from haru.engine.cluster import Cluster
from haru.engine.decision import GroupKey
from haru.engine.groups import pre_enqueue
from haru.kube.meta import controller_of
from haru.scheduler.queue import Place, SchedulingQueue, Unit

Obj = dict[str, Any]


class Admission:
    """Weighs pods against the cluster as it is and tells the queue to hold or to release their units."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        monotonic: Callable[[], float],
        *,
        gang_scheduling: bool,
        workload_claims: bool,
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._monotonic = monotonic
        self._gang_scheduling = gang_scheduling
        self._workload_claims = workload_claims
        self._blocked: dict[str, str] = {}

    @property
    def blocked(self) -> Mapping[str, str]:
        """The pods that are held, and why."""
        return self._blocked

    def forget(self, path: str) -> None:
        """The pod does not wait any more."""
        self._blocked.pop(path, None)

    def check(self, path: str) -> bool:
        """Asks PreEnqueue about one pod."""
        snapshot = self._cluster.snapshot()
        info = snapshot.pods.get(path)
        if info is None:
            return False
        reason = pre_enqueue(
            snapshot, info.obj, gang_scheduling=self._gang_scheduling, workload_claims=self._workload_claims
        )
        if reason is None:
            self._blocked.pop(path, None)
            return True
        self._blocked[path] = reason.message
        return False

    def weigh(self, unit: Unit, path: str) -> None:
        """Asks about one pod; with the last one that a gang waits for, the whole unit is released."""
        self.check(path)
        if unit.is_group and unit.place is Place.HELD:
            # The quorum is the group's: what held the siblings may have ended with this pod.
            for sibling in [p for p in unit.pods if p in self._blocked and p != path]:
                if not self.check(sibling) and path in self._blocked:
                    break
        self.settle(unit)

    def weigh_all(self, unit: Unit) -> None:
        """Asks about every pod of a unit."""
        for path in list(unit.pods):
            self.check(path)
        self.settle(unit)

    def claim_added(self, claim: Obj) -> None:
        """A claim appeared: whoever is held may have waited for it."""
        namespace = claim["metadata"].get("namespace", "")
        for unit in self._units_for(namespace, controller_of(claim)):
            freed = [path for path in unit.pods if path in self._blocked and self.check(path)]
            if freed:
                self.settle(unit)

    def _units_for(self, namespace: str, owner: Mapping[str, Any] | None) -> Iterable[Unit]:
        """The units that a claim may concern: a generated one is its owner's alone."""
        if owner is not None and owner.get("kind") == "PodGroup":
            unit = self._queue.units.get(("group", namespace, owner["name"]))
            return [unit] if unit is not None else []
        if owner is not None and owner.get("kind") == "Pod":
            path = f"{namespace}/{owner['name']}"
            info = self._cluster.snapshot().pods.get(path)
            if path not in self._blocked or info is None:
                return []
            keys = [("pod", namespace, owner["name"])]
            if info.group is not None:
                keys.append(("group", namespace, info.group.name))
            return [self._queue.units[key] for key in keys if key in self._queue.units]
        paths = {path for path in self._blocked if path.startswith(f"{namespace}/")}
        return [u for u in self._queue.units.values() if u.key[1] == namespace and not paths.isdisjoint(u.pods)]

    def settle(self, unit: Unit) -> None:
        """Holds or releases a unit by what is known of its pods."""
        if self.may_go(unit):
            self._queue.release(unit, self._monotonic())
        elif unit.place is not Place.IN_FLIGHT:
            self._queue.hold(unit, next(iter(self._blocked.get(p, "") for p in unit.pods), ""))

    def may_go(self, unit: Unit) -> bool:
        """Whether an attempt makes sense: enough members are free for all that the quorum still lacks."""
        free = sum(1 for path in unit.pods if path not in self._blocked)
        if not free:
            return False
        # Where members are missing that another scheduler is to place, an attempt says so; a hold would be silent.
        return free >= min(self._needed(unit), len(unit.pods))

    def _needed(self, unit: Unit) -> int:
        if not unit.is_group:
            return 1
        snapshot = self._cluster.snapshot()
        key = GroupKey(unit.key[1], unit.key[2])
        return max(minimum_of(snapshot.pod_group(key)) - snapshot.group_state(key).scheduled_count, 1)


def minimum_of(group: Obj | None) -> int:
    """A gang's minCount; 1 for every other group and for none."""
    policy = ((group or {}).get("spec") or {}).get("schedulingPolicy") or {}
    return int((policy.get("gang") or {}).get("minCount") or 1)
