"""Device taints by annotation: how the maintenance of a simulated device is announced.

`simulated.haru.dev/device-taints: gpu-3=maintenance=true:NoSchedule,gpu-5=key:NoExecute` on a node taints two of its
devices: `DEVICE=KEY[=VALUE]:EFFECT`, separated by commas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from haru.kube.meta import Obj
from haru.kube.names import is_label_value, is_qualified_name

TAINTS_ANNOTATION: Final = "simulated.haru.dev/device-taints"
EFFECTS: Final = ("None", "NoSchedule", "NoExecute")
MAX_TAINTS: Final = 16


def parse_device_taints(text: str, devices: Collection[str]) -> dict[str, list[Obj]]:
    """Device name -> taints; ValueError names the entry at fault and what is allowed there."""
    found: dict[str, list[Obj]] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        device, taint = _parse(entry)
        if device not in devices:
            listed = ", ".join(sorted(name for name in devices if "-mig-" not in name))
            raise ValueError(f'"{entry}": the node has no device "{device}" (it has {listed or "none"})')
        same = [t for t in found.get(device, ()) if (t["key"], t["effect"]) == (taint["key"], taint["effect"])]
        if same:
            raise ValueError(f'"{entry}": {device} already has a taint {taint["key"]}:{taint["effect"]}')
        found.setdefault(device, []).append(taint)
    for device, taints in found.items():
        if len(taints) > MAX_TAINTS:
            raise ValueError(f"{device} has {len(taints)} taints, at most {MAX_TAINTS} are allowed")
    return found


def _parse(entry: str) -> tuple[str, Obj]:
    device, equals, rest = entry.partition("=")
    description, colon, effect = rest.rpartition(":")
    if not equals or not colon:
        raise ValueError(f'"{entry}": write DEVICE=KEY[=VALUE]:EFFECT')
    if effect not in EFFECTS:
        raise ValueError(f'"{entry}": the effect "{effect}" is none of {", ".join(EFFECTS)}')
    key, has_value, value = description.partition("=")
    complaints = is_qualified_name(key) or is_label_value(value)
    if complaints:
        raise ValueError(f'"{entry}": {complaints[0]}')
    taint = {"key": key, "value": value, "effect": effect} if has_value and value else {"key": key, "effect": effect}
    return device.strip(), taint


def published_taints(slices: Sequence[Mapping[str, Any]]) -> dict[str, list[Obj]]:
    """Device name -> the taints that stored slices give it."""
    found: dict[str, list[Obj]] = {}
    for obj in slices:
        for device in (obj.get("spec") or {}).get("devices") or ():
            if device.get("taints"):
                found[device["name"]] = [dict(taint) for taint in device["taints"]]
    return found
