"""Logs of containers that grow: moved aside at a size, the older ones packed, the oldest removed.

    0.log        0.log.20261122-100000        0.log.20261122-095500.gz

Source: containerLogMaxSize (10 MiB) and containerLogMaxFiles (5) of the kubelet, with its names of files.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from haru.node.cri.client import RuntimeClient
from haru.node.cri.errors import CriError
from haru.node.podworker.observed import SeenContainer

_log = logging.getLogger(__name__)
MAX_BYTES = 10 * 1024 * 1024
MAX_FILES = 5
SECONDS = 10.0
_TEMPORARY = ".tmp"


class ContainerLogManager:
    """Keeps the logs of running containers small; `running()` are those that run now."""

    def __init__(
        self,
        runtime: RuntimeClient,
        running: Callable[[], Iterable[SeenContainer]],
        *,
        max_bytes: int = MAX_BYTES,
        max_files: int = MAX_FILES,
    ) -> None:
        self._runtime, self._running = runtime, running
        self._max_bytes, self._max_files = max_bytes, max_files

    async def run(self) -> None:
        """Rotate at the interval until cancelled."""
        while True:
            await asyncio.sleep(SECONDS)
            await self.rotate_all()

    async def rotate_all(self) -> None:
        """Rotate what has grown too large."""
        for one in list(self._running()):
            path = Path(one.files.log)
            try:
                if one.files.log and await asyncio.to_thread(_size, path) > self._max_bytes:
                    await self._rotate(one, path)
            except (OSError, CriError) as error:
                _log.warning("the log of container %s can not be rotated: %s", one.name, error)

    async def _rotate(self, one: SeenContainer, path: Path) -> None:
        await asyncio.to_thread(make_room, path, self._max_files)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime())
        moved = path.with_name(f"{path.name}.{stamp}")
        await asyncio.to_thread(path.rename, moved)
        try:
            await self._runtime.reopen_log(one.id)
        except CriError:
            # It goes on writing into the file that it has: the file keeps its name.
            await asyncio.to_thread(moved.rename, path)
            raise


def make_room(path: Path, max_files: int) -> None:
    """Pack the files that were moved aside, and remove the oldest, so that with one more there are `max_files`."""
    aside = [one for one in path.parent.glob(f"{path.name}.*") if one.suffix != _TEMPORARY]
    for left in path.parent.glob(f"{path.name}.*{_TEMPORARY}"):
        left.unlink()
    aside.sort(key=lambda one: one.name.removesuffix(".gz"))
    for old in aside[: max(0, len(aside) - (max_files - 2))]:
        old.unlink()
        aside.remove(old)
    for one in aside:
        if one.suffix != ".gz":
            _pack(one)


def _pack(file: Path) -> None:
    packed = file.with_name(f"{file.name}.gz")
    temporary = file.with_name(f"{file.name}.gz{_TEMPORARY}")
    with file.open("rb") as source, gzip.open(temporary, "wb") as target:
        shutil.copyfileobj(source, target)
    temporary.rename(packed)
    file.unlink()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
