"""Check a write against the quotas of its namespace, and count all objects of a namespace for a quota's status.

Source: admission plugin ResourceQuota, as behaviour, its words as in 1.36; `resourcequota-controller`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.quota.claims import Claims
from haru.kube.quota.limited import Limited, uncovered
from haru.kube.quota.pods import Pods
from haru.kube.quota.scopes import selectors_of
from haru.kube.quota.usage import ONE, UNCOUNTED, ZERO, Evaluator, Surroundings, Usage, add
from haru.kube.quota.volumes import VolumeClaims

_NAMES = ("services", "services.nodeports", "services.loadbalancers")


class Services(Evaluator):
    """The evaluator of Services."""

    updates = True

    def __init__(self) -> None:
        super().__init__("", "services")

    def names(self, hard: Iterable[str], around: Surroundings) -> list[str]:
        """See Evaluator."""
        return [name for name in hard if name == self.count or name in _NAMES]

    def usage(self, obj: Obj, around: Surroundings) -> Usage:
        """See Evaluator."""
        spec = obj.get("spec") or {}
        ports = spec.get("ports") or ()
        nodeports, balancers = 0, 0
        if spec.get("type") == "NodePort":
            nodeports = len(ports)
        elif spec.get("type") == "LoadBalancer":
            balancers = 1
            every = spec.get("allocateLoadBalancerNodePorts") is not False
            nodeports = len(ports) if every else sum(1 for port in ports if port.get("nodePort"))
        return {
            self.count: ONE,
            "services": ONE,
            "services.nodeports": parse_quantity(nodeports) if nodeports else ZERO,
            "services.loadbalancers": ONE if balancers else ZERO,
        }

    def handles(self, operation: str, subresource: str, new: Obj, old: Obj | None) -> bool:
        """A service may become one of another type."""
        return not subresource


_SPECIAL: Mapping[tuple[str, str], Evaluator] = {
    (evaluator.group, evaluator.plural): evaluator for evaluator in (Pods(), Claims(), VolumeClaims(), Services())
}


class QuotaRefusal(Exception):
    """A quota has no room for an object, or cannot count it; the text is what follows `is forbidden: `.

    Where it has no room: its name, and what is asked for, used and there of what is too little.
    """

    def __init__(
        self,
        text: str,
        quota: str = "",
        requested: Mapping[str, str] | None = None,
        used: Mapping[str, str] | None = None,
        limited: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.quota = quota
        self.requested = requested or {}
        self.used = used or {}
        self.limited = limited or {}


def evaluator_of(group: str, plural: str) -> Evaluator | None:
    """Return the evaluator of a namespaced resource; None if nothing counts its objects."""
    if (group, plural) in UNCOUNTED:
        return None
    return _SPECIAL.get((group, plural)) or Evaluator(group, plural)


@dataclass(frozen=True, slots=True)
class Write:
    """A creation (without `old`) or an update of an object that quotas may count."""

    evaluator: Evaluator
    subresource: str
    new: Obj
    old: Obj | None
    around: Surroundings

    @property
    def matters(self) -> bool:
        """Whether the write can change what the object counts as."""
        operation = "CREATE" if self.old is None else "UPDATE"
        return self.evaluator.handles(operation, self.subresource, self.new, self.old)


@dataclass(frozen=True, slots=True)
class Charge:
    """A quota that a write is counted by, and its `status.used` afterwards.

    `pending`: the quota's controller has yet to count a name that the object counts under. What it counts now must not
    be written without this object, so that the quota is written, too, though nothing in it changes.
    """

    quota: Obj
    used: Mapping[str, str]
    pending: bool = False


def charges(write: Write, quotas: Sequence[Obj], limited: Iterable[Limited] = ()) -> list[Charge]:
    """Which quotas change with a write. Raises `QuotaRefusal` when one of them has no room, or one is lacking."""
    new_usage = write.evaluator.usage(write.new, write.around)
    old_usage = write.evaluator.usage(write.old, write.around) if write.old is not None else {}
    found = [_charge(write, quota, new_usage, old_usage) for quota in quotas]
    more = {name: amount for name, amount in new_usage.items() if amount > old_usage.get(name, ZERO)}
    lacking = uncovered(limited, write.evaluator, write.new, new_usage, quotas, write.around) if more else ""
    if lacking:
        raise QuotaRefusal(lacking)
    return [charge for charge in found if charge is not None]


def in_scopes(evaluator: Evaluator, quota: Obj, obj: Obj) -> bool:
    """Whether a quota looks at an object: it is in all of the quota's scopes."""
    return all(evaluator.in_scope(selector, obj) for selector in selectors_of(quota))


def _charge(write: Write, quota: Obj, new_usage: Usage, old_usage: Usage) -> Charge | None:
    status, evaluator = quota.get("status") or {}, write.evaluator
    hard: Mapping[str, Any] = status.get("hard") or {}
    wanted: Mapping[str, Any] = (quota.get("spec") or {}).get("hard") or {}
    names = evaluator.names(hard, write.around)
    uncounted = [name for name in evaluator.names(wanted, write.around) if name not in hard]
    if not (names or uncounted) or not in_scopes(evaluator, quota, write.new):
        return None
    used = {name: parse_quantity(value) for name, value in (status.get("used") or {}).items()}
    if names:
        _require_countable(write, quota, names, used)
    before = old_usage if write.old is not None and in_scopes(evaluator, quota, write.old) else {}
    # Less is never written here: the controller counts anew what is given back.
    more = {name: amount - before.get(name, ZERO) for name, amount in new_usage.items()}
    more = {name: amount for name, amount in more.items() if amount > ZERO}
    requested = {name: amount for name, amount in more.items() if name in hard}
    if not requested:
        pending = any(name in more for name in uncounted)
        return Charge(quota, dict(status.get("used") or {}), True) if pending else None
    total = {name: used[name] + amount if name in used else amount for name, amount in requested.items()}
    if write.subresource != "status":
        _require_room(quota, requested, total, used)
    return Charge(quota, {**(status.get("used") or {}), **{name: str(amount) for name, amount in total.items()}})


def _require_countable(write: Write, quota: Obj, names: Sequence[str], used: Mapping[str, Quantity]) -> None:
    name = quota["metadata"]["name"]
    lacking = write.evaluator.lacks(names, write.new)
    if lacking:
        raise QuotaRefusal(f"failed quota: {name}: {lacking}")
    if any(each not in used for each in names):
        raise QuotaRefusal(f"status unknown for quota: {name}, resources: {','.join(sorted(names))}")


def _require_room(quota: Obj, requested: Usage, total: Usage, used: Mapping[str, Quantity]) -> None:
    hard = {name: parse_quantity(quota["status"]["hard"][name]) for name in requested}
    exceeded = [name for name in requested if total[name] > hard[name]]
    if exceeded:
        name = quota["metadata"]["name"]
        raise QuotaRefusal(
            f"exceeded quota: {name}, requested: {_listed(requested, exceeded)}, "
            f"used: {_listed(used, exceeded)}, limited: {_listed(hard, exceeded)}",
            name,
            *({each: str(amounts.get(each, ZERO)) for each in sorted(exceeded)} for amounts in (requested, used, hard)),
        )


def _listed(amounts: Mapping[str, Quantity], names: Iterable[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in sorted(names) if name in amounts)


def wanted_evaluators(quota: Obj, evaluators: Iterable[Evaluator], around: Surroundings) -> list[Evaluator]:
    """List the evaluators whose objects a quota counts."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    return [evaluator for evaluator in evaluators if evaluator.names(hard, around)]


def status_of(quota: Obj, objects: Sequence[tuple[Evaluator, Iterable[Obj]]], around: Surroundings) -> Obj:
    """The status of a quota: its limits, and what `objects` use of those that somebody counts."""
    hard: Mapping[str, Any] = (quota.get("spec") or {}).get("hard") or {}
    used: Usage = {}
    for evaluator, listed in objects:
        names = evaluator.names(hard, around)
        add(used, dict.fromkeys(names, ZERO))
        for obj in listed if names else ():
            if in_scopes(evaluator, quota, obj):
                usage = evaluator.usage(obj, around)
                add(used, {name: usage[name] for name in names if name in usage})
    before = (quota.get("status") or {}).get("used") or {}
    kept = {name: value for name, value in before.items() if name in hard}
    return {"hard": dict(hard), "used": {**kept, **{name: str(amount) for name, amount in used.items()}}}
