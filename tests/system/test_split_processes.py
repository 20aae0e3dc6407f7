"""`haru up --processes split`: parts that die are started again, and none outlives the command, however it ends."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path
from typing import Any

from system_cluster import deployment, pod, request, template

from haru_process import Api, Up, condition, haru, phase, until

Obj = dict[str, Any]


def children(up: Up) -> dict[str, int]:
    """The processes that the command has started, by the name of their first part (15 characters with `haru `)."""
    found = {}
    for task in Path(f"/proc/{up.process.pid}/task").iterdir():
        for pid in (task / "children").read_text().split():
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            found[name.removeprefix("haru ")] = int(pid)
    return found


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def running(api: Api, count: int) -> bool:
    return [phase(p) for p in api.list("pods", "default")].count("Running") == count


def test_killed_parts_are_started_again_and_work_goes_on(tmp_path: Path) -> None:
    # A path that is longer than the address of a socket may be.
    data = tmp_path / ("long-" * 20) / "data"
    up = Up(tmp_path, "--processes", "split", "--data-dir", str(data), "--profile", "dgx-h100:1,cpu:1")
    try:
        first = children(up)
        assert sorted(first) == ["controller", "pages", "scheduler"]
        assert stat.S_IMODE((data / "run").stat().st_mode) == 0o700
        assert stat.S_IMODE((data / "run" / "api.sock").stat().st_mode) == 0o600
        up.api.create(template("one", request()), "default")
        up.api.create(deployment("web", 2, template="one"), "default")
        until("two pods run", lambda: running(up.api, 2))
        os.kill(first["scheduler"], signal.SIGKILL)
        up.api.patch("deployments", "web", {"spec": {"replicas": 3}}, "default")
        until("the third pod runs", lambda: running(up.api, 3))
        os.kill(first["controller"], signal.SIGKILL)
        up.api.patch("deployments", "web", {"spec": {"replicas": 4}}, "default")
        until("the fourth pod runs", lambda: running(up.api, 4))
        now = children(up)
        assert now["pages"] == first["pages"]
        assert now["scheduler"] != first["scheduler"] and now["controller"] != first["controller"]
        assert {condition(node, "Ready")["status"] for node in up.api.list("nodes")} == {"True"}
        up.process.send_signal(signal.SIGUSR2)
        until("the scheduler's state is in the log", lambda: "node cpu-0" in up.log.read_text())
    finally:
        assert up.stop(signal.SIGINT) == 0
    said = up.log.read_text()
    for part in ("the scheduler", "the controllers and the nodes"):
        assert f"the process of {part} (process " in said and f"the process of {part} is there again" in said
    assert said.count("ended (signal SIGKILL): it is started again in 0.2 s") == 2
    assert "Traceback" not in said and " E haru" not in said
    assert not any(lives(pid) for pid in now.values())


def test_kill_of_the_command_leaves_no_process_behind(tmp_path: Path) -> None:
    up = Up(tmp_path, "--processes", "split", "--data-dir", str(tmp_path / "data"), "--profile", "cpu:1")
    parts = children(up)
    os.kill(parts["pages"], signal.SIGKILL)
    # One that was started anew ends like those that were forked.
    until("it is started again", lambda: children(up).get("pages", parts["pages"]) != parts["pages"])
    parts = children(up)
    up.api.create(pod("kept"), "default")
    up.stop(signal.SIGKILL)
    until("all have ended", lambda: not any(lives(pid) for pid in parts.values()))
    again = Up(tmp_path, "--processes", "one", "--data-dir", str(tmp_path / "data"))
    try:
        until("the pod runs", lambda: running(again.api, 1))
        assert children(again) == {}
    finally:
        assert again.stop() == 0


def test_option_that_only_a_part_can_check_is_refused_before_anything_changes(tmp_path: Path) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text("kind: Something\n")
    flags = ("--processes", "split", "--data-dir", str(tmp_path / "data"), "--scheduler-config", str(config))
    answer = haru(tmp_path, "up", "--listen", "127.0.0.1:0", *flags)
    assert answer.returncode == 2 and "Traceback" not in answer.stderr
    assert answer.stderr.startswith("haru up: --scheduler-config: ")
