"""Pods: what they request and are limited to, while they have not ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from haru.kube.meta import Obj
from haru.kube.names import is_extended_resource_name, parse_time
from haru.kube.quantity import Quantity
from haru.kube.quota.scopes import is_terminating, pod_in_scope
from haru.kube.quota.usage import IMPLICIT, ONE, REQUESTS, Evaluator, Surroundings, Usage, is_extended_quota
from haru.kube.resources import parse_resource_list, pod_limits, pod_requests

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_HUGE = "hugepages-"
_NAMES = frozenset(
    {"pods", *_COMPUTE, *(f"requests.{name}" for name in _COMPUTE), *(f"limits.{name}" for name in _COMPUTE)}
)
_MUST_BE_SAID = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})


class Pods(Evaluator):
    """The evaluator of pods."""

    updates = True

    def __init__(self) -> None:
        super().__init__("", "pods")

    def names(self, hard: Iterable[str], around: Surroundings) -> list[str]:
        """See Evaluator."""
        return [
            name
            for name in hard
            if name == self.count
            or name in _NAMES
            or name.startswith((_HUGE, REQUESTS + _HUGE))
            or is_extended_quota(name)
        ]

    def usage(self, obj: Obj, around: Surroundings) -> Usage:
        """A pod that has ended, or whose end is overdue, is still counted, but uses nothing."""
        found: Usage = {self.count: ONE}
        if is_charged(obj, around.now):
            found |= pod_compute(pod_requests(obj), pod_limits(obj))
        return found

    def in_scope(self, selector: Obj, obj: Obj) -> bool:
        """See Evaluator."""
        return pod_in_scope(selector, obj)

    def handles(self, operation: str, subresource: str, new: Obj, old: Obj | None) -> bool:
        """A new pod, one that is resized, and one that gets a deadline and so comes into another scope."""
        if subresource:
            return subresource == "resize" and operation == "UPDATE"
        if operation == "UPDATE" and old is not None:
            return is_terminating(new) != is_terminating(old)
        return operation == "CREATE"

    def lacks(self, names: Iterable[str], obj: Obj) -> str:
        """Where a quota counts cpu or memory every container must say how much, unless the pod does for all."""
        spec = obj.get("spec") or {}
        whole = spec.get("resources") or {}
        if whole.get("requests") or whole.get("limits"):
            return ""
        wanted = sorted(_MUST_BE_SAID.intersection(names))
        missing: dict[str, set[str]] = {}
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())) if wanted else ():
            resources = container.get("resources") or {}
            specified = pod_compute(
                parse_resource_list(resources.get("requests")), parse_resource_list(resources.get("limits"))
            )
            for name in wanted:
                if name not in specified:
                    missing.setdefault(name, set()).add(container["name"])
        listed = [f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing)]
        return f"must specify {'; '.join(listed)}" if listed else ""


def is_charged(pod: Obj, now: datetime) -> bool:
    """Whether a pod uses what it asks for: it has not ended, and is not long overdue to."""
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return False
    metadata = pod["metadata"]
    stamp, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    return not (stamp and grace is not None and now > parse_time(stamp) + timedelta(seconds=int(grace)))


def pod_compute(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> Usage:
    """Amounts under the names that quotas have for them."""
    found: Usage = {"pods": ONE}
    for name in _COMPUTE:
        if name in requests:
            found[name] = found[f"requests.{name}"] = requests[name]
        if name in limits:
            found[f"limits.{name}"] = limits[name]
    for name, amount in requests.items():
        if name.startswith(_HUGE):
            found[name] = found[REQUESTS + name] = amount
        if name.startswith(IMPLICIT) or is_extended_resource_name(name):
            found[REQUESTS + name] = amount
    return found
