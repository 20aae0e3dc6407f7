"""Tables: what `kubectl get` shows of each kind, computed by the server.

A client that accepts `as=Table` gets column definitions and one row of plain cells for each object, with as much of the
object beside it as it asked for. Columns with priority 1 are shown by `-o wide`. Kinds without a printer of their own
show name and age. The clock is the caller's.
Source: meta.k8s.io/v1 Table and the printers of kube-apiserver, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import orjson

from haru.kube.errors import bad_request_error, invalid
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.printing import cluster, devices, drivers, pods, workloads
from haru.kube.printing.base import Age, Printer, between, human_duration, printer

__all__ = ["PreparedRow", "columns", "human_duration", "is_prepared", "partial_object_metadata", "row", "table"]


@cache
def _printers() -> dict[tuple[str, str], Printer]:
    return {**pods.PRINTERS, **workloads.PRINTERS, **cluster.PRINTERS, **drivers.PRINTERS, **devices.PRINTERS}


_GENERIC = printer("Name Age", between())


def _printer(kind: Kind) -> Printer:
    if kind.custom is not None:
        return kind.custom.printer
    return _printers().get((kind.group, kind.plural), _GENERIC)


def columns(kind: Kind) -> list[Obj]:
    """The column definitions of a kind."""
    return [dict(column) for column in _printer(kind).columns]


def row(kind: Kind, obj: Obj, now: datetime) -> list[Any]:
    """The cells of one object, as many as there are columns."""
    return [cell.text(now) if type(cell) is Age else cell for cell in _printer(kind).cells(obj)]


def _conditions(kind: Kind, obj: Obj) -> list[Obj]:
    """What a row says beside its cells."""
    return pods.row_conditions(obj) if kind.group_resource == "pods" else []


def partial_object_metadata(obj: Obj) -> Obj:
    """The metadata that stand beside a row, as an object of meta.k8s.io/v1: all but the managed fields.

    Those are most of it, no client shows them, and kubectl spends three quarters of its time on them.
    """
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name != "managedFields"}
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}


@dataclass(frozen=True, slots=True)
class PreparedRow:
    """The bytes of a row with metadata, but for its ages, which change with time."""

    pieces: tuple[bytes | Age, ...]
    size: int
    """How many bytes there are."""

    @classmethod
    def of(cls, kind: Kind, obj: Obj) -> PreparedRow:
        """Prepare the row of an object."""
        pieces: list[bytes | Age] = [b'{"cells":[']
        for number, cell in enumerate(_printer(kind).cells(obj)):
            if number:
                _add(pieces, b",")
            _add(pieces, cell if type(cell) is Age else orjson.dumps(cell))
        if conditions := _conditions(kind, obj):
            _add(pieces, b'],"conditions":' + orjson.dumps(conditions)[:-1])
        _add(pieces, b'],"object":%b}' % orjson.dumps(partial_object_metadata(obj)))
        return cls(tuple(pieces), sum(len(piece) for piece in pieces if type(piece) is bytes))

    def encoded(self, now: datetime) -> bytes:
        """The row as it is at a time."""
        return b"".join([orjson.dumps(each.text(now)) if type(each) is Age else each for each in self.pieces])  # type: ignore[misc]


def _add(pieces: list[bytes | Age], piece: bytes | Age) -> None:
    last = pieces[-1]
    if type(piece) is bytes and type(last) is bytes:
        pieces[-1] = last + piece
    else:
        pieces.append(piece)


def is_prepared(kind: Kind) -> bool:
    """Whether rows of a kind may be prepared: they stand in the order of the objects."""
    return kind.custom is None and _printer(kind).order is None


def table(
    kind: Kind,
    objs: Iterable[Obj],
    now: datetime,
    include_object: str = "Metadata",
    *,
    list_metadata: Obj | None = None,
    with_columns: bool = True,
) -> Obj:
    """A Table of the objects; `include_object` is None, Metadata or Object: how much of each goes beside its row.

    Later events of a watch may leave out the columns.
    """
    if include_object not in ("None", "Metadata", "Object"):
        why = "must be 'Metadata', 'Object', 'None', or empty"
        raise bad_request_error(
            f"Unable to convert to Table as requested: {invalid('includeObject', include_object, why)}"
        )
    found = _printer(kind)
    rows: list[Obj] = []
    for obj in objs if found.order is None else sorted(objs, key=found.order):
        shown: Any = None
        if include_object == "Metadata":
            shown = partial_object_metadata(obj)
        elif include_object == "Object":
            shown = {"kind": kind.kind, "apiVersion": kind.api_version, **obj}
        conditions = _conditions(kind, obj)
        told = {"conditions": conditions} if conditions else {}
        rows.append({"cells": row(kind, obj, now), **told, "object": shown})
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_metadata or {},
        "columnDefinitions": columns(kind) if with_columns else [],
        "rows": rows,
    }
