"""The binding, through the whole of nvidia-ml-py down to a library that answers as C does, out of the player.

No card has been asked: what this shows is that calls, structures and handles are used as nvidia-ml-py declares them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import pytest
from nvidia_bench import played

from haru.drivers.nvidia import binding
from haru.drivers.nvidia.binding import NvmlMissing, PyNvml
from haru.drivers.nvidia.nvml import Event, Instance, NvmlError, Readings
from haru.drivers.nvidia.recording import record
from haru.drivers.nvidia.simulated_nvml import SimulatedNvml

_CARD, _PARTITION, _INSTANCE = 0x1000, 0x200000, 0x300000


def _address(handle: Any) -> int:
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)


def _put_handle(reference: Any, address: int) -> None:
    ctypes.cast(reference, ctypes.POINTER(ctypes.c_void_p))[0] = address


class Library:
    """libnvidia-ml's functions, by their names in C; the player answers."""

    def __init__(self, nvml: SimulatedNvml) -> None:
        self.nvml = nvml
        self.events = False

    def __getattr__(self, name: str) -> Callable[..., int]:
        work = getattr(type(self), f"c_{name}", None)
        if work is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            try:
                return int(work(self, *arguments) or 0)
            except NvmlError as error:
                return error.code

        return call

    def card(self, handle: Any) -> Any:
        return self.nvml.cards()[_address(handle) - _CARD]

    def found(self, handle: Any) -> tuple[str, Instance]:
        """(card, instance) of a handle of a GPU instance, its compute instance or the partition."""
        number = _address(handle) & 0xFFFFF
        uuid = self.nvml.cards()[number >> 8].uuid
        for each in self.nvml.instances(uuid):
            if each.id == number & 0xFF:
                return uuid, each
        raise NvmlError(6, "")

    def at(self, card: Any) -> int:
        return _address(card) - _CARD

    def c_nvmlInitWithFlags(self, flags: Any) -> None: ...

    def c_nvmlSystemGetDriverVersion(self, buffer: Any, size: Any) -> None:
        buffer.value = self.nvml.system().driver_version.encode()

    def c_nvmlSystemGetCudaDriverVersion(self, number: Any) -> None:
        number._obj.value = self.nvml.system().cuda_version

    def c_nvmlDeviceGetCount_v2(self, count: Any) -> None:
        count._obj.value = len(self.nvml.cards())

    def c_nvmlDeviceGetHandleByIndex_v2(self, index: Any, card: Any) -> None:
        _put_handle(card, _CARD + index.value)

    def c_nvmlDeviceGetHandleByUUID(self, uuid: Any, card: Any) -> None:
        uuids = [each.uuid for each in self.nvml.cards()]
        if uuid.value.decode() not in uuids:
            raise NvmlError(6, "")
        _put_handle(card, _CARD + uuids.index(uuid.value.decode()))

    def c_nvmlDeviceGetUUID(self, handle: Any, buffer: Any, size: Any) -> None:
        if _address(handle) >= _PARTITION:
            buffer.value = self.found(handle)[1].uuid.encode()
        else:
            buffer.value = self.card(handle).uuid.encode()

    def c_nvmlDeviceGetName(self, card: Any, buffer: Any, size: Any) -> None:
        buffer.value = self.card(card).name.encode()

    def c_nvmlDeviceGetMinorNumber(self, card: Any, number: Any) -> None:
        number._obj.value = self.card(card).minor

    def c_nvmlDeviceGetBrand(self, card: Any, number: Any) -> None:
        number._obj.value = binding._BRANDS.index(self.card(card).brand)

    def c_nvmlDeviceGetArchitecture(self, card: Any, number: Any) -> None:
        names = {name: key for key, name in binding._ARCHITECTURES.items()}
        number._obj.value = names[self.card(card).architecture]

    def c_nvmlDeviceGetCudaComputeCapability(self, card: Any, major: Any, minor: Any) -> None:
        major._obj.value, minor._obj.value = map(int, self.card(card).compute_capability.split("."))

    def c_nvmlDeviceGetMemoryInfo(self, card: Any, info: Any) -> None:
        info._obj.total = self.card(card).memory_bytes

    def c_nvmlDeviceGetPciInfo_v3(self, card: Any, info: Any) -> None:
        domain, bus, device = self.card(card).pci_bus_id.removesuffix(".0").split(":")
        info._obj.domain, info._obj.bus, info._obj.device = int(domain, 16), int(bus, 16), int(device, 16)

    def c_nvmlDeviceGetMigMode(self, card: Any, current: Any, pending: Any) -> int:
        mode = self.card(card).mig_mode
        if mode is None:
            return 3
        current._obj.value = pending._obj.value = int(mode)
        return 0

    def c_nvmlDeviceSetMigMode(self, card: Any, mode: Any, status: Any) -> None:
        status._obj.value = 0 if self.nvml.set_mig_mode(self.card(card).uuid, bool(mode)) else 999

    def profile(self, card: Any, number: int) -> Any:
        kinds = {0: "1g", 1: "2g", 2: "3g", 3: "4g", 4: "7g", 7: "1g+me", 8: "2g+me", 9: "1g-double"}
        for each in self.nvml.profiles(self.card(card).uuid):
            size = "-double" if each.slices == 1 and each.size == 2 else "+me" if each.name.endswith("+me") else ""
            if kinds.get(number) == f"{each.slices}g{size}":
                return each
        raise NvmlError(3, "")

    def c_nvmlDeviceGetGpuInstanceProfileInfoV(self, card: Any, number: int, reference: Any) -> None:
        each, info = self.profile(card, number), reference._obj
        info.id, info.sliceCount, info.instanceCount = each.id, each.slices, each.instances
        info.multiprocessorCount, info.copyEngineCount = each.multiprocessors, each.copy_engines
        info.decoderCount, info.encoderCount = each.decoders, each.encoders
        info.jpegCount, info.ofaCount, info.memorySizeMB = each.jpeg_engines, each.ofa_engines, each.memory_mib
        info.name = f"MIG {each.name}".encode()

    def c_nvmlDeviceGetGpuInstancePossiblePlacements_v2(self, card: Any, id_: int, places: Any, count: Any) -> None:
        each = next(each for each in self.nvml.profiles(self.card(card).uuid) if each.id == id_)
        count._obj.value = len(each.starts)
        for number, start in enumerate(each.starts if places is not None else ()):
            places[number].start, places[number].size = start, each.size

    def c_nvmlDeviceGetGpuInstances(self, card: Any, id_: int, handles: Any, count: Any) -> None:
        some = [each for each in self.nvml.instances(self.card(card).uuid) if each.profile == id_]
        count._obj.value = len(some)
        for number, each in enumerate(some):
            _put_handle(ctypes.byref(handles, number * ctypes.sizeof(ctypes.c_void_p)), self.handle(card, each))

    def handle(self, card: Any, instance: Instance, kind: int = _INSTANCE) -> int:
        return kind + (self.at(card) << 8) + instance.id

    def c_nvmlDeviceGetGpuInstanceById(self, card: Any, id_: int, reference: Any) -> None:
        each = next(each for each in self.nvml.instances(self.card(card).uuid) if each.id == id_)
        _put_handle(reference, self.handle(card, each))

    def c_nvmlGpuInstanceGetInfo(self, handle: Any, reference: Any) -> None:
        _, each = self.found(handle)
        reference._obj.id, reference._obj.profileId = each.id, each.profile
        reference._obj.placement.start, reference._obj.placement.size = each.start, each.size

    def c_nvmlDeviceGetMaxMigDeviceCount(self, card: Any, count: Any) -> None:
        count._obj.value = 7

    def c_nvmlDeviceGetMigDeviceHandleByIndex(self, card: Any, index: Any, reference: Any) -> int:
        some = [each for each in self.nvml.instances(self.card(card).uuid) if each.uuid]
        if index.value >= len(some):
            return 6
        _put_handle(reference, self.handle(card, some[index.value], _PARTITION))
        return 0

    def c_nvmlDeviceGetGpuInstanceId(self, partition: Any, number: Any) -> None:
        number._obj.value = self.found(partition)[1].id

    def c_nvmlDeviceGetComputeInstanceId(self, partition: Any, number: Any) -> None:
        number._obj.value = self.found(partition)[1].compute_instance

    def c_nvmlDeviceCreateGpuInstanceWithPlacement(self, card: Any, id_: int, place: Any, reference: Any) -> None:
        made = self.nvml.create_instance(self.card(card).uuid, id_, place._obj.start)
        assert place._obj.size == made.size
        _put_handle(reference, self.handle(card, made))

    def c_nvmlGpuInstanceGetComputeInstanceProfileInfoV(self, handle: Any, number: int, engine: int, info: Any) -> None:
        info._obj.id = 100 + number

    def c_nvmlGpuInstanceCreateComputeInstance(self, handle: Any, id_: int, reference: Any) -> None:
        uuid, each = self.found(handle)
        profile = next(kind for kind in self.nvml.profiles(uuid) if kind.id == each.profile)
        assert {100: 1, 101: 2, 102: 3, 103: 4, 104: 7}[id_] == profile.slices, "less than all of the instance"
        self.nvml.create_compute_instance(uuid, each.id)

    def c_nvmlGpuInstanceGetComputeInstanceById(self, handle: Any, id_: int, reference: Any) -> None:
        _put_handle(reference, _address(handle))

    def c_nvmlComputeInstanceDestroy(self, handle: Any) -> None:
        uuid, each = self.found(handle)
        self.nvml.destroy_compute_instance(uuid, each.id)

    def c_nvmlGpuInstanceDestroy(self, handle: Any) -> None:
        uuid, each = self.found(handle)
        self.nvml.destroy_instance(uuid, each.id)

    def c_nvmlDeviceSetComputeMode(self, card: Any, mode: Any) -> None:
        self.nvml.set_compute_mode(self.card(card).uuid, mode.value)

    def reading(self, card: Any, name: str) -> int:
        value = getattr(self.nvml.readings(self.card(card).uuid), name)
        if value is None:
            raise NvmlError(3, "")
        return int(value)

    def c_nvmlDeviceGetUtilizationRates(self, card: Any, rates: Any) -> None:
        rates._obj.gpu = self.reading(card, "utilization_percent")

    def c_nvmlDeviceGetTemperature(self, card: Any, sensor: Any, number: Any) -> None:
        number._obj.value = self.reading(card, "temperature_celsius")

    def c_nvmlDeviceGetCurrentClocksEventReasons(self, card: Any, reasons: Any) -> None:
        reasons._obj.value = 0x40 if self.reading(card, "is_slowed_by_heat") else 0x1

    def c_nvmlDeviceGetTotalEccErrors(self, card: Any, kind: Any, counter: Any, count: Any) -> None:
        assert (kind.value, counter.value) == (1, 0), "uncorrected, volatile"
        count._obj.value = self.reading(card, "uncorrected_errors")

    def c_nvmlDeviceGetSupportedEventTypes(self, card: Any, types: Any) -> None:
        types._obj.value = 0x8 if self.nvml.watch(self.card(card).uuid) else 0

    def c_nvmlEventSetCreate(self, reference: Any) -> None:
        _put_handle(reference, 1)

    def c_nvmlDeviceRegisterEvents(self, card: Any, types: Any, events: Any) -> None:
        assert (types.value, _address(events)) == (0x8, 1)

    def c_nvmlEventSetWait_v2(self, events: Any, reference: Any, milliseconds: Any) -> int:
        event = self.nvml.wait(milliseconds.value / 1000)
        if event is None:
            return 10
        uuids = [each.uuid for each in self.nvml.cards()]
        told = reference._obj
        told.device = ctypes.cast(ctypes.c_void_p(_CARD + uuids.index(event.uuid)), type(told.device))
        told.eventType, told.eventData = 0x8, event.xid
        told.gpuInstanceId = 0xFFFFFFFF if event.instance is None else event.instance
        return 0


@pytest.fixture
def below(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[SimulatedNvml], PyNvml]]:
    def bound(nvml: SimulatedNvml) -> PyNvml:
        monkeypatch.setattr(pynvml, "nvmlLib", Library(nvml))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        places = {each.pci_bus_id: (each.pcie_root, each.numa_node) for each in nvml.cards()}
        monkeypatch.setattr(binding, "pci_places", lambda bus_id: places[bus_id])
        return PyNvml()

    yield bound


@pytest.mark.parametrize("profile", ["dgx-h100", "dgx-h100-mig-balanced", "a30-mig-balanced", "t4", "rtx-6000-ada"])
def test_nvml_calls_return_recorded_data(profile: str, below: Callable[[SimulatedNvml], PyNvml]) -> None:
    nvml = played(profile)
    asked, expected = record(below(nvml)), record(nvml)
    for card in (*asked.cards, *expected.cards):
        card.profiles.sort(key=lambda each: each.id)
    assert asked == expected


def test_mig_partition_is_created_and_destroyed_through_nvml(below: Callable[[SimulatedNvml], PyNvml]) -> None:
    nvml = played("dgx-h100-mig")
    bound = below(nvml)
    (_, card) = nvml.cards()
    with pytest.raises(NvmlError, match="Not Supported"):
        bound.create_instance(card.uuid, 9, 4)
    assert bound.set_mig_mode(card.uuid, True)
    first = bound.create_instance(card.uuid, 19, 0)
    made = bound.create_instance(card.uuid, 9, 4)
    assert made == Instance(2, 9, 4, 4)
    whole = bound.create_compute_instance(card.uuid, made.id)
    assert whole == nvml.instances(card.uuid)[1] and whole.uuid.startswith("MIG-")
    assert bound.instances(card.uuid) == [first, whole]
    with pytest.raises(NvmlError, match=r"\(23\)"):
        bound.create_instance(card.uuid, 9, 4)
    bound.destroy_compute_instance(card.uuid, made.id)
    bound.destroy_instance(card.uuid, made.id)
    assert nvml.instances(card.uuid) == [first]


def test_mig_mode_change_that_needs_reset_returns_false(below: Callable[[SimulatedNvml], PyNvml]) -> None:
    nvml = played("dgx-a100-40gb-mig", 1)
    assert below(nvml).set_mig_mode(nvml.cards()[0].uuid, True) is False


def test_sensors_compute_modes_and_events_pass_through_nvml(below: Callable[[SimulatedNvml], PyNvml]) -> None:
    nvml = played("t4")
    bound = below(nvml)
    (first, second) = (card.uuid for card in nvml.cards())
    nvml.set_readings(first, Readings(31, 93, True, 4))
    nvml.set_readings(second, Readings())
    assert bound.readings(first) == Readings(31, 93, True, 4)
    assert bound.readings(second) == Readings()
    bound.set_compute_mode(second, 3)
    assert nvml.compute_modes == {second: 3}
    assert bound.wait(0) is None
    assert bound.watch(first)
    assert bound.wait(0) is None
    for event in (Event(first, 79), Event(first, 63, 2)):
        nvml.happen(event)
        assert bound.wait(0) == event
    with pytest.raises(NvmlError, match="Not Found"):
        bound.readings("GPU-nowhere")


def test_missing_nvml_library_raises_nvml_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: Any) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", absent)
    with pytest.raises(NvmlMissing, match="is NVIDIA's kernel driver on this machine"):
        PyNvml()
