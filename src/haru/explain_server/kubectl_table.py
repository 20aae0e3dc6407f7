"""What waits, as kubectl prints it: a Table with the columns of `haru explain --all`.

Source: Tables of apimachinery (meta.k8s.io/v1), which clients ask for by the Accept header.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.explain import PendingList
from haru.kube.meta import Obj

_TABLE = {"as=Table", "v=v1", "g=meta.k8s.io"}
_PARTIAL = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
_NAMESPACE = "NAMESPACE"
_WIDE = ("HELD BY", "BECAUSE", "STARTS")


def wants_table(accept: str) -> bool:
    """Whether the first form in the client's order that can be served is a Table."""
    for clause in accept.split(","):
        media, *parameters = (word.strip() for word in clause.split(";"))
        if media in ("application/json", "*/*"):
            if set(parameters) >= _TABLE:
                return True
            if not any(word.startswith("as=") for word in parameters):
                return False
    return False


def table_of(told: PendingList, metadata: Sequence[Obj], *, namespaced: bool) -> Obj:
    """The Table; `metadata` is that of each row. Columns that need room are for `-o wide`.

    For a `namespaced` resource kubectl itself adds the namespace, where it asks for all.
    """
    head, rows = told.table()
    if namespaced and head[0] == _NAMESPACE:
        head, rows = head[1:], [row[1:] for row in rows]
    all_names, all_rows = told.table(wide=True)
    places = [all_names.index(name) for name in _WIDE]
    cells = ([*row, *(more[place] for place in places)] for row, more in zip(rows, all_rows, strict=True))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [*(_column(name, 0) for name in head), *(_column(name, 1) for name in _WIDE)],
        "rows": [
            {"cells": row, "object": {**_PARTIAL, "metadata": each}} for row, each in zip(cells, metadata, strict=True)
        ],
    }


def _column(name: str, priority: int) -> Obj:
    about = f"{name.capitalize()}, as haru explain --all tells it"
    return {"name": name, "type": "string", "format": "", "description": about, "priority": priority}
