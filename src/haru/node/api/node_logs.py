"""Files and directories below the node's /var/log, as `/logs/` shows them.

What leads out of the directory by a link is not shown: who may write there must not choose what of this machine others
read.
"""

from __future__ import annotations

import asyncio
import html
import os
import stat
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from haru.secure_serving.http import Answer, HttpError, text_answer

_PIECE_BYTES = 256 * 1024
_NOT_FOUND = "404 page not found"


async def show(root: Path, below: str, has_slash: bool) -> Answer:
    """A file's bytes or a directory's names; `below` is clean. Raises `HttpError`."""
    place = await asyncio.to_thread(_within, root, below)
    found = await asyncio.to_thread(place.stat)
    if stat.S_ISDIR(found.st_mode):
        if below and not has_slash:
            return Answer(301, headers=[(b"location", quote(below.rpartition("/")[2]).encode() + b"/")])
        listed = await asyncio.to_thread(_listed, place)
        return text_answer(listed, content_type="text/html; charset=utf-8")
    if not stat.S_ISREG(found.st_mode):
        raise HttpError(404, _NOT_FOUND)
    file = await asyncio.to_thread(_opened, place)
    length = (b"content-length", str(found.st_size).encode())
    return Answer(pieces=_pieces(file, found.st_size), content_type="text/plain; charset=utf-8", headers=[length])


def _within(root: Path, below: str) -> Path:
    base = root.resolve()
    try:
        place = (base / below).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        raise HttpError(404, _NOT_FOUND) from None
    if place != base and base not in place.parents:
        raise HttpError(404, _NOT_FOUND)
    return place


def _opened(place: Path) -> BinaryIO:
    try:
        # What was resolved has no link in its last part: one that came since is not followed.
        return os.fdopen(os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb", 0)
    except OSError as error:
        raise HttpError(403 if isinstance(error, PermissionError) else 404, _NOT_FOUND) from None


async def _pieces(file: BinaryIO, size: int) -> AsyncGenerator[bytes, None]:
    """As many bytes as were promised, though the file grows; one that was cut short ends the answer early."""
    with file:
        while size:
            piece = await asyncio.to_thread(file.read, min(size, _PIECE_BYTES))
            if not piece:
                raise OSError(f"{file.name}: it was cut short while it was read")
            size -= len(piece)
            yield piece


def _listed(place: Path) -> str:
    names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in place.iterdir())
    lines = [f'<a href="{quote(name)}">{html.escape(name)}</a>' for name in names]
    return "\n".join(
        ["<!doctype html>", '<meta name="viewport" content="width=device-width">', "<pre>", *lines, "</pre>", ""]
    )
