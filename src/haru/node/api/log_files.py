"""Container logs: tail, whole, follow.

A file is read in pieces, in a thread; a follower looks again after a short while, and goes on in the new file when the
runtime was told to write one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import BinaryIO

from haru.node.api.log_lines import LineWriter
from haru.node.api.sources import LogOptions

PIECE_BYTES = 64 * 1024
LONGEST_LINE_BYTES = 1024 * 1024
"""Runtimes break lines at 16 KiB; what has no line break for so long is no log."""
LOOK_SECONDS = 0.2
Sleep = Callable[[float], Awaitable[None]]


async def read_log(
    path: Path,
    options: LogOptions,
    is_running: Callable[[], Awaitable[bool]],
    sleep: Sleep = asyncio.sleep,
) -> AsyncGenerator[bytes, None]:
    """A log, piece by piece. A follower's ends when the container has ended and all of its log was read.

    Raises OSError before the first piece when the file can not be opened.
    """
    writer = LineWriter(options)
    newer: BinaryIO | None = None
    file = await asyncio.to_thread(_opened, path)
    try:
        start = 0 if options.tail_lines is None else await asyncio.to_thread(tail_start, file, options.tail_lines)
        await asyncio.to_thread(file.seek, start)
        rest, ended = b"", False
        while not writer.is_full:
            piece = await asyncio.to_thread(file.read, PIECE_BYTES)
            if piece:
                shown, rest = _shown(writer, rest + piece)
                if shown:
                    yield shown
            elif newer is not None:
                # The old file was read to its end once more since the new one came.
                file.close()
                file, newer = newer, None
                if shown := _shown(writer, rest + b"\n")[0]:
                    yield shown
                rest = b""
            elif not options.follow:
                break
            elif (newer := await asyncio.to_thread(_newer, path, file)) is None:
                if ended:
                    break
                ended = not await is_running()
                if not ended:
                    await sleep(LOOK_SECONDS)
        if rest and not writer.is_full and (shown := writer.show(rest)):
            yield shown
    finally:
        file.close()
        if newer is not None:
            newer.close()


def _opened(path: Path) -> BinaryIO:
    return path.open("rb", 0)


def _shown(writer: LineWriter, data: bytes) -> tuple[bytes, bytes]:
    """What is shown of whole lines, and the begun one."""
    *lines, rest = data.split(b"\n")
    shown = b"".join(writer.show(line + b"\n") for line in lines)
    return shown, rest if len(rest) <= LONGEST_LINE_BYTES else b""


def _newer(path: Path, file: BinaryIO) -> BinaryIO | None:
    """The file that has come in place of the open one; one that was cut short is read from its start."""
    try:
        there, ours = path.stat(), os.fstat(file.fileno())
        if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
            if there.st_size < file.tell():
                return _opened(path)
            return None
        return _opened(path)
    except FileNotFoundError:
        return None  # moved away, and not yet made again


def tail_start(file: BinaryIO, lines: int) -> int:
    """Where the last so many lines of a file begin; a last line without its break counts too."""
    end = file.seek(0, os.SEEK_END)
    if lines <= 0:
        return end
    at, wanted = end, lines
    if end and file.seek(end - 1) is not None and file.read(1) == b"\n":
        wanted += 1
    while at > 0:
        size = min(PIECE_BYTES, at)
        file.seek(at - size)
        piece = file.read(size)
        at -= size
        count = piece.count(b"\n")
        if count >= wanted:
            for _ in range(count - wanted + 1):
                position = piece.index(b"\n") + 1
                piece, at = piece[position:], at + position
            return at
        wanted -= count
    return 0
