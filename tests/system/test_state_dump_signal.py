"""SIGUSR2 to real processes: the state of the scheduler is in the log, and the process goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from haru_process import Process, Up, component, health, until

PENDING = """
apiVersion: v1
kind: Pod
metadata: {name: giant}
spec:
  schedulerName: %s
  containers: [{name: main, image: i, resources: {requests: {cpu: "9999"}}}]
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    started = Up(tmp_path_factory.mktemp("dump"), "--ephemeral", "--profile", "cpu:1", "--no-dashboard")
    yield started
    started.stop()


def dump_of(process: Process, *texts: str) -> str:
    process.process.send_signal(signal.SIGUSR2)

    def log() -> str:
        assert process.process.poll() is None, f"{process.name} ended with status {process.process.poll()}"
        text = process.log.read_text()
        return text if all(one in text for one in texts) else ""

    return until(f"{texts} in the log of {process.name}", log)


def test_haru_up_dumps_nodes_and_queue_on_signal_and_continues(up: Up) -> None:
    up.api.create_all(PENDING % "default-scheduler", up.api.namespace("up"))
    until("the pod was tried", lambda: "PodScheduled" in str(up.api.get("pods", "giant", "up").get("status")))
    text = dump_of(up, "Dump of cached NodeInfo: 1 nodes", "pod up/giant: priority 0, attempts 1")
    assert "Dump of assumed pods: none" in text
    assert up.api.find("nodes", "no-such-node") is None


def test_standby_replica_survives_signal_and_leader_dumps_its_queue(up: Up, tmp_path: Path) -> None:
    replicas: list[Process] = []
    try:
        for name in ("first", "second"):
            process, port = component(tmp_path, "scheduler", up.kubeconfig, name=name)
            replicas.append(process)
            until(f"{name} is ready", lambda port=port: health(port, "/readyz")[0] == 200)
        up.api.create_all(PENDING % "haru", up.api.namespace("own"))
        until("the pod was tried", lambda: "PodScheduled" in str(up.api.get("pods", "giant", "own").get("status")))
        dump_of(replicas[0], "pod own/giant: priority 0, attempts 1", "unschedulable 1 pods")
        dump_of(replicas[1], "no scheduler works in this process")
    finally:
        for process in replicas:
            process.stop()
