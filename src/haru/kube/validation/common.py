"""Checks that many kinds share: names, label keys and values, immutable fields, numbers, sizes.

Each returns the findings for one field, worded as 1.36 words them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from haru.kube import names
from haru.kube.equality import same_members
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long, too_many
from haru.kube.meta import Obj

IMMUTABLE = "field is immutable"


def each_message(field: str, value: Any, messages: Iterable[str]) -> list[FieldError]:
    """One Invalid finding for each message."""
    return [invalid(field, value, message) for message in messages]


def label_name(field: str, value: str) -> list[FieldError]:
    """A DNS-1123 label."""
    return each_message(field, value, names.is_dns1123_label(value))


def subdomain(field: str, value: str) -> list[FieldError]:
    """A DNS-1123 subdomain."""
    return each_message(field, value, names.is_dns1123_subdomain(value))


def label_key(field: str, value: str) -> list[FieldError]:
    """A label key: an optional prefix and a name."""
    return each_message(field, value, names.is_qualified_name(value))


def label_value(field: str, value: str) -> list[FieldError]:
    """A label value."""
    return each_message(field, value, names.is_label_value(value))


def required_subdomain(field: str, value: str) -> list[FieldError]:
    """A DNS-1123 subdomain that must be there."""
    return subdomain(field, value) if value else [required(field)]


def required_label(field: str, value: str) -> list[FieldError]:
    """A DNS-1123 label that must be there."""
    return label_name(field, value) if value else [required(field)]


def path_segment(field: str, value: str) -> list[FieldError]:
    """A name that can be one segment of a URL path."""
    return each_message(field, value, names.is_path_segment_name(value))


_DRIVER = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?)*")


def driver_name(field: str, value: str) -> list[FieldError]:
    """A CSI-style driver name: a subdomain of at most 63 characters, upper case tolerated."""
    if not value:
        return [required(field)]
    if len(value) <= 63 and _DRIVER.fullmatch(value):
        return []
    errors = [too_long(field, 63)] if len(value) > 63 else []
    return errors + each_message(field, value, names.is_dns1123_subdomain(value.lower()))


def immutable(field: str, new: Any, old: Any) -> list[FieldError]:
    """The value may not have changed; absent, null and empty are the same."""
    return [] if same(new, old) else [invalid(field, new, IMMUTABLE)]


def immutable_member(prefix: str, name: str, new: Obj, old: Obj, type_name: str) -> list[FieldError]:
    """A member of two objects of a type (`core.v1.PodSpec`) may not have changed."""
    same_as_before = same_members(new, old, name, type_name)
    return [] if same_as_before else [invalid(f"{prefix}.{name}" if prefix else name, new.get(name), IMMUTABLE)]


def same(new: Any, old: Any) -> bool:
    """Semantic equality: absent fields equal empty lists, maps and nulls."""
    if new is old or new == old:
        return True
    if isinstance(new, dict) and isinstance(old, dict):
        return all(same(new.get(name), old.get(name)) for name in new.keys() | old.keys())
    if isinstance(new, list) and isinstance(old, list):
        return len(new) == len(old) and all(map(same, new, old))
    return _is_empty(new) and _is_empty(old)


def _is_empty(value: Any) -> bool:
    return value is None or value == [] or value == {}


def one_of(
    field: str, value: Any, supported: Sequence[str], *, optional: bool = False, in_order: bool = False
) -> list[FieldError]:
    """The value must be in a closed set, told sorted or in its order; empty is required, or fine where optional."""
    if value is None or value == "":
        return [] if optional else [required(field)]
    return [] if value in supported else [not_supported(field, value, supported if in_order else sorted(supported))]


def known_value(field: str, value: Any, supported: Sequence[str]) -> list[FieldError]:
    """The value of a pointer, where it is given, must be in a closed set; an empty text is a value."""
    return [] if value is None or value in supported else [not_supported(field, value, sorted(supported))]


def not_negative(field: str, value: int | None) -> list[FieldError]:
    """Zero or more, where given."""
    return [invalid(field, value, "must be greater than or equal to 0")] if value is not None and value < 0 else []


def positive(field: str, value: int | None, zero: str = "zero") -> list[FieldError]:
    """More than zero, where given; 1.36 writes `zero` as a word in most places."""
    return [invalid(field, value, f"must be greater than {zero}")] if value is not None and value <= 0 else []


def in_range(field: str, value: int | None, low: int, high: int) -> list[FieldError]:
    """Within bounds, where given."""
    if value is None or low <= value <= high:
        return []
    return [invalid(field, value, f"must be between {low} and {high}, inclusive")]


def port(field: str, value: Any) -> list[FieldError]:
    """A port number, or a port's name."""
    if isinstance(value, str):
        return each_message(field, value, names.is_port_name(value))
    return in_range(field, value, 1, 65535)


def without_backsteps(field: str, path: str) -> list[FieldError]:
    """A path that never leads upwards."""
    return [invalid(field, path, "must not contain '..'")] if ".." in path.split("/") else []


def local_path(field: str, path: str) -> list[FieldError]:
    """A relative path that stays below where it starts."""
    found = [invalid(field, path, "must be a relative path")] if path.startswith("/") else []
    return found + without_backsteps(field, path)


def local_file(field: str, path: str) -> list[FieldError]:
    """A local path outside of what volumes keep for themselves (names that begin with two dots)."""
    found = local_path(field, path)
    if path.startswith("..") and not path.startswith("../"):
        found.append(invalid(field, path, "must not start with '..'"))
    return found


def address(field: str, value: str, known: Sequence[str] = ()) -> list[FieldError]:
    """An IP address; one that the stored object had may be of an older form."""
    return [] if value in known else each_message(field, value, names.is_ip(value))


def items(obj: Obj | None, name: str) -> list[Any]:
    """The list at `name`; empty when absent."""
    return (obj or {}).get(name) or []


def part(obj: Obj | None, name: str) -> Obj:
    """The object at `name`; empty when absent."""
    return (obj or {}).get(name) or {}


def indexed(field: str, values: Sequence[Any], check: Callable[[str, Any], list[FieldError]]) -> list[FieldError]:
    """The findings of `check` for each item, with its index in the path."""
    found: list[FieldError] = []
    for index, value in enumerate(values):
        found += check(f"{field}[{index}]", value)
    return found


def bounded(
    field: str, values: Sequence[Any], maximum: int, check: Callable[[str, Any], list[FieldError]]
) -> list[FieldError]:
    """Validate each item of a list; a list that is too long is one error."""
    if len(values) > maximum:
        return [too_many(field, len(values), maximum)]
    return indexed(field, values, check)


def unique(
    field: str, values: Sequence[Any], key: Callable[[Any], Hashable], suffix: str = "", *, whole: bool = False
) -> list[FieldError]:
    """Every item whose key occurred before, told `whole` or by it; `suffix` names the member that is the key."""
    seen: set[Hashable] = set()
    found: list[FieldError] = []
    for index, value in enumerate(values):
        k = key(value)
        if k in seen:
            found.append(duplicate(f"{field}[{index}]{suffix}", value if whole else k))
        seen.add(k)
    return found


def bounded_set(
    field: str,
    values: Sequence[Any],
    maximum: int,
    check: Callable[[str, Any], list[FieldError]],
    key: Callable[[Any], Hashable],
    *,
    whole: bool = False,
) -> list[FieldError]:
    """A list of limited length whose items are valid and differ in their keys.

    `whole` as for `unique`; what is repeated is told first then.
    """
    if len(values) > maximum:
        return [too_many(field, len(values), maximum)]
    repeated, found = unique(field, values, key, whole=whole), indexed(field, values, check)
    return repeated + found if whole else found + repeated


def quoted_list(texts: Iterable[str]) -> str:
    """Names in backticks, as unions list their members."""
    return ", ".join(f"`{text}`" for text in texts)


def union(field: str, obj: Obj, members: Sequence[str]) -> list[FieldError]:
    """Exactly one member must be present."""
    present = [name for name in members if obj.get(name) is not None]
    if not present:
        return [invalid(field, "", f"must specify one of: {quoted_list(members)}")]
    if len(present) > 1:
        value = "{" + ", ".join(present) + "}"
        return [invalid(field, value, f"must specify exactly one of: {quoted_list(members)}")]
    return []


def only_forbidden(field: str, obj: Obj, names_: Iterable[str], why: str) -> list[FieldError]:
    """A Forbidden finding for each of the fields that is set."""
    return [forbidden(f"{field}.{name}", why) for name in names_ if obj.get(name) not in (None, "", [], {})]
