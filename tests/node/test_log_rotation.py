"""Logs of containers are moved aside before they are too large, and the oldest go."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from haru.node.agent.log_rotation import ContainerLogManager, make_room
from haru.node.cri.errors import CriError
from haru.node.podworker.observed import ContainerFiles, SeenContainer


class Runtime:
    """Writes into a new file when it is told to."""

    def __init__(self, path: Path, fails: bool = False) -> None:
        self.path, self.fails = path, fails

    async def reopen_log(self, container: str) -> None:
        if self.fails:
            raise CriError("reopen_container_log", "UNAVAILABLE", "away")
        self.path.touch()


def keeper(path: Path, fails: bool = False) -> ContainerLogManager:
    runtime: Any = Runtime(path, fails)
    seen = SeenContainer("id", "main", files=ContainerFiles(str(path)))
    return ContainerLogManager(runtime, lambda: [seen], max_bytes=10, max_files=3)


def names(directory: Path) -> set[str]:
    return {one.name for one in directory.iterdir()}


async def test_log_above_size_limit_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_text("0123456789")
    await keeper(path).rotate_all()
    assert path.read_text() == "0123456789"
    path.write_text("0123456789a")
    await keeper(path).rotate_all()
    assert path.read_text() == ""
    (name,) = names(tmp_path) - {"0.log"}
    assert (tmp_path / name).read_text() == "0123456789a"


async def test_runtime_error_keeps_log_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "0.log"
    path.write_text("0123456789a")
    await keeper(path, fails=True).rotate_all()
    assert names(tmp_path) == {"0.log"}
    assert "can not be rotated" in caplog.text


async def test_missing_log_file_is_ignored(tmp_path: Path) -> None:
    await keeper(tmp_path / "0.log").rotate_all()
    assert names(tmp_path) == set()


def test_old_logs_are_compressed_and_oldest_deleted(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    for name in ("0.log", "1.log", "0.log.20260101-000000.gz", "0.log.20260102-000000", "0.log.20260103-000000.gz.tmp"):
        (tmp_path / name).write_text(name)
    make_room(path, 3)
    assert names(tmp_path) == {"0.log", "1.log", "0.log.20260102-000000.gz"}
    with gzip.open(tmp_path / "0.log.20260102-000000.gz", "rt") as file:
        assert file.read() == "0.log.20260102-000000"
