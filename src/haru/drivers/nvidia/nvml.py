"""The part of NVML that the driver uses; recordings and simulations implement it too.

All calls block and may come from several threads; cards are named by their UUID. Every method raises `NvmlError`.
Source: the NVML API reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

SUCCESS: Final = 0
NOT_SUPPORTED: Final = 3
NOT_FOUND: Final = 6
GPU_LOST: Final = 15
IN_USE: Final = 19
INSUFFICIENT_RESOURCES: Final = 23

COMPUTE_DEFAULT: Final = 0
COMPUTE_EXCLUSIVE: Final = 3


class NvmlError(Exception):
    """NVML refuses; `code` is its return code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"NVML: {message} ({code})")
        self.code = code


@dataclass(frozen=True, slots=True)
class SystemFacts:
    """The kernel driver: its version as NVML has it (`580.65.06`), and CUDA's as a number (13000)."""

    driver_version: str
    cuda_version: int


@dataclass(frozen=True, slots=True)
class CardFacts:
    """A card. `pcie_root` is empty, `numa_node` None where the kernel does not say; `mig_mode` None: it has no MIG."""

    minor: int
    uuid: str
    name: str
    brand: str
    architecture: str
    compute_capability: str
    """`9.0`"""
    memory_bytes: int
    pci_bus_id: str
    """As the kernel writes it: `0000:19:00.0`."""
    pcie_root: str = ""
    numa_node: int | None = None
    addressing_mode: str = ""
    mig_mode: bool | None = None
    is_vgpu: bool = False
    """A share of a card that a hypervisor made: it is divided as its kind says, and not otherwise."""


@dataclass(frozen=True, slots=True)
class InstanceProfile:
    """A kind of GPU instance that a card can have, and where; the amounts are the instance's."""

    id: int
    name: str
    """`1g.10gb+me`"""
    slices: int
    instances: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    memory_mib: int
    size: int
    """Memory slices that one takes."""
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Instance:
    """A GPU instance; without a compute instance it has no UUID and nothing can run in it."""

    id: int
    profile: int
    start: int
    size: int
    compute_instance: int | None = None
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class Readings:
    """What a card's sensors say; None for what it does not have."""

    utilization_percent: int | None = None
    temperature_celsius: int | None = None
    is_slowed_by_heat: bool | None = None
    uncorrected_errors: int | None = None
    """Of the memory, since the kernel driver was loaded."""


@dataclass(frozen=True, slots=True)
class Event:
    """An XID of a card; `instance` is the GPU instance it is about, None for the whole card."""

    uuid: str
    xid: int
    instance: int | None = None


class Nvml(Protocol):
    """NVML, after its initialisation."""

    def system(self) -> SystemFacts:
        """The kernel driver."""

    def cards(self) -> list[CardFacts]:
        """All cards, by their minor."""

    def profiles(self, uuid: str) -> list[InstanceProfile]:
        """The kinds of GPU instances of a card; none for one without MIG."""

    def instances(self, uuid: str) -> list[Instance]:
        """The GPU instances that a card has."""

    def set_mig_mode(self, uuid: str, enabled: bool) -> bool:
        """Turn MIG on or off; False if that takes effect only after a reset."""

    def create_instance(self, uuid: str, profile: int, start: int) -> Instance:
        """Make a GPU instance at a place."""

    def create_compute_instance(self, uuid: str, instance: int) -> Instance:
        """Make a compute instance with all of a GPU instance."""

    def destroy_compute_instance(self, uuid: str, instance: int) -> None:
        """Remove the compute instance of a GPU instance."""

    def destroy_instance(self, uuid: str, instance: int) -> None:
        """Remove a GPU instance, which has no compute instance any more."""

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        """COMPUTE_DEFAULT or COMPUTE_EXCLUSIVE."""

    def readings(self, uuid: str) -> Readings:
        """The sensors of a card."""

    def watch(self, uuid: str) -> bool:
        """Enable events of a card; False if it has none."""

    def wait(self, seconds: float) -> Event | None:
        """The next event, None if there is none within the time."""
