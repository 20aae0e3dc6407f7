"""Why devices are refused: plain data that the decisions of the engine wrap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

RefusalType = Literal[
    "DevicesUnavailable",
    "NoDevices",
    "ClassMismatch",
    "SelectorMismatch",
    "DeviceTainted",
    "DevicesTaken",
    "CountersExhausted",
    "CapacityExceeded",
    "ConstraintUnsatisfied",
    "AlternativesExhausted",
    "PoolIncomplete",
    "PoolInvalid",
    "BindingConditionsDisabled",
]


@dataclass(frozen=True, slots=True)
class DeviceRefusal:
    """One cause: a type of the engine's closed list, a sentence, and the numbers and names behind it."""

    type: RefusalType
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)
