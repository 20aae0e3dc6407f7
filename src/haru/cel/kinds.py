"""The types of whole kinds in CEL: those that are built in by their messages, custom ones by their schemas."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from haru.cel.objects import Structs, declare, escaped
from haru.cel.types import BOOL, BYTES, DOUBLE, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of, struct
from haru.kube.kinds import Kind
from haru.kube.schema import Field, MessageType, message_type, type_of

_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_SCALARS: Mapping[str, Type] = {
    "string": STRING,
    "bool": BOOL,
    "int32": INT,
    "int64": INT,
    "double": DOUBLE,
    "bytes": BYTES,
    "time": TIMESTAMP,
    "microTime": TIMESTAMP,
    "stringList": list_of(STRING),
}


def declare_kind(kind: Kind, structs: MutableMapping[str, Mapping[str, Type]]) -> Type:
    """The type of a kind's objects; what is in it is added to `structs`. `dyn` where nothing is known."""
    if kind.custom is None:
        return _message(type_of(kind), structs)
    own: Structs = {}
    name = kind.type_name
    found = declare(kind.custom.schema, name, own, root=True) or DYN
    if name in own:
        own[name] = {**own[name], "metadata": _message(message_type(_METADATA), structs)}
    structs.update(own)
    return found


def _message(message: MessageType, structs: MutableMapping[str, Mapping[str, Type]]) -> Type:
    if message.name not in structs:
        fields: dict[str, Type] = {}
        structs[message.name] = fields  # before its fields: a message may contain itself
        for field in message.fields.values():
            spelled = escaped(field.name)
            if spelled is not None:
                fields[spelled] = _field(field, structs)
    return struct(message.name)


def _field(field: Field, structs: MutableMapping[str, Mapping[str, Type]]) -> Type:
    one = _message(message_type(field.type), structs) if field.is_message else _SCALARS.get(field.type, DYN)
    if field.container == "list":
        return list_of(one)
    return map_of(STRING, one) if field.container == "map" else one
