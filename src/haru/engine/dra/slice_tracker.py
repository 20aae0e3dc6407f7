"""Resource slices with the taints of DeviceTaintRules added to their devices, kept up to date by watch events.

For those who work with whole objects: the eviction controller, whoever shows slices. The allocator's `Inventory`
merges rules into its own structures. A rule's taint comes after the device's own and is added even if an equal one is
there; rules come in the order of their names. Nothing that was given is changed.
Source: KEP-5055.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from haru.engine.dra.model.model import Obj, PoolKey
from haru.engine.dra.taints import TaintRule, decode_taint_rule

Change = Literal["add", "update", "delete"]


@dataclass(frozen=True, slots=True)
class Notification:
    """A change of a slice as it looks with the rules' taints."""

    type: Change
    old: Obj | None = None
    new: Obj | None = None


class TaintTracker:
    """Slices and rules in, tainted slices out. Objects of other kinds are ignored."""

    def __init__(self) -> None:
        self._published: dict[str, Obj] = {}
        self._tainted: dict[str, Obj] = {}
        self._rules: dict[str, tuple[TaintRule, Obj]] = {}

    @property
    def slices(self) -> list[Obj]:
        """All slices with the rules' taints, by name."""
        return [self._tainted[name] for name in sorted(self._tainted)]

    def apply(self, kind: str, obj: Obj) -> list[Notification]:
        """Take in a new or changed object; says which slices look different now."""
        name = str((obj.get("metadata") or {}).get("name") or "")
        if kind == "ResourceSlice":
            return self._put_slice(name, obj)
        if kind == "DeviceTaintRule":
            before = self._rules.get(name)
            rule = decode_taint_rule(obj)
            self._rules[name] = (rule, (obj.get("spec") or {}).get("taint") or {})
            return self._retaint([rule] if before is None else [before[0], rule])
        return []

    def remove(self, kind: str, name: str) -> list[Notification]:
        """Forget an object; says which slices are gone or look different now."""
        if kind == "ResourceSlice" and name in self._published:
            del self._published[name]
            return [Notification("delete", old=self._tainted.pop(name))]
        if kind == "DeviceTaintRule" and name in self._rules:
            return self._retaint([self._rules.pop(name)[0]])
        return []

    def _put_slice(self, name: str, obj: Obj) -> list[Notification]:
        published, old = self._published.get(name), self._tainted.get(name)
        self._published[name] = obj
        new = self._tainted[name] = self._patched(obj)
        if old is None:
            return [Notification("add", new=new)]
        if published == obj and old == new:
            return []
        return [Notification("update", old=old, new=new)]

    def _retaint(self, rules: list[TaintRule]) -> list[Notification]:
        changes = []
        for name in sorted(self._published):
            published = self._published[name]
            if any(rule.covers_pool(_pool(published)) for rule in rules):
                old, new = self._tainted[name], self._patched(published)
                if old != new:
                    self._tainted[name] = new
                    changes.append(Notification("update", old=old, new=new))
        return changes

    def _patched(self, obj: Obj) -> Obj:
        pool = _pool(obj)
        rules = [self._rules[name] for name in sorted(self._rules)]
        rules = [(rule, taint) for rule, taint in rules if rule.covers_pool(pool)]
        spec: Obj = obj.get("spec") or {}
        if not rules or not spec.get("devices"):
            return obj
        devices = [_patched_device(device, rules) for device in spec["devices"]]
        if all(new is old for new, old in zip(devices, spec["devices"], strict=True)):
            return obj
        return {**obj, "spec": {**spec, "devices": devices}}


def _patched_device(device: Obj, rules: list[tuple[TaintRule, Obj]]) -> Obj:
    added: list[Any] = [taint for rule, taint in rules if rule.device in (None, device.get("name"))]
    return {**device, "taints": [*(device.get("taints") or ()), *added]} if added else device


def _pool(obj: Obj) -> PoolKey:
    spec: Obj = obj.get("spec") or {}
    return PoolKey(spec.get("driver") or "", (spec.get("pool") or {}).get("name") or "")
