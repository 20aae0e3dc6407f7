"""Device health by annotation: how a simulated device is said to be ill.

`simulated.haru.dev/device-health: gpu-3=Unhealthy:too hot,gpu-5=Unknown` on a node: `DEVICE=STATE[:MESSAGE]`, separated
by commas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

HEALTH_ANNOTATION: Final = "simulated.haru.dev/device-health"
HEALTHY: Final = "Healthy"
STATES: Final = ("Unknown", HEALTHY, "Unhealthy")


def parse_device_health(text: str, devices: Collection[str] | None = None) -> dict[str, tuple[str, str]]:
    """Device -> (state, message); ValueError names the entry at fault, also one of none of these devices."""
    found: dict[str, tuple[str, str]] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        device, equals, rest = entry.partition("=")
        state, _, message = rest.partition(":")
        if not equals or state not in STATES:
            raise ValueError(f'"{entry}": write DEVICE=STATE[:MESSAGE], with one of {", ".join(STATES)}')
        if devices is not None and device not in devices:
            raise ValueError(f'"{entry}": the node has no device "{device}"')
        found[device] = (state, message)
    return found


def state_of(device: str, told: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """State and message of a device: its own, or those of the card it is a part of."""
    names = (name for name in told if device == name or device.startswith(f"{name}-"))
    return told.get(max(names, key=len, default=""), (HEALTHY, ""))
