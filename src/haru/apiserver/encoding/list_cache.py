"""Lists whose bytes lie ready, compressed too: the items of a collection in pieces, of which a change touches one.

A piece is some records and their joined bytes. Records do not change, so whether a piece still holds is whether the
records are the same ones: nothing has to be told of changes, and any moment of the history can be asked for. What is
kept is bounded, in bytes and in time: at most `KEPT_BYTES` of all collections, the ones asked for last, and of each
only until nobody has asked for it for a while. A collection of more bytes than that is encoded while it is sent, a
piece at a time, so that no client's list costs its size in memory.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from haru.apiserver.encoding.gzip_parts import Part, deflated, joined
from haru.storage import Record

PIECE_BYTES = 512 * 1024
KEPT_BYTES = 64 * 1024 * 1024
FROM_RECORDS = 32
"""Shorter lists are joined each time."""

_END = b"]}"
Encode = Callable[[Record], bytes]
_KEY = attrgetter("key")


class EncodedItems:
    """Records that follow each other, and their encoded objects, each after a comma."""

    __slots__ = ("_deflated", "body", "records")

    def __init__(self, records: list[Record], body: bytes) -> None:
        self.records = records
        self.body = body
        self._deflated: tuple[bool, Part] | None = None
        """Set in one: threads may come together here."""

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return len(self.body) + (len(self._deflated[1].data) if self._deflated is not None else 0)

    def text(self, *, is_first: bool) -> bytes:
        """As they stand in the list: the first of it without the comma."""
        return self.body[1:] if is_first else self.body

    def ready(self, *, is_first: bool) -> Part | None:
        """The text compressed, if it was before."""
        found = self._deflated
        return found[1] if found is not None and found[0] == is_first else None

    def deflate(self, *, is_first: bool) -> Part:
        """The text compressed."""
        found = self.ready(is_first=is_first)
        if found is None:
            found = deflated(self.text(is_first=is_first))
            self._deflated = (is_first, found)
        return found


class _CachedList:
    """The pieces of one collection, and whether a request has used them since the last cleanup."""

    __slots__ = ("pieces", "records", "used")

    def __init__(self, records: Sequence[Record], pieces: list[EncodedItems]) -> None:
        self.records = records
        self.pieces = pieces
        self.used = True

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return sum(piece.size for piece in self.pieces)


class ListCache:
    """The collections that were listed last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], _CachedList] = OrderedDict()
        self._too_long: dict[tuple[str, ...], int] = {}
        """Of how many records collections were that exceed the bound."""

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return sum(kept.size for kept in self._kept.values())

    def items(self, which: tuple[str, ...], records: Sequence[Record], encode: Encode) -> list[EncodedItems] | None:
        """All records of the collection `which`, in the order of their keys, in pieces; None if they exceed the bound.

        `which` names the form, too: `encode` gives the same bytes for the same record each time.
        """
        kept = self._kept.get(which)
        # What is in the same place in memory is not looked through again: nobody changes a list that was read.
        if kept is None or kept.records is not records:
            if len(records) >= self._too_long.get(which, len(records) + 1):
                return None
            pieces = _renewed(kept.pieces, records, encode) if kept is not None else _bounded(_cut(records, encode))
            kept = self._kept[which] = _CachedList(records, pieces)
        kept.used = True
        self._kept.move_to_end(which)
        if kept.size > KEPT_BYTES:
            del self._kept[which]  # the others need not make room for it
            self._too_long[which] = len(records)
            return None
        self.trim()
        return kept.pieces

    def trim(self) -> None:
        """Drop what exceeds the bound, first what was asked for longest ago."""
        size = self.size
        while size > KEPT_BYTES:
            _, gone = self._kept.popitem(last=False)
            size -= gone.size

    def drop_idle(self) -> None:
        """Drop what was not asked for since the last call, and measure long collections anew."""
        self._too_long.clear()
        for which, kept in list(self._kept.items()):
            if not kept.used:
                del self._kept[which]
            kept.used = False


def _cut(records: Iterable[Record], encode: Encode) -> Iterator[EncodedItems]:
    """Records in pieces, each of which ends with the record that makes it `PIECE_BYTES` or more."""
    taken: list[Record] = []
    encoded: list[bytes] = [b""]
    size = 0
    for record in records:
        taken.append(record)
        encoded.append(encode(record))
        size += len(encoded[-1])
        if size >= PIECE_BYTES:
            yield EncodedItems(taken, b",".join(encoded))
            taken, encoded, size = [], [b""], 0
    if taken:
        yield EncodedItems(taken, b",".join(encoded))


def _bounded(pieces: Iterable[EncodedItems]) -> list[EncodedItems]:
    """The first pieces, up to the one that exceeds the bound."""
    taken: list[EncodedItems] = []
    size = 0
    for piece in pieces:
        taken.append(piece)
        size += piece.size
        if size > KEPT_BYTES:
            break
    return taken


def list_text(head: bytes, records: Iterable[Record], encode: Encode) -> bytes | None:
    """The text of a list in one; None if it exceeds the bound."""
    encoded: list[bytes] = []
    size = 0
    for record in records:
        encoded.append(encode(record))
        size += len(encoded[-1])
        if size > KEPT_BYTES:
            return None
    return b"%b%b%b" % (head, b",".join(encoded), _END)


def list_pieces(head: bytes, records: Iterable[Record], encode: Encode) -> Iterator[bytes]:
    """The text of a list, of which nothing is kept: `head` up to the bracket of the items, the items, and the end."""
    yield head
    for number, piece in enumerate(_cut(records, encode)):
        yield piece.text(is_first=number == 0)
    yield _END


def _renewed(before: Sequence[EncodedItems], records: Sequence[Record], encode: Encode) -> list[EncodedItems]:
    """Pieces of the records: unchanged ones of `before`, the others encoded again."""
    found: list[EncodedItems] = []
    # A piece is for what comes before the next one begins, the first one also for what comes before itself.
    begins = [bisect_left(records, _KEY(piece.records[0]), key=_KEY) for piece in before[1:]]
    for piece, begin, end in zip(before, [0, *begins], [*begins, len(records)], strict=False):
        here = list(records[begin:end])
        if here == piece.records:  # the same records, as records are equal to themselves only
            _append(found, piece)
            continue
        for made in _cut(here, encode):
            _append(found, made)
    return found if before else list(_cut(records, encode))


def _append(pieces: list[EncodedItems], more: EncodedItems) -> None:
    """Add a piece; to the last one, while both are small: of a list that shrinks no crumbs are left."""
    last = pieces[-1] if pieces else None
    if last is not None and len(last.body) + len(more.body) <= PIECE_BYTES:
        pieces[-1] = EncodedItems(last.records + more.records, last.body + more.body)
    else:
        pieces.append(more)


class ListBody:
    """An answer of a whole collection: `head` up to the bracket of the items, the items, and the end."""

    def __init__(self, head: bytes, items: Sequence[EncodedItems]) -> None:
        self._head = head
        self._items = items

    @property
    def pieces(self) -> list[bytes]:
        """The text."""
        texts = [each.text(is_first=number == 0) for number, each in enumerate(self._items)]
        return [self._head, *texts, _END]

    async def gzipped(self) -> list[bytes]:
        """The text compressed; in a thread, where that was not done before."""
        if any(each.ready(is_first=number == 0) is None for number, each in enumerate(self._items)):
            parts = await asyncio.to_thread(self._deflate)
        else:
            parts = self._deflate()
        return joined([deflated(self._head), *parts, deflated(_END)])

    def _deflate(self) -> list[Part]:
        return [each.deflate(is_first=number == 0) for number, each in enumerate(self._items)]
