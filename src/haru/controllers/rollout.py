"""How a Deployment goes from its old ReplicaSets to the new one, as sizes (pure).

Each function takes the ReplicaSets as they are and answers new sizes. There may never be more pods than wanted plus
`maxSurge`, nor fewer available ones than wanted less `maxUnavailable`.
Source: apps/v1 Deployment, strategy RollingUpdate and proportional scaling.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haru.kube.meta import Obj, annotations_of, name_of

DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"


def replicas_of(replica_set: Mapping[str, Any]) -> int:
    """`spec.replicas`."""
    return int(replica_set["spec"].get("replicas", 1))


def status_of(replica_set: Mapping[str, Any], field: str) -> int:
    """A number of the status; absent is 0."""
    return int((replica_set.get("status") or {}).get(field) or 0)


def total(replica_sets: Iterable[Mapping[str, Any]], field: str = "") -> int:
    """The sum of the sizes, or of a number of the statuses."""
    return sum(status_of(rs, field) if field else replicas_of(rs) for rs in replica_sets)


def scaled(value: int | str | None, of: int, round_up: bool) -> int:
    """An int-or-percent against a number."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    share = of * int(value.rstrip("%"))
    return math.ceil(share / 100) if round_up else share // 100


@dataclass(frozen=True, slots=True)
class Limits:
    """What the strategy allows for a wanted number of pods."""

    wanted: int
    max_surge: int
    max_unavailable: int

    @classmethod
    def of(cls, deployment: Mapping[str, Any]) -> Limits:
        """The limits of a Deployment; both rounding to zero would block every move."""
        spec = deployment["spec"]
        wanted = int(spec.get("replicas", 1))
        strategy = spec.get("strategy") or {}
        if strategy.get("type") == "Recreate":
            return cls(wanted, 0, 0)
        rolling = strategy.get("rollingUpdate") or {}
        surge = scaled(rolling.get("maxSurge", "25%"), wanted, True)
        unavailable = scaled(rolling.get("maxUnavailable", "25%"), wanted, False)
        if surge == 0 and unavailable == 0:
            unavailable = 1
        return cls(wanted, surge, min(unavailable, wanted))

    @property
    def min_available(self) -> int:
        """So many pods must be available at any time."""
        return self.wanted - self.max_unavailable


def new_size(new: Obj, old: Sequence[Obj], limits: Limits, rolling: bool) -> int:
    """The next size of the new ReplicaSet."""
    current = replicas_of(new)
    if not rolling or current > limits.wanted:
        return limits.wanted
    room = limits.wanted + limits.max_surge - total(old) - current
    return min(limits.wanted, current + max(0, room))


def old_sizes(new: Obj, old: Sequence[Obj], limits: Limits) -> dict[str, int]:
    """The next sizes of the old ReplicaSets, by name: first those pods go that do not serve anyway."""
    sizes = {name_of(rs): replicas_of(rs) for rs in old}
    if not sum(sizes.values()):
        return sizes
    everything = [new, *old]
    unavailable_new = replicas_of(new) - status_of(new, "availableReplicas")
    removable = total(everything) - limits.min_available - unavailable_new
    oldest_first = sorted(old, key=lambda rs: rs["metadata"].get("creationTimestamp") or "")
    budget = max(0, removable)
    for rs in oldest_first:
        name = name_of(rs)
        dead = min(budget, max(0, sizes[name] - status_of(rs, "availableReplicas")))
        sizes[name] -= dead
        budget -= dead
    spare = max(0, total(everything, "availableReplicas") - limits.min_available)
    for rs in oldest_first:
        name = name_of(rs)
        cut = min(spare, sizes[name], budget)
        sizes[name] -= cut
        spare -= cut
        budget -= cut
    return sizes


def was_rescaled(active: Iterable[Obj], wanted: int) -> bool:
    """Whether `spec.replicas` changed since these ReplicaSets were last sized."""
    noted = (annotations_of(rs).get(DESIRED) for rs in active if replicas_of(rs) > 0)
    return any(value is not None and value != str(wanted) for value in noted)


def proportional_sizes(replica_sets: Sequence[Obj], limits: Limits) -> dict[str, int]:
    """New sizes when a Deployment is rescaled in the middle of a rollout: each ReplicaSet keeps its share.

    What rounding leaves over goes to the largest.
    """
    active = [rs for rs in replica_sets if replicas_of(rs) > 0]
    allowed = limits.wanted + limits.max_surge if limits.wanted > 0 else 0
    current = total(active)
    change = allowed - current
    # Growing: largest first, newest first among equals; shrinking: oldest first among equals.
    by_age = sorted(active, key=lambda rs: rs["metadata"].get("creationTimestamp") or "", reverse=change > 0)
    ordered = sorted(by_age, key=replicas_of, reverse=True)
    sizes = {name_of(rs): replicas_of(rs) for rs in active}
    left = change
    for rs in ordered:
        size = replicas_of(rs)
        noted = annotations_of(rs).get(MAXIMUM)
        base = int(noted) if noted and noted.isdigit() and int(noted) > 0 else current
        share = round(size * allowed / base) - size
        share = min(max(share, 0), left) if change > 0 else max(min(share, 0), left)
        sizes[name_of(rs)] = max(0, size + share)
        left -= share
    if ordered and left:
        first = name_of(ordered[0])
        sizes[first] = max(0, sizes[first] + left)
    return sizes
