"""What the kubelet API shows of a machine that was recorded: the Summary API, cAdvisor's and the kubelet's metrics.

The files in golden/ are what came out once, looked through by eye; HARU_WRITE_GOLDEN=1 writes them anew.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cri_server import Server, served

from haru.node.cgroups.host import hierarchies
from haru.node.cri.client import RuntimeClient
from haru.node.stats.kubelet.collector import Collector, HostPaths
from haru.node.stats.kubelet.readings import read_group, size_of
from haru.node.stats.kubelet.runtime_stats import RuntimeStats
from haru.node.stats.psi import FAMILIES
from haru.proto import cri_pb2 as cri

GOLDEN = Path(__file__).parent / "golden"
NOW = datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC)
ID = "c0ffee" * 10
HUGE = (1 << 60) + 1
POD: dict[str, Any] = {
    "metadata": {"name": "train-0", "namespace": "lab", "uid": "u-1"},
    "spec": {"containers": [{"name": "main"}]},
    "status": {
        "qosClass": "Burstable",
        "startTime": "2026-03-01T11:00:00Z",
        "containerStatuses": [
            {
                "name": "main",
                "image": "lab/train:1",
                "containerID": f"containerd://{ID}",
                "state": {"running": {"startedAt": "2026-03-01T11:00:05Z"}},
            },
            {"name": "gone", "containerID": "containerd://dead", "state": {"terminated": {"exitCode": 0}}},
        ],
    },
}
POD_GROUP = "kubepods/burstable/podu-1"


def pressure(some: int, full: int) -> str:
    return f"some avg10=1.50 avg60=0.25 avg300=0.01 total={some}\nfull avg10=0.50 avg60=0.05 avg300=0.00 total={full}\n"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def group(micros: int, memory: int, totals: int = 0) -> dict[str, str]:
    found = {
        "cpu.stat": f"usage_usec {micros}\nuser_usec 1\n",
        "memory.current": f"{memory}\n",
        "memory.stat": f"anon {memory // 2}\ninactive_file {memory // 4}\npgfault 70\npgmajfault 7\n",
        "memory.max": "max\n",
        "memory.swap.current": "4096\n",
        "memory.swap.max": "8192\n",
        "pids.current": "3\n",
        "cgroup.procs": "",
    }
    if totals:
        for index, resource in enumerate(("cpu", "memory", "io")):
            found[f"{resource}.pressure"] = pressure(totals + index, totals // 2 + index)
    return found


def proc(root: Path) -> Path:
    write(
        root / "proc",
        {
            "stat": "cpu  1000 100 500 90000 50 25 25 10 5 0\nbtime 1772300000\n",
            "meminfo": "MemTotal: 1000000 kB\nMemFree: 400000 kB\nInactive(file): 100000 kB\nAnonPages: 250000 kB\n"
            "SwapTotal: 2000 kB\nSwapFree: 500 kB\n",
            "vmstat": "pgfault 12345\npgmajfault 67\n",
            "loadavg": "0.5 0.4 0.3 2/345 999\n",
            "sys/kernel/pid_max": "4194304\n",
            "self/net/dev": "head\nhead\n    lo: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n"
            "  eth0: 1000 9 1 0 0 0 0 0 2000 9 2 0 0 0 0 0\n",
            "4711/net/dev": "head\nhead\n  eth0: 10 9 0 0 0 0 0 0 20 9 0 0 0 0 0 0\n",
        },
    )
    return root / "proc"


def unified(root: Path, totals: int = 2_500_000) -> Path:
    """A machine with control groups of version 2."""
    top = root / "cgroup"
    write(top, {"cgroup.controllers": "cpu io memory pids\n"})
    write(top, {f"{name}.pressure": pressure(HUGE, totals) for name in ("cpu", "memory", "io")} if totals else {})
    write(top / "kubepods", group(9_000_000, 900_000, totals))
    write(top / "kubepods/burstable", group(8_000_000, 800_000, totals))
    write(top / POD_GROUP, group(7_000_000, 700_000, totals))
    write(
        top / POD_GROUP / ID, {**group(6_000_000, 600_000, totals), "memory.max": "1000000", "cgroup.procs": "4711\n"}
    )
    write(top / POD_GROUP / "sandbox", group(10, 1000, totals))
    return top


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def collector(root: Path, cgroup: Path, **options: Any) -> Collector:
    logs = root / "logs" / "lab_train-0_u-1" / "main"
    logs.mkdir(parents=True, exist_ok=True)
    places = HostPaths(hierarchies(cgroup), root, root / "logs", root / "proc")
    return Collector("node-1", places, lambda: [POD], **options)


def steady(found: Any) -> Any:
    """Without what is this machine's: its file system, its number of cpus."""
    found["node"].pop("fs", None)
    return found


def golden(name: str, text: str) -> None:
    if os.environ.get("HARU_WRITE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


async def test_recorded_machine_gives_summary_and_metrics(tmp_path: Path) -> None:
    proc(tmp_path)
    clock = Clock()
    found = collector(tmp_path, unified(tmp_path), now=clock)
    clock.now = NOW - timedelta(seconds=10)
    await found.measure()
    write(tmp_path / "cgroup" / POD_GROUP / ID, {"cpu.stat": "usage_usec 11000000\n"})
    clock.now = NOW
    await found.measure()
    golden("summary.json", json.dumps(steady(found.summary()), indent=1) + "\n")
    golden("summary-cpu-and-memory.json", json.dumps(steady(found.summary(True)), indent=1) + "\n")
    golden("cadvisor.txt", re.sub(r"(?m)^(machine_cpu_cores) \d+$", r"\1 0", found.cadvisor()))
    golden("resource.txt", found.resource())
    container = found.summary()["pods"][0]["containers"][0]
    assert container["cpu"]["usageNanoCores"] == 500_000_000  # 5 s of cpu in 10 s
    assert container["memory"]["availableBytes"] == 1_000_000 - 450_000


async def test_psi_totals_are_microseconds_in_summary_and_seconds_in_metrics(tmp_path: Path) -> None:
    proc(tmp_path)
    found = collector(tmp_path, unified(tmp_path))
    await found.measure()
    summary, text = found.summary(), found.cadvisor()
    container = summary["pods"][0]["containers"][0]
    assert container["cpu"]["psi"]["some"]["total"] == 2_500_000
    labels = f'container="main",id="/{POD_GROUP}/{ID}",image="lab/train:1",name="{ID}",namespace="lab",pod="train-0"'
    assert f"container_pressure_cpu_waiting_seconds_total{{{labels}}} 2.5 " in text
    for family, _ in FAMILIES.values():
        assert text.count(f"# TYPE {family} counter\n") == 1
        assert f'{family}{{container="",id="/",' in text and f'{family}{{container="",id="/kubepods",' in text
        assert f'{family}{{container="",id="/{POD_GROUP}",image="",name="",namespace="lab",pod="train-0"}}' in text
        assert family not in found.resource()
    assert f'"total": {HUGE}' in json.dumps(summary["node"]["cpu"])


async def test_kernel_without_psi_gives_no_psi_fields(tmp_path: Path) -> None:
    proc(tmp_path)
    found = collector(tmp_path, unified(tmp_path, totals=0))
    await found.measure()
    text = json.dumps(found.summary())
    assert "psi" not in text and '"io"' not in text and "pressure" not in found.cadvisor()
    # StreamRequest once, at the start: files that come later are not looked at.
    write(tmp_path / "cgroup", {"cpu.pressure": pressure(1, 1)})
    await found.measure()
    assert "psi" not in json.dumps(found.summary())


async def test_cgroup_with_disabled_psi_has_no_psi_fields(tmp_path: Path) -> None:
    proc(tmp_path)
    top = unified(tmp_path)
    for resource in ("cpu", "memory", "io"):
        (top / POD_GROUP / ID / f"{resource}.pressure").unlink()
    found = collector(tmp_path, top)
    await found.measure()
    pod = found.summary()["pods"][0]
    assert "psi" in pod["cpu"] and "io" in pod
    assert "psi" not in pod["containers"][0]["cpu"] and "io" not in pod["containers"][0]


async def test_removed_pods_are_dropped_from_stats(tmp_path: Path) -> None:
    proc(tmp_path)
    top = unified(tmp_path)
    found = collector(tmp_path, top)
    await found.measure()
    assert len(found.summary()["pods"]) == 1
    for place in (top / POD_GROUP / ID, top / POD_GROUP / "sandbox", top / POD_GROUP):
        for file in place.iterdir():
            file.unlink()
        place.rmdir()
    await found.measure()
    assert found.summary()["pods"] == [] and "train-0" not in found.cadvisor() + found.resource()


async def test_unreadable_file_drops_only_its_container(tmp_path: Path) -> None:
    proc(tmp_path)
    top = unified(tmp_path)
    write(top / POD_GROUP / ID, {"io.pressure": "some avg10=-1 total=1\n"})
    found = collector(tmp_path, top)
    await found.measure()
    pod = found.summary()["pods"][0]
    assert pod["containers"] == [] and pod["memory"]["usageBytes"] == 700_000


def test_stats_are_empty_before_first_measurement(tmp_path: Path) -> None:
    found = collector(tmp_path, unified(tmp_path))
    assert found.summary() == {"node": {"nodeName": "node-1"}, "pods": []}
    assert found.resource().endswith("resource_scrape_error 0\n")


async def test_hybrid_cgroup_hierarchy_is_read(tmp_path: Path) -> None:
    proc(tmp_path)
    top = tmp_path / "cgroup"
    write(top, {"unified/cgroup.controllers": "", "unified/cpu.pressure": pressure(5, 4)})
    for path in ("kubepods", POD_GROUP, f"{POD_GROUP}/{ID}"):
        write(top / "cpuacct" / path, {"cpuacct.usage": "123456789\n"})
        write(
            top / "memory" / path,
            {
                "memory.usage_in_bytes": "5000",
                "memory.stat": "total_rss 2000\ntotal_inactive_file 1000\ntotal_pgfault 5\ntotal_pgmajfault 1\n",
                "memory.limit_in_bytes": "9223372036854771712",
                "memory.memsw.usage_in_bytes": "5600",
            },
        )
    write(top / "unified" / POD_GROUP, {"memory.pressure": pressure(77, 7)})
    found = collector(tmp_path, top)
    await found.measure()
    pod = found.summary()["pods"][0]
    assert pod["cpu"]["usageCoreNanoSeconds"] == 123456789
    memory = {name: value for name, value in pod["memory"].items() if name not in ("time", "psi")}
    assert memory == {
        "usageBytes": 5000,
        "workingSetBytes": 4000,
        "rssBytes": 2000,
        "pageFaults": 5,
        "majorPageFaults": 1,
    }
    assert pod["memory"]["psi"]["some"]["total"] == 77 and pod["swap"]["swapUsageBytes"] == 600
    assert pod["containers"][0]["memory"]["usageBytes"] == 5000
    assert read_group(hierarchies(top), "/nowhere", pressure=True) is None


def number(value: int) -> cri.UInt64Value:
    return cri.UInt64Value(value=value)


STATS = cri.ContainerStats(
    attributes=cri.ContainerAttributes(id=ID),
    cpu=cri.CpuUsage(
        timestamp=1,
        usage_core_nano_seconds=number(5_000_000_000),
        usage_nano_cores=number(250),
        psi=cri.PsiStats(
            Full=cri.PsiData(Total=1, Avg10=0.5), Some=cri.PsiData(Total=HUGE, Avg10=1.5, Avg60=0.25, Avg300=0.125)
        ),
    ),
    memory=cri.MemoryUsage(
        timestamp=1,
        working_set_bytes=number(10),
        available_bytes=number(20),
        usage_bytes=number(30),
        rss_bytes=number(40),
        page_faults=number(50),
        major_page_faults=number(60),
    ),
    writable_layer=cri.FilesystemUsage(timestamp=1, used_bytes=number(7000), inodes_used=number(12)),
    io=cri.IoUsage(timestamp=1, psi=cri.PsiStats(Full=cri.PsiData(Total=3), Some=cri.PsiData(Total=4))),
)


@pytest.mark.parametrize("streams", [True, False])
async def test_runtime_container_stats_are_merged(tmp_path: Path, streams: bool) -> None:
    proc(tmp_path)
    server = Server([STATS], "ContainerStats", streams=streams)
    async with served(server, tmp_path / "s") as endpoint, RuntimeClient(endpoint, streaming=True) as runtime:
        await what_the_runtime_tells(tmp_path, RuntimeStats(runtime))
    assert server.calls == ["stream" if streams else "unary"] * 2


async def what_the_runtime_tells(tmp_path: Path, stats: RuntimeStats) -> None:
    found = collector(tmp_path, unified(tmp_path), uses=stats.uses)
    await found.measure()
    container = found.summary()["pods"][0]["containers"][0]
    # The group tells of cpu and memory, the runtime of the writable layer.
    assert container["cpu"]["usageCoreNanoSeconds"] == 6_000_000_000
    assert container["rootfs"]["usedBytes"] == 7000 and container["rootfs"]["inodesUsed"] == 12
    # Without a group it is the runtime that tells of all.
    for file in (tmp_path / "cgroup" / POD_GROUP / ID).iterdir():
        file.unlink()
    (tmp_path / "cgroup" / POD_GROUP / ID).rmdir()
    await found.measure()
    container = found.summary()["pods"][0]["containers"][0]
    assert container["cpu"]["usageNanoCores"] == 250
    assert container["cpu"]["psi"]["some"] == {"total": HUGE, "avg10": 1.5, "avg60": 0.25, "avg300": 0.125}
    assert container["memory"]["workingSetBytes"] == 10 and "psi" not in container["memory"]
    assert container["io"]["psi"]["full"]["total"] == 3


@pytest.mark.parametrize("lists", ["Containers", "ContainerStats"])
async def test_runtime_without_container_stats_is_asked_once(tmp_path: Path, lists: str) -> None:
    """One that has no such call is asked once; one whose answers make no sense is asked again."""
    proc(tmp_path)
    server = Server([], lists, streams=False, garbage=b"\x0a\x05")
    asked: list[str] = []
    async with (
        served(server, tmp_path / "s") as endpoint,
        RuntimeClient(endpoint, observe=lambda operation, seconds, code: asked.append(code)) as runtime,
    ):
        found = collector(tmp_path, unified(tmp_path), uses=RuntimeStats(runtime).uses)
        for _ in range(3):
            await found.measure()
    assert asked == (["UNIMPLEMENTED"] if lists == "Containers" else ["OK"] * 3)
    assert "rootfs" not in found.summary()["pods"][0]["containers"][0]


def test_log_sizes_are_summed(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"x" * 10_000)
    used, count = size_of(tmp_path)
    assert used >= 8192 and count == 1
    assert size_of(tmp_path / "none") == (0, 0)


async def test_real_machine_gives_summary(tmp_path: Path) -> None:
    """The real one, whatever it has."""
    places = HostPaths(hierarchies(), tmp_path, tmp_path)
    found = Collector("here", places, list)
    await found.measure()
    node = found.summary()["node"]
    assert node["cpu"]["usageCoreNanoSeconds"] > 0 and node["memory"]["workingSetBytes"] > 0
    assert node["fs"]["capacityBytes"] > 0 and node["rlimit"]["maxpid"] > 0
    assert "node_cpu_usage_seconds_total " in found.resource()
