"""NVML without a card: from a hardware profile or a recording, and from then on as its cards would behave.

It refuses what the hardware refuses: instances that overlap or take more engines than there are, a GPU instance that is
removed before its compute instance, MIG on a card without it. Time does not pass by itself: `happen` and `set_readings`
speak for the hardware.
"""

from __future__ import annotations

import queue
import threading
import uuid as uuids
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from haru.drivers.nvidia.cards import geometry_of
from haru.drivers.nvidia.nvml import (
    GPU_LOST,
    IN_USE,
    INSUFFICIENT_RESOURCES,
    NOT_FOUND,
    NOT_SUPPORTED,
    CardFacts,
    Event,
    Instance,
    InstanceProfile,
    NvmlError,
    Readings,
    SystemFacts,
)
from haru.drivers.nvidia.recording import RecordedCard, Recording
from haru.drivers.simulated.profiles import Card, Profile
from haru.drivers.simulated.slices import resource_slices

_RESET_TO_CHANGE_MODE: Final = ("Ampere",)


def recording_of(profile: Profile, node_name: str) -> Recording:
    """What NVML would answer on a node of this profile, with the UUIDs that the simulated driver publishes."""
    published = {
        device["name"]: device["attributes"]
        for obj in resource_slices(profile, node_name, "", {}, 1)
        for device in obj["spec"].get("devices") or ()
    }
    cards = []
    for card in profile.cards:
        profiles = _profiles(card)
        divided = profile.layout == "mig-balanced" and card.model.geometry is not None
        instances = []
        for number, placement in enumerate(card.model.geometry.balanced if divided and card.model.geometry else ()):
            partition = placement.partition
            told = published[placement.device_name(card.minor)]["uuid"]["string"]
            instances.append(Instance(number + 1, partition.instance_profile, placement.start, partition.size, 0, told))
        name = f"gpu-{card.minor}"
        own = published[name]["uuid"] if name in published else None
        parent = next((a["parentUUID"] for n, a in published.items() if n.startswith(f"{name}-")), None)
        facts = _facts(card, str((own or parent or {})["string"]), divided)
        cards.append(RecordedCard(facts, profiles, instances, Readings(0, 40, False, 0)))
    return Recording(SystemFacts("580.65.06", 13000), cards, f"simulated {profile.name}")


def _facts(card: Card, uuid: str, divided: bool) -> CardFacts:
    model = card.model
    return CardFacts(
        card.minor,
        uuid,
        model.product,
        model.brand,
        model.architecture,
        model.compute_capability.removesuffix(".0") if model.compute_capability.count(".") > 1 else "",
        model.memory_mib << 20,
        card.pci_bus_id,
        card.pcie_root,
        card.numa_node,
        model.addressing_mode,
        divided if model.geometry is not None else None,
    )


def _profiles(card: Card) -> list[InstanceProfile]:
    found = []
    for partition in card.model.geometry.partitions if card.model.geometry is not None else ():
        has = partition.amounts
        found.append(
            InstanceProfile(
                id=partition.instance_profile,
                name=partition.profile,
                slices=int(partition.profile.partition("g.")[0]),
                instances=1 if partition.has_media else len(partition.starts),
                multiprocessors=has["multiprocessors"],
                copy_engines=has["copyEngines"],
                decoders=has["decoders"],
                encoders=has["encoders"],
                jpeg_engines=has["jpegEngines"],
                ofa_engines=has["ofaEngines"],
                memory_mib=has["memory"],
                size=partition.size,
                starts=partition.starts,
            )
        )
    return found


class SimulatedNvml:
    """Plays a recording's cards."""

    def __init__(self, recording: Recording) -> None:
        self._system = recording.system
        self._cards = {card.facts.uuid: replace(card, instances=list(card.instances)) for card in recording.cards}
        self._lock = threading.RLock()
        self._events: queue.Queue[Event] = queue.Queue()
        self._watched: set[str] = set()
        self._lost: set[str] = set()
        self.compute_modes: dict[str, int] = {}

    # -- what the hardware does ---------------------------------------------------------------------------------------

    def happen(self, event: Event) -> None:
        """An XID."""
        if event.uuid in self._watched:
            self._events.put(event)

    def set_readings(self, uuid: str, readings: Readings) -> None:
        """What a card's sensors say from now on."""
        with self._card(uuid) as card:
            card.readings = readings

    def lose(self, uuid: str) -> None:
        """A card falls off the bus."""
        self._lost.add(uuid)

    def reboot(self) -> None:
        """The machine starts again: instances are gone, the mode of MIG stays."""
        with self._lock:
            for card in self._cards.values():
                card.instances = []
            self.compute_modes.clear()
            self._watched.clear()

    # -- NVML ---------------------------------------------------------------------------------------------------------

    def system(self) -> SystemFacts:
        """The kernel driver."""
        return self._system

    def cards(self) -> list[CardFacts]:
        """All cards."""
        with self._lock:
            return sorted((card.facts for card in self._cards.values()), key=lambda facts: facts.minor)

    def profiles(self, uuid: str) -> list[InstanceProfile]:
        """The kinds of GPU instances."""
        with self._card(uuid) as card:
            return list(card.profiles)

    def instances(self, uuid: str) -> list[Instance]:
        """The GPU instances."""
        with self._card(uuid) as card:
            return list(card.instances)

    def set_mig_mode(self, uuid: str, enabled: bool) -> bool:
        """Turn MIG on or off."""
        with self._card(uuid) as card:
            if card.facts.mig_mode is None:
                raise NvmlError(NOT_SUPPORTED, "Not Supported")
            if card.facts.mig_mode == enabled:
                return True
            if card.instances:
                raise NvmlError(IN_USE, "In use by another client")
            if card.facts.architecture in _RESET_TO_CHANGE_MODE:
                return False
            card.facts = replace(card.facts, mig_mode=enabled)
            return True

    def create_instance(self, uuid: str, profile: int, start: int) -> Instance:
        """Make a GPU instance."""
        with self._card(uuid) as card:
            if not card.facts.mig_mode:
                raise NvmlError(NOT_SUPPORTED, "Not Supported")
            made = self._placed(card, profile, start)
            card.instances.append(made)
            return made

    def _placed(self, card: RecordedCard, profile: int, start: int) -> Instance:
        geometry = geometry_of(card.profiles)
        assert geometry is not None
        by_place = {(p.partition.instance_profile, p.start): p for p in geometry.placements()}
        wanted = by_place.get((profile, start))
        if wanted is None:
            raise NvmlError(NOT_FOUND, "Not Found")
        left = dict(geometry.counters())
        for placement in (wanted, *(by_place[each.profile, each.start] for each in card.instances)):
            for name, amount in geometry.consumption(placement).items():
                left[name] -= amount
        most = next(each.instances for each in card.profiles if each.id == profile)
        if min(left.values()) < 0 or sum(each.profile == profile for each in card.instances) >= most:
            raise NvmlError(INSUFFICIENT_RESOURCES, "Insufficient Resources")
        used = {each.id for each in card.instances}
        number = next(n for n in range(1, 1 + len(used) + 1) if n not in used)
        return Instance(number, profile, start, wanted.partition.size)

    def create_compute_instance(self, uuid: str, instance: int) -> Instance:
        """Make the compute instance."""
        with self._card(uuid) as card:
            at, found = _find(card, instance)
            if found.compute_instance is not None:
                raise NvmlError(INSUFFICIENT_RESOURCES, "Insufficient Resources")
            name = uuids.uuid5(uuids.NAMESPACE_OID, f"{uuid}/{found.profile}/{found.start}")
            card.instances[at] = replace(found, compute_instance=0, uuid=f"MIG-{name}")
            return card.instances[at]

    def destroy_compute_instance(self, uuid: str, instance: int) -> None:
        """Remove the compute instance."""
        with self._card(uuid) as card:
            at, found = _find(card, instance)
            if found.compute_instance is None:
                raise NvmlError(NOT_FOUND, "Not Found")
            card.instances[at] = replace(found, compute_instance=None, uuid="")

    def destroy_instance(self, uuid: str, instance: int) -> None:
        """Remove a GPU instance."""
        with self._card(uuid) as card:
            at, found = _find(card, instance)
            if found.compute_instance is not None:
                raise NvmlError(IN_USE, "In use by another client")
            del card.instances[at]

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        """Who may use a card."""
        with self._card(uuid):
            self.compute_modes[uuid] = mode

    def readings(self, uuid: str) -> Readings:
        """The sensors."""
        with self._card(uuid) as card:
            return card.readings

    def watch(self, uuid: str) -> bool:
        """Enable events."""
        with self._card(uuid) as card:
            if card.has_events:
                self._watched.add(uuid)
            return card.has_events

    def wait(self, seconds: float) -> Event | None:
        """The next event."""
        try:
            return self._events.get(timeout=seconds) if seconds else self._events.get_nowait()
        except queue.Empty:
            return None

    @contextmanager
    def _card(self, uuid: str) -> Iterator[RecordedCard]:
        with self._lock:
            if uuid in self._lost:
                raise NvmlError(GPU_LOST, "GPU is lost")
            if uuid not in self._cards:
                raise NvmlError(NOT_FOUND, "Not Found")
            yield self._cards[uuid]


def _find(card: RecordedCard, instance: int) -> tuple[int, Instance]:
    for at, each in enumerate(card.instances):
        if each.id == instance:
            return at, each
    raise NvmlError(NOT_FOUND, "Not Found")
