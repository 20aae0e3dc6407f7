"""Device taints and tolerations, and the taints that DeviceTaintRules add (KEP-5055)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from haru.engine.dra.model import decode_fields
from haru.engine.dra.model.model import Obj, PoolKey, Taint


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
    """A DeviceTaintRule: a taint and which devices it goes to. Without a selector it goes to none."""

    name: str
    taint: Taint
    selects: bool
    driver: str | None
    pool: str | None
    device: str | None

    def covers_pool(self, pool: PoolKey) -> bool:
        """Whether some device of the pool can be meant."""
        return self.selects and self.driver in (None, pool.driver) and self.pool in (None, pool.pool)


def decode_taint_rule(obj: Obj) -> TaintRule:
    """A DeviceTaintRule of any served version."""
    spec: Obj = obj.get("spec") or {}
    selector = spec.get("deviceSelector")
    given: Obj = selector or {}
    return TaintRule(
        name=str((obj.get("metadata") or {}).get("name") or ""),
        taint=decode_fields.taint(spec.get("taint") or {}),
        selects=selector is not None,
        driver=given.get("driver"),
        pool=given.get("pool"),
        device=given.get("device"),
    )


def rule_taints(rules: Iterable[TaintRule], pool: PoolKey, device: str) -> tuple[Taint, ...]:
    """The taints that rules add to a device, in the order of the rules' names; the device's own come before them."""
    meant = (r for r in rules if r.covers_pool(pool) and r.device in (None, device))
    return tuple(r.taint for r in sorted(meant, key=lambda r: r.name))
