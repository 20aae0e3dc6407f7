"""How busy cards are, written into the status of the claims that have them, where `haru top` reads it.

A whole card has NVML's rate; NVML has none for a partition, which stays unknown. An entry is written when it differs by
five points or more, so that a quiet node writes nothing. Source: KEP-4817 (`status.devices[].data`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from haru.client.api import ApiClient
from haru.drivers.library import Entry
from haru.drivers.library.claim_service import CLAIMS, Preparer
from haru.drivers.nvidia.cards import Inventory
from haru.drivers.nvidia.health import DOMAIN
from haru.drivers.nvidia.nvml import Nvml, NvmlError
from haru.kube.device_usage import UTILIZATION_KEY
from haru.kube.errors import StatusError
from haru.kube.meta import Obj, uid_of

_LOG = logging.getLogger("haru.driver")
SECONDS: Final = 30.0
STEP_PERCENT: Final = 5
_SMOOTHING: Final = 0.5


class Usage:
    """Measures and writes; `run` ends only when it is cancelled."""

    def __init__(
        self, nvml: Nvml, inventory: Inventory, client: ApiClient, preparer: Preparer, seconds: float = SECONDS
    ) -> None:
        self._nvml = nvml
        self._inventory = inventory
        self._client = client
        self._preparer = preparer
        self._seconds = seconds
        self._smoothed: dict[str, float] = {}
        self._written: dict[tuple[str, str], int] = {}

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self.report()
            await asyncio.sleep(self._seconds)

    async def report(self) -> None:
        """Measure once, and write what has changed."""
        rates = await asyncio.to_thread(self._measure)
        entries = [entry for entry in self._preparer.entries() if entry.is_ready]
        alive = {entry.uid for entry in entries}
        self._written = {key: percent for key, percent in self._written.items() if key[0] in alive}
        for entry in entries:
            changed = self._changed(entry, rates)
            if changed:
                try:
                    await self._write(entry, changed)
                except (StatusError, OSError, TimeoutError) as error:
                    _LOG.warning("claim %s/%s: how busy it is cannot be told: %s", entry.namespace, entry.name, error)

    def _measure(self) -> dict[str, int]:
        """Device -> percentage, smoothed over a few looks."""
        found = {}
        for name, part in self._inventory.parts.items():
            if part.placement is not None:
                continue
            try:
                now = self._nvml.readings(part.card.uuid).utilization_percent
            except NvmlError:
                now = None
            if now is None:
                self._smoothed.pop(name, None)
                continue
            before = self._smoothed.get(name, float(now))
            self._smoothed[name] = before + _SMOOTHING * (now - before)
            found[name] = round(self._smoothed[name])
        return found

    def _changed(self, entry: Entry, rates: dict[str, int]) -> dict[tuple[str, str], int]:
        """(pool, device) -> percentage of those that are to be written."""
        changed = {}
        for told in entry.devices:
            rate = rates.get(told["device"])
            known = self._written.get((entry.uid, told["device"]))
            if rate is not None and (known is None or abs(rate - known) >= STEP_PERCENT or (rate == 0) != (known == 0)):
                changed[told["pool"], told["device"]] = rate
        return changed

    async def _write(self, entry: Entry, rates: dict[tuple[str, str], int]) -> None:
        claim = await self._client.get(CLAIMS, entry.name, entry.namespace)
        status = claim.get("status") or {}
        if uid_of(claim) != entry.uid or not status.get("allocation"):
            return
        claim["status"] = {**status, "devices": _merged(status.get("devices") or (), rates)}
        await self._client.update_status(CLAIMS, claim)
        self._written |= {(entry.uid, device): rate for (_, device), rate in rates.items()}


def _merged(listed: Sequence[Obj], rates: dict[tuple[str, str], int]) -> list[Obj]:
    """The entries of `status.devices` with the rates; what others wrote stays."""
    left = dict(rates)
    merged = []
    for told in listed:
        rate = left.pop((told["pool"], told["device"]), None) if told["driver"] == DOMAIN else None
        data = {**(told.get("data") or {}), UTILIZATION_KEY: rate}
        merged.append(told if rate is None else {**told, "data": data})
    for (pool, device), rate in left.items():
        merged.append({"driver": DOMAIN, "pool": pool, "device": device, "data": {UTILIZATION_KEY: rate}})
    return merged
