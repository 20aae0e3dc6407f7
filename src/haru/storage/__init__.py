"""Revisioned stores: keys to bytes, one counter of revisions, compare-and-set, watches from any recent revision."""

from haru.storage.ciphers import SealError
from haru.storage.interface import (
    Compacted,
    CompareFailed,
    Delete,
    Event,
    FutureRevision,
    Page,
    Put,
    Record,
    Store,
    StoreClosed,
    StoreError,
    Tally,
    Watch,
)
from haru.storage.sealing import Sealing
from haru.storage.sqlite import SqliteStore

__all__ = [
    "Compacted",
    "CompareFailed",
    "Delete",
    "Event",
    "FutureRevision",
    "Page",
    "Put",
    "Record",
    "SealError",
    "Sealing",
    "SqliteStore",
    "Store",
    "StoreClosed",
    "StoreError",
    "Tally",
    "Watch",
]
