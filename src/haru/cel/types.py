"""Static types, as the checker deduces and names them.

Two spellings exist, and Kubernetes shows both: `format_type` (`any`, `timestamp`), used in messages about overloads,
and `str()` (`google.protobuf.Any`), used for an expression's result.
"""

from __future__ import annotations

from collections.abc import Mapping

_MESSAGE_SPELLING = {
    "google.protobuf.Any": "any",
    "google.protobuf.Timestamp": "timestamp",
    "google.protobuf.Duration": "duration",
    "null_type": "null",
}


class Type:
    """A type: its kind ("int", "list", "struct", "opaque", "param", …), its name, and its parameters."""

    __slots__ = ("_hash", "closed", "kind", "name", "params")

    def __init__(self, kind: str, name: str, params: tuple[Type, ...] = ()) -> None:
        self.kind = kind
        self.name = name
        self.params = params
        self._hash = hash((kind, name, params))
        self.closed = kind != "param"
        """Whether there is no type parameter in it."""
        for param in params:
            if not param.closed:
                self.closed = False

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Type)
            and self.kind == other.kind
            and self.name == other.name
            and self.params == other.params
        )

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(str(param) for param in self.params)})"

    def __repr__(self) -> str:
        return f"Type({self})"

    @property
    def is_dyn(self) -> bool:
        """Whether values of any type may be behind it."""
        return self.kind == "dyn" or self.kind == "any"


BOOL = Type("bool", "bool")
INT = Type("int", "int")
UINT = Type("uint", "uint")
DOUBLE = Type("double", "double")
STRING = Type("string", "string")
BYTES = Type("bytes", "bytes")
NULL = Type("null", "null_type")
TIMESTAMP = Type("timestamp", "google.protobuf.Timestamp")
DURATION = Type("duration", "google.protobuf.Duration")
DYN = Type("dyn", "dyn")
ANY = Type("any", "google.protobuf.Any")
ERROR = Type("error", "!error!")
TYPE = Type("type", "type")
LIST = Type("list", "list", (DYN,))
MAP = Type("map", "map", (DYN, DYN))

_T = dict[str, Type]


def list_of(element: Type) -> Type:
    """`list(element)`."""
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """`map(key, value)`."""
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    """`optional_type(value)`."""
    return Type("opaque", "optional_type", (value,))


def type_of_type(value: Type) -> Type:
    """The type of a type's name: `type(value)`."""
    return Type("type", "type", (value,))


def param(name: str) -> Type:
    """A type parameter of an overload."""
    return Type("param", name)


def struct(name: str) -> Type:
    """A type with named fields, or one of Kubernetes' objects that only functions can look into."""
    return Type("struct", name)


def opaque(name: str, *params: Type) -> Type:
    """A type of which nothing but its functions is known."""
    return Type("opaque", name, params)


def is_optional(value: Type) -> bool:
    """Whether this is `optional_type(…)`."""
    return value.kind == "opaque" and value.name == "optional_type"


def format_type(value: Type) -> str:
    """The spelling used in messages of the checker."""
    name = _MESSAGE_SPELLING.get(value.name, value.name)
    if not value.params:
        return name
    return f"{name}({', '.join(format_type(param) for param in value.params)})"


def format_signature(types: list[Type], member: bool) -> str:
    """The types of a call's operands, as `no matching overload` shows them."""
    spelled = [format_type(value) for value in types]
    if member:
        return f"{spelled[0]}.({', '.join(spelled[1:])})"
    return f"({', '.join(spelled)})"


class Substitution:
    """Types of type parameters, found while arguments are matched with overloads."""

    __slots__ = ("found",)

    def __init__(self, found: Mapping[str, Type] | None = None) -> None:
        self.found: _T = dict(found or {})

    def assignable(self, value: Type, target: Type) -> bool:
        """Whether `value` can be used as `target`. Learns type parameters, but only where the answer is yes."""
        trial = Substitution(self.found)
        if not trial._assign(value, target):
            return False
        self.found = trial.found
        return True

    def assignable_all(self, values: list[Type], targets: list[Type]) -> bool:
        """`assignable` for several types at once: all or nothing is learned."""
        if len(values) != len(targets):
            return False
        trial = Substitution(self.found)
        if not all(trial._assign(value, target) for value, target in zip(values, targets, strict=True)):
            return False
        self.found = trial.found
        return True

    def _assign(self, value: Type, target: Type) -> bool:
        if target.kind == "param":
            valid, known = self._bind(value, target)
            if valid:
                return True
            if known:
                return False
        if value.kind == "param":
            return self._bind(target, value)[0]
        if value.is_dyn or target.is_dyn or value.kind == "error" or target.kind == "error":
            return True
        if value.kind == "null" or target.kind == "null":
            other = target if value.kind == "null" else value
            return other.kind in ("null", "struct", "opaque", "timestamp", "duration")
        if value.kind != target.kind:
            return False
        if value.kind == "type":
            return True
        if value.kind in ("list", "map", "opaque"):
            return (
                value.name == target.name
                and len(value.params) == len(target.params)
                and all(self._assign(left, right) for left, right in zip(value.params, target.params, strict=True))
            )
        return value == target

    def _bind(self, value: Type, parameter: Type) -> tuple[bool, bool]:
        if value == parameter:
            return True, True
        known = self.found.get(parameter.name)
        if known is not None:
            if value == known:
                return True, True
            if not self._assign(value, known):
                return False, True
            general = most_general(value, known)
            if not self._occurs(parameter, general):
                self.found[parameter.name] = general
            return True, True
        if self._occurs(parameter, value):
            return False, False
        self.found[parameter.name] = value
        return True, False

    def _occurs(self, parameter: Type, inside: Type) -> bool:
        if inside.closed:
            return False
        if inside == parameter:
            return True
        if inside.kind == "param":
            known = self.found.get(inside.name)
            return known is not None and self._occurs(parameter, known)
        return any(self._occurs(parameter, child) for child in inside.params)

    def apply(self, value: Type, params_to_dyn: bool = False) -> Type:
        """`value` with its parameters replaced by what they stand for."""
        if value.closed:
            return value
        if value.kind == "param":
            known = self.found.get(value.name)
            if known is not None:
                return self.apply(known, params_to_dyn)
            return DYN if params_to_dyn else value
        return Type(value.kind, value.name, tuple(self.apply(param, params_to_dyn) for param in value.params))


def most_general(left: Type, right: Type) -> Type:
    """The wider of two types of which one can be used as the other."""
    return left if _covers(left, right) else right


def _covers(left: Type, right: Type) -> bool:
    if left.is_dyn or left.kind == "param":
        return True
    if right.is_dyn or right.kind == "param":
        return False
    if left.kind != right.kind or left.name != right.name or len(left.params) != len(right.params):
        return False
    if left.kind == "type":
        return True
    return all(_covers(one, other) for one, other in zip(left.params, right.params, strict=True))
