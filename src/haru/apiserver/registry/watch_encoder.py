"""What a watch sends: lines joined into pieces, made once for all who get the same ones, on the shortest way out.

A piece is a chunk of HTTP/1.1 that lies ready, and goes to the connection as it is; a connection of HTTP/2 makes frames
of its lines. Where the caller is no HTTP server of ours (a client in the same process), it goes as a message of ASGI.
Nothing is written while the client has yet to read what it was sent before, so that of a client that does not read no
more lies here than that and one piece.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from haru.apiserver.request.http import Request
from haru.serving import WRITE, WRITE_BODY
from haru.storage import Event

SEND_SECONDS = 60.0
PIECE_BYTES = 512 * 1024
RUN_EVENTS = 128
KEPT_RUNS = 16
EVENTS_WITH_LINES = 512
KEPT_BYTES = 8 * 1024 * 1024
"""Of pieces that are shared, in all."""


class Piece:
    """Lines that are sent in one piece."""

    __slots__ = ("_chunk", "lines")

    def __init__(self, lines: bytes) -> None:
        self.lines = lines
        self._chunk = b""

    @property
    def chunk(self) -> bytes:
        """As a chunk of HTTP/1.1, made when it is first wanted."""
        if not self._chunk:
            self._chunk = b"%x\r\n%b\r\n" % (len(self.lines), self.lines)
        return self._chunk


def pieces_of(lines: Iterable[bytes]) -> Iterator[Piece]:
    """Lines in pieces, each made when it is wanted, which end with the line that makes them `PIECE_BYTES` or more."""
    gathered: list[bytes] = []
    size = 0
    for line in lines:
        gathered.append(line)
        size += len(line)
        if size >= PIECE_BYTES:
            yield Piece(b"".join(gathered))
            gathered, size = [], 0
    if size:
        yield Piece(b"".join(gathered))


@dataclass(frozen=True, slots=True)
class _SharedPiece:
    """The next piece of changes that follow each other, by the first and the last of them, and how many are in it."""

    first: Event
    last: Event
    piece: Piece
    count: int

    @property
    def size(self) -> int:
        """Bytes, with the chunk."""
        return 2 * len(self.piece.lines)


class SharedPieces:
    """The pieces that were made last, for the watches that want the same changes in the same form."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int, int], _SharedPiece] = OrderedDict()
        self._bytes = 0

    def pieces(self, events: Sequence[Event], line: Callable[[Event], bytes]) -> Iterator[Piece]:
        """The pieces of some events, each made when it is wanted; `line` encodes an event alike for every watch."""
        for start in range(0, len(events), RUN_EVENTS):
            run = events[start : start + RUN_EVENTS]
            taken = 0
            while taken < len(run):
                found = self._next(run[taken:] if taken else run, line)
                taken += found.count
                if found.piece.lines:  # an empty chunk would end the answer
                    yield found.piece

    def _next(self, events: Sequence[Event], line: Callable[[Event], bytes]) -> _SharedPiece:
        first, last = events[0], events[-1]
        # Watches differ by their prefix: those that are shown as many changes between two are shown the same.
        which = (first.revision, last.revision, len(events))
        found = self._kept.get(which)
        if found is None or found.first is not first or found.last is not last:
            lines: list[bytes] = []
            size = 0
            for event in events:
                lines.append(line(event))
                size += len(lines[-1])
                if size >= PIECE_BYTES:
                    break
            found = _SharedPiece(first, last, Piece(b"".join(lines)), len(lines))
            self._keep(which, found)
        return found

    def _keep(self, which: tuple[int, int, int], made: _SharedPiece) -> None:
        replaced = self._kept.pop(which, None)
        self._bytes += made.size - (replaced.size if replaced is not None else 0)
        self._kept[which] = made
        while len(self._kept) > KEPT_RUNS or self._bytes > KEPT_BYTES:
            _, gone = self._kept.popitem(last=False)
            self._bytes -= gone.size


class EncodedEvents:
    """Keep the encoded lines of the youngest events, and the pieces that were made of them, for all watches.

    Lines double the memory of what the history holds anyway, so older events lose theirs.
    """

    def __init__(self) -> None:
        self._with_lines: list[Event] = []
        self.shared_pieces = SharedPieces()

    def lines(self, event: Event) -> dict[str, bytes]:
        """Return the lines of an event by their type, to be filled by the first watch that encodes them."""
        lines: dict[str, bytes] | None = event.note
        if lines is None:
            lines = event.note = {}
            self._with_lines.append(event)
            if len(self._with_lines) > EVENTS_WITH_LINES:
                for old in self._with_lines[: EVENTS_WITH_LINES // 2]:
                    old.note = None
                del self._with_lines[: EVENTS_WITH_LINES // 2]
        return lines


class WatchWriter:
    """The way to one client whose answer has begun."""

    def __init__(self, request: Request) -> None:
        self._request = request
        extensions = request.scope.get("extensions") or {}
        # An answer to HEAD has no body: uvicorn sees to that.
        extensions = extensions if request.method == "GET" else {}
        self._write: Callable[[bytes], bool] | None = extensions.get(WRITE)
        self._write_body: Callable[[bytes], bool] | None = extensions.get(WRITE_BODY)

    async def send(self, pieces: Iterable[Piece]) -> None:
        """Send pieces in their order. TimeoutError for a client that does not read."""
        write, write_body = self._write, self._write_body
        for piece in pieces:
            if write is None:
                if write_body is None or not write_body(piece.lines):
                    await self._tell(piece.lines)
                continue
            while not write(piece.chunk):
                await self._tell(b"")

    async def _tell(self, body: bytes) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            await self._request.send({"type": "http.response.body", "body": body, "more_body": True})
