"""What an evaluator is, and the one for everything that is only counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity

Usage = dict[str, Quantity]

ONE = parse_quantity("1")
ZERO = Quantity(0)
REQUESTS = "requests."
IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that every device class is by its own name."""
COUNTED_BY_NAME = frozenset({"configmaps", "resourcequotas", "replicationcontrollers", "secrets"})
"""Resources of the core group that quotas may name without `count/`, too."""
UNCOUNTED = frozenset({("", "events"), ("events.k8s.io", "events")})
"""Resources that no quota counts."""


def _no_pod(claim: Obj) -> Obj | None:
    return None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Other inputs of usage: time, classes of extended resources, the pod of its extended claim.

    `classes` are the names of extended resources by the device class that has one; `pod_of` answers the pod for which
    the scheduler made a claim, if what the pod counts as already covers it.
    """

    now: datetime
    classes: Mapping[str, str] = field(default_factory=dict)
    extended: bool = True
    """Gate DRAExtendedResource."""
    pod_of: Callable[[Obj], Obj | None] = _no_pod


def count_name(group: str, plural: str) -> str:
    """Under which every object of a resource is counted."""
    return f"count/{plural}.{group}" if group else f"count/{plural}"


class Evaluator:
    """Counts the objects of one resource."""

    updates = False
    """Whether updates can change what an object counts as."""

    def __init__(self, group: str, plural: str) -> None:
        self.group = group
        self.plural = plural
        self.count = count_name(group, plural)

    def names(self, hard: Iterable[str], around: Surroundings) -> list[str]:
        """Select the names of a quota that objects of this resource count under."""
        return [name for name in hard if name == self.count or name == self._short]

    @property
    def _short(self) -> str:
        return self.plural if not self.group and self.plural in COUNTED_BY_NAME else self.count

    def usage(self, obj: Obj, around: Surroundings) -> Usage:
        """Return the usage of an object by name."""
        return {self.count: ONE, self._short: ONE}

    def in_scope(self, selector: Obj, obj: Obj) -> bool:
        """Whether an object is in a scope; only pods and volume claims are in any."""
        return False

    def handles(self, operation: str, subresource: str, new: Obj, old: Obj | None) -> bool:
        """Whether a write (CREATE, UPDATE) can change what the object counts as."""
        return operation == "CREATE" and not subresource

    def lacks(self, names: Iterable[str], obj: Obj) -> str:
        """List the fields that the object lacks to be counted."""
        return ""


def add(total: Usage, more: Mapping[str, Quantity]) -> None:
    """Add to a sum."""
    for name, quantity in more.items():
        total[name] = total[name] + quantity if name in total else quantity


def is_extended_quota(name: str) -> bool:
    """Whether a quota's name is that of an extended resource: `requests.DOMAIN/NAME`."""
    native = "/" not in name or "kubernetes.io/" in name
    return name.startswith(REQUESTS) and (not native or name.startswith(REQUESTS + IMPLICIT))
