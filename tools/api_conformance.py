"""Compare Haru's API server with recorded answers of kube-apiserver 1.36, and print how many agree.

    api_conformance.py [--only PATTERN] [--semantic | --exact] [FILE...]   replay, list what differs, print the table
    api_conformance.py --write-page                                       write docs/differences.md's section

The recorded answers are reference data of others: `HARU_REFERENCE_DATA` names the folder that has `vectors/api`.
Differences on purpose stand in docs/reference/api-differences.json. Exit status: 0 when all else agrees, 1 if not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parent.parent
ALLOWED = ROOT / "docs/reference/api-differences.json"
PAGE = ROOT / "docs/differences.md"
HEADING = "## Recorded answers of the API server"
FILES = ("crud", "special", "invalid-dra", "invalid-other", "walks")
GATES = (
    "GenericWorkload GangScheduling TopologyAwareWorkloadScheduling WorkloadAwarePreemption WorkloadWithJob "
    "DRAWorkloadResourceClaims DynamicResourceAllocation DRAAdminAccess DRAPrioritizedList DRAPartitionableDevices "
    "DRADeviceTaints DRADeviceTaintRules DRAConsumableCapacity DRADeviceBindingConditions "
    "DRAResourceClaimDeviceStatus DRAExtendedResource DRAListTypeAttributes MutatingAdmissionPolicy "
    "DRANodeAllocatableResources DRAResourcePoolStatus"
)
"""Those of the server whose answers were recorded."""
START_SECONDS = 60.0
_COUNTS = re.compile(r"^(\S+)\.jsonl\.gz: (\d+) of (\d+) steps agree(?:, allowed (\d+))?", re.MULTILINE)


class Counts(NamedTuple):
    """Of the steps of one file: how many agree, and how many of those only as the list of differences allows."""

    agree: int
    steps: int
    allowed: int


class Replay(NamedTuple):
    """What one replay printed, and its counts by file."""

    output: str
    counts: dict[str, Counts]


@contextmanager
def server() -> Iterator[tuple[str, str]]:
    """A server with nothing beside it, as the one that was recorded; yields its address and a token."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder, "kubeconfig")
        gates = ",".join(f"{gate}=true" for gate in GATES.split())
        command = [sys.executable, "-m", "haru", "up", "--ephemeral", "--no-scheduler", "--no-simulated-nodes"]
        command += ["--controllers", "", "--no-dashboard", "--listen", f"127.0.0.1:{port}", "--feature-gates", gates]
        command += ["--write-kubeconfig", str(kubeconfig), "--runtime-config", "api/all=true"]
        with Path(folder, "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                user = _wait(kubeconfig, process)
                yield f"https://127.0.0.1:{port}", user["token"]
            finally:
                process.send_signal(signal.SIGINT)


def _wait(kubeconfig: Path, process: subprocess.Popen[bytes]) -> dict[str, str]:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if kubeconfig.exists() and (text := kubeconfig.read_text()):
            user: dict[str, str] = yaml.safe_load(text)["users"][0]["user"]
            return user
        time.sleep(0.1)
    raise SystemExit("haru up did not start")


def replay(folder: Path, names: Sequence[str], *, semantic: bool, only: str = "*") -> Replay:
    """Send the sequences of these files to a fresh server, and compare its answers."""
    with server() as (address, token):
        command = [sys.executable, "check.py", "--server", address, f"--token={token}", "--insecure", "--only", only]
        command += ["--allow", str(ALLOWED), *(["--semantic"] if semantic else [])]
        command += [f"{name}.jsonl.gz" for name in names]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        raise SystemExit(done.stdout + done.stderr)
    found = {name: Counts(int(a), int(n), int(x or 0)) for name, a, n, x in _COUNTS.findall(done.stdout)}
    return Replay(done.stdout, found)


def table(semantic: dict[str, Counts], exact: dict[str, Counts]) -> str:
    """The table of the conformance page."""
    lines = [
        "| sequences | steps | agree as typed clients see them | agree exactly |",
        "| --- | --- | --- | --- |",
    ]
    every = {name: (semantic.get(name), exact.get(name)) for name in semantic | exact}
    for name, (one, other) in every.items():
        lines.append(f"| {name} | {(one or other or Counts(0, 0, 0)).steps:,} | {_share(one)} | {_share(other)} |")
    return "\n".join(lines)


def _share(counts: Counts | None) -> str:
    return f"{100 * counts.agree / counts.steps:.1f} %" if counts is not None and counts.steps else ""


def rows() -> list[dict[str, Any]]:
    """The differences on purpose."""
    found: list[dict[str, Any]] = json.loads(ALLOWED.read_text())
    return found


def section() -> str:
    """The differences on purpose as the section of the page."""
    lines = [
        HEADING,
        "",
        "Answers of kube-apiserver 1.36 were recorded without controllers beside it; `make conformance` replays them.",
        "This table is written from [reference/api-differences.json](reference/api-differences.json) by",
        "`tools/api_conformance.py --write-page`.",
        "",
        "| resource | what | why |",
        "| --- | --- | --- |",
    ]
    for row in rows():
        what = f"{row['kind']}: {row['field']}" if row.get("field") else row["kind"]
        lines.append(f"| {_cell(row['resource'])} | {_cell(what)} | {row['why']} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def write_page() -> None:
    """Put the section at the end of the page."""
    before = PAGE.read_text().partition(HEADING)[0].rstrip()
    PAGE.write_text(f"{before}\n\n{section()}")


def main() -> int:
    """Run as the module's docstring says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="*", help="only sequences whose name matches; * is any text")
    parser.add_argument("--semantic", action="store_true", help="compare as typed clients do, and not exactly, too")
    parser.add_argument("--exact", action="store_true", help="compare exactly, and not as typed clients do, too")
    parser.add_argument("--write-page", action="store_true", help="write the differences on purpose into the page")
    parser.add_argument("files", nargs="*", default=FILES, metavar="FILE", help=f"of {', '.join(FILES)}")
    arguments = parser.parse_args()
    if arguments.write_page:
        write_page()
        return 0
    if not (reference := os.environ.get("HARU_REFERENCE_DATA")):
        parser.error("HARU_REFERENCE_DATA is not set")
    folder = Path(reference, "vectors/api")
    both = arguments.semantic == arguments.exact
    found: dict[bool, Replay] = {}
    for semantic in (True, False):
        if both or arguments.semantic is semantic:
            found[semantic] = replay(folder, arguments.files, semantic=semantic, only=arguments.only)
            print(found[semantic].output)
    print(table(*(found[semantic].counts if semantic in found else {} for semantic in (True, False))))
    judged = found.get(True) or found[False]
    return 0 if all(counts.agree == counts.steps for counts in judged.counts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
