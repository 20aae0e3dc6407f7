"""Device taints and tolerations, and the taints that DeviceTaintRules add (KEP-5055)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from haru.engine.dra.model import decode_fields
from haru.engine.dra.model.model import DeviceId, PoolKey, Taint
from haru.kube.meta import Obj


@dataclass(frozen=True, slots=True)
class Toleration:
    """A device toleration; how long it tolerates plays no part in allocation."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Whether the toleration covers the taint; an empty key or effect covers every one."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in ("", "Equal") and self.value == taint.value


def decode_toleration(raw: Obj) -> Toleration:
    """A DeviceToleration."""
    return Toleration(raw.get("key") or "", raw.get("operator") or "", raw.get("value") or "", raw.get("effect") or "")


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> tuple[Taint, ...]:
    """The taints that keep a request with these tolerations away."""
    return tuple(t for t in taints if t.repels and not any(o.tolerates(t) for o in tolerations))


@dataclass(frozen=True, slots=True)
class TaintRule:
    """A DeviceTaintRule: its taint, and the selector of the devices that get it.

    A rule without a selector selects no device, an empty selector selects all.
    """

    name: str
    taint: Taint
    has_selector: bool
    driver: str | None
    pool: str | None
    device: str | None

    def selects_pool(self, pool: PoolKey) -> bool:
        """Whether the rule may select a device of the pool."""
        return self.has_selector and self.driver in (None, pool.driver) and self.pool in (None, pool.pool)

    def selects(self, device: DeviceId) -> bool:
        """Whether the rule selects the device."""
        return self.selects_pool(PoolKey(device.driver, device.pool)) and self.device in (None, device.device)

    @property
    def named_device(self) -> DeviceId | None:
        """The device whose driver, pool and name the selector gives; None where it leaves one of them out."""
        if self.driver and self.pool and self.device:
            return DeviceId(self.driver, self.pool, self.device)
        return None


class TaintRules:
    """The rules by name, found by pool without a look at the others: most rules name the pool of a broken device."""

    def __init__(self) -> None:
        self._by_name: dict[str, TaintRule] = {}
        self._by_pool: dict[tuple[str | None, str | None], dict[str, TaintRule]] = {}

    def put(self, rule: TaintRule) -> TaintRule | None:
        """Take in a rule; return the one of that name before it."""
        old = self.pop(rule.name)
        self._by_name[rule.name] = rule
        if rule.has_selector:
            self._by_pool.setdefault((rule.driver, rule.pool), {})[rule.name] = rule
        return old

    def pop(self, name: str) -> TaintRule | None:
        """Forget a rule and return it."""
        old = self._by_name.pop(name, None)
        if old is not None and old.has_selector:
            alike = self._by_pool[old.driver, old.pool]
            del alike[name]
            if not alike:
                del self._by_pool[old.driver, old.pool]
        return old

    def __len__(self) -> int:
        return len(self._by_name)

    def for_pool(self, pool: PoolKey) -> list[TaintRule]:
        """The rules that may select a device of the pool."""
        if not self._by_pool:
            return []
        keys = ((driver, name) for driver in (None, pool.driver) for name in (None, pool.pool))
        return [rule for key in keys for rule in self._by_pool.get(key, {}).values()]


def decode_taint_rule(obj: Obj) -> TaintRule:
    """A DeviceTaintRule of any served version."""
    spec: Obj = obj.get("spec") or {}
    selector = spec.get("deviceSelector")
    given: Obj = selector or {}
    return TaintRule(
        name=str((obj.get("metadata") or {}).get("name") or ""),
        taint=decode_fields.taint(spec.get("taint") or {}),
        has_selector=selector is not None,
        driver=given.get("driver"),
        pool=given.get("pool"),
        device=given.get("device"),
    )


def rule_taints(rules: Iterable[TaintRule], device: DeviceId) -> tuple[Taint, ...]:
    """Return the taints that rules add to a device, by the rules' names; they follow the device's own."""
    return tuple(rule.taint for rule in sorted(rules, key=lambda r: r.name) if rule.selects(device))
