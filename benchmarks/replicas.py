"""What replicas of `haru apiserver` on one etcd share out: processor time of a write where it is sent, and elsewhere.

    python -m benchmarks.replicas [--replicas 1,2,4] [--writes 3000] [--document docs/scale.md]

All writes go to the first replica; the others only follow them in etcd. A write costs the first one `own`, each other
one `followed`; with writes spread over R replicas each of them spends `own / R + followed * (R - 1) / R` on a write,
and the last column is how many times the writes of one replica R of them take, if etcd and the network do. Memory is
the growth of the resident memory of each replica for an object. Writes are creations of pods of about 1.5 kB, and
renewals of 500 Leases. It is no part of `make bench`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from benchmarks.cluster import kind
from benchmarks.control_planes import free_port, haru_program, make_key, started_etcd, until_serving, write_kubeconfig
from benchmarks.load import ACCOUNT, POD, each, pod
from benchmarks.processes import cpu_seconds, resident_mib, started
from benchmarks.tables import markdown, plain, write_section
from haru.client.api import ApiClient
from haru.kube.errors import StatusError

TOKEN = "benchmark-of-replicas"
SETTLE_SECONDS = 3.0
LEASES = 500
LEASE = kind("coordination.k8s.io", "leases")
WHAT = ("pods created", "Leases renewed")
HEADS = ("writes", "replicas", "own ms", "followed ms", "etcd ms", "kB an object", "writes of one replica")


@dataclass(frozen=True)
class Measured:
    """Milliseconds of processor time for a write, and kilobytes for an object that it makes."""

    what: str
    replicas: int
    own: float
    followed: float
    etcd: float
    kilobytes: float

    @property
    def speedup(self) -> float:
        """How many times the writes of one replica these take."""
        return self.own / (self.own / self.replicas + self.followed * (self.replicas - 1) / self.replicas)


@contextlib.contextmanager
def replicas(count: int, program: str = "haru") -> Iterator[tuple[list[Path], list[int], int]]:
    """So many servers on one etcd: their kubeconfigs, their processes, and etcd's."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="haru-bench-")))
        etcd, url = stack.enter_context(started_etcd(home))
        (home / "tokens.csv").write_text(f'{TOKEN},benchmark,1,"system:masters"\n')
        make_key(home / "sa.key")
        kubeconfigs, processes = [], []
        for number in range(count):
            port, log = free_port(), home / f"log-{number}"
            command = [*haru_program(program), "apiserver", f"--etcd-servers={url}", "--bind-address=127.0.0.1"]
            command += [f"--secure-port={port}", f"--cert-dir={home / f'certificates-{number}'}"]
            command += [f"--token-auth-file={home / 'tokens.csv'}", f"--hostname-override=replica-{number}"]
            command += [f"--service-account-signing-key-file={home / 'sa.key'}"]
            process = stack.enter_context(started(command, log))
            until_serving(f"https://127.0.0.1:{port}", TOKEN, process, log)
            processes.append(process.pid)
            address = f"https://127.0.0.1:{port}"
            kubeconfigs.append(write_kubeconfig(home / f"kubeconfig-{number}", address, TOKEN))
        yield kubeconfigs, processes, etcd


async def _write(kubeconfig: Path, what: str, first: int, count: int) -> None:
    async def create(number: int) -> None:
        await client.create(POD, pod(f"p-{first + number}"), "default")

    async def renew(number: int) -> None:
        name, at = f"node-{(first + number) % LEASES}", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        await client.patch(LEASE, name, {"spec": {"renewTime": at}}, "default")

    async with ApiClient.from_kubeconfig(kubeconfig, user_agent="haru-benchmark") as client:
        if not first:
            await _prepare(client)
        await each(count, create if what == WHAT[0] else renew)


async def _prepare(client: ApiClient) -> None:
    with contextlib.suppress(StatusError):
        await client.create(ACCOUNT, {"metadata": {"name": "default"}}, "default")

    async def create(number: int) -> None:
        spec = {"holderIdentity": f"node-{number}", "leaseDurationSeconds": 40}
        await client.create(LEASE, {"metadata": {"name": f"node-{number}"}, "spec": spec}, "default")

    await each(LEASES, create)


def measure(what: str, count: int, writes: int) -> Measured:
    """Write to the first of so many replicas, a tenth of it before it counts."""
    with replicas(count) as (kubeconfigs, processes, etcd):
        asyncio.run(_write(kubeconfigs[0], what, 0, writes // 10))
        time.sleep(SETTLE_SECONDS)
        everybody = [*processes, etcd]
        memory = [resident_mib(pid) for pid in processes]
        before = [cpu_seconds(pid) for pid in everybody]
        asyncio.run(_write(kubeconfigs[0], what, writes // 10, writes))
        time.sleep(SETTLE_SECONDS)
        own, *others, store = [
            (cpu_seconds(pid) - used) * 1e3 / writes for pid, used in zip(everybody, before, strict=True)
        ]
        grown = fmean(resident_mib(pid) - used for pid, used in zip(processes, memory, strict=True))
    return Measured(what, count, own, fmean(others) if others else 0.0, store, grown * 1024 / writes)


def _line(one: Measured) -> list[str]:
    followed = f"{one.followed:.2f}" if one.replicas > 1 else ""
    size = f"{one.kilobytes:.1f}" if one.what == WHAT[0] else ""
    return [one.what, str(one.replicas), f"{one.own:.2f}", followed, f"{one.etcd:.2f}", size, f"{one.speedup:.2f}"]


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", default="1,2,4", metavar="N,…")
    parser.add_argument("--writes", type=int, default=3_000, metavar="N")
    parser.add_argument("--document", type=Path, metavar="FILE", help="write the table into this document")
    flags = parser.parse_args()
    counts = [int(count) for count in flags.replicas.split(",")]
    lines = [_line(measure(what, count, flags.writes)) for what in WHAT for count in counts]
    print(plain(HEADS, lines))
    if flags.document is not None:
        write_section(flags.document, "replicas", markdown(HEADS, lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
