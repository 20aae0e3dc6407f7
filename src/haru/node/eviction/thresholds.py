"""When a node is under pressure, and which thresholds make pods go. Pure.

A threshold that is met puts its condition on the node; after its grace period it makes room, until `minimum` more than
the threshold is free. A condition stays for the transition period after it was last observed. Source: node-pressure
eviction as documented; the kubelet's thresholds and their order, as behaviour.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from haru.kube.quantity import Quantity, parse_quantity

MEMORY: Final = "memory.available"
PODS_MEMORY: Final = "allocatableMemory.available"
NODE_FS: Final = "nodefs.available"
PIDS: Final = "pid.available"
RESOURCES: Final = {
    MEMORY: "memory",
    PODS_MEMORY: "memory",
    NODE_FS: "ephemeral-storage",
    "nodefs.inodesFree": "inodes",
    "imagefs.available": "ephemeral-storage",
    "imagefs.inodesFree": "inodes",
    "containerfs.available": "ephemeral-storage",
    "containerfs.inodesFree": "inodes",
    PIDS: "pids",
}
"""By signal: what is short, in the words of events and messages."""
CONDITIONS: Final = {
    "memory": "MemoryPressure",
    "ephemeral-storage": "DiskPressure",
    "inodes": "DiskPressure",
    "pids": "PIDPressure",
}
DEFAULT_HARD: Final = {
    MEMORY: "100Mi",
    NODE_FS: "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}


class Amount(NamedTuple):
    """A quantity, or a share of what there is."""

    quantity: Quantity | None
    share: float = 0.0

    def __str__(self) -> str:
        return str(self.quantity) if self.quantity is not None else f"{self.share * 100:g}%"

    def of(self, capacity: int) -> Quantity:
        """What it is where there are `capacity` units."""
        if self.quantity is not None:
            return self.quantity
        return Quantity(int(capacity * self.share) * 10**9, "BinarySI")


@dataclass(frozen=True, slots=True)
class Threshold:
    """Pods go while less than `value` is free for `grace` seconds, until `minimum` more is free than that."""

    signal: str
    value: Amount
    grace: float = 0.0
    minimum: Amount | None = None

    @property
    def resource(self) -> str:
        """What is short."""
        return RESOURCES[self.signal]


@dataclass(frozen=True, slots=True)
class Observation:
    """How much of a resource is free, and how much there is."""

    available: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Pressure:
    """What is remembered from one look to the next."""

    conditions: tuple[str, ...] = ()
    """Of the node, that hold."""
    due: tuple[Threshold, ...] = ()
    """For which room is to be made now, the most urgent first."""
    first_met: Mapping[Threshold, float] = field(default_factory=dict)
    last_seen: Mapping[str, float] = field(default_factory=dict)
    """By condition: when it was last observed."""


# -- configuration ----------------------------------------------------------------------------------------------------


def parse_thresholds(
    hard: Mapping[str, str], soft: Mapping[str, str], grace: Mapping[str, float], minimum: Mapping[str, str]
) -> tuple[Threshold, ...]:
    """The thresholds of a node, as kubelets are told them. Raises ValueError."""
    for signal in (*grace, *minimum):
        _check_signal(signal)
    found = [Threshold(signal, value) for signal, text in hard.items() if (value := _value(signal, text))]
    for signal, text in soft.items():
        value = _value(signal, text)
        if value is not None and signal not in grace:
            raise ValueError(f"grace period must be specified for the soft eviction threshold {signal}")
        if value is not None:
            found.append(Threshold(signal, value, grace[signal]))
    reclaims = {signal: _amount(text) for signal, text in minimum.items()}
    return tuple(replace(one, minimum=reclaims.get(one.signal)) for one in found)


def for_all_pods(thresholds: Sequence[Threshold]) -> tuple[Threshold, ...]:
    """With those of the memory that all pods may have together, where that is bounded."""
    hard = [replace(one, signal=PODS_MEMORY) for one in thresholds if one.signal == MEMORY and not one.grace]
    return (*thresholds, *hard)


def kept_from_pods(thresholds: Sequence[Threshold], capacities: Mapping[str, int]) -> dict[str, Quantity]:
    """What pods cannot have, since they would be evicted: by resource of the node."""
    hard = {one.signal: one.value for one in thresholds if not one.grace}
    named = {"memory": MEMORY, "ephemeral-storage": NODE_FS}
    return {name: hard[signal].of(capacities[name]) for name, signal in named.items() if signal in hard}


def _check_signal(signal: str) -> None:
    if signal not in RESOURCES:
        raise ValueError(f"unsupported eviction signal {signal}")


def _value(signal: str, text: str) -> Amount | None:
    """The value of a threshold; None for 0 % and 100 %, which turn it off."""
    _check_signal(signal)
    if text in ("0%", "100%"):
        return None
    found = _amount(text)
    if found.quantity is None and not 0 <= found.share <= 1:
        bound = ">= 0%" if found.share < 0 else "<= 100%"
        raise ValueError(f"eviction percentage threshold {signal} must be {bound}: {text}")
    if found.quantity is not None and found.quantity.nano <= 0:
        raise ValueError(f"eviction threshold {signal} must be positive: {found.quantity}")
    return found


def _amount(text: str) -> Amount:
    if not text.endswith("%"):
        return Amount(parse_quantity(text))
    # A share is a number of 32 bits: a threshold of 10 % is told to the byte as kubelets tell it.
    return Amount(None, _single(_single(float(text.rstrip("%"))) / 100))


def _single(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


# -- decision ---------------------------------------------------------------------------------------------------------


def met(thresholds: Sequence[Threshold], seen: Mapping[str, Observation], *, minimum: bool) -> list[Threshold]:
    """Those whose signal was observed below them; with `minimum`, below what is to be free in the end."""
    return [one for one in thresholds if one.signal in seen and _is_met(one, seen[one.signal], minimum)]


def _is_met(threshold: Threshold, seen: Observation, minimum: bool) -> bool:
    wanted = threshold.value.of(seen.capacity)
    if minimum and threshold.minimum is not None:
        wanted += threshold.minimum.of(seen.capacity)
    return wanted.nano > seen.available * 10**9


def observed(
    thresholds: Sequence[Threshold], before: Pressure, seen: Mapping[str, Observation], transition: float, now: float
) -> Pressure:
    """The pressure after a look at the node; `transition` and `now` are seconds of one clock."""
    found = met(thresholds, seen, minimum=False)
    found += [one for one in met(before.due, seen, minimum=True) if one not in found]
    first = {one: before.first_met.get(one, now) for one in found}
    last = {**before.last_seen, **{CONDITIONS[one.resource]: now for one in found}}
    holds = {name for name, at in last.items() if now - at < transition or at == now}
    due = [one for one, at in first.items() if now - at >= one.grace]
    return Pressure(
        conditions=tuple(name for name in dict.fromkeys(CONDITIONS.values()) if name in holds),
        due=tuple(sorted(due, key=lambda one: one.resource != "memory")),
        first_met=first,
        last_seen=last,
    )
