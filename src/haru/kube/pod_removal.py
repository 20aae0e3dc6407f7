"""Which pods of a workload go first when there are too many (pure): the controllers' order, and what explain foretells.

Source: Kubernetes `pkg/controller`, `ActivePods` (Jobs) and `ActivePodsWithRanks` (ReplicaSets); KEP-2255 (deletion
cost), KEP-2185 (of two pods whose ages are of one power of two, chance decides).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cmp_to_key
from math import inf, log2
from typing import Any, Final

from haru.kube.meta import Obj, annotations_of, get_condition, has_condition, node_of, uid_of
from haru.kube.names import parse_time

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = {"Unknown": 1, "Running": 2}


def progress(pod: Mapping[str, Any]) -> tuple[bool, int, bool]:
    """How far a pod has got: it has a node, runs, is ready. What has got less far goes first, whatever else holds."""
    return bool(node_of(pod)), _PHASES.get(str((pod.get("status") or {}).get("phase")), 0), has_condition(pod, "Ready")


def job_removal_rank(pod: Mapping[str, Any]) -> tuple[object, ...]:
    """What a Job lets go first is least: not far, ready for the shortest time, restarted, new."""
    return progress(pod), -_ready_since(pod), _restarts(pod), -_created(pod)


def replica_removal_order(pods: Sequence[Obj], related: Iterable[Mapping[str, Any]], now: datetime) -> list[Obj]:
    """The pods of a ReplicaSet, those first whose loss matters least.

    `related` are the active pods of all ReplicaSets of its owner: where several share a node, one is missed less.
    """
    on_node = Counter(map(node_of, related))
    ranks: dict[int, tuple[Any, float, Any, float]] = {
        id(pod): (
            (progress(pod), deletion_cost(pod), -on_node[node_of(pod)]),
            _ready_since(pod),
            _restarts(pod),
            _created(pod),
        )
        for pod in pods
    }

    def compared(one: Obj, other: Obj) -> int:
        first, second = ranks[id(one)], ranks[id(other)]
        for place, (own, its) in enumerate(zip(first, second, strict=True)):
            if own != its and place % 2:
                return _ages_compared(own, its, now.timestamp()) or (-1 if uid_of(one) < uid_of(other) else 1)
            if own != its:
                return -1 if own < its else 1
        return 0

    return sorted(pods, key=cmp_to_key(compared))


def deletion_cost(pod: Mapping[str, Any]) -> int:
    """What the pod's annotation says; 0 where it says no number."""
    try:
        return int(annotations_of(pod).get(DELETION_COST, "0"))
    except ValueError:
        return 0


def _ready_since(pod: Mapping[str, Any]) -> float:
    """Seconds; 0 of a pod that is not ready, infinite where it is not known."""
    condition = get_condition(pod, "Ready") or {}
    return _seconds(condition.get("lastTransitionTime")) if condition.get("status") == "True" else 0.0


def _created(pod: Mapping[str, Any]) -> float:
    return _seconds(pod["metadata"].get("creationTimestamp"))


def _seconds(time: Any) -> float:
    return parse_time(str(time)).timestamp() if time else inf


def _restarts(pod: Mapping[str, Any]) -> tuple[int, int]:
    """How often the container was started again that was so most often, and the sidecar, both negative."""
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    sidecars = {one["name"] for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"}
    started = [one for one in status.get("initContainerStatuses") or () if one.get("name") in sidecars]
    return -_most_restarts(status.get("containerStatuses") or ()), -_most_restarts(started)


def _most_restarts(statuses: Iterable[Mapping[str, Any]]) -> int:
    return max((int(status.get("restartCount") or 0) for status in statuses), default=0)


def _ages_compared(time: float, other: float, now: float) -> int:
    """Below 0 if what happened at the first time goes first, 0 if both ages are of one power of two."""
    if inf in (time, other):
        return -1 if time == inf else 1
    return _power(now - time) - _power(now - other)


def _power(age: float) -> int:
    return int(log2(age * 1e9)) if age > 0 else -1
