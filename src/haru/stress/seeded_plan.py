"""Make the plan of a seed: the same seed and limits give the same plan.

Sizes are few, so that works can be compared with each other.
"""

from __future__ import annotations

import random
from typing import Final

from haru.stress.plan import UNIT_KINDS, Limits, Plan, PlanError, WorkloadUnit, WorkloadUnitKind

_MILLI_CPU: Final = (100, 250, 500, 1000)
_MEBIBYTES: Final = (64, 128, 256)
_CHURNED: Final = 0.2
"""So many of the works are deleted early, whatever their state."""
_IMPORTANT: Final = 0.15
"""So many have a priority above the others, if preemption is among the kinds."""


def seeded_plan(seed: int, limits: Limits) -> Plan:
    """Make the plan of a seed; raises PlanError."""
    _check(limits)
    rng = random.Random(seed)
    choices = [kind for name in limits.kinds for kind in UNIT_KINDS.get(name, ())]
    step = limits.seconds / limits.units
    units = [_unit(rng, number, step, rng.choice(choices), limits) for number in range(limits.units)]
    return Plan(seed, limits, tuple(sorted(units, key=lambda unit: (unit.at, unit.name))))


def _check(limits: Limits) -> None:
    for flag, value, least in (
        ("--units", limits.units, 1),
        ("--gang-size", limits.gang_size, 2),
        ("--devices", limits.devices, 0),
        ("--duration", limits.seconds, 1),
    ):
        if value < least:
            raise PlanError(f"{flag}: Invalid value: {value:g}: write at least {least}")


def _unit(rng: random.Random, number: int, step: float, kind: WorkloadUnitKind, limits: Limits) -> WorkloadUnit:
    at = (number + rng.random()) * step
    sizes = [size for size in (2, 3, 4, 8, 16, 32, 64, 128, 256) if size <= limits.gang_size]
    pods = rng.choice(sizes) if kind == "gang" else rng.choice((1, 2, 3))
    # Some gangs may run with fewer than all members.
    min_count = max(2, pods - (rng.random() < 0.25)) if kind == "gang" else 1
    counts = [count for count in (1, 2, 4, 8) if count <= limits.devices]
    with_devices = bool(counts) and "claims" in limits.kinds and (kind in ("claim", "shared") or rng.random() < 0.5)
    devices = rng.choice(counts) if with_devices and kind != "pod" else 0
    churned = "churn" in limits.kinds and rng.random() < _CHURNED
    return WorkloadUnit(
        name=f"{kind}-{number}",
        kind=kind,
        at=round(at, 3),
        pods=pods,
        min_count=min_count,
        milli_cpu=rng.choice(_MILLI_CPU),
        mebibytes=rng.choice(_MEBIBYTES),
        devices=devices,
        runs=round(rng.uniform(0.05, 0.3) * limits.seconds, 3),
        deleted_after=round(rng.uniform(0.0, 0.2) * limits.seconds, 3) if churned else None,
        important="preemption" in limits.kinds and rng.random() < _IMPORTANT,
    )
