"""Devices of each container of a pod, as they are prepared here. Pure.

Source: kubelet `cm/dra` (GetResources), as behaviour; KEP-4381, KEP-5004.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from haru.kube.claim_uses import Use, UsedDevice, uses_of
from haru.node.dra.claim_info_cache import ClaimInfo, PreparedDevice

Find = Callable[[str], ClaimInfo | None]
"""The claim of a key (`namespace/name`) as it is prepared here."""


def devices_of(use: Use, find: Find) -> Iterator[tuple[str, PreparedDevice]]:
    """(driver, device) of what a container uses, as far as it is prepared."""
    info = find(use.key)
    if info is None:
        return
    for driver, devices in info.drivers.items():
        for device in devices:
            if device.serves(use.request):
                yield driver, device


def used_devices(use: Use, find: Find) -> Iterator[UsedDevice]:
    """The same, as a status tells them."""
    for driver, one in devices_of(use, find):
        yield UsedDevice(driver, one.pool, one.device, one.cdi_ids[0] if one.cdi_ids else "")


def cdi_ids(pod: Mapping[str, Any], find: Find) -> dict[str, tuple[str, ...]]:
    """Container -> the CDI ids of its devices, each once. Raises `NotPrepared`."""
    found: dict[str, dict[str, None]] = {}
    for use in uses_of(pod):
        for _, device in devices_of(use, find):
            found.setdefault(use.container, {}).update(dict.fromkeys(device.cdi_ids))
    return {container: tuple(ids) for container, ids in found.items()}
