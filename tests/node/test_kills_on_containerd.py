"""Agents, runtimes and sandboxes that are killed beside running pods, on a real containerd."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import pytest
from machine import NODE, Machine, container, is_ready, status_of

from haru_process import until

Obj = dict[str, Any]


def test_killed_agent_restarts_no_container_and_loses_no_pod(machine: Machine) -> None:
    probe = {"exec": {"command": ["true"]}}
    machine.create("stays", [container("main", "echo started; exec sleep 1000")])
    machine.create("ready", [container("main", "exec sleep 1000", readinessProbe=probe)])
    (machine.home / "go").mkdir()
    volumes = [{"name": "go", "hostPath": {"path": str(machine.home / "go")}}]
    waits = "until test -e /go/go; do sleep 0.1; done; exit 5"
    watching = container("main", waits, volumeMounts=[{"name": "go", "mountPath": "/go"}])
    machine.create("unwatched", [watching], restartPolicy="Never", volumes=volumes)
    machine.run("orphan", "exec sleep 1000")
    before = {name: machine.until_ready(name) for name in ("stays", "ready", "unwatched", "orphan")}
    machine.kill()
    # What happens while nobody looks is seen by the next one.
    (machine.home / "go" / "go").touch()
    machine.api.delete("pods", "orphan", "default", gracePeriodSeconds=0)
    machine.run("new", "exec sleep 1000")
    machine.start()
    failed = machine.until_phase("unwatched", "Failed")
    assert status_of(failed)["state"]["terminated"]["exitCode"] == 5
    machine.until_ready("new")
    for name in ("stays", "ready"):
        after = machine.until_ready(name)
        assert status_of(after) == status_of(before[name])
        assert after["status"]["conditions"] == before[name]["status"]["conditions"]
    assert machine.log(before["stays"]) == "started"
    lost = status_of(before["orphan"])["containerID"].removeprefix("containerd://")
    until("what nobody knows has ended", lambda: lost not in machine.runtime.tasks())
    until("nothing of it is left", lambda: not machine.left_of(before["orphan"]))
    for name in ("stays", "ready", "unwatched", "new"):
        machine.api.delete("pods", name, "default")
    for name in ("stays", "ready", "unwatched", "new"):
        machine.until_gone(name)
    until("nothing runs", lambda: machine.runtime.tasks() == {})


def test_dead_sandbox_is_replaced(machine: Machine) -> None:
    earlier = machine.runtime.tasks().keys()
    machine.run("uprooted", "echo started; exec sleep 1000")
    before = machine.until_ready("uprooted")
    container_id = status_of(before)["containerID"].removeprefix("containerd://")
    (sandbox,) = machine.runtime.tasks().keys() - {container_id} - earlier
    machine.runtime.ctr("tasks", "kill", "-s", "SIGKILL", sandbox)

    def has_moved(pod: Obj) -> bool:
        return is_ready(pod) and pod["status"]["podIP"] != before["status"]["podIP"]

    after = machine.until("uprooted", "another sandbox", has_moved)
    assert status_of(after)["restartCount"] == 1
    assert machine.log(after, attempt=1) == "started"
    assert sandbox not in machine.runtime.tasks() and container_id not in machine.runtime.tasks()
    machine.delete("uprooted")
    until("nothing of it is left", lambda: not machine.left_of(after))


@pytest.mark.nightly
def test_killed_runtime_restarts_no_container(machine: Machine) -> None:
    machine.run("calm", "echo started; exec sleep 1000")
    machine.run("short", "while :; do sleep 0.1; done", restartPolicy="Never")
    before = {name: machine.until_ready(name) for name in ("calm", "short")}
    pid = machine.runtime.tasks()[status_of(before["short"])["containerID"].removeprefix("containerd://")]
    machine.runtime.kill()
    until("the node says so", lambda: not _is_well(machine))
    os.kill(pid, signal.SIGKILL)
    machine.runtime.resume()
    until("the node is well", lambda: _is_well(machine), 60)
    ended = status_of(machine.until_phase("short", "Failed"))["state"]["terminated"]
    assert ended["exitCode"] == 137
    after = machine.until_ready("calm")
    assert status_of(after) == status_of(before["calm"])
    assert machine.log(after) == "started"
    machine.delete("calm")
    machine.delete("short")


def _is_well(machine: Machine) -> bool:
    conditions = machine.api.get("nodes", NODE)["status"]["conditions"]
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@pytest.mark.nightly
def test_repeatedly_killed_agent_starts_each_container_once(machine: Machine) -> None:
    """Killed at any step of the work on six pods: each has one sandbox and one process in the end."""
    rng = random.Random(7)
    names = [f"chaos-{number}" for number in range(6)]
    init = [container("init", "true")]
    for round_ in range(6):
        if round_ < len(names) // 2:
            for name in names[2 * round_ : 2 * round_ + 2]:
                machine.run(name, "echo started; exec sleep 1000", initContainers=init)
        # A moment of the work, not a wait for it: any length will do.
        time.sleep(rng.uniform(0.05, 0.8))
        machine.kill()
        machine.start()
    pods = [machine.until_ready(name) for name in names]
    tasks = machine.runtime.tasks()
    assert len(tasks) == 2 * len(names)
    for pod in pods:
        assert status_of(pod)["containerID"].removeprefix("containerd://") in tasks
        attempts = status_of(pod)["restartCount"]
        said = [machine.log(pod, attempt=attempt) for attempt in range(attempts + 1)]
        assert said.count("started") == 1, said
    for name in names:
        machine.api.delete("pods", name, "default")
    for name in names:
        machine.until_gone(name)
    until("nothing runs", lambda: machine.runtime.tasks() == {})
