"""The OpenAPI v2 document in protobuf, the one form in which Go clients ask for it.

Numbers are those of the message `openapi.v2.Document`. Values of any kind, extensions among them, are YAML in it, of
which JSON is a part.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import orjson

from haru.kube.data import rows
from haru.kube.meta import Obj
from haru.kube.wire_fields import chunk, integer, varint

_Encode = Callable[[Any], bytes]
_FIXED64 = 1


def encode_document(document: Obj) -> bytes:
    """The document in protobuf."""
    return b"".join(
        (
            chunk(1, document["swagger"].encode()),
            chunk(2, _message("info", document["info"])),
            chunk(8, b"".join(_named(2, name, _message("path", item)) for name, item in document["paths"].items())),
            chunk(9, _all_named(document["definitions"], _schema)),
            *(chunk(12, _all_named(one, _texts)) for one in document["security"]),
            chunk(13, _all_named(document["securityDefinitions"], lambda one: chunk(2, _message("api_key", one)))),
        )
    )


def _message(name: str, value: Obj) -> bytes:
    """A message by its table, with the extensions under the number of `x-`."""
    fields = _fields(name)
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
    return _message("schema", value)


def _more_properties(value: Any) -> bytes:
    return chunk(1, _schema(value), always=True) if isinstance(value, dict) else integer(2, int(value), always=True)


def _parameter(value: Obj) -> bytes:
    """A ParametersItem: a body, or where in the request else it is."""
    if value["in"] == "body":
        return chunk(1, chunk(1, _message("body", value)))
    kind, table = (3, "query") if value["in"] == "query" else (4, "path_parameter")
    return chunk(1, chunk(2, chunk(kind, _message(table, value))))


def _responses(value: Obj) -> bytes:
    return b"".join(_named(1, code, chunk(1, _message("response", answer))) for code, answer in value.items())


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
    "operation": lambda number, value: chunk(number, _message("operation", value)),
    "parameters": lambda number, value: b"".join(chunk(number, _parameter(one)) for one in value),
    "responses": lambda number, value: chunk(number, _responses(value)),
}


@cache
def _fields(message: str) -> Mapping[str, tuple[int, str]]:
    """Number of each field of a message, and how its value is written; `x-` stands for all extensions."""
    return {name: (int(number), way) for of, name, number, way in rows("openapi_v2") if of == message}
