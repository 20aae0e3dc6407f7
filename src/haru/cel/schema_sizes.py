"""How large the values of a structural schema can be: what the estimated cost of its rules starts from.

Where a schema sets no maximum, the largest request does: as many items as fit into it, each as short as its schema
allows. Source: KEP 2876 and the declarations that Kubernetes 1.36 derives from schemas for CEL, as behaviour; the
numbers decide whether a definition is accepted, so they are the same to the last digit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from haru.cel.objects import escaped, members
from haru.cel.ranges import Path, Range, SizeOf
from haru.kube.custom.structural import Structural

MAX_REQUEST_BYTES = 3 * 1024 * 1024
"""The largest request, in bytes."""

_EMPTY = 2
"""The bytes of an empty text, list or object: two quotation marks or brackets."""
_BYTES_PER_CHARACTER = 4
_FORMATS: Final[Mapping[str, tuple[int, int]]] = {"date": (12, 12), "date-time": (21, 32), "duration": (3, 32)}
"""Texts of a fixed form: the fewest and the most bytes, with quotation marks."""
_LEAST: Final[Mapping[str, int]] = {"boolean": 4, "integer": 1, "number": 1}


@dataclass(frozen=True, slots=True)
class Sized:
    """The bounds of a schema's values.

    `most`: characters, items or entries (0 for objects and scalars, which have no size of their own); `least_bytes`:
    the shortest JSON. A list or map has an `element`, a map `keyed` ones, an object `fields` by their name in
    expressions.
    """

    most: int
    least_bytes: int
    fields: Mapping[str, Sized] | None = None
    element: Sized | None = None
    keyed: bool = False

    @property
    def most_in_a_request(self) -> int:
        """How often such a value can stand in one request, with a comma after each."""
        return MAX_REQUEST_BYTES // (self.least_bytes + 1)


_KEY: Final = Sized(0, _EMPTY)
"""The key of a map: nothing limits it, and 1.36 counts it as nothing."""


def sized(schema: Structural, *, root: bool = False) -> Sized | None:
    """The bounds of a schema's values; None where expressions cannot see them, because nothing is known of them."""
    if schema.int_or_string:
        return Sized(_most_characters(schema), 1)
    if schema.type == "array":
        return _list(schema)
    if schema.type == "object":
        return _map(schema) if schema.additional is not None else _object(schema, root=root)
    if schema.type == "string":
        least, _ = _FORMATS.get(_format(schema), (_EMPTY, 0))
        return Sized(_most_characters(schema), least)
    least_bytes = _LEAST.get(schema.type)
    return None if least_bytes is None else Sized(0, least_bytes)


def _format(schema: Structural) -> str:
    return str(schema.checks.get("format") or "")


def _limit(schema: Structural, keyword: str) -> int | None:
    found = schema.checks.get(keyword)
    return None if found is None else max(int(found), 0)


def _most_characters(schema: Structural) -> int:
    form, limit = _format(schema), _limit(schema, "maxLength")
    if schema.type == "string" and not schema.int_or_string:
        if form in _FORMATS:
            return _FORMATS[form][1]
        if form == "byte" and limit is not None:
            return limit
        choices = schema.checks.get("enum") or ()
        if limit is None and choices and form != "byte":
            return max((len(choice.encode()) for choice in choices if isinstance(choice, str)), default=0)
    return MAX_REQUEST_BYTES - _EMPTY if limit is None else limit * _BYTES_PER_CHARACTER


def _list(schema: Structural) -> Sized | None:
    item = None if schema.items is None else sized(schema.items)
    if item is None:
        return None
    limit = _limit(schema, "maxItems")
    most = (MAX_REQUEST_BYTES - _EMPTY) // (item.least_bytes + 1) if limit is None else limit
    return Sized(most, _EMPTY, element=item)


def _map(schema: Structural) -> Sized | None:
    assert schema.additional is not None
    value = sized(schema.additional)
    if value is None:
        return None
    limit = _limit(schema, "maxProperties")
    # Beside a value: a key of one character in quotation marks, a colon, a comma.
    most = (MAX_REQUEST_BYTES - _EMPTY) // (value.least_bytes + 6) if limit is None else limit
    return Sized(most, _EMPTY, element=value, keyed=True)


def _object(schema: Structural, *, root: bool) -> Sized:
    required = frozenset(schema.checks.get("required") or ())
    least, fields = _EMPTY, {}
    for name, inner in members(schema, root=root).items():
        found, spelled = sized(inner), escaped(name)
        if found is None:
            continue
        if spelled is not None:
            fields[spelled] = found
        if name in required and not inner.has_default:
            least += len(name.encode()) + found.least_bytes + 4
    return Sized(0, least, fields=fields)


def size_of(root: Sized) -> SizeOf:
    """The declared size of what a path of an expression leads to. All variables of a rule have the root's schema."""

    def find(path: Path) -> Range | None:
        place = root
        for step in path[1:]:
            found = _step(place, step)
            if found is None:
                return None
            place = found
        return Range(0, place.most)

    return find


def _step(place: Sized, step: str) -> Sized | None:
    if step in ("@items", "@values"):
        return place.element
    if step == "@keys":
        return _KEY if place.keyed else None
    return None if place.fields is None else place.fields.get(step)
