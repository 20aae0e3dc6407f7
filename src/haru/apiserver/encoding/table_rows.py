"""Rows of Tables that lie ready: who lists a collection again meets mostly the objects of before.

A record does not change, so neither does its row, but for ages. A row is kept with the note of its record, as long as
there is one, and until `KEPT_BYTES` of others were kept after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import orjson

from haru.apiserver.encoding.objects import NoteSizes, glanced, note_of
from haru.kube import printers
from haru.kube.json_form import served
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.storage import Record

KEPT_BYTES = 8 * 1024 * 1024


_ROWS = NoteSizes()


def kept_bytes() -> int:
    """How many bytes of rows are kept."""
    return _ROWS.bytes


def _row(record: Record, kind: Kind) -> printers.PreparedRow:
    """The row of a record in a version of its kind, prepared where it was not."""
    known = None if record.note is None else record.note.row
    if known is not None and known[0] is kind:
        found: printers.PreparedRow = known[1]
        return found
    made = printers.PreparedRow.of(kind, served(glanced(record), kind))
    note = note_of(record)
    note.row = kind, made
    _ROWS.add(note, made.size)
    while _ROWS.bytes > KEPT_BYTES:
        if (old := _ROWS.pop_oldest()) is not None:
            old.row = None
    return made


def table_bytes(kind: Kind, records: Sequence[Record], now: datetime, metadata: Obj) -> bytes:
    """A Table of records, the metadata of each beside its row, as `printers.table` makes it."""
    head = orjson.dumps(printers.table(kind, (), now, list_metadata=metadata)).removesuffix(b"]}")
    rows = b",".join([_row(record, kind).encoded(now) for record in records])
    return b"%b%b]}" % (head, rows)
