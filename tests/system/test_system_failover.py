"""Two schedulers, one Lease: the leader is killed in the middle of its work, the other one takes over."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from system_cluster import job, pod_group, request, template

from haru_process import ACCELERATOR_GATES, Api, Process, Up, component, devices_of, health, phase, until

Obj = dict[str, Any]
WORKERS = 4
# A third of the default durations: what is promised for those holds for these even on a slow machine.
ELECTION = tuple(f"--leader-elect-{name}" for name in ("lease-duration=6s", "renew-deadline=4s", "retry-period=1s"))
FLAGS = ("--feature-gates", ACCELERATOR_GATES, "--scheduler-name", "default-scheduler")


def _leader(api: Api) -> str:
    lease = api.find("leases", "haru-scheduler", "kube-system")
    return str(lease["spec"].get("holderIdentity") or "") if lease else ""


def _check(api: Api, bound: dict[str, str]) -> None:
    """No pod changes its node, no device is held twice, no gang is bound in part for good."""
    for pod in api.list("pods", "default"):
        node = pod["spec"].get("nodeName")
        if node:
            assert bound.setdefault(pod["metadata"]["uid"], node) == node
    held = [device for claim in api.list("resourceclaims", "default") for device in devices_of(claim)]
    assert len(held) == len(set(held)), "a device is held twice"


def test_standby_scheduler_takes_over_after_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    up = Up(tmp_path, "--no-scheduler", "--data-dir", str(data), "--profile", "dgx-h100:3,cpu:1")
    schedulers: dict[int, tuple[Process, int]] = {}
    try:
        for number in range(2):
            started = component(
                tmp_path, "scheduler", data / "scheduler.kubeconfig", *FLAGS, *ELECTION, name=f"scheduler-{number}"
            )
            schedulers[started[0].process.pid] = started
        api = up.api
        holder = until("a leader is elected", lambda: _leader(api))
        pid = int(holder.split("_")[1])
        api.create(template("one", request()), "default")
        bound: dict[str, str] = {}
        for number in range(2):
            api.create(job(f"before-{number}", WORKERS, template="one"), "default")
        # In the middle of its work: something is bound, not everything.
        until("the first pods are bound", lambda: any(p["spec"].get("nodeName") for p in api.list("pods", "default")))
        killed, _ = schedulers.pop(pid)
        killed.stop(signal.SIGKILL)
        _check(api, bound)
        for number in range(2):
            api.create(job(f"after-{number}", WORKERS, template="one"), "default")
        until("another one leads", lambda: _leader(api) not in ("", holder))
        until("every gang runs", lambda: _all_run(api, bound))
        [(_, port)] = schedulers.values()
        assert health(port, "/readyz") == (200, "ok")
        _a_clean_stop_hands_over_at_once(tmp_path, data, api, schedulers)
    finally:
        statuses = [process.stop() for process, _ in schedulers.values()]
        statuses.append(up.stop())
    assert statuses == [0] * len(statuses)


def _all_run(api: Api, bound: dict[str, str]) -> bool:
    _check(api, bound)
    pods = api.list("pods", "default")
    return len(pods) == 4 * WORKERS and all(phase(p) == "Running" for p in pods)


def _a_clean_stop_hands_over_at_once(
    home: Path, data: Path, api: Api, schedulers: dict[int, tuple[Process, int]]
) -> None:
    """A leader that is asked to stop gives its Lease up: nobody waits for it to run out."""
    successor = component(home, "scheduler", data / "scheduler.kubeconfig", *FLAGS, name="scheduler-2")
    until("the successor listens", lambda: health(successor[1], "/healthz")[0] == 200)
    [(pid, (leader, _))] = schedulers.items()
    assert leader.stop() == 0
    assert f"_{pid}_" not in _leader(api)
    del schedulers[pid]
    schedulers[successor[0].process.pid] = successor
    wanted = f"_{successor[0].process.pid}_"
    until("the successor leads", lambda: wanted in _leader(api))
    api.create(pod_group("late", 1), "default")
