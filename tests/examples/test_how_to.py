"""The commands of the how-to pages are run as they stand, on the cluster that each page starts with."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from haru_process import Up, environment
from warm_haru import warm_command

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
LONG = {"rehearse-an-upgrade"}
"""Pages that start servers of their own."""
SHOWN = {
    "find-out-why-a-pod-is-pending": ("FitsLater", "1 short"),
    "replay-a-workload": ("default  42    3     3",),
    "run-scheduler-shards": ("shard-a", "shard-b"),
    "rehearse-an-autoscaler": ("Deployment/web", "cpu: 90%/50%", "New size: 4; reason: cpu resource utilization"),
    "rehearse-an-upgrade": ('"PodGroupList"', "404"),
}
"""What the text of a page says that its commands print."""


def _marked(page: Path) -> object:
    return pytest.param(page, marks=pytest.mark.nightly) if page.stem in LONG else page


@pytest.mark.parametrize("page", [_marked(page) for page in PAGES], ids=lambda page: page.stem)
def test_commands_of_how_to_page_work(page: Path, tmp_path: Path, kubectl: str) -> None:
    text = _with_free_ports(page.read_text()) if page.stem in LONG else page.read_text()
    script = "set -eu -o pipefail\n" + "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S))
    start = re.search(r"^\$ haru up (--profile \S+)", text, re.M)
    commands = tmp_path / "bin"
    env = environment(tmp_path, PATH=f"{commands}:/usr/bin:/bin")
    inherited = _make_commands(commands, kubectl)
    up = Up(tmp_path / "up", "--ephemeral", *start[1].split()) if start else None
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "examples").symlink_to(ROOT / "examples")
    if up is not None:
        env["KUBECONFIG"] = str(up.kubeconfig)
    try:
        answer = subprocess.run(
            ["bash", "-c", script],
            env=env,
            pass_fds=[inherited],
            cwd=tmp_path / "work",
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    finally:
        status = up.stop() if up is not None else 0
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-2000:]
    assert status == 0
    assert [part for part in SHOWN.get(page.stem, ()) if part not in answer.stdout] == [], answer.stdout[-4000:]
    assert [p.name for p in (tmp_path / "work").iterdir()] == ["examples"], "the page leaves files behind"


def _with_free_ports(text: str) -> str:
    """The page with ports that nobody listens on in place of its own."""
    named = set(re.findall(r"(?:127\.0\.0\.1:|localhost:|--secure-port )(\d+)", text))
    with contextlib.ExitStack() as kept:
        sockets = {port: kept.enter_context(socket.socket()) for port in named}
        for one in sockets.values():
            one.bind(("127.0.0.1", 0))
        free = {port: str(one.getsockname()[1]) for port, one in sockets.items()}
    return re.sub(rf"\b({'|'.join(named)})\b", lambda match: free[match[1]], text)


def _make_commands(folder: Path, kubectl: str) -> int:
    """A folder with `haru`, `python3` and `kubectl`; the descriptor that they inherit."""
    folder.mkdir()
    (folder / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python3").chmod(0o755)
    (folder / "kubectl").symlink_to(kubectl)
    return warm_command(folder / "haru")
