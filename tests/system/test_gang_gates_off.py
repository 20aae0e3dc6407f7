"""`haru scheduler` without the gang feature gates, on a server with PodGroups: no gang is bound in part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from system_cluster import pod, pod_group

from haru_process import ACCELERATOR_GATES, Api, Up, component, condition, health, until

Obj = dict[str, Any]
OFF = "gang scheduling is off in this scheduler (feature gate {}): a pod that names a PodGroup is not scheduled alone"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    started = Up(tmp_path_factory.mktemp("gates"), "--ephemeral", "--no-scheduler", "--profile", "cpu:1")
    yield started
    started.stop()


def gang(api: Api, name: str) -> None:
    """Two members of which one has room: cpu for the other is nowhere."""
    api.create(pod_group(name, 2), name)
    group = {"schedulerName": "haru", "schedulingGroup": {"podGroupName": name}}
    api.create(pod("small", **group), name)
    large = pod("large", **group)
    large["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "9999"}}
    api.create(large, name)


def node_of(api: Api, name: str, space: str) -> str:
    return str(api.get("pods", name, space)["spec"].get("nodeName") or "")


@pytest.mark.parametrize(
    ("gates", "off"),
    [
        pytest.param("", "GangScheduling", id="none"),
        # A hold is told of once it has lasted for five seconds, as the scheduler looks: not twice by day.
        pytest.param("GenericWorkload=false", "GenericWorkload", id="no groups", marks=pytest.mark.nightly),
    ],
)
def test_members_are_gated_with_reason_when_gang_gates_are_off(up: Up, tmp_path: Path, gates: str, off: str) -> None:
    space = up.api.namespace(f"held-{off.lower()}")
    scheduler, port = component(tmp_path, "scheduler", up.kubeconfig, "--feature-gates", gates)
    try:
        gang(up.api, space)
        up.api.create(pod("single", schedulerName="haru"), space)
        until("the single pod is bound", lambda: node_of(up.api, "single", space))
        told = until("it says why", lambda: condition(up.api.get("pods", "small", space), "PodScheduled"))
        assert (told["status"], told["reason"], told["message"]) == ("False", "NotReadyForScheduling", OFF.format(off))
        assert not node_of(up.api, "small", space)
        log = scheduler.log.read_text()
        assert "--schedule-group-members-singly" in log and f"gate {off} is off" in log
        explained = up.haru("explain", "pod/small", "-n", space)
        assert "gang scheduling is off in the scheduler" in explained.stdout, explained.stdout + explained.stderr
        assert "GangSchedulingOff" in up.haru("explain", "pod/small", "-n", space, "-o", "json").stdout
    finally:
        assert scheduler.stop() == 0
    # With the gates on the same pods are a gang, and nothing of the old words stays.
    scheduler, port = component(tmp_path, "scheduler", up.kubeconfig, "--feature-gates", ACCELERATOR_GATES, name="on")
    try:
        until("the scheduler is ready", lambda: health(port, "/readyz")[0] == 200)

        def tried() -> bool:
            found = condition(up.api.get("pods", "small", space), "PodScheduled")
            return bool(found) and found["reason"] == "Unschedulable"

        until("the gang is tried as a whole", tried)
        assert "gang scheduling is off" not in up.haru("explain", "pod/small", "-n", space).stdout
        assert not node_of(up.api, "small", space)
    finally:
        assert scheduler.stop() == 0


def test_members_are_scheduled_separately_when_configured(up: Up, tmp_path: Path) -> None:
    space = up.api.namespace("singly")
    scheduler, _ = component(tmp_path, "scheduler", up.kubeconfig, "--schedule-group-members-singly")
    try:
        gang(up.api, space)
        until("the member that fits is bound", lambda: node_of(up.api, "small", space))
        assert "without their group's quorum" in scheduler.log.read_text()
    finally:
        assert scheduler.stop() == 0
