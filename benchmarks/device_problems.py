"""69 seeded device allocation problems, in the form of the allocator's test vectors.

A problem is one JSON document: name, features, classes, claims, slices, allocated, and either node or nodes (allocation
is to be attempted on each in turn, as a scheduler does). The same seed always gives the same documents.

    python -m benchmarks.device_problems --list
    python -m benchmarks.device_problems --family mig --family hard > problems.jsonl
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import random
import sys
from collections.abc import Callable, Iterator

from benchmarks.device_objects import (
    GPU,
    NIC,
    NUMA_NODE,
    PCIE_ROOT,
    PRODUCTS,
    Json,
    claim,
    device,
    device_ids,
    distinct,
    exactly,
    first_available,
    full_gpu,
    gpu_node,
    match,
    mig_node,
    mig_requests,
    pack_partitions,
    pool,
    problem,
    request,
)

Workload = Callable[[random.Random], Json]
WORKLOADS: dict[str, Workload] = {}

HOPPER_80 = (
    f"device.attributes['{GPU}'].architecture == 'Hopper' && "
    f"device.capacity['{GPU}'].memory.compareTo(quantity('80Gi')) >= 0"
)


def add(name: str, build: Workload) -> None:
    WORKLOADS[name] = build


def full(nodes: int, count: int) -> Workload:
    """Whole GPUs, chosen by memory and architecture, tried on every node of a mixed cluster."""

    def build(rng: random.Random) -> Json:
        names = [f"node-{i}" for i in range(nodes)]
        slices = [s for n in names for s in gpu_node(n, rng.choice(sorted(PRODUCTS)))]
        return problem(slices, [claim("claim-0", [request("gpus", count, HOPPER_80)])], names)

    return build


def many_claims(nodes: int, claims: int) -> Workload:
    """Many one-GPU claims of one pod."""

    def build(rng: random.Random) -> Json:
        names = [f"node-{i}" for i in range(nodes)]
        slices = [s for n in names for s in gpu_node(n, rng.choice(sorted(PRODUCTS)))]
        return problem(slices, [claim(f"claim-{i}", [request("gpu", 1, HOPPER_80)]) for i in range(claims)], names)

    return build


def mig(gpus: int, mix: dict[str, int], taken: float = 0.0, nodes: int | None = None) -> Workload:
    """A mix of partitions on nodes which publish all partitions of all GPUs."""

    def build(rng: random.Random) -> Json:
        names = [f"node-{i}" for i in range(nodes or 1)]
        per_node = [mig_node(n, gpus) for n in names]
        allocated = [a for s in per_node for a in pack_partitions(rng, s, taken)] if taken else []
        slices = [s for group in per_node for s in group]
        return problem(slices, [claim("claim-0", mig_requests(mix))], names if nodes else None, allocated)

    return build


def topology(
    gpus: int, per_root: int, per_numa: int, claims: list[Json], nics: int = 0, taken: float = 0.0
) -> Workload:
    """One big node with a PCIe tree; some of its devices may be taken."""

    def build(rng: random.Random) -> Json:
        slices = gpu_node("node-0", "Hopper", gpus, per_root, per_numa)
        if nics:
            each = gpus // nics
            slices += pool(
                "node-0",
                [
                    device(f"nic-{i}", {"rdma": True, PCIE_ROOT: f"pci0000:{i * each // per_root:02x}"})
                    for i in range(nics)
                ],
                NIC,
            )
        ids = device_ids(slices)
        return problem(slices, claims, allocated=rng.sample(ids, int(taken * len(ids))))

    return build


def prioritized(chains: int, options: int, good: int, gpus: int = 8) -> Workload:
    """Requests which are chains of alternatives; only option number `good` can be had."""

    def build(rng: random.Random) -> Json:
        slices = gpu_node("node-0", "Hopper", gpus)
        wanted = [
            exactly(1, HOPPER_80 if i == good else f"device.attributes['{GPU}'].architecture == 'Future-{i}'")
            for i in range(options)
        ]
        return problem(slices, [claim("claim-0", [first_available(f"chain-{c}", *wanted) for c in range(chains)])])

    return build


def shrinking(chains: int, counts: list[int], gpus: int = 8) -> Workload:
    """Every chain would like many GPUs and accepts fewer."""

    def build(rng: random.Random) -> Json:
        slices = gpu_node("node-0", "Hopper", gpus)
        wanted = [exactly(n, HOPPER_80) for n in counts]
        return problem(slices, [claim("claim-0", [first_available(f"chain-{c}", *wanted) for c in range(chains)])])

    return build


def groups(sizes: list[int], count: int) -> Workload:
    """`count` devices with one common attribute value, while the values occur as often as `sizes` says."""

    def build(rng: random.Random) -> Json:
        devices = []
        for value, size in enumerate(sizes):
            devices += [full_gpu(len(devices) + i, "Hopper", value, f"pci0000:{value:02x}") for i in range(size)]
        return problem(pool("node-0", devices), [claim("claim-0", [request("gpus", count)], [match(PCIE_ROOT)])])

    return build


def scattered(values: int, devices: int, count: int) -> Workload:
    """As `groups`, but the values are scattered at random over the devices."""

    def build(rng: random.Random) -> Json:
        found = [full_gpu(i, "Hopper", 0, f"pci0000:{rng.randrange(values):02x}") for i in range(devices)]
        return problem(pool("node-0", found), [claim("claim-0", [request("gpus", count)], [match(PCIE_ROOT)])])

    return build


def two_constraints(devices: int, count: int, roots: int, numas: int) -> Workload:
    """`count` devices which agree in two attributes at once, which are scattered independently."""

    def build(rng: random.Random) -> Json:
        found = [
            full_gpu(i, "Hopper", rng.randrange(numas), f"pci0000:{rng.randrange(roots):02x}") for i in range(devices)
        ]
        return problem(
            pool("node-0", found),
            [claim("claim-0", [request("gpus", count)], [match(PCIE_ROOT), match(NUMA_NODE)])],
        )

    return build


def rivals(requests: int, devices: int, as_claims: bool = False) -> Workload:
    """Equal requests for one device each, with too few devices."""

    def build(rng: random.Random) -> Json:
        slices = gpu_node("node-0", "Hopper", devices)
        wanted = [request(f"gpu-{i}", 1, HOPPER_80) for i in range(requests)]
        if as_claims:
            claims = [claim(f"claim-{i}", [r]) for i, r in enumerate(wanted)]
        else:
            claims = [claim("claim-0", wanted)]
        return problem(slices, claims)

    return build


def late_failure(gpus: int, count: int, nics: int) -> Workload:
    """The last request cannot be met, whatever is chosen for the first."""

    def build(rng: random.Random) -> Json:
        slices = gpu_node("node-0", "Hopper", gpus)
        slices += pool("node-0", [device(f"nic-{i}", {"rdma": False}) for i in range(nics)], NIC)
        rdma = f"device.attributes['{NIC}'].rdma"
        return problem(
            slices,
            [claim("claim-0", [request("gpus", count), request("nic", 1, rdma, "nic.example.com")])],
        )

    return build


def last_pair(gpus: int, nics: int, count: int) -> Workload:
    """GPUs and a NIC on one root, where only the very last root has a NIC that is not taken."""

    def build(rng: random.Random) -> Json:
        per_root = gpus // nics
        slices = gpu_node("node-0", "Hopper", gpus, per_root, gpus // 2)
        nic_slices = pool(
            "node-0",
            [device(f"nic-{i}", {"rdma": True, PCIE_ROOT: f"pci0000:{i:02x}"}) for i in range(nics)],
            NIC,
        )
        return problem(
            slices + nic_slices,
            [
                claim(
                    "claim-0",
                    [request("gpus", count), request("nic", 1, None, "nic.example.com")],
                    [match(PCIE_ROOT)],
                )
            ],
            allocated=device_ids(nic_slices)[:-1],
        )

    return build


def pigeonholes(devices: int, values: int, count: int) -> Workload:
    """One-device requests which must all differ in an attribute that has too few values."""

    def build(rng: random.Random) -> Json:
        found = [full_gpu(i, "Hopper", i % values, f"pci0000:{i % values:02x}") for i in range(devices)]
        return problem(
            pool("node-0", found),
            [claim("claim-0", [request(f"gpu-{i}") for i in range(count)], [distinct(PCIE_ROOT)])],
        )

    return build


def occupied(nodes: int, free: int, count: int) -> Workload:
    """A full cluster, where only the last node has free GPUs."""

    def build(rng: random.Random) -> Json:
        names = [f"node-{i}" for i in range(nodes)]
        slices = [s for n in names for s in gpu_node(n, "Hopper")]
        ids = device_ids(slices)
        return problem(slices, [claim("claim-0", [request("gpus", count, HOPPER_80)])], names, ids[: len(ids) - free])

    return build


def register() -> None:
    for nodes in (100, 1000, 5000):
        for count in (1, 4, 8):
            add(f"full/nodes={nodes}/gpus={count}", full(nodes, count))
    add("full/nodes=1000/claims=8", many_claims(1000, 8))

    add("mig/gpus=8/one-small", mig(8, {"1g.10gb": 1}))
    add("mig/gpus=8/mix-12", mig(8, {"3g.40gb": 4, "2g.20gb": 4, "1g.10gb": 4}))
    add("mig/gpus=8/mix-24", mig(8, {"4g.40gb": 4, "3g.40gb": 4, "2g.20gb": 6, "1g.20gb": 4, "1g.10gb": 6}))
    add("mig/gpus=8/small-32", mig(8, {"1g.10gb": 32}))
    add("mig/gpus=8/3g-16-fills-all", mig(8, {"3g.40gb": 16}))
    add("mig/gpus=8/half-taken/mix-6", mig(8, {"3g.40gb": 1, "2g.20gb": 2, "1g.10gb": 3}, taken=0.5))
    add("mig/nodes=100/mix-6", mig(8, {"3g.40gb": 2, "2g.20gb": 2, "1g.10gb": 2}, nodes=100))
    add("mig/nodes=100/half-taken/mix-6", mig(8, {"3g.40gb": 1, "2g.20gb": 2, "1g.10gb": 3}, 0.5, nodes=100))

    numa8 = [claim("claim-0", [request("gpus", 8)], [match(NUMA_NODE)])]
    root4 = [claim("claim-0", [request("gpus", 4)], [match(PCIE_ROOT)])]
    both8 = [claim("claim-0", [request("gpus", 8)], [match(NUMA_NODE), match(PCIE_ROOT)])]
    pair = [claim("claim-0", [request("gpus", 2), request("nic", 1, None, "nic.example.com")], [match(PCIE_ROOT)])]
    pairs = [
        claim(
            f"claim-{i}",
            [request("gpus", 2), request("nic", 1, None, "nic.example.com")],
            [match(PCIE_ROOT)],
        )
        for i in range(4)
    ]
    add("topology/gpus=16/numa-8", topology(16, 4, 8, numa8))
    add("topology/gpus=16/root-4", topology(16, 4, 8, root4))
    add("topology/gpus=32/numa+root-8", topology(32, 8, 16, both8))
    add("topology/gpus=32/numa+root-8/quarter-taken", topology(32, 8, 16, both8, taken=0.25))
    add("topology/gpus=8/gpu+nic", topology(8, 2, 4, pair, nics=4))
    add("topology/gpus=8/gpu+nic-4-claims", topology(8, 2, 4, pairs, nics=4))
    add("topology/gpus=64/numa-8/half-taken", topology(64, 8, 16, numa8, taken=0.5))

    add("chain/1x8/last", prioritized(1, 8, 7))
    add("chain/4x8/last", prioritized(4, 8, 7))
    add("chain/8x8/last", prioritized(8, 8, 7))
    add("chain/6x8/none", prioritized(6, 8, 8))
    add("chain/4/8-4-2-1", shrinking(4, [8, 4, 2, 1]))
    add("chain/6/8-4-2-1", shrinking(6, [8, 4, 2, 1]))
    add("chain/8/8-4-2-1", shrinking(8, [8, 4, 2, 1]))

    for size in (5, 8, 11, 14):
        add(f"hard/groups-of-{size}-want-{size + 1}", groups([size] * (120 // size), size + 1))
        add(f"hard/groups-of-{size}-last-has-{size + 1}", groups([size] * (112 // size) + [size + 1], size + 1))
    add("hard/scattered-24-values-128-devices-want-12", scattered(24, 128, 12))
    add("hard/scattered-8-values-128-devices-want-25", scattered(8, 128, 25))
    add("hard/two-attributes-96-devices-want-9", two_constraints(96, 9, 4, 4))
    add("hard/two-attributes-128-devices-want-12", two_constraints(128, 12, 4, 4))
    add("hard/two-attributes-128-devices-want-14", two_constraints(128, 14, 4, 4))
    for n in (7, 9, 11):
        add(f"hard/rivals-{n + 1}-requests-{n}-devices", rivals(n + 1, n))
    add("hard/rivals-10-claims-9-devices", rivals(10, 9, as_claims=True))
    add("hard/late-failure-32-gpus-want-4", late_failure(32, 4, 4))
    add("hard/late-failure-64-gpus-want-4", late_failure(64, 4, 4))
    add("hard/late-failure-64-gpus-want-8", late_failure(64, 8, 4))
    add("hard/last-pair-64-gpus-8-nics-want-4", last_pair(64, 8, 4))
    add("hard/last-pair-128-gpus-8-nics-want-8", last_pair(128, 8, 8))
    add("hard/pigeonholes-24-devices-6-values-want-7", pigeonholes(24, 6, 7))
    add("hard/pigeonholes-64-devices-8-values-want-9", pigeonholes(64, 8, 9))
    add("hard/mig-4-gpus-3g-9", mig(4, {"3g.40gb": 9}))
    add("hard/mig-8-gpus-3g-17", mig(8, {"3g.40gb": 17}))
    add("hard/mig-2-gpus-1g-15", mig(2, {"1g.10gb": 15}))
    add("hard/mig-4-gpus-1g-29", mig(4, {"1g.10gb": 29}))
    add("hard/mig-4-gpus-mix-too-much", mig(4, {"1g.10gb": 6, "2g.20gb": 4, "3g.40gb": 5}))
    add("hard/mig-4-gpus-small-first", mig(4, {"1g.10gb": 8, "3g.40gb": 4, "4g.40gb": 2}))
    add("hard/mig-8-gpus-small-first", mig(8, {"1g.10gb": 8, "2g.20gb": 4, "3g.40gb": 6, "4g.40gb": 4}))

    add("occupied/nodes=100/free=8", occupied(100, 8, 8))
    add("occupied/nodes=1000/free=8", occupied(1000, 8, 8))
    add("occupied/nodes=1000/free=0", occupied(1000, 0, 1))
    add("occupied/nodes=5000/free=8", occupied(5000, 8, 8))
    add("occupied/mig-gpus=8/90%-taken", mig(8, {"1g.10gb": 2}, taken=0.9))
    add("occupied/mig-nodes=100/90%-taken", mig(8, {"1g.10gb": 2}, 0.9, nodes=100))


register()


def generate(names: list[str], seed: int) -> Iterator[Json]:
    for name in names:
        yield {"name": name, **WORKLOADS[name](random.Random(f"{seed}/{name}"))}


def select(families: list[str], patterns: list[str]) -> list[str]:
    return [
        name
        for name in WORKLOADS
        if (not families or name.split("/")[0] in families)
        and (not patterns or any(fnmatch.fnmatch(name, p) for p in patterns))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate device allocation problems, one JSON document per line.")
    parser.add_argument("--family", action="append", default=[], help="only this family (repeatable)")
    parser.add_argument("--name", action="append", default=[], help="only names that match this pattern (repeatable)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print the names only")
    args = parser.parse_args()
    names = select(args.family, args.name)
    if not names:
        parser.error("nothing matches")
    for document in names if args.list else generate(names, args.seed):
        sys.stdout.write(document if args.list else json.dumps(document, separators=(",", ":")))
        sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
