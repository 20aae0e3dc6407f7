"""The commands of the how-to pages are run as they stand, on the cluster that each page starts with."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from haru_process import Up, environment

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_how_to_page_work(page: Path, tmp_path: Path, kubectl: str) -> None:
    text = page.read_text()
    script = "set -eu -o pipefail\n" + "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S))
    start = re.search(r"^\$ haru up (--profile \S+)", text, re.M)
    env = environment(tmp_path, PATH=f"{_commands(tmp_path, kubectl)}:/usr/bin:/bin")
    up = Up(tmp_path / "up", "--ephemeral", *start[1].split()) if start else None
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "examples").symlink_to(ROOT / "examples")
    if up is not None:
        env["KUBECONFIG"] = str(up.kubeconfig)
    try:
        answer = subprocess.run(
            ["bash", "-c", script],
            env=env,
            cwd=tmp_path / "work",
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        status = up.stop() if up is not None else 0
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-2000:]
    assert status == 0
    assert [p.name for p in (tmp_path / "work").iterdir()] == ["examples"], "the page leaves files behind"


def _commands(home: Path, kubectl: str) -> Path:
    """A folder with `haru`, `python3` and `kubectl`."""
    folder = home / "bin"
    folder.mkdir()
    for name, what in (("haru", f"{sys.executable} -m haru"), ("python3", sys.executable)):
        (folder / name).write_text(f'#!/bin/sh\nexec {what} "$@"\n')
        (folder / name).chmod(0o755)
    (folder / "kubectl").symlink_to(kubectl)
    return folder
