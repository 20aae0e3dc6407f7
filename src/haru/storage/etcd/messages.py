"""The part of etcd's API v3 that a store needs: requests as bytes, answers as values.

Source: etcd's public `rpc.proto` and `kv.proto`, of which the numbers of fields are facts: KV (Range, Txn, Compact),
Watch, Maintenance (Status).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from haru.protobuf import chunk, fields, integer, integers

RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
COMPACT = "/etcdserverpb.KV/Compact"
WATCH = "/etcdserverpb.Watch/Watch"
STATUS = "/etcdserverpb.Maintenance/Status"
LEASE = "/etcdserverpb.Lease/LeaseGrant"

EQUAL, GREATER = 0, 1
_VERSION, _MOD = 0, 2
_OP_RANGE, _OP_PUT, _OP_DELETE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One version of one key; `revision` is that of its last change, `version` counts its changes."""

    key: bytes
    value: bytes
    revision: int
    version: int


@dataclass(frozen=True, slots=True)
class RangeAnswer:
    """`count` is that of all keys in the range, of which `found` may be the first."""

    revision: int
    found: Sequence[KeyValue]
    count: int


@dataclass(frozen=True, slots=True)
class TxnAnswer:
    """Whether the comparisons held, and what the reads of the branch that was taken found."""

    revision: int
    succeeded: bool
    read: Sequence[Sequence[KeyValue]]


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch; a deletion has the revision of the deletion, and no value."""

    pair: KeyValue
    deleted: bool


@dataclass(frozen=True, slots=True)
class WatchAnswer:
    """One message of a watch. Without changes, and neither created nor canceled, it tells of progress."""

    revision: int
    created: bool = False
    canceled: bool = False
    compacted: int = 0
    reason: str = ""
    changes: Sequence[Change] = field(default_factory=list)


# --- requests


def range_request(
    key: bytes, end: bytes = b"", *, limit: int = 0, revision: int = 0, count_only: bool = False
) -> bytes:
    """The keys from `key` up to `end` (that one alone without it), in their order, as of `revision` (0: the newest)."""
    return b"".join(
        (chunk(1, key), chunk(2, end), integer(3, limit), integer(4, revision), integer(9, int(count_only)))
    )


def compare_revision(key: bytes, revision: int, result: int = EQUAL) -> bytes:
    """That a key was last changed at `revision` (0: that there is none), or after it."""
    return integer(1, result) + integer(2, _MOD) + chunk(3, key) + integer(6, revision, always=True)


def compare_version(key: bytes, version: int) -> bytes:
    """That a key has been changed so many times."""
    return integer(1, EQUAL) + integer(2, _VERSION) + chunk(3, key) + integer(4, version, always=True)


def put(key: bytes, value: bytes, lease: int = 0) -> bytes:
    """An operation of a transaction: write a key, which goes when the lease is over, if one is given."""
    return chunk(_OP_PUT, chunk(1, key) + chunk(2, value) + integer(3, lease))


def delete(key: bytes) -> bytes:
    """An operation of a transaction: remove a key."""
    return chunk(_OP_DELETE, chunk(1, key))


def read(key: bytes) -> bytes:
    """An operation of a transaction: read a key."""
    return chunk(_OP_RANGE, range_request(key))


def txn_request(comparisons: Sequence[bytes], then: Sequence[bytes], otherwise: Sequence[bytes] = ()) -> bytes:
    """If all comparisons hold then these operations, else those."""
    parts = [chunk(1, each, always=True) for each in comparisons]
    parts += [chunk(2, each) for each in then]
    parts += [chunk(3, each) for each in otherwise]
    return b"".join(parts)


def compact_request(revision: int) -> bytes:
    """Forget what is older than `revision`."""
    return integer(1, revision)


def watch_request(key: bytes, end: bytes, start: int) -> bytes:
    """Follow a range from the changes of revision `start` on, with a word of progress when nothing happens."""
    return chunk(1, chunk(1, key) + chunk(2, end) + integer(3, start) + integer(4, 1))


def progress_request() -> bytes:
    """Ask a watch how far it has come."""
    return chunk(3, b"", always=True)


# --- answers


def _header_revision(data: bytes) -> int:
    return integers(data).get(3, 0)


def _pair(data: bytes) -> KeyValue:
    key = value = b""
    revision = version = 0
    for number, found in fields(data):
        if isinstance(found, bytes):
            if number == 1:
                key = found
            elif number == 5:
                value = found
        elif number == 3:
            revision = found
        elif number == 4:
            version = found
    return KeyValue(key, value, revision, version)


def range_answer(data: bytes) -> RangeAnswer:
    """The answer to a range request."""
    revision = count = 0
    found: list[KeyValue] = []
    for number, value in fields(data):
        if isinstance(value, int):
            count = value if number == 4 else count
        elif number == 1:
            revision = _header_revision(value)
        elif number == 2:
            found.append(_pair(value))
    return RangeAnswer(revision, found, count)


def txn_answer(data: bytes) -> TxnAnswer:
    """The answer to a transaction."""
    revision, succeeded = 0, False
    read: list[Sequence[KeyValue]] = []
    for number, value in fields(data):
        if isinstance(value, int):
            succeeded = bool(value) if number == 2 else succeeded
        elif number == 1:
            revision = _header_revision(value)
        elif number == 3:
            read += [
                range_answer(inner).found
                for kind, inner in fields(value)
                if kind == _OP_RANGE and isinstance(inner, bytes)
            ]
    return TxnAnswer(revision, succeeded, read)


def watch_answer(data: bytes) -> WatchAnswer:
    """One message of a watch."""
    revision, reason = 0, ""
    flags: dict[int, int] = {}
    changes: list[Change] = []
    for number, value in fields(data):
        if isinstance(value, int):
            flags[number] = value
        elif number == 1:
            revision = _header_revision(value)
        elif number == 6:
            reason = value.decode(errors="replace")
        elif number == 11:
            changes.append(_change(value))
    return WatchAnswer(revision, bool(flags.get(3)), bool(flags.get(4)), flags.get(5, 0), reason, changes)


def _change(data: bytes) -> Change:
    deleted, pair = False, KeyValue(b"", b"", 0, 0)
    for number, value in fields(data):
        if isinstance(value, int):
            deleted = value == 1 if number == 1 else deleted
        elif number == 2:
            pair = _pair(value)
    return Change(pair, deleted)


def lease_request(seconds: int) -> bytes:
    """Ask for a lease of so many seconds."""
    return integer(1, seconds)


def lease_answer(data: bytes) -> int:
    """The id of the lease that was granted."""
    return next((value for number, value in fields(data) if number == 2 and isinstance(value, int)), 0)


def status_version(data: bytes) -> str:
    """The version of etcd in the answer to a status request."""
    return next((value.decode() for number, value in fields(data) if number == 2 and isinstance(value, bytes)), "")
