"""How cards are: XIDs, errors of their memory and heat, as health and as device taints.

An XID stays until the driver starts again; heat passes. What an application brings about itself (XIDs 13, 31, 43, 45,
68, 109) taints without an effect. No taint evicts: who wants that writes a DeviceTaintRule.
Sources: the NVIDIA DRA driver (`xid`, `gpu-lost`, `unmonitored`); `ecc` and `thermal` are Haru's own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from typing import Final

from haru.drivers.library import DriverServer, Health
from haru.drivers.nvidia.cards import Inventory
from haru.drivers.nvidia.nvml import GPU_LOST, Event, NvmlError, Readings
from haru.drivers.nvidia.partitions import Partitions
from haru.kube.meta import Obj

_LOG = logging.getLogger("haru.driver")
HARMLESS: Final = frozenset((13, 31, 43, 45, 68, 109))
DOMAIN: Final = "gpu.nvidia.com"
LOOK_SECONDS: Final = 5.0
_WAIT_SECONDS: Final = 0.5


class Condition:
    """What is known of the cards of a node. Pure but for its memory."""

    def __init__(self, inventory: Inventory, harmless: Collection[int] = HARMLESS) -> None:
        self._inventory = inventory
        self._harmless = frozenset(harmless)
        self._xids: dict[str, int] = {}
        """Device -> its last XID; one of consequence is not replaced by a harmless one."""
        self._readings: dict[str, Readings] = {}
        self.lost: set[str] = set()
        self.unmonitored: set[str] = set()
        self.broken: Mapping[str, str] = {}
        """Device -> what else is wrong with it."""

    def take_event(self, event: Event, device: str | None) -> None:
        """An XID, of a whole card or of the partition `device`."""
        names = [part.name for part in self._inventory.parts.values() if part.card.uuid == event.uuid]
        for name in names if device is None else [device]:
            if event.xid not in self._harmless or self._xids.get(name, event.xid) in self._harmless:
                self._xids[name] = event.xid

    def take_readings(self, uuid: str, readings: Readings) -> None:
        """What a card's sensors say."""
        self._readings[uuid] = readings

    def health(self, pool: str) -> dict[tuple[str, str], Health]:
        """Of all devices."""
        return {(pool, name): self._of(name, part.card.uuid) for name, part in self._inventory.parts.items()}

    def _of(self, name: str, uuid: str) -> Health:
        taints: list[Obj] = []
        reasons: list[str] = []
        xid = self._xids.get(name)
        readings = self._readings.get(uuid, Readings())
        if uuid in self.lost:
            taints.append(_taint("gpu-lost", "NoSchedule"))
            reasons.append("the card is lost")
        if xid is not None:
            harmless = xid in self._harmless
            taints.append(_taint("xid", "None" if harmless else "NoSchedule", str(xid)))
            reasons += [] if harmless else [f"XID {xid}"]
        if readings.uncorrected_errors:
            taints.append(_taint("ecc", "NoSchedule"))
            reasons.append(f"{readings.uncorrected_errors} uncorrected errors of its memory")
        if readings.is_slowed_by_heat:
            taints.append(_taint("thermal", "NoSchedule"))
            reasons.append(f"slowed down by heat ({readings.temperature_celsius} degrees Celsius)")
        if name in self.broken:
            reasons.append(self.broken[name])
        if uuid in self.unmonitored:
            taints.append(_taint("unmonitored", "None"))
        state = "Unhealthy" if reasons else ("Unknown" if uuid in self.unmonitored else "Healthy")
        return Health(state, "; ".join(reasons), taints=tuple(taints))


def _taint(key: str, effect: str, value: str = "") -> Obj:
    taint = {"key": f"{DOMAIN}/{key}", "effect": effect}
    return {**taint, "value": value} if value else taint


class Monitor:
    """Monitors the cards and reports their health; `run` ends only when it is cancelled."""

    def __init__(
        self, partitions: Partitions, condition: Condition, pool: str, look_seconds: float = LOOK_SECONDS
    ) -> None:
        self._nvml, self._inventory, self._partitions = partitions.nvml, partitions.inventory, partitions
        self._condition = condition
        self._pool = pool
        self._look_seconds = look_seconds
        self._stopped = False

    async def run(self, server: DriverServer) -> None:
        """Report to the server until cancelled."""
        for uuid in self._inventory.cards:
            if not await asyncio.to_thread(self._watch, uuid):
                self._condition.unmonitored.add(uuid)
        loop = asyncio.get_running_loop()
        look_at = loop.time()
        try:
            while True:
                if loop.time() >= look_at:
                    await asyncio.to_thread(self._look)
                    look_at = loop.time() + self._look_seconds
                await server.set_health(self._condition.health(self._pool))
                await asyncio.to_thread(self._wait, min(_WAIT_SECONDS, self._look_seconds))
        finally:
            self._stopped = True

    def _watch(self, uuid: str) -> bool:
        try:
            return self._nvml.watch(uuid)
        except NvmlError as error:
            _LOG.warning("%s: its events cannot be watched: %s", uuid, error)
            return False

    def _look(self) -> None:
        for uuid in self._inventory.cards:
            try:
                self._condition.take_readings(uuid, self._nvml.readings(uuid))
                self._condition.lost.discard(uuid)
            except NvmlError as error:
                if error.code != GPU_LOST:
                    _LOG.warning("%s: its sensors cannot be read: %s", uuid, error)
                    continue
                self._condition.lost.add(uuid)
        text = "its partition was made again under another number: containers that had it must be started again"
        self._condition.broken = dict.fromkeys(self._partitions.changed, text)

    def _wait(self, seconds: float) -> None:
        """Wait for an event, and take in what else has come meanwhile."""
        try:
            event = self._nvml.wait(seconds)
        except NvmlError as error:
            _LOG.warning("no events: %s", error)
            time.sleep(seconds)
            return
        while event is not None and not self._stopped:
            _LOG.warning("%s: XID %d (GPU instance %s)", event.uuid, event.xid, event.instance)
            self._condition.take_event(event, self._device_of(event))
            event = self._nvml.wait(0)

    def _device_of(self, event: Event) -> str | None:
        """The partition that an event is about, None for the whole card, or for one that cannot be told."""
        if event.instance is None:
            return None
        try:
            instances = self._nvml.instances(event.uuid)
        except NvmlError:
            return None
        for part in self._inventory.parts.values():
            place = part.placement
            if place is None or part.card.uuid != event.uuid:
                continue
            key = (event.instance, place.partition.instance_profile, place.start)
            if any((each.id, each.profile, each.start) == key for each in instances):
                return part.name
        return None
