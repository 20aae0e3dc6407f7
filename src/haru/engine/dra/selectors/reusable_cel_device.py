"""One device as an expression sees it, written over for one device after the other.

An expression that names what it reads need not be shown anything else, and nothing it answers refers to the device: so
one value serves for thousands of devices, of which only the parts in question are exchanged.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, MutableMapping
from typing import Any

from haru.cel.device import DeviceSelector, device_value
from haru.cel.errors import EvaluationError
from haru.engine.dra.model.model import Attribute
from haru.engine.dra.selectors.selector_fields import Names
from haru.kube.quantity import parse_quantity

Key = tuple[Attribute | str | None, ...]
"""What is read of a device: attributes by (domain, id), then the texts of capacities; None for what it lacks."""

Cell = tuple[dict[str, Any], str, bool]
"""Where a part is written, and whether it is a capacity."""


class ReusableCelDevice:
    """For devices of one driver without attributes that may be faulty."""

    __slots__ = ("_cells", "_value", "_written")

    def __init__(self, driver: str, shareable: bool, names: Names) -> None:
        attributes: dict[str, dict[str, Any]] = {}
        amounts: dict[str, dict[str, Any]] = {}
        self._cells = _cells(attributes, names.attributes, False) + _cells(amounts, names.capacity, True)
        self._written: Key = (None,) * len(self._cells)
        self._value = device_value(driver, attributes, amounts, shareable)

    def judge(self, selector: DeviceSelector, keys: Iterable[Key], known: MutableMapping[Hashable, bool | str]) -> None:
        """Evaluate a selector for each key: true, false, or the text of an error."""
        matches, cells, written = selector.on(self._value), self._cells, self._written
        for key in keys:
            for (held, name, is_amount), entry, last in zip(cells, key, written, strict=True):
                if entry is last:
                    continue
                if entry is None:
                    del held[name]
                elif is_amount:
                    held[name] = parse_quantity(entry)  # type: ignore[arg-type]
                else:
                    held[name] = entry.value  # type: ignore[union-attr]
            written = key
            try:
                known[key] = matches()
            except EvaluationError as error:
                known[key] = f"CEL runtime error: {error}"
        self._written = written


def _cells(table: dict[str, dict[str, Any]], names: Iterable[tuple[str, str]], amount: bool) -> list[Cell]:
    return [(table.setdefault(domain, {}), name, amount) for domain, name in sorted(names)]
