"""`haru scheduler` and `haru controllers` as processes: a server that comes late, goes away, or cannot do gangs."""

from __future__ import annotations

import functools
import signal
import socket
import time
from pathlib import Path
from typing import Any

from system_cluster import deployment, pod, request, template

from haru_process import (
    ACCELERATOR_GATES,
    Api,
    Process,
    Up,
    component,
    free_port,
    haru,
    health,
    phase,
    until,
)

Obj = dict[str, Any]
cold = functools.partial(component, warm=False)
"""A component as its command starts it: here its own modules have to suffice."""


def running(api: Api, count: int) -> bool:
    return [phase(p) for p in api.list("pods", "default")].count("Running") == count


def stop_all(*processes: Process) -> None:
    statuses = {process.name: process.stop() for process in processes}
    assert set(statuses.values()) == {0}, statuses


def test_components_survive_killed_api_server(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    flags = ("--no-scheduler", "--controllers=", "--data-dir", str(data), "--profile", "dgx-h100:1,cpu:1")
    flags += ("--listen", f"127.0.0.1:{port}")
    up = Up(tmp_path, *flags)
    # Without a Lease: who cannot renew it for ten seconds has to end, and a busy machine may take longer to start anew.
    alone = ("--feature-gates", ACCELERATOR_GATES, "--no-leader-elect")
    names = ("--scheduler-name", "default-scheduler")
    scheduler, scheduler_port = cold(tmp_path, "scheduler", data / "scheduler.kubeconfig", *alone, *names)
    controllers, controllers_port = cold(tmp_path, "controllers", data / "controllers.kubeconfig", *alone)
    try:
        up.api.create(template("one", request()), "default")
        up.api.create(deployment("web", 2, template="one"), "default")
        until("two pods run", lambda: running(up.api, 2))
        up.stop(signal.SIGKILL)
        time.sleep(0.5)
        for each in (scheduler_port, controllers_port):
            assert health(each, "/healthz")[0] == 200
        up = Up(tmp_path, *flags)
        up.api.patch("deployments", "web", {"spec": {"replicas": 4}}, "default")
        until("four pods run", lambda: running(up.api, 4))
        devices = {
            str(c["status"]["allocation"]["devices"]["results"]) for c in up.api.list("resourceclaims", "default")
        }
        assert len(devices) == 4
    finally:
        stop_all(scheduler, controllers, up)


def test_components_wait_for_late_api_server(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    flags = ("--no-scheduler", "--data-dir", str(data), "--profile", "cpu:1", "--listen", f"127.0.0.1:{port}")
    first = Up(tmp_path, *flags)
    assert first.stop() == 0
    scheduler, _ = cold(tmp_path, "scheduler", data / "scheduler.kubeconfig", "--scheduler-name", "default-scheduler")
    time.sleep(1)
    assert scheduler.process.poll() is None
    up = Up(tmp_path, *flags)
    try:
        up.api.create(pod("late"), "default")
        until("the pod runs", lambda: running(up.api, 1))
    finally:
        stop_all(scheduler, up)


def test_pods_are_scheduled_without_workload_api(tmp_path: Path) -> None:
    off = ("--runtime-config", "scheduling.k8s.io/v1alpha2=false", "--profile", "dgx-h100:1")
    names = ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling", "WorkloadWithJob")
    names += ("WorkloadAwarePreemption", "DRAWorkloadResourceClaims")
    gates = ",".join(f"{name}=false" for name in names)
    up = Up(tmp_path, "--ephemeral", "--no-scheduler", *off, "--feature-gates", gates)
    # The scheduler is told of gates that the server cannot serve: it does what it can.
    scheduler, port = cold(tmp_path, "scheduler", up.kubeconfig, "--feature-gates", ACCELERATOR_GATES)
    try:
        until("the scheduler is ready", lambda: health(port, "/readyz")[0] == 200)
        up.api.create(template("one", request()), "default")
        up.api.create(pod("single", template="one", schedulerName="haru"), "default")
        until("the pod runs", lambda: running(up.api, 1))
        log = scheduler.log.read_text()
        assert "scheduling.k8s.io/v1alpha2" in log and "Traceback" not in log
    finally:
        stop_all(scheduler, up)


def test_component_start_failures_name_the_reason(tmp_path: Path) -> None:
    up = Up(tmp_path, "--ephemeral", "--profile", "cpu:1")
    try:
        reach = ("--kubeconfig", str(up.kubeconfig))
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            answer = haru(tmp_path, "scheduler", *reach, "--health-port", str(port))
        assert answer.returncode == 2, answer.stderr
        said = answer.stderr.strip().splitlines()[-1]
        assert f"--health-port: {port}" in said and "take another one" in said
    finally:
        stop_all(up)


def test_controllers_publish_ca_of_their_kubeconfig(tmp_path: Path) -> None:
    data = tmp_path / "data"
    up = Up(tmp_path, "--no-scheduler", "--controllers=", "--data-dir", str(data), "--profile", "cpu:1")
    controllers, _ = cold(tmp_path, "controllers", data / "controllers.kubeconfig", "--no-leader-elect")
    authority = (data / "pki" / "ca.crt").read_text()

    def published() -> bool:
        return (up.api.find("configmaps", "kube-root-ca.crt", "default") or {}).get("data") == {"ca.crt": authority}

    try:
        until("the authority is published", published)
    finally:
        stop_all(controllers, up)
