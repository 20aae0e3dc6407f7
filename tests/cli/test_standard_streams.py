"""Commands whose output leads nowhere: a full disk, closed streams, a table of files that is full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from haru_process import environment


@pytest.mark.parametrize(
    ("command", "streams", "status", "told"),
    [
        ("completion bash", ">/dev/full", 2, "haru completion: No space left on device\n"),
        ("version", ">/dev/full", 2, "haru version: No space left on device\n"),
        ("version", ">&-", 0, ""),
        ("version --none", "2>&-", 2, ""),
        ("explain pod/x -f none", "2>&-", 2, ""),
        ("up --ephemeral --listen 127.0.0.1:0", "; ulimit -n 9; run", 2, "Too many open files\n"),
    ],
)
def test_command_ends_with_one_line(command: str, streams: str, status: int, told: str, tmp_path: Path) -> None:
    run = f'run() {{ "{sys.executable}" -m haru {command}; }}'
    script = f"{run} {streams}" if streams.startswith(";") else f"{run}; run {streams}"
    ended = subprocess.run(
        ["bash", "-c", script], env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stderr[-len(told) :] if told else "") == (status, told), ended.stderr
    assert "Traceback" not in ended.stderr


def test_stream_that_lacks_a_character_gets_another_in_its_place(tmp_path: Path) -> None:
    plain = environment(tmp_path, PYTHONIOENCODING="ascii")
    command = [sys.executable, "-m", "haru", "up", "--help"]
    ended = subprocess.run(command, env=plain, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "--profile NAME:COUNT,?" in ended.stdout


def test_file_of_a_command_does_not_take_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """The lowest number that is free is given to the next file: what is printed would be written into it."""
    program = (
        "import os, sys; from haru.open_files import stand_in_for_closed_streams; stand_in_for_closed_streams(); "
        f"file = open({str(tmp_path / 'own')!r}, 'w'); os.write(1, b'printed'); print('too', flush=True)"
    )
    subprocess.run(["bash", "-c", f'"{sys.executable}" -c "{program}" >&- 2>&-'], check=True, timeout=60)
    assert (tmp_path / "own").read_text() == ""
