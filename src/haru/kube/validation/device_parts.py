"""The maps inside a device: attributes, capacity with request policies, counters, node resource mappings.

Sources: KEP 4381 (attributes), 5491 (lists), 5075 (capacity and policies), 4815 (counters), 5517 (mappings).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_found, required, too_long, too_many
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.validation.common import indexed, label_name, required_label
from haru.kube.validation.devices import qualified_name

MAX_ATTRIBUTES_AND_CAPACITIES = 32
MAX_ATTRIBUTE_VALUES = 48
MAX_VALUE_BYTES = 64
MAX_COUNTERS = 32
MAX_VALID_VALUES = 10
_MAX_KEY_SHOWN = 63 + 1 + 32
_ONE_VALUE = "exactly one value must be specified"
_MEMBERS = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")
_LISTS = ("bools", "ints", "strings", "versions")

_NUMERIC = r"(?:0|[1-9][0-9]*)"
_PRERELEASE = rf"(?:{_NUMERIC}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = r"[0-9a-zA-Z-]+"
_SEMVER = re.compile(
    rf"{_NUMERIC}\.{_NUMERIC}\.{_NUMERIC}(?:-{_PRERELEASE}(?:\.{_PRERELEASE})*)?(?:\+{_BUILD}(?:\.{_BUILD})*)?"
)


@lru_cache(maxsize=4096)
def is_version(value: str) -> bool:
    """A semantic version (2.0.0) of at most 64 bytes: `8.0.0`, never `8.0` or `v8.0.0`."""
    return len(value) <= MAX_VALUE_BYTES and _SEMVER.fullmatch(value) is not None


def attribute_values(attributes: Mapping[str, Obj]) -> int:
    """How many values the attributes have, the items of lists counted one by one."""
    total = 0
    for attribute in attributes.values():
        total += sum(len(attribute.get(name) or ()) for name in _LISTS) or 1
    return total


def validate_attributes(field: str, attributes: Mapping[str, Obj]) -> list[FieldError]:
    """Qualified names with one value each."""
    found: list[FieldError] = []
    for key, attribute in attributes.items():
        found += qualified_name(field, key)
        found += _attribute(f"{field}[{_shown(key)}]", attribute)
    return found


def _attribute(field: str, attribute: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    members = [name for name in _MEMBERS if attribute.get(name) is not None]
    if "string" in members:
        found += _string(f"{field}.string", attribute["string"])
    if "version" in members:
        found += _version(f"{field}.version", attribute["version"])
    for name in _LISTS:
        if name in members and not attribute[name]:
            found.append(invalid(f"{field}.{name}", attribute[name], "must not be empty if specified"))
    found += indexed(f"{field}.strings", attribute.get("strings") or (), _string)
    found += indexed(f"{field}.versions", attribute.get("versions") or (), _version)
    if not members:
        found.append(invalid(field, "", _ONE_VALUE))
    elif len(members) > 1:
        found.append(invalid(field, attribute, _ONE_VALUE))
    return found


def _string(field: str, value: str) -> list[FieldError]:
    return [too_long(field, MAX_VALUE_BYTES)] if len(value.encode()) > MAX_VALUE_BYTES else []


def _version(field: str, value: str) -> list[FieldError]:
    found = [] if _SEMVER.fullmatch(value) else [_not_semver(field, value)]
    return found + _string(field, value)


def _not_semver(field: str, value: str) -> FieldError:
    return invalid(field, value, "must be a string compatible with semver.org spec 2.0.0")


def _shown(key: str) -> str:
    """A key for a path, long ones shortened in the middle."""
    if len(key) <= _MAX_KEY_SHOWN:
        return key
    remaining = _MAX_KEY_SHOWN - len("...")
    return f"{key[: (remaining + 1) // 2]}...{key[-(remaining // 2) :]}"


# --- capacity ------------------------------------------------------------------------------------------------------


def validate_capacities(field: str, capacities: Mapping[str, Obj], shared: bool) -> list[FieldError]:
    """Capacities; request policies are for devices that several requests may share."""
    found: list[FieldError] = []
    for key, capacity in capacities.items():
        found += qualified_name(field, key)
        place = f"{field}[{_shown(key)}]"
        total, problem = _quantity(f"{place}.value", capacity.get("value"))
        found += problem
        policy = capacity.get("requestPolicy")
        if policy is not None and not shared:
            found.append(forbidden(f"{place}.requestPolicy", "allowMultipleAllocations must be true"))
        elif policy is not None and total is not None:
            found += _policy(f"{place}.requestPolicy", policy, total)
    return found


def _quantity(field: str, value: Any) -> tuple[Quantity | None, list[FieldError]]:
    """The parsed quantity, or what is wrong with it; an absent one is zero, as in Go."""
    try:
        return parse_quantity("0" if value is None else value), []
    except ValueError as problem:
        return None, [invalid(field, value, str(problem))]


def _policy(field: str, policy: Obj, total: Quantity) -> list[FieldError]:
    values, valid_range = policy.get("validValues") or [], policy.get("validRange")
    if values and valid_range is not None:
        why = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        return [forbidden(field, why)]
    if not values and valid_range is None:
        return []
    shape = "validValues" if values else "validRange"
    if policy.get("default") is None:
        return [required(f"{field}.default", f"required when {shape} is defined")]
    default, found = _quantity(f"{field}.default", policy["default"])
    if default is None:
        return found
    if values:
        return _valid_values(f"{field}.validValues", values, default, total)
    return _valid_range(f"{field}.validRange", valid_range or {}, default, total)


def _valid_values(field: str, values: Sequence[Any], default: Quantity, total: Quantity) -> list[FieldError]:
    found: list[FieldError] = []
    parsed: list[Quantity] = []
    for index, value in enumerate(values):
        quantity, problem = _quantity(f"{field}[{index}]", value)
        found += problem
        if quantity is not None:
            parsed.append(quantity)
    if found:
        return found
    for index in range(1, len(parsed)):
        if parsed[index] < parsed[index - 1]:
            place = f"{field}[{index}]"
            found.append(invalid(place, str(parsed[index]), "values must be sorted in ascending order"))
    if len(values) > MAX_VALID_VALUES:
        found.append(too_many(field, len(values), MAX_VALID_VALUES))
        parsed = []  # 1.36 looks at none then, and so does not find the default
    for index, quantity in enumerate(parsed):
        if quantity > total:
            why = f"option is larger than capacity value: {total}"
            found.append(invalid(f"{field}[{index}]", str(quantity), why))
        if quantity.value() in [earlier.value() for earlier in parsed[:index]]:
            found.append(duplicate(f"{field}[{index}]", str(quantity.value())))
    if default not in parsed:
        found.append(invalid(field, str(default), "default value is not valid according to the requestPolicy"))
    return found


def _valid_range(field: str, valid_range: Obj, default: Quantity, total: Quantity) -> list[FieldError]:
    if valid_range.get("min") is None:
        return [required(f"{field}.min", "required when validRange is defined")]
    low, found = _quantity(f"{field}.min", valid_range["min"])
    high, step = None, None
    if valid_range.get("max") is not None:
        high, problem = _quantity(f"{field}.max", valid_range["max"])
        found += problem
    if valid_range.get("step") is not None:
        step, problem = _quantity(f"{field}.step", valid_range["step"])
        found += problem
    if low is None or found:
        return found
    if low > total:
        found.append(invalid(f"{field}.min", str(low), f"min is larger than capacity value: {total}"))
    if default < low:
        found.append(invalid(f"{field}.min", str(default), f"default is less than min: {low}"))
    if high is not None:
        if low > high:
            found.append(invalid(f"{field}.max", str(low), f"min is larger than max: {high}"))
        if high > total:
            found.append(invalid(f"{field}.max", str(high), f"max is larger than capacity value: {total}"))
        if default > high:
            found.append(invalid(f"{field}.max", str(default), f"default is more than max: {high}"))
    return found + (_step(f"{field}.step", step, low, high, default, total) if step is not None else [])


def _step(
    field: str, step: Quantity, low: Quantity, high: Quantity | None, default: Quantity, total: Quantity
) -> list[FieldError]:
    """Steps are counted in whole units, from the minimum up."""
    if step.value() <= 0:
        return [invalid(field, str(step), "must be greater than zero")]
    found: list[FieldError] = []
    if low + step > total:
        found.append(invalid(field, str(step), f"one step {low + step} is larger than capacity value: {total}"))
    for value in (default, high):
        if value is not None and (value.value() - low.value()) % step.value():
            why = f"value is not a multiple of a given step ({step}) from ({low})"
            found.append(invalid(field, str(value), why))
    return found


# --- counters, mappings --------------------------------------------------------------------------------------------


def validate_counters(field: str, counters: Mapping[str, Obj]) -> list[FieldError]:
    """1 to 32 counters by name."""
    if not counters:
        return [required(field)]
    if len(counters) > MAX_COUNTERS:
        return [too_many(field, len(counters), MAX_COUNTERS)]
    found: list[FieldError] = []
    for name, counter in counters.items():
        found += label_name(field, name)
        found += _quantity(f"{field}[{_shown(name)}].value", counter.get("value"))[1]
    return found


def validate_consumption(field: str, consumption: Obj) -> list[FieldError]:
    """Validate a device's consumption of one counter set, which allocation looks up."""
    found = required_label(f"{field}.counterSet", consumption.get("counterSet") or "")
    return found + validate_counters(f"{field}.counters", consumption.get("counters") or {})


def validate_mappings(field: str, mappings: Mapping[str, Obj], capacity: Mapping[str, Obj]) -> list[FieldError]:
    """Which node resources a device takes, by their names."""
    found: list[FieldError] = []
    for name, mapping in mappings.items():
        place = f"{field}[{name}]"
        if not names.is_native_resource(name):
            found.append(invalid(place, name, "must be a node allocatable resource name"))
        key, factor = mapping.get("capacityKey"), mapping.get("allocationMultiplier")
        if key == "":
            found.append(invalid(f"{place}.capacityKey", "", "capacityKey must not be an empty string"))
        elif key is not None and key not in capacity:
            found.append(not_found(f"{place}.capacityKey", key))
        if factor is not None:
            multiplier, problem = _quantity(f"{place}.allocationMultiplier", factor)
            found += problem
            if multiplier is not None and multiplier <= Quantity(0):
                found.append(invalid(f"{place}.allocationMultiplier", str(multiplier), "must be positive"))
    return found
