"""What tables of devices have in common that differ in nothing but identities: UUIDs, addresses, serial numbers.

Source: our own.
"""

from __future__ import annotations

from collections.abc import Hashable, MutableMapping, Sequence

from haru.engine.dra.model.model import Shape


class TableSchema:
    """Tables of plain devices, by what all devices of one agree on. `varying` names what tells devices apart."""

    __slots__ = ("__weakref__", "count", "driver", "varying")

    def __init__(self, driver: str, count: int, varying: frozenset[str]) -> None:
        self.driver = driver
        self.count = count
        self.varying = varying


def table_schema_of(shapes: Sequence[Shape], known: MutableMapping[Hashable, TableSchema]) -> TableSchema | None:
    """Return the one schema of devices with these shapes; None if more than values of attributes tells them apart.

    Only for tables that are `plain` and `uniform`: attributes and capacities are all that there is about such devices.
    """
    first, count = shapes[0], len(shapes)
    rows = [shape.attributes for shape in shapes]
    if len(set(map(len, rows))) > 1 or [shape.capacity for shape in shapes].count(first.capacity) != count:
        return None
    same: list[Hashable] = []
    varying: list[str] = []
    for column in zip(*rows, strict=True):
        pair = column[0]
        if pair == column[-1] and column.count(pair) == count:
            same.append(pair)
        elif [name for name, _ in column].count(pair[0]) == count:
            varying.append(pair[0])
        else:
            return None
    key = (first.driver, count, tuple(same), tuple(varying), first.capacity)
    found = known.get(key)
    if found is None:
        found = known[key] = TableSchema(first.driver, count, frozenset(varying))
    return found
