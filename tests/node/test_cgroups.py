"""Control groups: names under both drivers, numbers, what a machine has, and what is written to a tree."""

from __future__ import annotations

import signal
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from haru.kube.cgroup_values import quota_of, shares_of, weight_of
from haru.kube.oom_scores import oom_score
from haru.node.cgroups import host
from haru.node.cgroups.amounts import (
    Amounts,
    NodeMemory,
    container_amounts,
    pod_amounts,
)
from haru.node.cgroups.memory_qos import MemoryQos, pod_values
from haru.node.cgroups.paths import CgroupName, kubepods, pod_cgroup, qos_cgroup
from haru.node.cgroups.tree import CgroupError, FileTree, SystemdTree, legacy_values, unified_values

Obj = dict[str, Any]
UID = "0a1b-2c"
OFF = MemoryQos(enforces=False, protects=False)
GI = 1 << 30


def pod(*resources: Obj, **spec: Any) -> Obj:
    return {"spec": {"containers": [{"name": f"c{n}", "resources": r} for n, r in enumerate(resources)], **spec}}


@pytest.mark.parametrize(
    ("qos", "cgroupfs", "systemd", "parent"),
    [
        (
            "Guaranteed",
            "/kubepods/pod0a1b-2c",
            "/kubepods.slice/kubepods-pod0a1b_2c.slice",
            "kubepods-pod0a1b_2c.slice",
        ),
        (
            "Burstable",
            "/kubepods/burstable/pod0a1b-2c",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice",
            "kubepods-burstable-pod0a1b_2c.slice",
        ),
        (
            "BestEffort",
            "/kubepods/besteffort/pod0a1b-2c",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a1b_2c.slice",
            "kubepods-besteffort-pod0a1b_2c.slice",
        ),
    ],
)
def test_pod_cgroup_path_by_qos_and_driver(qos: Any, cgroupfs: str, systemd: str, parent: str) -> None:
    name = pod_cgroup(kubepods(), qos, UID)
    assert (name.path("cgroupfs"), name.path("systemd")) == (cgroupfs, systemd)
    assert (name.parent_for_runtime("cgroupfs"), name.parent_for_runtime("systemd")) == (cgroupfs, parent)


def test_custom_cgroup_root_is_used() -> None:
    assert kubepods("/box/inner/").path("cgroupfs") == "/box/inner/kubepods"
    assert kubepods("/box").path("systemd") == "/box.slice/box-kubepods.slice"


def test_milli_cpu_converts_to_shares_weight_and_quota() -> None:
    assert [shares_of(milli) for milli in (0, 1, 100, 1000, 10_000_000)] == [2, 2, 102, 1024, 262_144]
    assert [weight_of(shares) for shares in (2, 1024, 262_144)] == [1, 39, 10_000]
    assert [quota_of(milli) for milli in (0, 1, 500, 2000)] == [0, 1000, 50_000, 200_000]


def test_container_resources_are_passed_to_runtime() -> None:
    made = pod({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}})
    found = container_amounts(
        made,
        made["spec"]["containers"][0],
        NodeMemory(capacity=4 * GI, allocatable=4 * GI, memory_qos=OFF, unified=True, page_sizes=("1GB", "2MB")),
    )
    expected = Amounts(512, 100_000, 0, oom_score_adj=750, huge_pages={"1GB": 0, "2MB": 4 << 20})
    assert found == Amounts(**{**_fields(expected), "unified": {"memory.oom.group": "1"}})
    alone = container_amounts(
        made,
        made["spec"]["containers"][0],
        NodeMemory(
            capacity=4 * GI,
            allocatable=4 * GI,
            memory_qos=MemoryQos(enforces=True, protects=True),
            unified=True,
            single_process_oom_kill=True,
            cpu_quota=False,
        ),
    )
    assert (alone.cpu_quota, alone.unified["memory.oom.group"], alone.unified["memory.low"]) == (0, "0", str(GI))


def _fields(amounts: Amounts) -> dict[str, Any]:
    return {name: getattr(amounts, name) for name in Amounts.__dataclass_fields__}


def test_limit_without_request_counts_as_request() -> None:
    made = pod({"limits": {"cpu": "2", "memory": "1Gi"}})
    assert pod_amounts({"spec": {**made["spec"]}}).cpu_quota == 200_000
    found = container_amounts(
        made, made["spec"]["containers"][0], NodeMemory(capacity=GI, allocatable=GI, memory_qos=OFF, unified=False)
    )
    assert (found.cpu_shares, found.memory_limit, dict(found.unified)) == (2048, GI, {})


def test_container_without_a_limit_has_that_of_its_pod() -> None:
    whole = {"limits": {"cpu": "4", "memory": "2Gi", "hugepages-2Mi": "4Mi"}}
    made = pod({}, {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}, resources=whole)
    node = NodeMemory(capacity=4 * GI, allocatable=4 * GI, memory_qos=OFF, unified=False, page_sizes=("2MB",))
    first, second = (container_amounts(made, one, node) for one in made["spec"]["containers"])
    assert (first.cpu_shares, first.cpu_quota, first.memory_limit) == (shares_of(4000), quota_of(4000), 2 * GI)
    assert (second.cpu_shares, second.cpu_quota, second.memory_limit) == (1024, quota_of(4000), GI)
    assert first.huge_pages == second.huge_pages == {"2MB": 4 << 20}


def test_pod_limit_applies_only_when_all_containers_have_limits() -> None:
    both = pod({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}, {"limits": {"cpu": "1"}})
    assert pod_amounts(both) == Amounts(shares_of(1000), quota_of(3000), 0)
    assert pod_amounts(pod({})) == Amounts(2, 0, 0)
    whole = pod({}, resources={"requests": {"cpu": "2"}, "limits": {"cpu": "4", "memory": "2Gi"}})
    assert pod_amounts(whole) == Amounts(2048, quota_of(4000), 2 * GI)


@pytest.mark.parametrize(
    ("made", "score"),
    [
        (pod({}), 1000),
        (pod({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}), -997),
        (pod({"requests": {"memory": "1Gi"}}), 750),
        (pod({"requests": {"memory": "4Gi"}}), 3),
        (pod({"requests": {"memory": "1"}}), 999),
        (pod({}, priority=2_000_000_000), -997),
        (pod({}, {}, resources={"requests": {"memory": "2Gi"}}), 750),
    ],
)
def test_oom_score_follows_qos_and_memory_request(made: Obj, score: int) -> None:
    assert oom_score(made, made["spec"]["containers"][0], 4 * GI) == score


def test_sidecar_oom_score_is_not_above_its_containers() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"memory": "1Mi"}}}
    made = pod({"requests": {"memory": "2Gi"}}, {"requests": {"memory": "1Gi"}}, initContainers=[sidecar])
    assert oom_score(made, sidecar, 4 * GI) == 750


# -- the machine -----------------------------------------------------------------------------------------------------


def unified(root: Path, *controllers: str) -> host.Hierarchies:
    """A recorded tree: the kernel's files, made beforehand because only the kernel makes them."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "cgroup.controllers").write_text(" ".join(controllers) + "\n")
    return host.hierarchies(root)


def test_cgroup_version_and_controllers_are_detected(tmp_path: Path) -> None:
    found = unified(tmp_path / "two", "cpu", "memory")
    assert (found.mode, host.lacking(found, "memory"), host.refusal(found, fail_cgroup_v1=True)) == ("unified", "", "")
    (tmp_path / "both" / "unified").mkdir(parents=True)
    (tmp_path / "both" / "unified" / "cgroup.controllers").write_text("\n")
    both = host.hierarchies(tmp_path / "both")
    assert both.mode == "hybrid" and both.unified == tmp_path / "both" / "unified"
    assert "does not list memory" in host.lacking(both, "memory")
    assert "failCgroupV1: false" in host.refusal(both, fail_cgroup_v1=True)
    assert host.refusal(both, fail_cgroup_v1=False) == ""
    (tmp_path / "one").mkdir()
    one = host.hierarchies(tmp_path / "one")
    assert one.mode == "legacy" and "no hierarchy of version 2" in host.lacking(one, "memory")


def test_huge_page_sizes_are_listed(tmp_path: Path) -> None:
    for size in (2048, 1048576, 64):
        (tmp_path / f"hugepages-{size}kB").mkdir()
    assert set(host.page_sizes(tmp_path)) == {"2MB", "1GB", "64KB"}


# -- the tree --------------------------------------------------------------------------------------------------------


def kernel_files(place: Path, *files: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for file in files:
        (place / file).write_text("0\n")


def test_values_are_written_and_controllers_enabled_for_children(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    tree = FileTree(unified(root, "cpu", "memory", "io"))
    made = pod({"requests": {"memory": "1Mi"}})
    name = pod_cgroup(kubepods(), "Burstable", UID)
    places = [root, root / "kubepods", root / "kubepods" / "burstable"]
    for place in places:
        kernel_files(place, "cgroup.subtree_control")
    group = root / "kubepods" / "burstable" / f"pod{UID}"
    kernel_files(group, "memory.low", "memory.max", "cpu.weight", "cpu.max")
    tree.apply(name, pod_values(MemoryQos(enforces=True, protects=True), made), pod_amounts(made))
    assert (group / "memory.low").read_text().startswith(str(1 << 20))
    assert (group / "memory.max").read_text().startswith("max")
    assert (group / "cpu.max").read_text().startswith("max 100000")
    for place in places:
        assert (place / "cgroup.subtree_control").read_text().startswith("+cpu +memory")


def test_missing_controller_file_is_reported(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    tree = FileTree(unified(root, "cpu"))
    kernel_files(root, "cgroup.subtree_control")
    with pytest.raises(
        CgroupError, match=r"kubepods/memory\.min: No such file.*the controller memory is not enabled in"
    ):
        tree.apply(kubepods(), {"memory.min": "0"})
    assert not (root / "kubepods" / "memory.min").exists()


def test_cgroup_with_processes_cannot_enable_controllers(tmp_path: Path) -> None:
    tree = FileTree(unified(tmp_path / "cgroup", "cpu"))
    with pytest.raises(CgroupError, match="processes must be in groups without other groups"):
        tree.apply(kubepods(), {})


def test_cgroup_v1_values_are_written(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    for controller, files in (("cpu", ("cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us")), ("memory", ())):
        kernel_files(root / controller / "kubepods" / "burstable", *files)
    kernel_files(root / "memory" / "kubepods" / "burstable", "memory.limit_in_bytes")
    tree = FileTree(host.hierarchies(root))
    tree.apply(qos_cgroup(kubepods(), "Burstable"), {"memory.low": "5"}, Amounts(512, 0, 4096))
    group = root / "cpu" / "kubepods" / "burstable"
    assert (group / "cpu.shares").read_text().startswith("512") and (group / "cpu.cfs_quota_us").read_text()[:2] == "-1"
    limit = root / "memory" / "kubepods" / "burstable" / "memory.limit_in_bytes"
    assert limit.read_text().startswith("4096")


@pytest.mark.parametrize(
    ("amounts", "files"), [(Amounts(2, 0, 0), {}), (Amounts(2, 0, 0, pids=99), {"pids.max": "99"})]
)
def test_number_of_processes_is_bounded_where_it_is_said(amounts: Amounts, files: dict[str, str]) -> None:
    assert {name: value for name, value in unified_values(amounts).items() if name.startswith("pids")} == files
    assert legacy_values(amounts).get("pids", {}) == files


def test_cgroups_are_removed_from_the_leaves(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    tree = FileTree(unified(root))
    (root / "kubepods" / "pod1" / "one" / "two").mkdir(parents=True)
    tree.remove(kubepods().below("pod1"))
    assert not (root / "kubepods" / "pod1").exists()
    tree.remove(kubepods().below("pod1"))
    kernel_files(root / "kubepods" / "pod2", "cgroup.procs")
    with pytest.raises(CgroupError, match=r"pod2: .*cannot be removed \(processes in it: 0\)"):
        tree.remove(kubepods().below("pod2"))


@pytest.mark.host
@pytest.mark.parametrize("frozen", [False, True])
def test_processes_left_in_a_cgroup_are_killed(frozen: bool) -> None:
    """On this machine: a runtime that was killed in the middle of a start may leave a process that it has forgotten."""
    found = host.hierarchies()
    places = [found.root] if found.mode == "unified" else [entry for entry in found.root.iterdir() if entry.is_dir()]
    name = CgroupName((f"haru-test-{uuid.uuid4()}", "pod1"))
    groups = [place / name.path("cgroupfs")[1:] / "left" for place in places]
    process = subprocess.Popen(["sleep", "1000"])
    try:
        for group in groups:
            try:
                group.mkdir(parents=True)
                if group.parts[-4] != "cpuset":  # has neither processors nor memory yet
                    (group / "cgroup.procs").write_text(str(process.pid))
            except OSError as error:
                pytest.skip(f"groups cannot be made at {group}: {error.strerror}")
            for file, value in (("freezer.state", "FROZEN"), ("cgroup.freeze", "1")):
                if frozen and (group / file).exists():
                    (group / file).write_text(value)
        FileTree(found).remove(name)
        assert process.wait(30) == -signal.SIGKILL
        assert not any(group.parent.exists() for group in groups)
    finally:
        process.kill()
        for group in groups:
            for file, value in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
                if (group / file).exists():
                    (group / file).write_text(value)
        process.wait(30)
        for group in groups:
            for place in (group, group.parent, group.parent.parent):
                if place.exists():
                    place.rmdir()


def test_systemd_slice_gets_all_properties_at_once() -> None:
    told: list[Sequence[str]] = []
    tree = SystemdTree(told.append)
    name = pod_cgroup(kubepods(), "Burstable", UID)
    tree.apply(name, {"memory.low": "4096", "memory.min": "0"}, Amounts(1024, 50_000, 8192, pids=99))
    tree.remove(name)
    unit = "kubepods-burstable-pod0a1b_2c.slice"
    properties = ["MemoryLow=4096", "MemoryMin=0", "CPUWeight=39", "CPUQuota=50%", "MemoryMax=8192", "TasksMax=99"]
    assert told == [
        ["systemctl", "start", unit],
        ["systemctl", "set-property", "--runtime", unit, *properties],
        ["systemctl", "stop", unit],
    ]
