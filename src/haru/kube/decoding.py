"""Strict decoding: what a JSON object must look like to be taken as a kind of the API.

Kubernetes decodes JSON into Go structs: fields that the type does not have are dropped (and reported, for
`fieldValidation`), nulls are absence, names are case-sensitive, quantities and times come out in canonical form, and a
value of the wrong JSON type refuses the whole object with the text of Go's decoder. Here every message type is
compiled once to a checker that only answers "nothing to do"; an object that passes is returned as it is. Only one that
does not is walked again, slowly, with paths.
Source: sigs.k8s.io/json and apimachinery's serializer, as behaviour.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
import re
from collections.abc import Callable, Iterable
from copy import copy
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from haru.kube.errors import StatusError, bad_request_error
from haru.kube.go_values import without_fractions
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.quantity import are_thousandths, canonical_quantity, in_thousandths, parse_quantity
from haru.kube.repeated_names import unknown_field
from haru.kube.schema import SCALARS, SCHEMA_OF_JSON, SCHEMAS_IN_JSON, Field, MessageType, message_type

Check = Callable[[Any], bool]
_Unknown = tuple[str, str, MessageType]  # path, name, the type that lacks it

_INT32 = range(-(1 << 31), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)
_DATE_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
_CANONICAL_TIME = re.compile(_DATE_TIME + "Z").fullmatch
_CANONICAL_MICRO_TIME = re.compile(_DATE_TIME + r"\.[0-9]{6}Z").fullmatch
_TIME = re.compile(rf"({_DATE_TIME})(?:[.,][0-9]+)?(Z|[+-][0-9]{{2}}:[0-9]{{2}})").fullmatch
_MICRO_TIME = re.compile(rf"({_DATE_TIME}\.[0-9]{{6}})(Z|[+-][0-9]{{2}}:[0-9]{{2}})").fullmatch
_RFC3339 = "2006-01-02T15:04:05Z07:00"
_RFC3339_MICRO = "2006-01-02T15:04:05.000000Z07:00"


def strict_decode(obj: Any, kind: Kind, known: Obj | None = None) -> tuple[Obj, list[str]]:
    """The object without nulls and unknown fields, and `unknown field "spec.foo"` for each of those.

    The given object itself is returned when nothing had to go. StatusError 400 when a value has the wrong JSON type.
    `known` has been decoded before: the parts of it that are in the object need no second look.
    """
    if kind.custom is not None:
        return kind.custom.decode(obj, kind)
    if known is not None and _checker(message_type(kind.type_name)).is_as(obj, known):
        return obj, []
    pruned, unknown = _decode(obj, kind)
    return pruned, [unknown_field(path) for path, _, _ in unknown]


def decode_metadata(metadata: Any, kind: Kind) -> tuple[Obj, list[str]]:
    """Decode the metadata of an object whose other members are no message of the API."""
    target = message_type("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    if metadata is None:
        return {}, []
    if _checker(target)(metadata):
        return metadata, []
    walk = Walk()
    try:
        pruned = walk.message(metadata, target, "metadata", "metadata", "ObjectMeta")
    except TypeMismatchError as mismatch:
        raise cannot_handle(kind, str(mismatch)) from None
    return pruned, [unknown_field(path) for path, _, _ in walk.unknown]


def embedded_metadata(metadata: Any, path: str) -> tuple[Any, list[str]]:
    """The known fields of the metadata of an object inside of another one, and the paths of the others.

    What is no object is returned as it is: validation has words for it. Raises TypeMismatchError where a field is of
    another type.
    """
    target = message_type("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    if not isinstance(metadata, dict) or _checker(target)(metadata):
        return metadata, []
    walk = Walk()
    try:
        known = walk.message(metadata, target, path, "", "ObjectMeta")
    except TypeMismatchError as mismatch:
        shown = json.dumps(metadata, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        raise TypeMismatchError(f"{path}: Invalid value: {shown}: {mismatch}") from None
    return known, [place for place, _, _ in walk.unknown]


_CLOSE = 0.7
_PARTS = re.compile("[./]")
_WORDS = re.compile("[0-9]+|[^0-9._/-]+")


def suggest(name: str, candidates: Iterable[str]) -> str:
    """The candidate that `name` was probably meant to be, or an empty string."""
    folded: dict[str, str] = {}
    for candidate in candidates:
        folded.setdefault(candidate.lower(), candidate)
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=_CLOSE)
    return folded[close[0]] if close else ""


def suggest_name(name: str, candidates: Iterable[str]) -> str:
    """The same for names that people give: of several parts each has to be close, and a number is none mistyped.

    So gpu.amd.com does not mean gpu.nvidia.com, nor node-9 or zone-b node-1 or zone-a.
    """
    return suggest(name, [each for each in candidates if _is_near(name.lower(), each.lower())])


def _is_near(name: str, other: str) -> bool:
    parts, others = _PARTS.split(name), _PARTS.split(other)
    pairs = zip(parts, others, strict=True) if len(parts) == len(others) else ()
    if any(a != b and difflib.SequenceMatcher(None, a, b).ratio() < _CLOSE for a, b in pairs):
        return False
    words, others = _WORDS.findall(name), _WORDS.findall(other)
    differing = [pair for pair in zip(words, others, strict=False) if pair[0] != pair[1]]
    counts = all(len(word) == 1 or word.isdigit() for pair in differing for word in pair)
    return len(words) != len(others) or not differing or not counts


def _decode(obj: Any, kind: Kind) -> tuple[Obj, list[_Unknown]]:
    target = message_type(kind.type_name)
    if _checker(target)(obj):
        return obj, []
    walk = Walk()
    try:
        pruned = walk.message(obj, target, "", "", None)
    except TypeMismatchError as mismatch:
        raise cannot_handle(kind, str(mismatch)) from None
    return pruned, walk.unknown


def cannot_handle(kind: Kind, why: str) -> StatusError:
    """400 for an object that is not of the form of its kind."""
    return bad_request_error(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


# --- the fast pass: is there anything to do? -------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _is_instant(text: str) -> bool:
    """Whether a text of the right form is a real date and time."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_quantity(value: Any) -> bool:
    return type(value) is str and canonical_quantity(value) == value != ""


def _is_rounded(quantities: Any) -> bool:
    """Whether a ResourceList is as 1.36 keeps it."""
    return type(quantities) is dict and all(map(_is_quantity, quantities.values())) and are_thousandths(quantities)


def _is_without_fractions(value: Any) -> bool:
    """Whether the JSON in a schema is as 1.36 keeps it: read into values, and written again."""
    return value is not None and without_fractions(value) is value


def _is_resource_list(field: Field, of: MessageType) -> bool:
    return field.type == "quantity" and field.container == "map" and of.name.startswith("io.k8s.api.core.")


def _is_time(value: Any) -> bool:
    return type(value) is str and _CANONICAL_TIME(value) is not None and _is_instant(value)


def _is_micro_time(value: Any) -> bool:
    return type(value) is str and _CANONICAL_MICRO_TIME(value) is not None and _is_instant(value)


def _is_bytes(value: Any) -> bool:
    return type(value) is str and "\n" not in value and "\r" not in value and _base64_error(value) < 0


def _is_string_list(value: Any) -> bool:
    return type(value) is list and all(type(item) is str for item in value)


_CHECKS: dict[str, Check] = {
    "string": lambda v: type(v) is str,
    "bool": lambda v: v is True or v is False,
    "int32": lambda v: type(v) is int and v in _INT32,
    "int64": lambda v: type(v) is int and v in _INT64,
    "double": lambda v: type(v) is int or (type(v) is float and not v.is_integer()),
    "bytes": _is_bytes,
    "quantity": _is_quantity,
    "intOrString": lambda v: type(v) is str or (type(v) is int and v in _INT32),
    "time": _is_time,
    "microTime": _is_micro_time,
    "json": lambda v: v is not None,
    "fieldsV1": lambda v: v is not None,
    "stringList": _is_string_list,
}
_checkers: dict[str, _Checker] = {}


class _Checker:
    """True for a dict whose fields are all known, of the right type and not null, but for what is written as null."""

    __slots__ = ("_fields", "_parts", "_strings")

    def __init__(self, target: MessageType) -> None:
        self._strings = frozenset(f.name for f in target.fields.values() if f.type == "string" and f.container == "one")
        _checkers[target.name] = self  # before the fields: types may contain themselves
        self._fields = {
            name: _is_rounded if _is_resource_list(field, target) else _field_check(field)
            for name, field in target.fields.items()
        }
        if target.name == SCHEMA_OF_JSON:
            boolean_or_schema: Check = lambda value: type(value) is bool or self(value)  # noqa: E731
            others = dict.fromkeys(("additionalItems", "additionalProperties"), boolean_or_schema)
            values = dict.fromkeys(("default", "enum", "example"), _is_without_fractions)
            self._fields |= {"items": self, **others, **values}
        self._parts = {name: check for name, check in self._fields.items() if isinstance(check, _Checker)}

    def __call__(self, value: Any) -> bool:
        if type(value) is not dict:
            return False
        strings, fields = self._strings, self._fields
        for name, inner in value.items():
            if type(inner) is str and name in strings:
                continue
            check = fields.get(name)
            if check is None or not check(inner):
                return False
        return True

    def is_as(self, value: Any, known: Obj) -> bool:
        """The same, of a value that may share parts with one that is known to be so."""
        if type(value) is not dict:
            return False
        for name, inner in value.items():
            before: Any = known.get(name)
            if inner is before and inner is not None:
                continue
            part = self._parts.get(name) if type(before) is dict else None
            if part is not None:
                if not part.is_as(inner, before):
                    return False
                continue
            check = self._fields.get(name)
            if check is None or not check(inner):
                return False
        return True


def _checker(target: MessageType) -> _Checker:
    return _checkers.get(target.name) or _Checker(target)


def _field_check(field: Field) -> Check:
    if field.container == "one" and field.written and field.type in ("time", "microTime"):
        is_instant = _CHECKS[field.type]
        return lambda value: value is None or is_instant(value)
    one = _CHECKS[field.type] if not field.is_message else _checker(message_type(field.type))
    if field.container == "one":
        return one
    if field.container == "list":
        return lambda value: type(value) is list and all(map(one, value))
    return lambda value: type(value) is dict and all(map(one, value.values()))


# --- the slow pass: prune, collect, or refuse ------------------------------------------------------------------------


class TypeMismatchError(Exception):
    """A value that Go's decoder would not take, in its words."""


class Walk:
    """Copies an object without nulls and unknown fields."""

    def __init__(self) -> None:
        self.unknown: list[_Unknown] = []

    def message(self, value: Any, target: MessageType, path: str, go_path: str, owner: str | None) -> Obj:
        """An object of a message type."""
        if type(value) is not dict:
            raise _mismatch(value, _go_type(target.name), owner, go_path)
        pruned: Obj = {}
        for name, inner in value.items():
            inner_path = f"{path}.{name}" if path else str(name)
            field = target.fields.get(name)
            if field is None:
                self.unknown.append((inner_path, name, target))
            elif inner is not None:
                inner_go = f"{go_path}.{name}" if go_path else name
                if target.name == SCHEMA_OF_JSON and name in SCHEMAS_IN_JSON:
                    inner = _schema_or_other(inner, name, target)
                    if inner is None:
                        continue
                found = self.field(inner, field, inner_path, inner_go, target.short_name)
                if target.name == SCHEMA_OF_JSON:
                    found = without_fractions(found)
                elif found is not None and _is_resource_list(field, target):
                    found = in_thousandths(found)
                pruned[name] = found
        return pruned

    def field(self, value: Any, field: Field, path: str, go_path: str, owner: str) -> Any:
        """A field's value, whatever its container."""
        if field.container == "list":
            if type(value) is not list:
                raise _mismatch(value, "[]" + _go_type(field.type), owner, go_path)
            return [self.item(item, field, f"{path}[{index}]", go_path, owner) for index, item in enumerate(value)]
        if field.container == "map":
            if type(value) is not dict:
                raise _mismatch(value, "map[string]" + _go_type(field.type), owner, go_path)
            return {key: self.item(item, field, f"{path}.{key}", go_path, owner) for key, item in value.items()}
        return self.value(value, field, path, go_path, owner)

    def item(self, value: Any, field: Field, path: str, go_path: str, owner: str) -> Any:
        """An element: a null there is the type's zero value, not absence."""
        if value is None:
            return {} if field.is_message else copy(SCALARS[field.type].zero)
        return self.value(value, field, path, go_path, owner)

    def value(self, value: Any, field: Field, path: str, go_path: str, owner: str) -> Any:
        """One value of the field's type."""
        if field.is_message:
            return self.message(value, message_type(field.type), path, go_path, owner)
        if _CHECKS[field.type](value):
            return value
        convert = _CONVERSIONS.get(field.type)
        if convert is not None:
            return convert(value, owner, go_path)
        raise _mismatch(value, _go_type(field.type), owner, go_path)


def _schema_or_other(value: Any, name: str, target: MessageType) -> Any:
    """A schema, a boolean, a list of schemas, or None for what counts as absent. Unknown fields go without a word.

    Source: apiextensions.k8s.io/v1, the unmarshalling of JSONSchemaPropsOrBool and JSONSchemaPropsOrArray.
    """
    if type(value) is dict:
        return Walk().message(value, target, "", "", None)
    if name == "items":
        many = type(value) is list
        return [Walk().message(inner or {}, target, "", "", None) for inner in value] if many else None
    if type(value) is not bool:
        raise TypeMismatchError("boolean or JSON schema expected")
    return value


def _go_type(name: str) -> str:
    if name in SCALARS:
        return SCALARS[name].go_type
    package, _, short = name.rpartition(".")
    return f"{package.rsplit('.', 1)[1]}.{short}"


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def _mismatch(value: Any, go_type: str, owner: str | None, go_path: str) -> TypeMismatchError:
    seen = _json_type(value)
    if seen == "number" and go_type in ("int32", "int64"):
        seen = f"number {value}"
    where = f"Go struct field {owner}.{go_path}" if owner else "Go value"
    return TypeMismatchError(f"json: cannot unmarshal {seen} into {where} of type {go_type}")


def _double(value: Any, owner: str, go_path: str) -> Any:
    if type(value) is not float:
        raise _mismatch(value, "float64", owner, go_path)
    return without_fractions(value)


def _quantity(value: Any, owner: str, go_path: str) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    try:
        return str(parse_quantity(text.strip()))
    except ValueError as error:
        raise TypeMismatchError(str(error)) from None


def _bytes(value: Any, owner: str, go_path: str) -> Any:
    if isinstance(value, list) and all(type(one) is int and one in range(256) for one in value):
        return base64.b64encode(bytes(value)).decode()  # as Go reads a list of numbers
    if not isinstance(value, str):
        raise _mismatch(value, "[]uint8", owner, go_path)
    if _base64_error(value) < 0:
        return value.replace("\n", "").replace("\r", "")
    raise TypeMismatchError(f"illegal base64 data at input byte {_base64_error(value)}")


def _time(value: Any, owner: str, go_path: str) -> Any:
    parsed = _instant(value, _TIME, _RFC3339, _SECONDS)
    return parsed.isoformat(timespec="seconds").replace("+00:00", "Z")


def _micro_time(value: Any, owner: str, go_path: str) -> Any:
    parsed = _instant(value, _MICRO_TIME, _RFC3339_MICRO, _MICROSECONDS)
    return parsed.isoformat(timespec="microseconds").replace("+00:00", "Z")


_DATE = (("[0-9]{4}", "2006"), ("-", "-"), ("[0-9]{2}", "01"), ("-", "-"), ("[0-9]{2}", "02"), ("T", "T"))
_CLOCK = (("[0-9]{2}", "15"), (":", ":"), ("[0-9]{2}", "04"), (":", ":"), ("[0-9]{2}", "05"))
_ZONE = (("Z|[+-][0-9]{2}:[0-9]{2}", "Z07:00"),)
_SECONDS = (*_DATE, *_CLOCK, (r"(?:[.,][0-9]+)?", ""), *_ZONE)
_MICROSECONDS = (*_DATE, *_CLOCK, (r"\.[0-9]{6}", ".000000"), *_ZONE)


def _instant(
    value: Any, form: Callable[[str], re.Match[str] | None], layout: str, steps: tuple[tuple[str, str], ...]
) -> datetime:
    """The instant in UTC; refuses in the words of Go's time parser."""
    if not isinstance(value, str):
        raise TypeMismatchError(f"json: cannot unmarshal {_json_type(value)} into Go value of type string")
    match = form(value)
    if match is None:
        raise TypeMismatchError(f'parsing time "{value}" as "{layout}": {_time_problem(value, steps)}')
    try:
        return datetime.fromisoformat(match[1] + match[2]).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        part = next((word for word in ("month", "day", "hour", "minute", "second") if word in str(error)), "time")
        raise TypeMismatchError(f'parsing time "{value}": {part} out of range') from None


def _time_problem(value: str, steps: tuple[tuple[str, str], ...]) -> str:
    rest = value
    for pattern, layout in steps:
        match = re.match(pattern, rest)
        if match is None:
            return f'cannot parse "{rest}" as "{layout}"'
        rest = rest[match.end() :]
    return f'extra text: "{rest}"'


_CONVERSIONS: dict[str, Callable[[Any, str, str], Any]] = {
    "double": _double,
    "quantity": _quantity,
    "bytes": _bytes,
    "time": _time,
    "microTime": _micro_time,
}


def _base64_error(text: str) -> int:
    """Where Go's base64 decoder stops, or -1 for a text it takes (standard alphabet, padded, newlines ignored)."""
    compact = text.replace("\n", "").replace("\r", "")
    try:
        base64.b64decode(compact, validate=True)
    except (binascii.Error, ValueError):
        bad = re.search(r"[^A-Za-z0-9+/]", text.rstrip("="))
        return bad.start() if bad else len(text)
    return -1
