"""A server whose disk is full or whose directory is read-only reports it, loses no write, and recovers."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from haru_process import Api, Up, environment, free_port, until

Obj = dict[str, Any]
ALONE = ("--profile", "cpu:0", "--controllers", "", "--no-scheduler", "--no-dashboard", "--no-usage-history")


def config_map(name: str, size: int = 10) -> Obj:
    data = {"value": os.urandom(size).hex()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def names(api: Api) -> set[str]:
    return {item["metadata"]["name"] for item in api.list("configmaps", "default")}


def test_full_disk_fails_writes_and_recovers(tmp_path: Path) -> None:
    """No file of the server may grow, as if the disk had no room left; then it has."""
    data, listen = tmp_path / "data", f"127.0.0.1:{free_port()}"
    up = Up(tmp_path, "--data-dir", str(data), "--listen", listen, *ALONE)
    try:
        up.api.create(config_map("before"), "default")
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(up.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        for _ in range(3):
            code, answer = up.api.call("POST", "/api/v1/namespaces/default/configmaps", config_map("refused", 5_000))
            assert code == 500 and answer["reason"] == "InternalError", answer
            assert "could not make a change durable" in answer["message"] and str(data) in answer["message"]
            assert "see that the disk has room" in answer["message"]
        assert names(up.api) == {"before"}
        assert up.api.call("GET", "/readyz")[0] == 500 and up.api.call("GET", "/livez")[0] == 200
        resource.prlimit(up.process.pid, resource.RLIMIT_FSIZE, unlimited)
        up.api.create(config_map("after"), "default")
        assert up.api.call("GET", "/readyz")[0] == 200
        up.stop(signal.SIGKILL)
        assert "Traceback" not in up.log.read_text()
        up = Up(tmp_path, "--data-dir", str(data), "--listen", listen, *ALONE)
        assert names(up.api) == {"before", "after"}
        up.api.create(config_map("last"), "default")
    finally:
        up.stop()


def as_others(command: list[str]) -> list[str]:
    """The command so that what file modes say holds for root too.

    By another program, not in the child of a fork: what gRPC does there ends it now and then.
    """
    lesser = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]
    return [*lesser, *command] if os.geteuid() == 0 else command


@pytest.mark.parametrize(
    ("locked", "stopped", "told"),
    [
        ("**/*", signal.SIGTERM, "data: Permission denied; name a directory that can be written"),
        pytest.param(
            "**/*",
            signal.SIGKILL,
            "data: Permission denied; name a directory that can be written",
            marks=pytest.mark.nightly,
        ),
        (
            "state.db*",
            signal.SIGTERM,
            "data/state.db can not be opened: disk I/O error; see that the disk has",
        ),
    ],
    ids=["directory", "directory of one that was killed", "file"],
)
def test_unwritable_files_are_reported(tmp_path: Path, locked: str, stopped: int, told: str) -> None:
    data, listen = tmp_path / "data", f"127.0.0.1:{free_port()}"
    arguments = ["--data-dir", str(data), "--listen", listen, *ALONE]
    up = Up(tmp_path, *arguments)
    up.api.create(config_map("before"), "default")
    up.stop(stopped)
    modes = {path: path.stat().st_mode for path in data.glob(locked)}
    if locked == "**/*":
        modes[data] = data.stat().st_mode
    before = {path: path.read_bytes() for path in modes if path.is_file()}
    try:
        for path, mode in modes.items():
            path.chmod(mode & 0o555)
        command = as_others([sys.executable, "-m", "haru", "up", *arguments])
        found = subprocess.run(
            command,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert found.returncode == 2, found
        assert "Traceback" not in found.stderr and f"{tmp_path}/{told}" in found.stderr, found.stderr
        assert {path: path.read_bytes() for path in before} == before, "nothing was changed"
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    up = Up(tmp_path, *arguments)
    try:
        assert names(up.api) == {"before"}
        up.api.create(config_map("after"), "default")
        until("it is ready", lambda: up.api.call("GET", "/readyz")[0] == 200)
    finally:
        up.stop()
