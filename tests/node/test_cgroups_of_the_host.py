"""Control groups for real: those of a systemd that runs, and the memory controller of version 2 where a kernel has it.

Memory QoS asks for what a machine can not be given by a package: a kernel whose memory controller is in the second
hierarchy. Where it is in the first one (hybrid machines), only the test with a recorded tree is left, and this says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import systemd_process
from systemd_process import Systemd

from haru.node.cgroups.amounts import pod_amounts
from haru.node.cgroups.host import hierarchies, lacking
from haru.node.cgroups.memory_qos import MemoryQos, container_values, node_values, pod_values
from haru.node.cgroups.paths import CgroupName, kubepods, pod_cgroup, qos_cgroup
from haru.node.cgroups.tree import CgroupError, FileTree, SystemdTree
from haru_process import until

Obj = dict[str, Any]
MI = 1 << 20
UID = "0a1b-2c"
PROTECTS = MemoryQos(enforces=True, protects=True, page=os.sysconf("SC_PAGE_SIZE"))


def pod(requests: Obj, limits: Obj) -> Obj:
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": requests, "limits": limits}}]}}


BURSTABLE = pod({"memory": "16Mi", "cpu": "250m"}, {"memory": "64Mi", "cpu": "500m"})
GUARANTEED = pod({"memory": "32Mi", "cpu": "1"}, {"memory": "32Mi", "cpu": "1"})


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    if text := systemd_process.missing():
        pytest.skip(text)
    running = Systemd(tmp_path)
    yield running
    running.stop()


@pytest.mark.host
def test_running_systemd_creates_and_removes_slices(systemd: Systemd) -> None:
    tree = SystemdTree(systemd.run)
    name = pod_cgroup(kubepods("/box"), "Burstable", UID)
    unit = name.parent_for_runtime("systemd")
    tree.apply(name, pod_values(PROTECTS, BURSTABLE), pod_amounts(BURSTABLE))
    expected = {
        "ActiveState": "active",
        "ControlGroup": f"/{systemd.group}{name.path('systemd')}",
        "MemoryLow": str(16 * MI),
        "MemoryMax": str(64 * MI),
        "CPUQuotaPerSecUSec": "500ms",
        "CPUWeight": "10",
    }
    assert systemd.show(unit, *expected) == expected
    # What was only written into files would not outlive this.
    systemd.run(["systemctl", "daemon-reload"])
    assert systemd.show(unit, *expected) == expected
    for group in systemd.groups:
        assert (group / name.path("systemd")[1:]).is_dir()
    if not lacking(hierarchies(), "memory"):
        assert (systemd.groups[0] / name.path("systemd")[1:] / "memory.low").read_text() == f"{16 * MI}\n"
    tree.apply(name, pod_values(MemoryQos(enforces=True, protects=False), BURSTABLE))
    assert systemd.show(unit, "MemoryLow", "MemoryMax") == {"MemoryLow": "0", "MemoryMax": str(64 * MI)}
    # Who is still in it is ended with it.
    systemd.run(["systemd-run", f"--slice={unit}", "--unit=left", "sleep", "1000"])
    assert systemd.show("left.service", "ControlGroup")["ControlGroup"].endswith(f"{unit}/left.service")
    tree.remove(name)
    assert systemd.show(unit, "ActiveState") == {"ActiveState": "inactive"}
    assert systemd.show("left.service", "MainPID", "ActiveState") == {"MainPID": "0", "ActiveState": "inactive"}
    for group in systemd.groups:
        assert not (group / name.path("systemd")[1:]).exists()
    tree.remove(name)


@pytest.fixture
def below() -> Iterator[CgroupName]:
    """A group in whose groups the memory controller of version 2 counts."""
    found = hierarchies()
    if text := lacking(found, "memory"):
        pytest.skip(f"memory QoS needs the memory controller of version 2: {text}")
    name = CgroupName((f"haru-test-{uuid.uuid4()}",))
    tree = FileTree(found)
    try:
        tree.apply(name.below("try"), {})
    except CgroupError as error:
        pytest.skip(f"control groups can not be made here: {error}")
    yield name
    tree.remove(name)


@pytest.mark.host
def test_memory_qos_values_are_written_to_the_kernel(below: CgroupName) -> None:
    found = hierarchies()
    tree = FileTree(found)
    assert found.unified is not None
    root = kubepods(below.path("cgroupfs"))
    values = node_values(PROTECTS, [BURSTABLE, GUARANTEED])
    tree.apply(root, values.root)
    tree.apply(qos_cgroup(root, "Burstable"), values.of_burstable)
    expected: dict[CgroupName, dict[str, int]] = {
        root: {"memory.min": 48 * MI},
        qos_cgroup(root, "Burstable"): {"memory.low": 16 * MI},
    }
    for made, qos, high in ((BURSTABLE, "Burstable", True), (GUARANTEED, "Guaranteed", False)):
        group = pod_cgroup(root, qos, UID)  # type: ignore[arg-type]
        tree.apply(group, pod_values(PROTECTS, made), pod_amounts(made))
        container = made["spec"]["containers"][0]
        tree.apply(group.below("main"), container_values(PROTECTS, made, container, 1 << 40))
        key = "memory.low" if high else "memory.min"
        requested = (16 if high else 32) * MI
        expected[group] = {key: requested, "memory.max": (64 if high else 32) * MI}
        # 16 Mi and nine tenths of the way to 64 Mi, in whole pages.
        page = PROTECTS.page
        mark = {"memory.high": int(16 * MI + 0.9 * 48 * MI) // page * page} if high else {}
        expected[group.below("main")] = {key: requested, **mark}
    for name, files in expected.items():
        place = found.unified / name.path("cgroupfs")[1:]
        assert {file: int((place / file).read_text()) for file in files} == files, name


@pytest.mark.host
def test_process_above_memory_high_is_throttled(below: CgroupName) -> None:
    found = hierarchies()
    assert found.unified is not None
    group = below.below("greedy")
    FileTree(found).apply(group, {"memory.high": str(8 * MI)})
    place = found.unified / group.path("cgroupfs")[1:]
    script = "import sys; sys.stdin.read(1); held = bytearray(32 << 20); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as greedy:
        try:
            (place / "cgroup.procs").write_text(str(greedy.pid))
            assert greedy.stdin is not None
            greedy.stdin.write(b"x")
            greedy.stdin.flush()

            def events() -> dict[str, int]:
                lines = (place / "memory.events").read_text().splitlines()
                return {key: int(value) for key, value in (line.split() for line in lines)}

            until("it was above its mark", lambda: events()["high"] > 0)
            assert events()["oom_kill"] == 0
        finally:
            greedy.kill()
