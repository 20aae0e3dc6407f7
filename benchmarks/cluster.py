"""A `haru up` of its own for a benchmark: a process, its client over HTTPS, and what is read from /proc about it."""

from __future__ import annotations

import compileall
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import haru
from haru.client.api import ApiClient
from haru.kube import kinds
from haru.kube.kinds import Kind


def kind(group: str, plural: str) -> Kind:
    """A kind of version v1."""
    found = kinds.lookup(group, "v1", plural)
    assert found is not None
    return found


@dataclass(frozen=True, slots=True)
class Running:
    """A cluster that is ready: seconds from the start of the process, and processor time that it took by then."""

    process: int
    ready_seconds: float
    ready_cpu_seconds: float
    kubeconfig: Path

    def client(self) -> ApiClient:
        """A client of the administrator."""
        return ApiClient.from_kubeconfig(self.kubeconfig, user_agent="haru-benchmark")

    def resident_mib(self) -> float:
        """Resident memory of the process."""
        rows = Path(f"/proc/{self.process}/status").read_text().splitlines()
        return next(int(row.split()[1]) for row in rows if row.startswith("VmRSS:")) / 1024

    def cpu_seconds(self) -> float:
        """Processor time used so far, in all threads."""
        return cpu_seconds(self.process)


def cpu_seconds(process: int) -> float:
    """The processor time of a process and of those that it has started."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    started = [
        int(pid) for task in Path(f"/proc/{process}/task").glob("*/children") for pid in task.read_text().split()
    ]
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds(pid) for pid in started)


def compile_package() -> None:
    """Byte code as pip leaves it with an installed package: what is measured is a start, not a compilation."""
    compileall.compile_dir(Path(haru.__file__).parent, quiet=2)


@contextlib.contextmanager
def running(profiles: str, *flags: str) -> Iterator[Running]:
    """`haru up` with these nodes, more flags and a data directory of its own, until the block is left."""
    with tempfile.TemporaryDirectory(prefix="haru-bench-") as directory:
        data = Path(directory) / "data"
        compile_package()
        command = [sys.executable, "-m", "haru", "up", "--listen", "127.0.0.1:0", "--profile", profiles]
        started = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--data-dir", str(data), *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            if not line:
                raise RuntimeError(f"haru up with {profiles} did not become ready")
            seconds = time.perf_counter() - started
            yield Running(process.pid, seconds, cpu_seconds(process.pid), data / "kubeconfig")
        finally:
            process.terminate()
            process.wait(60)
            if process.stdout is not None:
                process.stdout.close()
