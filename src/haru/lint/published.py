"""What drivers publish: the attributes, capacities, classes and configuration kinds that are known beforehand.

A closed driver publishes what its table says and nothing else, so an unknown name is an error there. An open one is an
example or changes from release to release: its table only serves to recognise slips. Slices in the files at hand add to
both. Sources: the drivers' own publication, see docs/reference/lint.md; KEP 5075, 6072 for standard attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STANDARD_DOMAIN = "resource.kubernetes.io"
NVIDIA = "gpu.nvidia.com"
COMPUTE_DOMAIN = "compute-domain.nvidia.com"
TPU = "tpu.google.com"

STANDARD: Mapping[str, str] = {"pcieRoot": "string", "pciBusID": "string", "numaNode": "int"}
"""Attributes with a meaning that is the same for every driver."""


@dataclass(frozen=True, slots=True)
class Driver:
    """What one driver publishes. `attributes` are type by name; `only` limits names to values of `type`."""

    name: str
    closed: bool
    attributes: Mapping[str, str]
    capacity: frozenset[str]
    only: Mapping[str, frozenset[str]] = field(default_factory=dict)


def _all(kind: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), kind)


def _words(names: str) -> frozenset[str]:
    return frozenset(names.split())


_MIG = frozenset({"mig"})
_VFIO = frozenset({"vfio"})
_NOT_VFIO = frozenset({"gpu", "mig"})

DRIVERS: Mapping[str, Driver] = {
    driver.name: driver
    for driver in (
        Driver(
            NVIDIA,
            True,
            {
                **_all("string", "type uuid parentUUID profile productName brand architecture addressingMode"),
                **_all("version", "cudaComputeCapability driverVersion cudaDriverVersion"),
                **_all("int", "gpuModuleID partition1 partition2 partition4 partition8"),
                **_all("string", "deviceID vendorID"),
                "iommuFDEnabled": "bool",
            },
            _words("memory multiprocessors copyEngines decoders encoders jpegEngines ofaEngines")
            | _words("addressableMemory shares")
            | {f"memorySlice{index}" for index in range(8)},
            {
                "profile": _MIG,
                "parentUUID": _MIG,
                **dict.fromkeys(("brand", "architecture", "cudaComputeCapability", "driverVersion"), _NOT_VFIO),
                "cudaDriverVersion": _NOT_VFIO,
                **dict.fromkeys(("deviceID", "vendorID", "iommuFDEnabled"), _VFIO),
            },
        ),
        Driver(COMPUTE_DOMAIN, True, {"type": "string", "id": "int", "domain": "string"}, frozenset()),
        Driver(
            TPU,
            True,
            {**_all("string", "generation topology uuid"), **_all("int", "chipIndex index")},
            frozenset({"hbm", "tpus"}),
        ),
        Driver(
            "gpu.amd.com",
            False,
            {
                **_all("string", "type deviceID productName driverVersionFull partitionProfile pciAddr"),
                **_all("string", "computePartition memoryPartition"),
                **_all("int", "numaNode gpuIndex"),
                "driverVersion": "version",
            },
            frozenset({"memory", "computeUnits", "simdUnits", "partitions"}),
        ),
        Driver("gaudi.intel.com", False, {**_all("string", "model serial pciRoot"), "healthy": "bool"}, frozenset()),
        Driver(
            "gpu.example.com",
            False,
            {
                **_all("int", "index partition"),
                **_all("string", "uuid model type profile parentUUID"),
                **_all("bool", "partitionable full"),
                "driverVersion": "version",
            },
            frozenset({"memory", "compute", "vfs", "ingressBandwidth", "egressBandwidth"}),
        ),
        Driver(
            "dra.net",
            False,
            {
                **_all(
                    "string", "ifName mac pciVendor pciDevice pciSubsystem encapsulation alias state type ipv4 ipv6"
                ),
                **_all("bool", "rdma ebpf sriov virtual"),
                **_all("int", "mtu numaNode sriovVfs"),
            },
            frozenset(),
        ),
    )
}

CLASSES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "gpu.nvidia.com": (NVIDIA, {"type": "gpu"}),
    "mig.nvidia.com": (NVIDIA, {"type": "mig"}),
    "vfio.gpu.nvidia.com": (NVIDIA, {"type": "vfio"}),
    "compute-domain-daemon.nvidia.com": (COMPUTE_DOMAIN, {"type": "daemon"}),
    "compute-domain-default-channel.nvidia.com": (COMPUTE_DOMAIN, {"type": "channel"}),
    "tpu.google.com": (TPU, {}),
    "gpu.amd.com": ("gpu.amd.com", {}),
    "gaudi.intel.com": ("gaudi.intel.com", {}),
    "gpu.example.com": ("gpu.example.com", {}),
    "dra.net": ("dra.net", {}),
}
"""Classes that drivers bring along: their driver, and the attributes that they fix."""

_SYNONYMS = {
    "productName": "model name product modelname gpumodel",
    "uuid": "index minor gpuindex id",
    "architecture": "arch generation",
    "brand": "vendor",
    "profile": "migprofile partition slice",
    "parentUUID": "parent",
    "cudaComputeCapability": "computecapability",
    "cudaDriverVersion": "cudaversion cuda",
    "driverVersion": "driver",
    "numaNode": "numa numanodeid",
    "pcieRoot": "pcieroot",
    "pciBusID": "pcibus pciaddress",
    "multiprocessors": "sms smcount streamingmultiprocessors",
}
SYNONYMS: Mapping[str, str] = {word: name for name, words in _SYNONYMS.items() for word in words.split()}
"""What people call things, in lower case without signs; what a driver calls them."""
MEMORY_WORDS = frozenset(
    {"memory", "mem", "vram", "gpumemory", "memorysize", "hbm", "fbmemory", "framebuffer", "totalmemory"}
)

CONFIG_GROUP = "resource.nvidia.com/v1beta1"
CONFIG_KINDS: Mapping[str, frozenset[str]] = {
    "GpuConfig": frozenset({"sharing"}),
    "MigDeviceConfig": frozenset({"sharing"}),
    "VfioDeviceConfig": frozenset({"iommu"}),
    "ComputeDomainChannelConfig": frozenset({"domainID", "allocationMode"}),
    "ComputeDomainDaemonConfig": frozenset({"domainID"}),
}
CONFIG_TYPES: Mapping[str, str] = {"GpuConfig": "gpu", "MigDeviceConfig": "mig", "VfioDeviceConfig": "vfio"}
KINDLESS_DRIVERS = frozenset({"dra.net"})
"""Drivers whose parameters have no apiVersion and kind."""

ARCHITECTURES = ("Pascal", "Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Rubin")

# Gibibytes that a device is named after -> those that it has at least.
MIG_MEMORY: Mapping[int, int] = {
    5: 4,
    6: 5,
    10: 9,
    12: 11,
    18: 17,
    20: 19,
    23: 22,
    24: 22,
    40: 39,
    47: 46,
    48: 47,
    71: 70,
    80: 78,
}
GPU_MEMORY: Mapping[int, int] = {48: 44, 80: 79, 94: 93, 96: 94, 141: 140, 180: 178, 192: 191}


def plain(name: str) -> str:
    """A name in lower case without signs, for comparing."""
    return "".join(letter for letter in name.lower() if letter.isalnum())
