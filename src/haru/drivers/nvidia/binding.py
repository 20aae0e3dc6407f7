"""`Nvml` over nvidia-ml-py, the binding that NVIDIA keeps (`pip install haru[nvidia]`).

Source: the NVML API reference.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from haru.drivers.nvidia.host import pci_places
from haru.drivers.nvidia.nvml import (
    GPU_LOST,
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
from haru.errors import HaruError

_INVALID_ARGUMENT: Final = 2
_FUNCTION_NOT_FOUND: Final = 13
_TIMEOUT: Final = 10
_GPU_NOT_FOUND: Final = 28
_ABSENT: Final = (NOT_SUPPORTED, _INVALID_ARGUMENT, _FUNCTION_NOT_FOUND)
_WHOLE: Final = 0xFFFFFFFF
_BRANDS: Final = (
    *("Unknown", "Quadro", "Tesla", "NVS", "Grid", "GeForce", "Titan", "NvidiaVApps", "NvidiaVPC", "NvidiaVCS"),
    *("NvidiaVWS", "NvidiaCloudGaming", "QuadroRTX", "NvidiaRTX", "Nvidia", "GeForceRTX", "TitanRTX"),
)
"""By NVML's number, as the NVIDIA DRA driver writes them."""
_ARCHITECTURES: Final = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
_ADDRESSING: Final = {0: "None", 1: "HMM", 2: "ATS"}
_COMPUTE_PROFILES: Final = {1: 0, 2: 1, 3: 2, 4: 3, 6: 6, 7: 4, 8: 5}
"""Slices of a GPU instance -> the kind of compute instance that takes all of it."""


class NvmlMissing(HaruError):
    """NVML is missing; the text says which part."""


class PyNvml:
    """NVML of this machine, from `library` or from where the loader finds it. Raises `NvmlMissing`."""

    def __init__(self, library: Path | None = None) -> None:
        try:
            import pynvml
        except ImportError:
            raise NvmlMissing("NVML: nvidia-ml-py is not installed: pip install haru[nvidia]") from None
        self._nvml: Any = pynvml
        if library is not None:
            # pynvml opens it by its name, which is then that of a library that is loaded already; one for another
            # processor is not.
            with suppress(OSError):
                ctypes.CDLL(str(library))
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NvmlMissing(f"NVML: {error}: is NVIDIA's kernel driver on this machine?") from None
        self._events: Any = None

    def system(self) -> SystemFacts:
        """The kernel driver."""
        with self._told():
            return SystemFacts(
                str(self._nvml.nvmlSystemGetDriverVersion()), int(self._nvml.nvmlSystemGetCudaDriverVersion())
            )

    def cards(self) -> list[CardFacts]:
        """All cards; one that is lost is left out."""
        found = []
        with self._told():
            count = self._nvml.nvmlDeviceGetCount()
        for number in range(count):
            try:
                with self._told():
                    found.append(self._facts(self._nvml.nvmlDeviceGetHandleByIndex(number)))
            except NvmlError as error:
                if error.code not in (GPU_LOST, _GPU_NOT_FOUND):
                    raise
        return sorted(found, key=lambda facts: facts.minor)

    def _facts(self, card: Any) -> CardFacts:
        nvml = self._nvml
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(card)
        brand = int(nvml.nvmlDeviceGetBrand(card))
        pci = nvml.nvmlDeviceGetPciInfo(card)
        bus_id = f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
        root, numa = pci_places(bus_id)
        mode = self._optional(nvml.nvmlDeviceGetMigMode, card)
        addressing = self._optional(nvml.nvmlDeviceGetAddressingMode, card)
        return CardFacts(
            minor=int(nvml.nvmlDeviceGetMinorNumber(card)),
            uuid=str(nvml.nvmlDeviceGetUUID(card)),
            name=str(nvml.nvmlDeviceGetName(card)),
            brand=_BRANDS[brand] if brand < len(_BRANDS) else _BRANDS[0],
            architecture=_ARCHITECTURES.get(int(nvml.nvmlDeviceGetArchitecture(card)), "Unknown"),
            compute_capability=f"{major}.{minor}",
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(card).total),
            pci_bus_id=bus_id,
            pcie_root=root,
            numa_node=numa,
            addressing_mode="" if addressing is None else _ADDRESSING.get(int(addressing), ""),
            mig_mode=None if mode is None else bool(mode[0]),
            is_vgpu=self._optional(nvml.nvmlDeviceGetVirtualizationMode, card)
            == nvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU,
        )

    def profiles(self, uuid: str) -> list[InstanceProfile]:
        """The kinds of GPU instances of a card."""
        found = []
        with self._told():
            card = self._card(uuid)
            for number in range(self._nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
                info = self._optional(self._nvml.nvmlDeviceGetGpuInstanceProfileInfo, card, number)
                if info is None:
                    continue
                places = self._placements(card, info.id)
                if places:
                    found.append(_profile(info, places))
        return found

    def _placements(self, card: Any, profile: int) -> list[tuple[int, int]]:
        """(start, size) of all places."""
        nvml = self._nvml
        count = ctypes.c_uint(0)
        try:
            nvml.nvmlDeviceGetGpuInstancePossiblePlacements(card, profile, None, ctypes.byref(count))
            places = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
            nvml.nvmlDeviceGetGpuInstancePossiblePlacements(card, profile, places, ctypes.byref(count))
        except nvml.NVMLError as error:
            if error.value in _ABSENT:
                return []
            raise
        return sorted((int(place.start), int(place.size)) for place in places[: count.value])

    def instances(self, uuid: str) -> list[Instance]:
        """The GPU instances that a card has."""
        with self._told():
            card = self._card(uuid)
            mode = self._optional(self._nvml.nvmlDeviceGetMigMode, card)
            if not mode or not mode[0]:
                return []
            uuids = self._partition_uuids(card)
            found = []
            for number in range(self._nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
                info = self._optional(self._nvml.nvmlDeviceGetGpuInstanceProfileInfo, card, number)
                if info is not None:
                    found += [self._instance(handle, uuids) for handle in self._handles(card, info)]
        return sorted(found, key=lambda each: each.id)

    def _handles(self, card: Any, info: Any) -> list[Any]:
        nvml = self._nvml
        count = ctypes.c_uint(info.instanceCount)
        handles = (nvml.c_nvmlGpuInstance_t * info.instanceCount)()
        try:
            nvml.nvmlDeviceGetGpuInstances(card, info.id, handles, ctypes.byref(count))
        except nvml.NVMLError as error:
            if error.value in _ABSENT:
                return []
            raise
        # An array of pointers gives plain numbers where it is sliced.
        return [ctypes.cast(handle, nvml.c_nvmlGpuInstance_t) for handle in handles[: count.value]]

    def _instance(self, handle: Any, uuids: dict[int, tuple[int, str]]) -> Instance:
        info = self._nvml.nvmlGpuInstanceGetInfo(handle)
        compute, uuid = uuids.get(int(info.id), (None, ""))
        place = info.placement
        return Instance(int(info.id), int(info.profileId), int(place.start), int(place.size), compute, uuid)

    def _partition_uuids(self, card: Any) -> dict[int, tuple[int, str]]:
        """GPU instance -> its first compute instance and that one's UUID."""
        nvml = self._nvml
        found: dict[int, tuple[int, str]] = {}
        for number in range(self._optional(nvml.nvmlDeviceGetMaxMigDeviceCount, card) or 0):
            try:
                partition = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, number)
            except nvml.NVMLError as error:
                if error.value in (NOT_FOUND, *_ABSENT):
                    continue
                raise
            told = (int(nvml.nvmlDeviceGetComputeInstanceId(partition)), str(nvml.nvmlDeviceGetUUID(partition)))
            found.setdefault(int(nvml.nvmlDeviceGetGpuInstanceId(partition)), told)
        return found

    def set_mig_mode(self, uuid: str, enabled: bool) -> bool:
        """Turn MIG on or off."""
        with self._told():
            return int(self._nvml.nvmlDeviceSetMigMode(self._card(uuid), int(enabled))) == 0

    def create_instance(self, uuid: str, profile: int, start: int) -> Instance:
        """Make a GPU instance."""
        nvml = self._nvml
        with self._told():
            card = self._card(uuid)
            size = next((size for at, size in self._placements(card, profile) if at == start), 0)
            place = nvml.c_nvmlGpuInstancePlacement_t(start, size)
            made = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(card, profile, ctypes.byref(place))
            return self._instance(made, {})

    def create_compute_instance(self, uuid: str, instance: int) -> Instance:
        """Make a compute instance with all of a GPU instance."""
        nvml = self._nvml
        with self._told():
            card = self._card(uuid)
            handle = nvml.nvmlDeviceGetGpuInstanceById(card, instance)
            profile = int(nvml.nvmlGpuInstanceGetInfo(handle).profileId)
            slices = next(each.slices for each in self.profiles(uuid) if each.id == profile)
            info = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(handle, _COMPUTE_PROFILES[slices], 0)
            nvml.nvmlGpuInstanceCreateComputeInstance(handle, info.id)
            return self._instance(handle, self._partition_uuids(card))

    def destroy_compute_instance(self, uuid: str, instance: int) -> None:
        """Remove the compute instance."""
        nvml = self._nvml
        with self._told():
            card = self._card(uuid)
            compute, _ = self._partition_uuids(card)[instance]
            handle = nvml.nvmlDeviceGetGpuInstanceById(card, instance)
            nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(handle, compute))

    def destroy_instance(self, uuid: str, instance: int) -> None:
        """Remove a GPU instance."""
        with self._told():
            handle = self._nvml.nvmlDeviceGetGpuInstanceById(self._card(uuid), instance)
            self._nvml.nvmlGpuInstanceDestroy(handle)

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        """Who may use a card."""
        with self._told():
            self._nvml.nvmlDeviceSetComputeMode(self._card(uuid), mode)

    def readings(self, uuid: str) -> Readings:
        """The sensors."""
        nvml = self._nvml
        with self._told():
            card = self._card(uuid)
            rates = self._optional(nvml.nvmlDeviceGetUtilizationRates, card)
            reasons = self._optional(nvml.nvmlDeviceGetCurrentClocksEventReasons, card)
            hot = nvml.nvmlClocksEventReasonHwThermalSlowdown | nvml.nvmlClocksEventReasonSwThermalSlowdown
            errors = self._optional(
                nvml.nvmlDeviceGetTotalEccErrors,
                card,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            )
            temperature = self._optional(nvml.nvmlDeviceGetTemperature, card, nvml.NVML_TEMPERATURE_GPU)
        return Readings(
            None if rates is None else int(rates.gpu),
            None if temperature is None else int(temperature),
            None if reasons is None else bool(reasons & hot),
            None if errors is None else int(errors),
        )

    def watch(self, uuid: str) -> bool:
        """Enable events of a card."""
        nvml = self._nvml
        with self._told():
            card = self._card(uuid)
            supported = self._optional(nvml.nvmlDeviceGetSupportedEventTypes, card) or 0
            if not supported & nvml.nvmlEventTypeXidCriticalError:
                return False
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(card, nvml.nvmlEventTypeXidCriticalError, self._events)
        return True

    def wait(self, seconds: float) -> Event | None:
        """The next event."""
        nvml = self._nvml
        if self._events is None:
            return None
        try:
            told = nvml.nvmlEventSetWait_v2(self._events, int(seconds * 1000))
        except nvml.NVMLError as error:
            if error.value == _TIMEOUT:
                return None
            raise NvmlError(error.value, str(error)) from None
        with self._told():
            uuid = str(nvml.nvmlDeviceGetUUID(told.device))
        return Event(uuid, int(told.eventData), None if told.gpuInstanceId == _WHOLE else int(told.gpuInstanceId))

    def _card(self, uuid: str) -> Any:
        return self._nvml.nvmlDeviceGetHandleByUUID(uuid)

    def _optional(self, call: Any, *arguments: Any) -> Any:
        """What a card may not have: None then."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in _ABSENT:
                return None
            raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            raise NvmlError(error.value, str(error)) from None


def _profile(info: Any, places: list[tuple[int, int]]) -> InstanceProfile:
    name = info.name.decode() if isinstance(info.name, bytes) else str(info.name)
    return InstanceProfile(
        id=int(info.id),
        name=name.removeprefix("MIG "),
        slices=int(info.sliceCount),
        instances=int(info.instanceCount),
        multiprocessors=int(info.multiprocessorCount),
        copy_engines=int(info.copyEngineCount),
        decoders=int(info.decoderCount),
        encoders=int(info.encoderCount),
        jpeg_engines=int(info.jpegCount),
        ofa_engines=int(info.ofaCount),
        memory_mib=int(info.memorySizeMB),
        size=places[0][1],
        starts=tuple(start for start, _ in places),
    )
