"""The OpenAPI v2 document in protobuf, the one form in which Go clients ask for it.

Numbers are those of the message `openapi.v2.Document`. Values of any kind, extensions among them, are YAML in it, of
which JSON is a part.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from haru.kube.wire_fields import chunk, integer, varint

Obj = dict[str, Any]
_Encode = Callable[[Any], bytes]
_Field = tuple[int, str]
"""Number, and how the value is written."""

_FIXED64 = 1


def encode_document(document: Obj) -> bytes:
    """The document in protobuf."""
    return b"".join(
        (
            chunk(1, document["swagger"].encode()),
            chunk(2, _message(_INFO, document["info"])),
            chunk(8, b"".join(_named(2, name, _message(_PATH, item)) for name, item in document["paths"].items())),
            chunk(9, _all_named(document["definitions"], _schema)),
            *(chunk(12, _all_named(one, _texts)) for one in document["security"]),
            chunk(13, _all_named(document["securityDefinitions"], lambda one: chunk(2, _message(_API_KEY, one)))),
        )
    )


def _message(fields: Mapping[str, _Field], value: Obj) -> bytes:
    """A message by its table, with the extensions under the number of `x-`."""
    parts = [_WAYS[way](number, value[name]) for name, (number, way) in fields.items() if name in value]
    extensions, _ = fields.get("x-", (0, ""))
    parts += [_named(extensions, name, _any(inner)) for name, inner in value.items() if name.startswith("x-")]
    return b"".join(parts)


def _named(number: int, name: str, value: bytes) -> bytes:
    return chunk(number, chunk(1, name.encode()) + chunk(2, value, always=True))


def _all_named(values: Mapping[str, Any], encode: _Encode) -> bytes:
    return b"".join(_named(1, name, encode(value)) for name, value in values.items())


def _any(value: Any) -> bytes:
    return chunk(2, orjson.dumps(value) + b"\n")


def _texts(values: Iterable[str]) -> bytes:
    return b"".join(chunk(1, value.encode(), always=True) for value in values)


def _schema(value: Obj) -> bytes:
    return _message(_SCHEMA, value)


def _more_properties(value: Any) -> bytes:
    return chunk(1, _schema(value), always=True) if isinstance(value, dict) else integer(2, int(value), always=True)


def _parameter(value: Obj) -> bytes:
    """A ParametersItem: a body, or where in the request else it is."""
    if value["in"] == "body":
        return chunk(1, chunk(1, _message(_BODY, value)))
    kind, table = (3, _QUERY) if value["in"] == "query" else (4, _PATH_PARAMETER)
    return chunk(1, chunk(2, chunk(kind, _message(table, value))))


def _responses(value: Obj) -> bytes:
    return b"".join(_named(1, code, chunk(1, _message(_RESPONSE, answer))) for code, answer in value.items())


def _double(number: int, value: float) -> bytes:
    return varint(number << 3 | _FIXED64) + struct.pack("<d", value)


_WAYS: Mapping[str, Callable[[int, Any], bytes]] = {
    "text": lambda number, value: chunk(number, value.encode()),
    "texts": lambda number, value: b"".join(chunk(number, one.encode(), always=True) for one in value),
    "number": lambda number, value: integer(number, int(value)),
    "double": _double,
    "any": lambda number, value: chunk(number, _any(value)),
    "anys": lambda number, value: b"".join(chunk(number, _any(one)) for one in value),
    "type": lambda number, value: chunk(number, chunk(1, value.encode())),
    "schema": lambda number, value: chunk(number, _schema(value), always=True),
    "item": lambda number, value: chunk(number, chunk(1, _schema(value), always=True)),
    "properties": lambda number, value: chunk(number, _all_named(value, _schema)),
    "more": lambda number, value: chunk(number, _more_properties(value)),
    "operation": lambda number, value: chunk(number, _message(_OPERATION, value)),
    "parameters": lambda number, value: b"".join(chunk(number, _parameter(one)) for one in value),
    "responses": lambda number, value: chunk(number, _responses(value)),
}
_INFO: Mapping[str, _Field] = {"title": (1, "text"), "version": (2, "text")}
_API_KEY: Mapping[str, _Field] = {"type": (1, "text"), "name": (2, "text"), "in": (3, "text")}
_PATH: Mapping[str, _Field] = {
    "get": (2, "operation"),
    "put": (3, "operation"),
    "post": (4, "operation"),
    "delete": (5, "operation"),
    "options": (6, "operation"),
    "head": (7, "operation"),
    "patch": (8, "operation"),
    "parameters": (9, "parameters"),
    "x-": (10, ""),
}
_OPERATION: Mapping[str, _Field] = {
    "tags": (1, "texts"),
    "description": (3, "text"),
    "operationId": (5, "text"),
    "produces": (6, "texts"),
    "consumes": (7, "texts"),
    "parameters": (8, "parameters"),
    "responses": (9, "responses"),
    "schemes": (10, "texts"),
    "x-": (13, ""),
}
_BODY: Mapping[str, _Field] = {
    "description": (1, "text"),
    "name": (2, "text"),
    "in": (3, "text"),
    "required": (4, "number"),
    "schema": (5, "schema"),
}
_PATH_PARAMETER: Mapping[str, _Field] = {
    "required": (1, "number"),
    "in": (2, "text"),
    "description": (3, "text"),
    "name": (4, "text"),
    "type": (5, "text"),
    "format": (6, "text"),
    "uniqueItems": (19, "number"),
}
_QUERY: Mapping[str, _Field] = {
    "required": (1, "number"),
    "in": (2, "text"),
    "description": (3, "text"),
    "name": (4, "text"),
    "type": (6, "text"),
    "format": (7, "text"),
    "uniqueItems": (20, "number"),
}
_RESPONSE: Mapping[str, _Field] = {"description": (1, "text"), "schema": (2, "item")}
_SCHEMA: Mapping[str, _Field] = {
    "$ref": (1, "text"),
    "format": (2, "text"),
    "title": (3, "text"),
    "description": (4, "text"),
    "default": (5, "any"),
    "multipleOf": (6, "double"),
    "maximum": (7, "double"),
    "exclusiveMaximum": (8, "number"),
    "minimum": (9, "double"),
    "exclusiveMinimum": (10, "number"),
    "maxLength": (11, "number"),
    "minLength": (12, "number"),
    "pattern": (13, "text"),
    "maxItems": (14, "number"),
    "minItems": (15, "number"),
    "uniqueItems": (16, "number"),
    "maxProperties": (17, "number"),
    "minProperties": (18, "number"),
    "required": (19, "texts"),
    "enum": (20, "anys"),
    "additionalProperties": (21, "more"),
    "type": (22, "type"),
    "items": (23, "item"),
    "properties": (25, "properties"),
    "x-": (31, ""),
}
