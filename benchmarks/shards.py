"""What shards of `haru scheduler` share out: processor time of a pod where it is bound, and in each other shard.

    python -m benchmarks.shards [--shards 1,2,4] [--nodes 400] [--pods 600] [--document docs/scale.md]

Each shard has nodes of its own (`--partition-node-selector`) and a schedulerName of its own. All pods, with a claim of
one device each, go to the first shard; the others only watch. A pod costs the first one `own`, each other one
`followed`; with pods spread over S shards each of them spends `own / S + followed * (S - 1) / S` on a pod, and the last
column is how many times the pods of one shard S of them bind, if the API server does. It is no part of `make bench`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.control_planes import GANG_GATES, Scheduler, Server, serving
from benchmarks.load import CLIENT_SECONDS, SHARD, Load, Measured, drive, furnish
from benchmarks.tables import markdown, plain, write_section
from haru.client.api import ApiClient

HEADS = ("shards", "own ms", "followed ms", "API server ms", "MiB of each", "pods of one shard")


@dataclass(frozen=True)
class Costs:
    """Milliseconds of processor time for a pod, and the resident memory of a shard."""

    shards: int
    own: float
    followed: float
    server: float
    mebibytes: float

    @property
    def speedup(self) -> float:
        """How many times the pods of one shard these bind."""
        return self.own / (self.own / self.shards + self.followed * (self.shards - 1) / self.shards)


@contextlib.contextmanager
def shards(server: Server, count: int) -> Iterator[dict[str, int]]:
    """So many schedulers, each with a part of the nodes: their processes by schedulerName."""
    with contextlib.ExitStack() as stack:
        home, found = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="haru-bench-"))), {}
        for number in range(count):
            name = f"shard-{number}"
            command = f"{sys.executable} -m haru scheduler --kubeconfig={{kubeconfig}} --scheduler-name={name}"
            command += f" --leader-elect-resource-name={name} --partition-node-selector={SHARD}={number}"
            command += f" --health-port=0 --feature-gates={GANG_GATES}"
            started = stack.enter_context(Scheduler(name, command).running(server.kubeconfig, home / name))
            found[name] = started.process.pid
        yield found


async def _run(server: Server, load: Load, count: int) -> Measured:
    async with ApiClient.from_kubeconfig(
        server.kubeconfig, user_agent="haru-benchmark", timeout=CLIENT_SECONDS
    ) as client:
        await furnish(client, load.nodes, load.devices, shards=count)
        with shards(server, count) as processes:
            # Every shard binds one pod before, so that all of them have started.
            await drive(client, Load("first", "claims", load.nodes, count), {}, [*processes], settle=0.0)
            return await drive(client, load, {**server.processes, **processes}, ["shard-0"])


def measure(count: int, nodes: int, pods: int) -> Costs:
    """Bind all pods in the first of so many shards."""
    with serving("haru") as server:
        measured = asyncio.run(_run(server, Load("shards", "claims", nodes, pods), count))
    spent = {name: used.cpu_seconds * 1e3 / measured.bound for name, used in measured.used.items()}
    others = [spent[f"shard-{number}"] for number in range(1, count)]
    memory = fmean(used.high_water_mib for name, used in measured.used.items() if name.startswith("shard-"))
    return Costs(count, spent["shard-0"], fmean(others) if others else 0.0, spent["apiserver"], memory)


def _line(one: Costs) -> list[str]:
    followed = f"{one.followed:.2f}" if one.shards > 1 else ""
    return [
        str(one.shards), f"{one.own:.2f}", followed, f"{one.server:.2f}", f"{one.mebibytes:.0f}", f"{one.speedup:.2f}"
    ]  # fmt: skip


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", default="1,2,4", metavar="N,…")
    parser.add_argument("--nodes", type=int, default=400, metavar="N")
    parser.add_argument("--pods", type=int, default=600, metavar="N", help="fewer than the first shard has devices")
    parser.add_argument("--document", type=Path, metavar="FILE", help="write the table into this document")
    flags = parser.parse_args()
    counts = [int(count) for count in flags.shards.split(",")]
    if flags.pods >= flags.nodes // max(counts) * 8:
        parser.error(f"--pods {flags.pods}: the first of {max(counts)} shards has fewer devices")
    lines = [_line(measure(count, flags.nodes, flags.pods)) for count in counts]
    print(plain(HEADS, lines))
    if flags.document is not None:
        write_section(flags.document, "shards", markdown(HEADS, lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
