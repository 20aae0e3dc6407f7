"""Tables: what `kubectl get` shows of each kind, computed by the server.

A client that accepts `as=Table` gets column definitions and one row of plain cells for each object, with as much of the
object beside it as it asked for. Columns with priority 1 are shown by `-o wide`. Kinds without a printer of their own
show name and age. The clock is the caller's.
Source: meta.k8s.io/v1 Table and the printers of kube-apiserver, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Any

from haru.kube.errors import bad_request_error
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.printing import cluster, devices, drivers, pods, workloads
from haru.kube.printing.base import Printer, between, human_duration, printer

__all__ = ["columns", "human_duration", "partial_object_metadata", "row", "table"]


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
    return _printer(kind).cells(obj, now)


def partial_object_metadata(obj: Obj) -> Obj:
    """The object's metadata alone, as an object of meta.k8s.io/v1."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj.get("metadata") or {}}


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
        raise bad_request_error(f'unrecognized includeObject value: "{include_object}": use None, Metadata or Object')
    found = _printer(kind)
    rows: list[Obj] = []
    for obj in objs if found.order is None else sorted(objs, key=found.order):
        shown: Any = None
        if include_object == "Metadata":
            shown = partial_object_metadata(obj)
        elif include_object == "Object":
            shown = {"kind": kind.kind, "apiVersion": kind.api_version, **obj}
        rows.append({"cells": found.cells(obj, now), "object": shown})
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_metadata or {},
        "columnDefinitions": columns(kind) if with_columns else [],
        "rows": rows,
    }
