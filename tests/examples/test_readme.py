"""The first output that the README shows is what `haru up` prints, line by line."""

from __future__ import annotations

import re
from pathlib import Path

from haru_process import Up, until

ROOT = Path(__file__).parents[2]
START = re.compile(r"^\$ haru up --profile (\S+).*\n((?:(?!```|\$ ).*\n)+)", re.MULTILINE)
VARYING = (r"after \S+ s", r"127\.0\.0\.1:\d+", r"kubeconfig \S+", r"code=\S+")


def test_readme_shows_every_line_that_haru_up_prints(tmp_path: Path) -> None:
    start = START.search((ROOT / "README.md").read_text())
    assert start is not None
    shown = start[2].splitlines()
    up = Up(tmp_path, "--ephemeral", "--profile", start[1], warm=False)
    messages = until("messages", lambda: len(lines := up.log.read_text().splitlines()) >= len(shown) - 1 and lines)
    assert up.stop() == 0
    assert [masked(line) for line in (up.ready_line, *messages)] == [masked(line) for line in shown]


def masked(line: str) -> str:
    """The line without what differs from start to start."""
    for pattern in VARYING:
        line = re.sub(pattern, "…", line)
    return line
