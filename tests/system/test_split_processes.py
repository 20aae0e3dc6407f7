"""`haru up --processes split`: parts that die are started again, and none outlives the command, however it ends."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import stat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dashboard_driving import dashboard_address
from system_cluster import deployment, pod, request, template

from haru_process import Api, Up, condition, free_port, haru, phase, until

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
    assert not [*(data / "run").iterdir()]


def page(address: str, path: str, cookie: str = "") -> tuple[int, str]:
    """The status of a page, and the cookie that came with it; 0 while nobody listens."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    try:
        connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
        answer = connection.getresponse()
        return answer.status, str(answer.headers.get("Set-Cookie")).partition(";")[0]
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()


def test_killed_pages_come_back_at_the_same_addresses_and_know_their_browser(tmp_path: Path) -> None:
    flags = ("--processes", "split", "--ephemeral", "--profile", "cpu:1", "--usage-metrics", "127.0.0.1:0")
    up = Up(tmp_path, *flags)
    try:
        address = dashboard_address(up)
        metrics = str(until("metrics", lambda: re.search(r"usage metrics: (\S+)", up.log.read_text()))[1])
        status, cookie = page(address, f"/?{urlsplit(address).query}")
        assert status == 303 and page(address, "/map", cookie)[0] == 200
        for times in (1, 2):
            os.kill(children(up)["pages"], signal.SIGKILL)
            until("they are there again", lambda times=times: up.log.read_text().count("is there again") == times)
            assert page(address, "/map")[0] == 403
            assert page(address, "/map", cookie)[0] == 200
            assert page(metrics, "/metrics")[0] == 200
        codes = re.findall(r"dashboard, .*: http://127.0.0.1:(\d+)/\?code=(\S+)", up.log.read_text())
        assert {port for port, _ in codes} == {str(urlsplit(address).port)} and len({code for _, code in codes}) == 3
        assert page(address, f"/?code={codes[0][1]}")[0] == 403
    finally:
        assert up.stop() == 0


def _binds(taker: socket.socket, port: int) -> bool:
    with contextlib.suppress(OSError):
        taker.bind(("127.0.0.1", port))
        return True
    return False


def test_port_that_others_took_from_killed_pages_is_named_and_asked_for_again(tmp_path: Path) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    up = Up(tmp_path, "--processes", "split", "--ephemeral", "--profile", "cpu:1", "--dashboard", f"127.0.0.1:{port}")
    try:
        os.kill(children(up)["pages"], signal.SIGKILL)
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            until("the port is free", lambda: _binds(other, port))
            other.listen()
            until("it is told", lambda: f"--dashboard: 127.0.0.1:{port}: Address already in use" in up.log.read_text())
        until("the dashboard is there again", lambda: page(address, "/map")[0] == 403)
    finally:
        assert up.stop() == 0


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
