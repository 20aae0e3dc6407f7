"""Components that share a Lease, as processes: one whose loop is held up keeps it, or ends in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from haru_process import Up, environment, until

# Two of them run this: a component of the real command's, whose work holds up its event loop for so many seconds.
COMPONENT = """
import argparse, asyncio, sys, time
from pathlib import Path
from haru.cli.component import Component, Election, add_component_arguments, run_component

blocked = float(sys.argv.pop())

async def work(client):
    print("leads", flush=True)
    await asyncio.sleep(0.3)
    for _ in range(2):
        end = time.monotonic() + blocked
        while time.monotonic() < end:
            pass
        await asyncio.sleep(0.1)
    print("is through", flush=True)
    await asyncio.sleep(60)

parser = argparse.ArgumentParser()
add_component_arguments(parser, 0)
options = parser.parse_args()
options.command = "component"
election = Election(lease=2.0, renew=1.3, retry=0.2)
sys.exit(run_component(options, Component("test", work, lambda: b"", lambda: True, election)))
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    home = tmp_path_factory.mktemp("leader-election")
    started = Up(home, "--ephemeral", "--no-scheduler", "--controllers=", "--profile", "cpu:0")
    yield started
    started.stop()


def candidate(up: Up, home: Path, name: str, blocked: float) -> subprocess.Popen[bytes]:
    arguments = ["--kubeconfig", str(up.kubeconfig), str(blocked)]
    environ = environment(home, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    with (home / f"{name}.out").open("wb") as out, (home / f"{name}.log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-c", COMPONENT, *arguments], stdout=out, stderr=log, env=environ)


def said(home: Path, name: str, text: str) -> bool:
    return text in (home / f"{name}.out").read_text()


def test_component_blocked_for_70_percent_of_lease_keeps_it(up: Up, tmp_path: Path) -> None:
    first = candidate(up, tmp_path, "first", 1.4)
    until("the first one leads", lambda: said(tmp_path, "first", "leads"))
    second = candidate(up, tmp_path, "second", 0)
    try:
        until("the first one is through", lambda: said(tmp_path, "first", "is through") or first.poll() is not None)
        assert first.poll() is None, (tmp_path / "first.log").read_text()
        assert not said(tmp_path, "second", "leads")
        first.terminate()
        assert first.wait(10) == 0
        until("the second one leads", lambda: said(tmp_path, "second", "leads"))
    finally:
        for process in (first, second):
            process.kill()
            process.wait()


@pytest.mark.parametrize("blocked", [2.95, 60.0], ids=["comes back", "hangs for good"])
def test_hanging_component_loses_lease_and_ends_with_one_log_line(up: Up, tmp_path: Path, blocked: float) -> None:
    first = candidate(up, tmp_path, "first", blocked)
    until("the first one leads", lambda: said(tmp_path, "first", "leads"))
    second = candidate(up, tmp_path, "second", 0)
    try:
        until("the second one leads", lambda: said(tmp_path, "second", "leads"))
        # Until then nobody else could lead; by then it has ended.
        assert first.wait(20) == 1
        log = (tmp_path / "first.log").read_text()
        assert "Traceback" not in log
        told = [line for line in log.splitlines() if " E " in line]
        assert len(told) == 1 and "kube-system/test" in told[0] and "has lost the Lease" in told[0], log
        assert not said(tmp_path, "first", "is through")
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
