"""The cluster as one side sees it, and what can be read off its objects.

Source: our own; KEP-4381 and KEP-5729 for when a claim is free.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from engine_objects import Obj
from safety_books import Placed

from haru.engine.state.decision import PodKey
from haru.kube.names import format_time
from haru.scheduler.binding import freed_status


def moment(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))


def key_of(pod: Obj) -> PodKey:
    meta = pod["metadata"]
    return PodKey(meta["namespace"], meta["name"], meta["uid"])


def group_of(pod: Obj) -> str:
    """The path of its PodGroup, or nothing."""
    name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return f"default/{name}" if name else ""


def claims_of(pod: Obj) -> tuple[str, ...]:
    return tuple(f"default/{entry['resourceClaimName']}" for entry in pod["spec"].get("resourceClaims") or ())


def ended(pod: Obj) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def deleting(pod: Obj) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_evicted(pod: Obj) -> bool:
    return any(condition["type"] == "DisruptionTarget" for condition in pod["status"].get("conditions") or ())


def allocation_of(claim: Obj) -> Obj | None:
    found: Obj | None = (claim.get("status") or {}).get("allocation")
    return found


def reserved_for(claim: Obj) -> list[Obj]:
    return list((claim.get("status") or {}).get("reservedFor") or ())


def cpu_of(pod: Obj) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def with_status(obj: Obj, **changes: Any) -> Obj:
    """The object with members of its status set, or removed (None)."""
    status = {**(obj.get("status") or {}), **changes}
    return {**obj, "status": {name: value for name, value in status.items() if value is not None}}


def marked(pod: Obj, now: float, *, preempted: bool) -> Obj:
    """The pod as it is once its deletion was asked for."""
    why = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    pod = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": moment(now)}}
    return with_status(pod, conditions=why) if preempted else pod


@dataclass(frozen=True)
class View:
    """The cluster as the scheduler must see it: what it has heard of, and what it has decided since.

    `promised` are pods whose eviction was decided; `evicted` groups that have lost members by eviction since one of
    theirs was last placed.
    """

    pods: dict[str, Obj]
    places: dict[str, str]
    claims: dict[str, Obj]
    in_flight: frozenset[str] = frozenset()
    promised: frozenset[str] = frozenset()
    evicted: frozenset[str] = frozenset()

    def placed(self, without: Collection[str] = ()) -> dict[str, Placed]:
        """The living pods on nodes."""
        return {
            path: Placed(node, cpu_of(self.pods[path]), claims_of(self.pods[path]))
            for path, node in self.places.items()
            if path not in without and not ended(self.pods[path])
        }

    def members(self, group: str, without: Collection[str] = ()) -> list[str]:
        """Those of a group that have places."""
        return [path for path in self.placed(without) if group_of(self.pods[path]) == group]

    def freed(self, going: Collection[str], evicted: Collection[str] = ()) -> dict[str, Obj]:
        """The claims once these pods are gone, of which some are evicted, and what nobody uses any more was freed."""
        left = {path for path in self.pods if path not in going and not ended(self.pods[path])}
        groups = self.robbed(going, evicted)
        found = {}
        for path, claim in self.claims.items():
            entries = reserved_for(claim)
            stay = [entry for entry in entries if self._stays(entry, path, left, going, groups)]
            if len(stay) < len(entries):
                status = {**claim["status"], "reservedFor": stay} if stay else freed_status(claim)
                claim = {**claim, "status": status}
            found[path] = claim
        return found

    def robbed(self, going: Collection[str], evicted: Collection[str] = ()) -> set[str]:
        """The groups that have lost members by eviction once these pods are gone."""
        evicted = {*evicted, *self.promised, *(path for path in going if is_evicted(self.pods[path]))}
        return {*self.evicted, *(group_of(self.pods[path]) for path in evicted.intersection(going))}

    def _stays(self, entry: Obj, claim: str, left: set[str], going: Collection[str], evicted: set[str]) -> bool:
        path = f"default/{entry['name']}"
        if entry["resource"] == "pods":
            return path in left
        return path not in evicted or bool(self.users(path, claim) - set(going))

    def users(self, group: str, claim: str) -> set[str]:
        """The members of a group that have places and use a claim."""
        return {path for path in self.members(group) if claim in claims_of(self.pods[path])}
