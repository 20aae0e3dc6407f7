"""Rows of Tables that lie ready: who lists a collection again meets mostly the objects of before.

A record does not change, so neither does its row, but for ages. A row is kept with the note of its record, as long as
there is one, and until `KEPT_BYTES` of others were kept after it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from weakref import ref

import orjson

from haru.apiserver.encoding.objects import Note, glanced, note_of
from haru.kube import printers
from haru.kube.json_form import served
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.storage import Record

KEPT_BYTES = 8 * 1024 * 1024


class _Kept:
    """The notes that have a row, with its size, in the order in which they got it."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[ref[Note], int] = OrderedDict()
        self.bytes = 0

    def row(self, record: Record, kind: Kind) -> printers.PreparedRow:
        """The row of a record in a version of its kind, prepared where it was not."""
        known = None if record.note is None else record.note.row
        if known is not None and known[0] is kind:
            found: printers.PreparedRow = known[1]
            return found
        made = printers.PreparedRow.of(kind, served(glanced(record), kind))
        self._keep(note_of(record), kind, made)
        return made

    def _keep(self, note: Note, kind: Kind, row: printers.PreparedRow) -> None:
        place = ref(note, self._gone)
        self._gone(place)
        note.row = kind, row
        self._sizes[place] = row.size
        self.bytes += row.size
        while self.bytes > KEPT_BYTES:
            kept, size = self._sizes.popitem(last=False)
            self.bytes -= size
            if (old := kept()) is not None:
                old.row = None

    def _gone(self, dead: ref[Note]) -> None:
        self.bytes -= self._sizes.pop(dead, 0)


_KEPT = _Kept()


def kept_bytes() -> int:
    """How many bytes of rows are kept."""
    return _KEPT.bytes


def table_bytes(kind: Kind, records: Sequence[Record], now: datetime, metadata: Obj) -> bytes:
    """A Table of records, the metadata of each beside its row, as `printers.table` makes it."""
    head = orjson.dumps(printers.table(kind, (), now, list_metadata=metadata)).removesuffix(b"]}")
    rows = b",".join([_KEPT.row(record, kind).encoded(now) for record in records])
    return b"%b%b]}" % (head, rows)
