"""What a record is in etcd: a small head, then the value as it was given, compressed where that pays.

An object carries the revision of its last change, which only etcd knows, and only once the change is made. So the value
is kept without it, the head says where it belongs, and who reads puts it there. The head also names the format: a newer
one, or data of somebody else, is refused.
"""

from __future__ import annotations

import struct
import zlib

from haru.storage.interface import PACK_FROM, Record, StoreError

_HEAD = struct.Struct(">4sBBi")
_MAGIC, FORMAT = b"haru", 1
_NOWHERE = -1


class PlacedRecord(Record):
    """A compressed record whose revision is put into its place whenever the value is looked at."""

    __slots__ = ("_place",)

    def __init__(self, key: str, packed: bytes, revision: int, place: int, *, stale: bool = False) -> None:
        super().__init__(key, packed, revision, packed=True, stale=stale)
        self._place = place

    @property
    def value(self) -> bytes:
        """The bytes as they were written, with the revision in its place."""
        return placed(zlib.decompress(self._data), self._place, self.revision)

    def head(self, size: int) -> bytes:
        """The first bytes of the value, `size` at most."""
        start = zlib.decompressobj().decompress(self._data, size)
        return placed(start, self._place, self.revision)[:size] if self._place <= len(start) else start


def placed(value: bytes, place: int, revision: int) -> bytes:
    """A value with the revision at an offset in it."""
    return b"%b%d%b" % (value[:place], revision, value[place:])


def to_bytes(value: bytes, place: int | None) -> bytes:
    """What is kept in etcd of a value whose revision belongs at `place`."""
    packed = False
    if len(value) >= PACK_FROM:
        smaller = zlib.compress(value, 1)
        packed = len(smaller) * 2 < len(value)
        value = smaller if packed else value
    return _HEAD.pack(_MAGIC, FORMAT, packed, _NOWHERE if place is None else place) + value


def to_record(key: str, kept: bytes, revision: int, *, stale: bool = False) -> Record:
    """The record of what was kept; raises `StoreError` for what this version did not write."""
    if len(kept) < _HEAD.size or not kept.startswith(_MAGIC):
        raise StoreError(
            f"etcd holds something else under {key}, not written by haru apiserver: name another --etcd-prefix"
        )
    _, version, packed, place = _HEAD.unpack_from(kept)
    if version > FORMAT:
        raise StoreError(
            f"{key} in etcd has format {version}, this version of haru knows formats up to {FORMAT}: "
            "run the version that wrote it, or a newer one"
        )
    value = kept[_HEAD.size :]
    if place == _NOWHERE:
        return Record(key, value, revision, packed=bool(packed), stale=stale)
    if packed:
        return PlacedRecord(key, value, revision, place, stale=stale)
    return Record(key, placed(value, place, revision), revision, stale=stale)
