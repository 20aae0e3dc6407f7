"""Taints on devices that keep requests away, each once."""

from __future__ import annotations

from haru.engine import Snapshot
from haru.engine.dra import Taint


def repelling_taints(snapshot: Snapshot) -> dict[str, Taint]:
    """The taints of all published devices, by their text."""
    found = {
        str(taint): taint
        for pool in snapshot.devices.pools.values()
        for item in pool.slices
        for device in item.devices
        for taint in device.taints
        if taint.repels
    }
    return dict(sorted(found.items()))
