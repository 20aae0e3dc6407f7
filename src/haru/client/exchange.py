"""One request and its answer, as it comes over a connection: HTTP/1.1 or HTTP/2."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from haru.client.transport import Request

_MOST_BUFFERED: Final = 1 << 20
_GZIP: Final = 31


class Headers(Mapping[str, str]):
    """The headers of an answer, names in lower case; nothing is decoded before somebody asks, as few do."""

    __slots__ = ("_decoded", "_raw")

    def __init__(self, raw: Sequence[tuple[bytes, bytes]] | bytes = ()) -> None:
        """`raw`: names with their values, or the whole head with its status line."""
        self._raw = raw
        self._decoded: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._decoded is None:
            self._decoded = self._decode()
        return self._decoded

    def _decode(self) -> dict[str, str]:
        pairs = _pairs(self._raw) if isinstance(self._raw, bytes) else self._raw
        return {name.decode("latin-1").lower(): value.strip().decode("latin-1") for name, value in pairs}

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


_NONE: Final = Headers()


def _pairs(head: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        yield name, value


class Exchange:
    """The answer to one request, as it comes. `whole`: its reader waits for all of it, not for each chunk."""

    __slots__ = (
        "_buffered",
        "_chunks",
        "_loop",
        "_waiter",
        "done",
        "error",
        "headers",
        "paused",
        "request",
        "status",
        "whole",
    )

    def __init__(self, request: Request, whole: bool, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`loop`: the running one, if it is known: each look-up asks the kernel which process this is."""
        self.request = request
        self._loop = loop
        self.status = 0
        self.headers: Mapping[str, str] = _NONE
        self.done = False
        self.error: BaseException | None = None
        self.paused: Callable[[], None] | None = None
        """Has the connection read on, if it does not because much is unread."""
        self.whole = whole
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._waiter: asyncio.Future[None] | None = None

    # -- the connection's side ----------------------------------------------------------------------------------------

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head of the answer."""
        self.status, self.headers = status, headers
        if not self.whole:
            self._wake()

    def complete(self, status: int, headers: Headers, body: bytes) -> None:
        """Take a whole answer."""
        self.status, self.headers = status, headers
        self._chunks.append(body)
        self.finish()

    def add(self, data: bytes) -> bool:
        """Take a part of the body; return whether more is unread than should be."""
        self._chunks.append(data)
        if self.whole:
            return False
        self._buffered += len(data)
        self._wake()
        return self._buffered > _MOST_BUFFERED

    def finish(self, error: BaseException | None = None) -> None:
        """End the answer, or the wait for it by an error."""
        if not self.done and self.error is None:
            self.done, self.error = error is None, error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- the reader's side --------------------------------------------------------------------------------------------

    async def head(self) -> None:
        """Wait for status and headers. Raises OSError."""
        while not self.status:
            await self._more()

    async def body(self) -> bytes:
        """Wait for the end and return the body. Raises OSError."""
        while not self.done:
            await self._more()
        data = b"".join(self._chunks)
        return self._decoded(data, None) if self._is_compressed() else data

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raises OSError."""
        inflate = zlib.decompressobj(_GZIP) if self._is_compressed() else None
        while True:
            if self._chunks:
                data = b"".join(self._chunks)
                self._chunks.clear()
                self._buffered = 0
                if self.paused is not None:
                    self.paused()
                if data := data if inflate is None else self._decoded(data, inflate):
                    yield data
            elif self.done:
                return
            else:
                await self._more()

    def _is_compressed(self) -> bool:
        # For anything else nobody asks for it.
        return self.request.method == "GET" and self.headers.get("content-encoding") == "gzip"

    def _decoded(self, data: bytes, inflate: Any) -> bytes:
        try:
            return zlib.decompress(data, _GZIP) if inflate is None else inflate.decompress(data)
        except zlib.error as error:
            raise ConnectionError(f"{self.request.method} {self.request.path}: {error}") from error

    async def _more(self) -> None:
        if self.error is not None:
            raise self.error
        self._waiter = (self._loop or asyncio.get_running_loop()).create_future()
        await self._waiter
        if self.error is not None:
            raise self.error
