"""The shape of every API type: fields, types, protobuf numbers, list and map types, patch strategies.

A `MessageType` is one object of the API (`io.k8s.api.core.v1.PodSpec`), a `Field` one of its JSON properties. The facts
are those of Kubernetes 1.36, kept in tables/<package>.txt (one line a field; tools/derive_tables.py writes them and
explains the form). A package's table is read on first use and a message parsed when it is first asked for.
Source: the OpenAPI definitions and protobuf numbers of 1.36.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import unquote

Container = Literal["one", "list", "map"]


class Scalar(NamedTuple):
    """A field type that is no message: what stands where it is null, and the name of its Go type."""

    zero: Any
    go_type: str


SCALARS: Mapping[str, Scalar] = {
    "string": Scalar("", "string"),
    "bool": Scalar(False, "bool"),
    "int32": Scalar(0, "int32"),
    "int64": Scalar(0, "int64"),
    "double": Scalar(0, "float64"),
    "bytes": Scalar("", "[]uint8"),
    "quantity": Scalar("0", "resource.Quantity"),
    "intOrString": Scalar(0, "intstr.IntOrString"),
    "time": Scalar(None, "v1.Time"),
    "microTime": Scalar(None, "v1.MicroTime"),
    "json": Scalar(None, "runtime.RawExtension"),
    "fieldsV1": Scalar({}, "v1.FieldsV1"),
    "stringList": Scalar([], "[]string"),
}
"""`json` is any JSON value; `stringList` occurs as the value of a map only."""

SCHEMA_OF_JSON = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
SCHEMAS_IN_JSON = frozenset({"additionalItems", "additionalProperties", "items"})
"""Members of a schema that hold a schema or something else, and are JSON to the tables."""

_TABLES = Path(__file__).parent / "tables"
_API = "io.k8s.api."
_META = "io.k8s.apimachinery.pkg.apis."
_ELSEWHERE = {
    "apiextensions": "io.k8s.apiextensions-apiserver.pkg.apis.",
    "apiregistration": "io.k8s.kube-aggregator.pkg.apis.",
    "meta": _META,
}
"""Groups whose types are not where most are."""


@dataclass(frozen=True, slots=True)
class Field:
    """One JSON property of a message."""

    name: str
    number: int | None
    """The protobuf number; None where the field is not on the wire, or belongs to an embedded message."""
    type: str
    container: Container = "one"
    required: bool = False
    default: Any = None
    enum: tuple[str, ...] = ()
    list_type: str = ""
    list_map_keys: tuple[str, ...] = ()
    map_type: str = ""
    patch_merge_key: str = ""
    patch_strategies: tuple[str, ...] = ()
    pointer: bool = False
    """Whether a zero value differs from an absent one (a pointer in the Go types)."""
    written: bool = False
    """Whether JSON has the field without a value too (null, zero or an object of such fields)."""

    @property
    def is_message(self) -> bool:
        """Whether the type is the name of another message."""
        return self.type not in SCALARS


class MessageType:
    """One object type: its fields by JSON name, and what of it lies in embedded messages on the wire."""

    __slots__ = ("by_number", "embedded", "fields", "map_type", "name", "shape")

    def __init__(self, name: str, fields: Mapping[str, Field], map_type: str, embedded: Mapping[int, str]) -> None:
        self.name = name
        self.fields = fields
        self.map_type = map_type
        self.embedded = embedded
        """Protobuf number -> message whose fields stand beside this message's own in JSON."""
        self.by_number = {f.number: f for f in fields.values() if f.number is not None}
        self.shape: Any = None
        """How its objects are merged, once somebody asked (`haru.kube.patch.shapes`)."""

    @property
    def short_name(self) -> str:
        """`PodSpec`: what Go and error messages call the type."""
        return self.name.rsplit(".", 1)[1]

    def __repr__(self) -> str:
        return f"MessageType({self.name})"


_blocks: dict[str, dict[str, str]] = {}
_messages: dict[str, MessageType] = {}


def message_type(name: str) -> MessageType:
    """The type of that full name, such as `io.k8s.api.core.v1.PodSpec`; KeyError when there is none."""
    found = _messages.get(name)
    if found is None:
        found = _messages[name] = _parse(name)
    return found


class NamesType(Protocol):
    """A kind that names the message of its objects, as `haru.kube.kinds.Kind` does."""

    @property
    def type_name(self) -> str:
        """`io.k8s.api.apps.v1.Deployment`."""


def type_of(kind: NamesType) -> MessageType:
    """The message that objects of this kind are."""
    return message_type(kind.type_name)


def _stem(package: str) -> str:
    """`io.k8s.api.core.v1` -> `core.v1`, the table's file name."""
    return next((package.removeprefix(p) for p in (_API, *_ELSEWHERE.values()) if package.startswith(p)), package)


def _full_name(stem: str, name: str) -> str:
    if "/" in name:
        stem, name = name.split("/")
    return f"{_ELSEWHERE.get(stem.partition('.')[0], _API)}{stem}.{name}"


def _table(stem: str) -> dict[str, str]:
    """Message name -> its lines, not yet parsed."""
    blocks = _blocks.get(stem)
    if blocks is None:
        path = _TABLES / f"{stem}.txt"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        blocks = {}
        for block in text.split("@")[1:] if "@" in text else ():
            head, _, lines = block.partition("\n")
            blocks[head.split(" ", 1)[0]] = head + "\n" + lines
        _blocks[stem] = blocks
    return blocks


def _parse(full_name: str) -> MessageType:
    package, _, short = full_name.rpartition(".")
    stem = _stem(package)
    block = _table(stem).get(short)
    if block is None:
        raise KeyError(f"no API type is named {full_name}")
    head, *lines = block.splitlines()
    fields: dict[str, Field] = {}
    embedded: dict[int, str] = {}
    for line in lines:
        number, name, type_name, *flags = line.split(" ")
        if name == "+":
            inner = _full_name(stem, type_name)
            embedded[int(number)] = inner
            for field in message_type(inner).fields.values():
                fields[field.name] = _replace_number(field)
        else:
            fields[name] = _field(stem, None if number == "-" else int(number), name, type_name, flags)
    map_type = head.partition(" map=")[2]
    return MessageType(full_name, MappingProxyType(fields), map_type, embedded)


def _replace_number(field: Field) -> Field:
    """The field as a property of the message that embeds its own: there it has no number."""
    values = {slot: getattr(field, slot) for slot in Field.__slots__}
    return Field(**{**values, "number": None})


def _field(stem: str, number: int | None, name: str, type_name: str, flags: list[str]) -> Field:
    container: Container = "one"
    if type_name.startswith("[]"):
        container, type_name = "list", type_name[2:]
    elif type_name.startswith("{}"):
        container, type_name = "map", type_name[2:]
    options: dict[str, Any] = {}
    for flag in flags:
        key, _, value = flag.partition("=")
        _FLAGS[key](options, value)
    if container == "map":
        options.setdefault("map_type", "granular")
    if type_name not in SCALARS:
        type_name = _full_name(stem, type_name)
    return Field(name, number, type_name, container, **options)


_FLAGS: dict[str, Any] = {
    "!": lambda o, _: o.update(required=True, written=True),
    "0": lambda o, _: o.update(written=True),
    "~": lambda o, _: o.update(written=False),
    "*": lambda o, _: o.update(pointer=True),
    "atomic": lambda o, _: o.update(list_type="atomic"),
    "set": lambda o, _: o.update(list_type="set"),
    "keys": lambda o, v: o.update(list_type="map", list_map_keys=tuple(v.split(","))),
    "map": lambda o, v: o.update(map_type=v),
    "merge": lambda o, v: o.update(patch_merge_key=v),
    "ps": lambda o, v: o.update(patch_strategies=tuple(v.split(","))),
    "default": lambda o, v: o.update(default=json.loads(unquote(v))),
    "enum": lambda o, v: o.update(enum=tuple(unquote(item) for item in v.split(","))),
}
