"""Messages between the process of the API server and that of a part: lists of values as JSON, one on a line.

They go over a pair of sockets that the two have from their start; its end is the end of the other process.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import orjson

_LONGEST = 1 << 24


class Channel:
    """One end of the pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Channel:
        """A channel over one of two connected sockets."""
        return cls(*await asyncio.open_connection(sock=end, limit=_LONGEST))

    def send(self, *message: Any) -> None:
        """Send a message; to nobody, if the other process has ended."""
        if not self._writer.is_closing():
            self._writer.write(orjson.dumps(message) + b"\n")

    async def messages(self) -> AsyncIterator[list[Any]]:
        """What the other process sends, until its end."""
        try:
            while (line := await self._reader.readline()).endswith(b"\n"):
                yield orjson.loads(line)
        except ConnectionError:
            return

    def close(self) -> None:
        """Close this end."""
        self._writer.close()
