"""What is left for others: a random stream of requests for GPUs and parts of them, with device scoring and without.

    python -m benchmarks.packing [--markdown]

One node of eight H100 cards that can be partitioned. Requests come and go at random, the same ones for both orders; a
request that cannot be served at once is refused and gone. Counted are the requests refused, what they amount to in
GPUs, and, on average over time, whole GPUs nobody uses and GPUs' worth of memory that is free on divided cards only.

    by profile   requests name the partition: 1g.10gb, 2g.20gb, 3g.40gb, 4g.40gb, or a whole card
    by memory    requests say how much memory they need at least; anything that has it will do
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.results import Result

Obj = dict[str, Any]

DRIVER = "gpu.nvidia.com"
PROFILE = "dgx-h100-mig"
CARDS = 8
STAY = 20.0
"""How long a request holds what it was given, on average."""
LOADS = (0.6, 0.9, 1.2)
"""Requests per unit of time."""
SEEDS = range(10)
REQUESTS = 300
# What is asked for, how often of 100, and its part of a card in eighths of the memory.
BY_PROFILE = {"1g.10gb": (40, 1), "2g.20gb": (25, 2), "3g.40gb": (12, 4), "4g.40gb": (8, 4), "whole": (15, 8)}
BY_MEMORY = {"9Gi": (40, 1), "15Gi": (25, 2), "30Gi": (20, 4), "75Gi": (15, 8)}
KINDS = {"by profile": BY_PROFILE, "by memory": BY_MEMORY}


@dataclass
class Outcome:
    """What became of a stream; averages are over the moments at which a request came."""

    asked: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    refused_gpus: float = 0.0
    whole: float = 0.0
    stranded: float = 0.0

    def add(self, other: Outcome) -> None:
        self.asked += other.asked
        for name, count in other.refused.items():
            self.refused[name] = self.refused.get(name, 0) + count
        self.refused_gpus += other.refused_gpus
        self.whole += other.whole
        self.stranded += other.stranded


def claim(name: str, wanted: str) -> Obj:
    """A claim for one device, by its profile or by its memory."""
    kind = f"device.attributes['{DRIVER}'].type"
    if wanted == "whole":
        expression = f"{kind} == 'gpu'"
    elif "g." in wanted:
        expression = f"{kind} == 'mig' && device.attributes['{DRIVER}'].profile == '{wanted}'"
    else:
        expression = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('{wanted}')) >= 0"
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": expression}}],
    }
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}


def stream(kind: str, load: float, seed: int, *, scoring: bool, requests: int = REQUESTS) -> Outcome:
    """One stream on one node. The same arguments give the same outcome everywhere."""
    from haru.dra import Problem
    from haru.drivers.simulated.profiles import load_profile
    from haru.drivers.simulated.slices import resource_slices
    from haru.engine.dra import AllocatedState

    sizes = KINDS[kind]
    rng = random.Random(seed)
    device_class = {"metadata": {"name": "gpu"}, "spec": {"selectors": []}}
    slices = resource_slices(load_profile(PROFILE), "node", "uid", {}, 1)
    problem = Problem(slices, [device_class], [{"metadata": {"name": "node"}}])
    state, now = AllocatedState(), 0.0
    leaving: list[tuple[float, str]] = []
    held: dict[str, tuple[str, int]] = {}
    outcome = Outcome()
    for number in range(requests):
        now += rng.expovariate(load)
        (wanted,) = rng.choices(list(sizes), [share for share, _ in sizes.values()])
        stay = rng.expovariate(1 / STAY)
        while leaving and leaving[0][0] <= now:
            gone = heapq.heappop(leaving)[1]
            state = state.without(gone)
            del held[gone]
        problem.fleet.update(problem.fleet.snapshot, state)
        name = f"claim-{number}"
        (results,) = problem.ask([claim(name, wanted)], device_scoring=scoring)
        outcome.asked += 1
        if isinstance(results, list):
            state = state.with_allocation(name, results[0])
            device = results[0]["devices"]["results"][0]["device"]
            held[name] = (device.split("-mig")[0], _eighths(device))
            heapq.heappush(leaving, (now + stay, name))
        else:
            outcome.refused[wanted] = outcome.refused.get(wanted, 0) + 1
            outcome.refused_gpus += sizes[wanted][1] / 8
        used: dict[str, int] = {}
        for card, eighths in held.values():
            used[card] = used.get(card, 0) + eighths
        outcome.whole += (CARDS - len(used)) / requests
        outcome.stranded += sum(8 - eighths for eighths in used.values()) / 8 / requests
    return outcome


def _eighths(device: str) -> int:
    """The part of a card's memory that a device has: gpu-0-mig-2g20gb-14-4 has two eighths."""
    if "-mig-" not in device:
        return 8
    memory = device.split("-")[3].split("g", 1)[1].removesuffix("gb")
    return int(memory) // 10


def outcomes() -> Iterator[tuple[str, float, bool, Outcome]]:
    """All streams: kind, load, whether devices were scored, and the sum (averages: the mean) over the seeds."""
    for kind in KINDS:
        for load in LOADS:
            for scoring in (False, True):
                total = Outcome()
                for seed in SEEDS:
                    total.add(stream(kind, load, seed, scoring=scoring))
                total.whole /= len(SEEDS)
                total.stranded /= len(SEEDS)
                yield kind, load, scoring, total


def run() -> Iterator[Result]:
    """For `make bench`."""
    for kind, load, scoring, total in outcomes():
        name, size = f"packing {kind}, {'scored' if scoring else 'first fit'}", f"{load} requests per unit"
        yield Result(f"{name}: refused", total.refused_gpus, "GPUs", size)
        yield Result(f"{name}: stranded", total.stranded, "GPUs", size)


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true")
    markdown = parser.parse_args().markdown
    heads = ["requests", "load", "order", "refused", "of them whole cards", "refused GPUs", "stranded", "whole"]
    lines = [heads, ["---"] * len(heads)] if markdown else [heads]
    for kind, load, scoring, total in outcomes():
        order = "scored" if scoring else "first fit"
        count, large = sum(total.refused.values()), list(KINDS[kind])[-1]
        cells = [kind, str(load), order, f"{count} of {total.asked}", str(total.refused.get(large, 0))]
        lines.append([*cells, f"{total.refused_gpus:.0f}", f"{total.stranded:.2f}", f"{total.whole:.2f}"])
        if not markdown:
            print("  ".join(cell.ljust(20) for cell in lines[-1]), flush=True)
    if markdown:
        print("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
