"""Lists whose bytes lie ready: the items of a collection in pieces, of which a change touches one.

A piece is some records and their joined bytes. Records do not change, so whether a piece still holds is whether the
records are the same ones: nothing has to be told of changes, and any moment of the history can be asked for. What is
kept is bounded, in bytes and in time: at most `KEPT_BYTES` of all collections, the ones asked for last, and of each
only until nobody has asked for it for a while.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from haru.storage import Record

PIECE_BYTES = 256 * 1024
KEPT_BYTES = 64 * 1024 * 1024
FROM_RECORDS = 32
"""Shorter lists are joined each time."""

Encode = Callable[[Record], bytes]
_KEY = attrgetter("key")


class Items:
    """Records that follow each other, and their encoded objects, each after a comma."""

    __slots__ = ("body", "records")

    def __init__(self, records: list[Record], body: bytes) -> None:
        self.records = records
        self.body = body


class _Kept:
    """The pieces of one collection, and whether they were asked for since somebody looked."""

    __slots__ = ("pieces", "size", "used")

    def __init__(self, pieces: list[Items]) -> None:
        self.pieces = pieces
        self.size = sum(len(piece.body) for piece in pieces)
        self.used = True


class PreparedLists:
    """The collections that were listed last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], _Kept] = OrderedDict()
        self._bytes = 0

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._bytes

    def items(self, which: tuple[str, ...], records: list[Record], encode: Encode) -> list[Items]:
        """All records of the collection `which`, in the order of their keys, in pieces.

        `which` names the form, too: `encode` gives the same bytes for the same record each time.
        """
        before = self._kept.get(which)
        if before is None:
            pieces = list(_cut(records, encode))
        else:
            pieces = _renewed(before.pieces, records, encode)
            if pieces is before.pieces:
                before.used = True
                self._kept.move_to_end(which)
                return pieces
            self._drop(which)
        self._keep(which, _Kept(pieces))
        return pieces

    def drop_idle(self) -> None:
        """Drop what was not asked for since the last call."""
        for which, kept in list(self._kept.items()):
            if not kept.used:
                self._drop(which)
            kept.used = False

    def _keep(self, which: tuple[str, ...], kept: _Kept) -> None:
        if kept.size > KEPT_BYTES:
            return
        self._kept[which] = kept
        self._bytes += kept.size
        while self._bytes > KEPT_BYTES:
            self._drop(next(iter(self._kept)))

    def _drop(self, which: tuple[str, ...]) -> None:
        self._bytes -= self._kept.pop(which).size


def _cut(records: Iterable[Record], encode: Encode) -> Iterator[Items]:
    """Records in pieces, each of which ends with the record that makes it `PIECE_BYTES` or more."""
    taken: list[Record] = []
    encoded: list[bytes] = [b""]
    size = 0
    for record in records:
        taken.append(record)
        encoded.append(encode(record))
        size += len(encoded[-1])
        if size >= PIECE_BYTES:
            yield Items(taken, b",".join(encoded))
            taken, encoded, size = [], [b""], 0
    if taken:
        yield Items(taken, b",".join(encoded))


def _renewed(before: list[Items], records: list[Record], encode: Encode) -> list[Items]:
    """Pieces of other records: those of `before` that hold what is there now, the others anew; `before` itself if
    it still holds."""
    found: list[Items] = []
    is_same = True
    begin = 0
    for number, piece in enumerate(before):
        # What was made since in front of the first piece belongs to it, and behind it whatever comes before the next.
        is_last = number + 1 == len(before)
        end = len(records) if is_last else bisect_left(records, _KEY(before[number + 1].records[0]), begin, key=_KEY)
        here = records[begin:end]
        begin = end
        if here == piece.records:  # the same records, as records are equal to themselves only
            found.append(piece)
            continue
        is_same = False
        for made in _cut(here, encode):
            _append(found, made)
    return before if is_same and begin == len(records) else found


def _append(pieces: list[Items], more: Items) -> None:
    """Add a piece; to the last one, while both are small: of a list that shrinks no crumbs are left."""
    last = pieces[-1] if pieces else None
    if last is not None and len(last.body) + len(more.body) <= PIECE_BYTES:
        pieces[-1] = Items(last.records + more.records, last.body + more.body)
    else:
        pieces.append(more)


def list_body(head: bytes, pieces: Sequence[Items]) -> list[bytes]:
    """The whole answer in pieces: `head` up to the bracket of the items, the items, and the end."""
    if not pieces:
        return [head + b"]}"]
    first, *others = pieces
    return [head + first.body[1:], *(piece.body for piece in others), b"]}"]
