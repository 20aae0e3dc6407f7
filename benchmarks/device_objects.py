"""Builds objects for device allocation problems: nodes, classes, claims, and slices as drivers publish them.

MIG partitions draw on shared counters as the NVIDIA driver has them; slices keep to the limits of the API.
"""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]

GPU = "gpu.nvidia.com"
NIC = "nic.example.com"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = f"{GPU}/numaNode"

# What is on by default in a Kubernetes 1.36 cluster.
FEATURES = {
    "AdminAccess": True,
    "ConsumableCapacity": True,
    "DeviceBindingAndStatus": True,
    "DeviceTaints": True,
    "ListTypeAttributes": False,
    "PartitionableDevices": True,
    "PrioritizedList": True,
}

# architecture -> (product, memory in GiB)
PRODUCTS = {
    "Ampere": ("NVIDIA A100-SXM4-80GB", 80),
    "Hopper": ("NVIDIA H100 80GB HBM3", 80),
    "Blackwell": ("NVIDIA B200", 180),
}

# MIG profiles of an 80 GB GPU with 8 memory slices and 7 compute slices:
# profile -> (compute slices, memory slices, first memory slice of each placement, media engines)
MIG_PROFILES = {
    "1g.10gb": (1, 1, (0, 1, 2, 3, 4, 5, 6), 0),
    "1g.10gb+me": (1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    "1g.20gb": (1, 2, (0, 2, 4, 6), 1),
    "2g.20gb": (2, 2, (0, 2, 4), 2),
    "3g.40gb": (3, 4, (0, 4), 3),
    "4g.40gb": (4, 4, (0,), 4),
    "7g.80gb": (7, 8, (0,), 7),
}
MIG_COMPUTE_SLICES = 7
MIG_MEMORY_SLICES = 8

# API limits which shape what a driver may publish.
MAX_DEVICES_PER_SLICE = 128
MAX_COUNTING_DEVICES_PER_SLICE = 64
MAX_COUNTER_SETS_PER_SLICE = 8
MAX_DEVICES_PER_CLAIM = 32


# ---------------------------------------------------------------- objects


def node(name: str) -> Json:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}


def device_class(name: str, expression: str) -> Json:
    return {
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


CLASSES = [
    device_class(
        "gpu.nvidia.com",
        f"device.driver == '{GPU}' && device.attributes['{GPU}'].type == 'gpu'",
    ),
    device_class(
        "mig.nvidia.com",
        f"device.driver == '{GPU}' && device.attributes['{GPU}'].type == 'mig'",
    ),
    device_class("nic.example.com", f"device.driver == '{NIC}'"),
]


def exactly(count: int = 1, selector: str | None = None, cls: str = "gpu.nvidia.com") -> Json:
    what: Json = {"deviceClassName": cls, "allocationMode": "ExactCount", "count": count}
    if selector is not None:
        what["selectors"] = [{"cel": {"expression": selector}}]
    return what


def request(name: str, count: int = 1, selector: str | None = None, cls: str = "gpu.nvidia.com") -> Json:
    return {"name": name, "exactly": exactly(count, selector, cls)}


def first_available(name: str, *options: Json) -> Json:
    return {"name": name, "firstAvailable": [{"name": f"option-{i}", **o} for i, o in enumerate(options)]}


def claim(name: str, requests: list[Json], constraints: list[Json] | None = None) -> Json:
    devices: Json = {"requests": requests}
    if constraints:
        devices["constraints"] = constraints
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": devices},
    }


def match(attribute: str, *requests: str) -> Json:
    constraint: Json = {"matchAttribute": attribute}
    if requests:
        constraint["requests"] = list(requests)
    return constraint


def distinct(attribute: str, *requests: str) -> Json:
    constraint: Json = {"distinctAttribute": attribute}
    if requests:
        constraint["requests"] = list(requests)
    return constraint


def attribute(value: str | int | bool) -> Json:
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"string": value}


def device(name: str, attributes: dict[str, str | int | bool], memory_gib: int | None = None) -> Json:
    result: Json = {"name": name, "attributes": {k: attribute(v) for k, v in attributes.items()}}
    if memory_gib is not None:
        result["capacity"] = {"memory": {"value": f"{memory_gib}Gi"}}
    return result


def pool(node_name: str, devices: list[Json], driver: str = GPU, counter_sets: list[Json] | None = None) -> list[Json]:
    """All slices of the pool which a driver publishes for one node."""
    size = MAX_COUNTING_DEVICES_PER_SLICE if counter_sets else MAX_DEVICES_PER_SLICE
    specs: list[Json] = [{"devices": devices[i : i + size]} for i in range(0, len(devices), size)]
    sets = counter_sets or []
    for i in range(0, len(sets), MAX_COUNTER_SETS_PER_SLICE):
        specs.append({"sharedCounters": sets[i : i + MAX_COUNTER_SETS_PER_SLICE]})
    return [
        {
            "metadata": {"name": f"{node_name}-{driver}-{i:03}"},
            "spec": {
                "driver": driver,
                "nodeName": node_name,
                "pool": {"name": node_name, "generation": 1, "resourceSliceCount": len(specs)},
                **spec,
            },
        }
        for i, spec in enumerate(specs)
    ]


def full_gpu(index: int, architecture: str, numa: int, root: str, **more: str | int | bool) -> Json:
    product, memory = PRODUCTS[architecture]
    return device(
        f"gpu-{index}",
        {
            "type": "gpu",
            "architecture": architecture,
            "productName": product,
            "index": index,
            "numaNode": numa,
            PCIE_ROOT: root,
            **more,
        },
        memory,
    )


def gpu_node(name: str, architecture: str, gpus: int = 8, per_root: int = 2, per_numa: int = 4) -> list[Json]:
    return pool(
        name,
        [full_gpu(i, architecture, i // per_numa, f"pci0000:{i // per_root:02x}") for i in range(gpus)],
    )


def mig_counters(gpu: int) -> Json:
    counters = {f"memory-slice-{i}": {"value": "1"} for i in range(MIG_MEMORY_SLICES)}
    counters["compute-slices"] = {"value": str(MIG_COMPUTE_SLICES)}
    counters["media-engines"] = {"value": "7"}
    return {"name": f"gpu-{gpu}-counters", "counters": counters}


def mig_devices(gpu: int, architecture: str) -> list[Json]:
    """The whole GPU and each of its partitions, all of which draw on the same counters."""
    whole = full_gpu(gpu, architecture, gpu // 4, f"pci0000:{gpu // 2:02x}")
    counters = mig_counters(gpu)
    whole["consumesCounters"] = [{"counterSet": counters["name"], "counters": counters["counters"]}]
    devices = [whole]
    for profile, (compute, memory, placements, engines) in MIG_PROFILES.items():
        for first in placements:
            taken = {f"memory-slice-{i}": {"value": "1"} for i in range(first, first + memory)}
            taken["compute-slices"] = {"value": str(compute)}
            if engines:
                taken["media-engines"] = {"value": str(engines)}
            mig = device(
                f"gpu-{gpu}-mig-{profile.replace('.', '-').replace('+', '-')}-{first}",
                {
                    "type": "mig",
                    "architecture": architecture,
                    "profile": profile,
                    "parentIndex": gpu,
                    "numaNode": gpu // 4,
                    PCIE_ROOT: f"pci0000:{gpu // 2:02x}",
                },
                10 * memory,
            )
            mig["consumesCounters"] = [{"counterSet": counters["name"], "counters": taken}]
            devices.append(mig)
    return devices


def mig_node(name: str, gpus: int = 8, architecture: str = "Hopper") -> list[Json]:
    devices = [d for gpu in range(gpus) for d in mig_devices(gpu, architecture)]
    return pool(name, devices, counter_sets=[mig_counters(gpu) for gpu in range(gpus)])


def profile(name: str) -> str:
    return f"device.attributes['{GPU}'].profile == '{name}'"


def mig_requests(mix: dict[str, int]) -> list[Json]:
    return [request(f"part-{i}", n, profile(p), "mig.nvidia.com") for i, (p, n) in enumerate(mix.items())]


def device_ids(slices: list[Json]) -> list[Json]:
    return [
        {"driver": s["spec"]["driver"], "pool": s["spec"]["pool"]["name"], "device": d["name"]}
        for s in slices
        for d in s["spec"].get("devices", [])
    ]


def pack_partitions(rng: random.Random, slices: list[Json], share: float) -> list[Json]:
    """Pick partitions at random which fit together, until about this share of all memory slices is taken."""
    counters = {}
    for s in slices:
        for c in s["spec"].get("sharedCounters", []):
            counters[c["name"]] = {k: int(v["value"]) for k, v in c["counters"].items()}
    total = len(counters) * MIG_MEMORY_SLICES
    candidates = [
        (identity, d)
        for s in slices
        for identity, d in zip(device_ids([s]), s["spec"].get("devices", []), strict=True)
        if d["attributes"]["type"]["string"] == "mig"
    ]
    rng.shuffle(candidates)
    taken, picked = 0, []
    for identity, d in candidates:
        need = [(u["counterSet"], k, int(v["value"])) for u in d["consumesCounters"] for k, v in u["counters"].items()]
        if taken < share * total and all(counters[s][k] >= n for s, k, n in need):
            for s, k, n in need:
                counters[s][k] -= n
            taken += sum(n for _, k, n in need if k.startswith("memory-slice-"))
            picked.append(identity)
    return picked


def problem(
    slices: list[Json],
    claims: list[Json],
    nodes: list[str] | None = None,
    allocated: list[Json] | None = None,
) -> Json:
    result: Json = {
        "features": dict(FEATURES),
        "classes": CLASSES,
        "claims": claims,
        "slices": slices,
        "allocated": allocated or [],
    }
    if nodes is None:
        result["node"] = node("node-0")
    else:
        result["nodes"] = [node(n) for n in nodes]
    return result
