"""Components that share a Lease, as processes: one whose loop is held up keeps it, or ends in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from haru_process import Up, environment, until

# Two of them run this: a component of the real command's, whose work holds up its event loop for so many seconds, or
# until there is a file.
COMPONENT = """
import argparse, asyncio, os, sys, time
from pathlib import Path
from haru.cli.component import Component, Election, run_component
from haru.cli.component_flags import add_component_arguments

lease, blocked, until = float(sys.argv.pop()), float(sys.argv.pop()), sys.argv.pop()

async def work(client):
    print("leads", flush=True)
    await asyncio.sleep(0.3)
    end = time.monotonic() + blocked
    while time.monotonic() < end and not os.path.exists(until):
        pass
    await asyncio.sleep(0.1)
    print("is through", flush=True)
    await asyncio.sleep(600)

parser = argparse.ArgumentParser()
add_component_arguments(parser, 0)
options = parser.parse_args()
options.command = "component"
election = Election(lease=lease, renew=lease * 2 / 3, retry=0.2)
sys.exit(run_component(options, Component("test", work, lambda: b"", lambda: True, election)))
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    home = tmp_path_factory.mktemp("leader-election")
    started = Up(home, "--ephemeral", "--no-scheduler", "--controllers=", "--profile", "cpu:0")
    yield started
    started.stop()


def candidate(up: Up, home: Path, name: str, lease: float, blocked: float = 0) -> subprocess.Popen[bytes]:
    arguments = ["--kubeconfig", str(up.kubeconfig), str(home / "free"), str(blocked), str(lease)]
    environ = environment(home, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    with (home / f"{name}.out").open("wb") as out, (home / f"{name}.log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-c", COMPONENT, *arguments], stdout=out, stderr=log, env=environ)


def said(home: Path, name: str, text: str) -> bool:
    return text in (home / f"{name}.out").read_text()


def test_busy_component_keeps_its_lease(up: Up, tmp_path: Path) -> None:
    """Blocked for longer than the two seconds between renewals; its limits: tests/client/test_lease_thread.py."""
    first = candidate(up, tmp_path, "first", lease=15, blocked=3)
    until("the first one leads", lambda: said(tmp_path, "first", "leads"))
    second = candidate(up, tmp_path, "second", lease=15)
    try:
        renewed = up.api.get("leases", "test", "kube-system")["spec"]["renewTime"]
        until(
            "it is renewed while the loop is held up",
            lambda: up.api.get("leases", "test", "kube-system")["spec"]["renewTime"] != renewed,
        )
        until("the first one is through", lambda: said(tmp_path, "first", "is through") or first.poll() is not None)
        assert first.poll() is None, (tmp_path / "first.log").read_text()
        assert not said(tmp_path, "second", "leads")
        first.terminate()
        assert first.wait(60) == 0
        until("the second one leads", lambda: said(tmp_path, "second", "leads"))
    finally:
        for process in (first, second):
            process.terminate()  # who leads gives its Lease up
            process.wait(60)


@pytest.mark.parametrize("comes_back", [True, False], ids=["comes back", "hangs for good"])
def test_hanging_component_loses_lease_and_ends_with_one_log_line(up: Up, tmp_path: Path, comes_back: bool) -> None:
    first = candidate(up, tmp_path, "first", lease=2, blocked=600)
    until("the first one leads", lambda: said(tmp_path, "first", "leads"))
    second = candidate(up, tmp_path, "second", lease=2)
    try:
        if comes_back:
            until("the Lease is lost", lambda: "has lost the Lease" in (tmp_path / "first.log").read_text())
            (tmp_path / "free").touch()
        until("the second one leads", lambda: said(tmp_path, "second", "leads"))
        # Until then nobody else could lead; by then it has ended.
        assert first.wait(60) == 1
        log = (tmp_path / "first.log").read_text()
        assert "Traceback" not in log
        told = [line for line in log.splitlines() if " E " in line]
        assert len(told) == 1 and "kube-system/test" in told[0] and "has lost the Lease" in told[0], log
        assert not said(tmp_path, "first", "is through")
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
