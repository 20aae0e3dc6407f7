"""A quick test for devices: a plain yes, or "look closer".

Hundreds of thousands of devices have a few dozen distinct capacity and counter maps: those that were found good are
remembered by their bytes. Attributes hold identifiers, so their maps rarely recur, but their names do: those are
remembered one by one. A device that has anything unusual, or anything wrong, is not judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import orjson

from haru.kube import names
from haru.kube.meta import Obj
from haru.kube.validation.device_parts import (
    MAX_ATTRIBUTES_AND_CAPACITIES,
    MAX_VALUE_BYTES,
    is_version,
    validate_capacities,
    validate_consumption,
)
from haru.kube.validation.devices import is_good_qualified_name

_PLAIN_FIELDS = frozenset({"name", "attributes", "capacity", "consumesCounters"})
_MAX_CONSUMPTIONS = 2


class _Known:
    """Parts that were found good, by their bytes; forgotten all at once when there are too many."""

    __slots__ = ("_check", "_limit", "_seen")

    def __init__(self, check: Callable[[Any], bool], limit: int) -> None:
        self._check = check
        self._limit = limit
        self._seen: set[bytes] = set()

    def holds(self, value: Any) -> bool:
        """Whether the value is good; asked once for equal values."""
        key = orjson.dumps(value)
        if key in self._seen:
            return True
        if not self._check(value):
            return False
        if len(self._seen) >= self._limit:
            self._seen.clear()
        self._seen.add(key)
        return True


def all_plainly_valid(devices: Sequence[Obj]) -> bool:
    """Whether every device is plainly valid, with distinct names."""
    seen = {device.get("name") or "" for device in devices}
    return len(seen) == len(devices) and all(map(_is_good_name, seen)) and all(map(_is_good, devices))


@lru_cache(maxsize=65536)
def _is_good_name(name: str) -> bool:
    return not names.is_dns1123_label(name)


def _is_good(device: Obj) -> bool:
    if not _PLAIN_FIELDS.issuperset(device):
        return False
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > MAX_ATTRIBUTES_AND_CAPACITIES:
        return False
    consumed = device.get("consumesCounters")
    return (
        _attributes_are_good(attributes)
        and (not capacity or _capacities.holds(capacity))
        and (not consumed or _consumptions.holds(consumed))
    )


def _attributes_are_good(attributes: Obj) -> bool:
    """Scalars only: lists count towards another limit, so they are looked at closely."""
    for name, attribute in attributes.items():
        if len(attribute) != 1 or not is_good_qualified_name(name):
            return False
        for kind, value in attribute.items():
            if kind == "string":
                if len(value) > MAX_VALUE_BYTES or not (value.isascii() or len(value.encode()) <= MAX_VALUE_BYTES):
                    return False
            elif kind == "version":
                if not is_version(value):
                    return False
            elif kind not in ("int", "bool") or value is None:
                return False
    return True


def _capacity_is_good(capacity: Obj) -> bool:
    return not validate_capacities("", capacity, shared=False)


def _consumption_is_good(consumed: Sequence[Obj]) -> bool:
    distinct = {consumption.get("counterSet") for consumption in consumed}
    if len(consumed) > _MAX_CONSUMPTIONS or len(distinct) != len(consumed):
        return False
    return not any(validate_consumption("", consumption) for consumption in consumed)


_capacities = _Known(_capacity_is_good, 10_000)
_consumptions = _Known(_consumption_is_good, 20_000)
