"""Values while an expression is evaluated, and what every operator needs to know about them.

| CEL | Python |
| --- | --- |
| null, bool, int, double, string, bytes | None, bool, int, float, str, bytes |
| uint | `Uint`, an int of its own class |
| list | list or tuple |
| map, message | dict; see `map_key` for what its keys are |
| timestamp, duration | `Timestamp`, `Duration`: nanoseconds in an int |
| type | `Type` |
| optional | `Optional` |
| quantities, versions, addresses, … | classes with `cel_type` (their static type) |

Python takes True for 1. CEL does not, so nothing here compares two values with `==` before their classes are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from haru.cel.errors import EvaluationError
from haru.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    LIST,
    MAP,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    optional_of,
)

INT_MIN, INT_MAX, UINT_MAX = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
Value = Any


class Uint(int):
    """An unsigned 64-bit integer. Results of arithmetic on it are plain ints: whoever computes wraps them again."""

    __slots__ = ()


class Timestamp:
    """A moment, as nanoseconds since 1970-01-01T00:00:00Z."""

    __slots__ = ("ns",)
    cel_type: ClassVar[Type] = TIMESTAMP

    def __init__(self, ns: int) -> None:
        self.ns = ns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.ns == other.ns

    def __hash__(self) -> int:
        return hash(("timestamp", self.ns))

    def __repr__(self) -> str:
        return f"Timestamp({self.ns})"


class Duration:
    """A span of time in nanoseconds."""

    __slots__ = ("ns",)
    cel_type: ClassVar[Type] = DURATION

    def __init__(self, ns: int) -> None:
        self.ns = ns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.ns == other.ns

    def __hash__(self) -> int:
        return hash(("duration", self.ns))

    def __repr__(self) -> str:
        return f"Duration({self.ns})"


class Optional:
    """`optional.of(value)` or, where `present` is false, `optional.none()`."""

    __slots__ = ("present", "value")
    cel_type: ClassVar[Type] = optional_of(DYN)

    def __init__(self, value: Value, present: bool = True) -> None:
        self.value = value
        self.present = present

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Optional) or self.present != other.present:
            return False
        return not self.present or equals(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self.present)

    def __repr__(self) -> str:
        return f"optional.of({self.value!r})" if self.present else "optional.none()"


NONE = Optional(None, present=False)


class Struct(dict[str, Any]):
    """A message that an expression built: its fields, and the name of its type."""

    __slots__ = ("cel_type",)

    def __init__(self, cel_type: Type, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.cel_type = cel_type


class OwnList(list[Any]):
    """A list that compares and grows in its own way where it is the left operand."""

    __slots__ = ()

    def same(self, other: Sequence[Value]) -> bool:
        """`self == other`."""
        raise NotImplementedError

    def plus(self, other: Sequence[Value]) -> OwnList:
        """`self + other`."""
        raise NotImplementedError


class OwnDict(dict[str, Any]):
    """A map or message of which expressions do not see everything."""

    __slots__ = ()

    def same_unknown(self, other: dict[Any, Value]) -> bool:
        """Whether `other` is the same in what they do not see."""
        raise NotImplementedError


class _BoolKey:
    """true or false as the key of a map, where Python would take them for 1 and 0."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value


_TRUE_KEY, _FALSE_KEY = _BoolKey(True), _BoolKey(False)

_TYPES: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    list: LIST,
    tuple: LIST,
    dict: MAP,
    type(None): NULL,
    Type: TYPE,
}
NUMBERS: frozenset[type] = frozenset((int, Uint, float))
_PLAIN: frozenset[type] = frozenset((str, bytes, bool, int, Uint, float, Timestamp, Duration, Type))


def type_of(value: Value) -> Type:
    """The type of a value, as `type()` gives it."""
    found = _TYPES.get(value.__class__)
    if found is not None:
        return found
    own: Type | None = getattr(value, "cel_type", None)
    if own is not None:
        return own
    if isinstance(value, dict):
        return MAP
    if isinstance(value, list | tuple):
        return LIST
    raise EvaluationError(f"unsupported value of class {value.__class__.__name__}")


def type_name(value: Value) -> str:
    """The name of a value's type, without parameters."""
    return type_of(value).name


def no_such_overload(function: str = "", *operands: Value) -> EvaluationError:
    """The error for operands that a function does not take."""
    if not function:
        return EvaluationError("no such overload")
    return EvaluationError(f"no such overload: {function}({', '.join(type_name(operand) for operand in operands)})")


def no_such_key(key: Value) -> EvaluationError:
    """The error for a key that a map does not have."""
    return EvaluationError(f"no such key: {show(key)}")


def show(value: Value) -> str:
    """A value inside an error message."""
    if value is True or value is False:
        return "true" if value else "false"
    if value is None:
        return "null"
    return str(value)


def equals(left: Value, right: Value) -> bool:
    """`left == right`: numbers by value whatever their types, other values of different types never."""
    kind, other = left.__class__, right.__class__
    if kind is other and kind in _PLAIN:
        return bool(left == right)
    if kind in NUMBERS:
        if other not in NUMBERS:
            return False
        # An integer meets a double as a double: near 2^63 several integers are equal to one double.
        return bool(left == right) if (kind is float) is (other is float) else float(left) == float(right)
    if left is None or right is None:
        return left is right
    if isinstance(left, list | tuple):
        if not isinstance(right, list | tuple):
            return False
        return left.same(right) if isinstance(left, OwnList) else _same_list(left, right)
    if isinstance(left, dict):
        return isinstance(right, dict) and _same_map(left, right)
    if kind is other:
        return bool(left == right)
    if kind not in _PLAIN and kind is not Optional:
        # Kubernetes' own types refuse to be compared with anything else (but other types do compare with them).
        raise no_such_overload()
    return False


def _same_list(left: list[Value] | tuple[Value, ...], right: list[Value] | tuple[Value, ...]) -> bool:
    return len(left) == len(right) and all(equals(one, other) for one, other in zip(left, right, strict=True))


def _same_map(left: dict[Any, Value], right: dict[Any, Value]) -> bool:
    if isinstance(left, Struct) and isinstance(right, Struct) and left.cel_type != right.cel_type:
        return False
    own, other = (left, right) if isinstance(left, OwnDict) else (right, left)
    if isinstance(own, OwnDict) and not own.same_unknown(other):
        return False
    return len(left) == len(right) and all(key in right and equals(value, right[key]) for key, value in left.items())


def map_key(value: Value) -> Any:
    """Convert a value to the key of a dict. Raises for values that cannot be keys."""
    kind = value.__class__
    if kind is str or kind is int or kind is Uint:
        return value
    if kind is bool:
        return _TRUE_KEY if value else _FALSE_KEY
    raise EvaluationError(f"unsupported key type: {type_name(value)}")


def lookup_key(value: Value) -> Any:
    """Like `map_key` for a key that is looked up: a double finds the integer that it equals."""
    if value.__class__ is float:
        return value
    return map_key(value)


def from_key(key: Any) -> Value:
    """The value that a dict's key stands for."""
    return key.value if key.__class__ is _BoolKey else key


def keys(value: dict[Any, Value]) -> Iterator[Value]:
    """A map's keys as values."""
    return (from_key(key) for key in value)


def contains(element: Value, container: Value) -> bool:
    """`element in container`."""
    if isinstance(container, list | tuple):
        return any(_is_element(element, item) for item in container)
    if isinstance(container, dict):
        kind = element.__class__
        if kind is str or kind is int or kind is Uint or kind is float:
            return element in container
        return kind is bool and map_key(element) in container
    raise no_such_overload("@in", element, container)


def _is_element(element: Value, item: Value) -> bool:
    # A list that compares in its own way is asked, wherever it stands.
    return equals_quietly(item, element) if isinstance(item, OwnList) else equals_quietly(element, item)


def equals_quietly(left: Value, right: Value) -> bool:
    """Whether two values are equal; those that cannot be compared are not."""
    try:
        return equals(left, right)
    except EvaluationError:
        return False


def index(container: Value, key: Value) -> Value:
    """`container[key]`."""
    if isinstance(container, dict):
        try:
            return container[lookup_key(key)]
        except KeyError:
            raise no_such_key(key) from None
    if isinstance(container, list | tuple):
        position = list_position(key)
        if position < 0 or position >= len(container):
            raise EvaluationError(f"index out of bounds: {position}")
        return container[position]
    if container.__class__ is Optional:
        return NONE if not container.present else find(container.value, key)
    raise no_such_key(key)


def list_position(key: Value) -> int:
    """A number as the position in a list."""
    if key.__class__ is int or key.__class__ is Uint:
        return int(key)
    if key.__class__ is float and key.is_integer():
        return int(key)
    raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")


def find(container: Value, key: Value) -> Optional:
    """`container[?key]`: the element if there is one. What has no elements has not this one either."""
    if container.__class__ is Optional:
        return NONE if not container.present else find(container.value, key)
    if isinstance(container, dict):
        finder: Callable[[Any], Value] | None = getattr(container, "find", None)
        known = lookup_key(key)
        if known in container:
            return Optional(container[known])
        return NONE if finder is None else Optional(finder(known))
    if isinstance(container, list | tuple):
        position = list_position(key)
        return Optional(container[position]) if 0 <= position < len(container) else NONE
    return NONE


def select(operand: Value, field: str) -> Value:
    """`operand.field`."""
    if isinstance(operand, dict):
        try:
            return operand[field]
        except KeyError:
            raise no_such_key(field) from None
    if operand.__class__ is Optional:
        return NONE if not operand.present else find_field(operand.value, field)
    if isinstance(operand, list | tuple):
        list_position(field)
    raise no_such_key(field)


def select_strictly(operand: Value, field: str) -> Value:
    """The same as the specification has it: what is in an optional value must have fields."""
    if operand.__class__ is Optional and operand.present and not isinstance(operand.value, dict):
        raise no_such_key(field)
    return select(operand, field)


def find_field(operand: Value, field: str) -> Optional:
    """`operand.?field`."""
    return find(operand, field)


def has_field(operand: Value, field: str) -> bool:
    """`has(operand.field)`."""
    if isinstance(operand, dict):
        return field in operand or hasattr(operand, "find")
    if operand.__class__ is Optional:
        return bool(operand.present) and has_field(operand.value, field)
    if isinstance(operand, list | tuple):
        list_position(field)
    return False


def has_strictly(operand: Value, field: str) -> bool:
    """The same as the specification has it: only maps and messages have fields."""
    inner = operand.value if operand.__class__ is Optional and operand.present else operand
    if not isinstance(inner, dict) and operand.__class__ is not Optional:
        raise no_such_overload()
    return has_field(operand, field)


def size(value: Value) -> int:
    """`size(value)` of a string, bytes, list or map."""
    if isinstance(value, str | bytes | list | tuple | dict):
        return len(value)
    raise no_such_overload("size", value)


def iterate(value: Value) -> Iterable[Value]:
    """The elements of a list or the keys of a map, as a macro visits them."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, dict):
        return list(keys(value))
    raise EvaluationError(f"got '{_go_type(value)}', expected iterable type")


def iterate_pairs(value: Value) -> Iterable[tuple[Value, Value]]:
    """Indices and elements of a list, or keys and values of a map."""
    if isinstance(value, list | tuple):
        return enumerate(value)
    if isinstance(value, dict):
        return [(from_key(key), item) for key, item in value.items()]
    raise EvaluationError(f"got '{_go_type(value)}', expected iterable type")


_GO_TYPES: dict[type, str] = {
    bool: "types.Bool",
    int: "types.Int",
    Uint: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    type(None): "types.Null",
    Timestamp: "types.Timestamp",
    Duration: "types.Duration",
    Optional: "*types.Optional",
    Type: "*types.Type",
}


def _go_type(value: Value) -> str:
    known = _GO_TYPES.get(value.__class__)
    return known if known is not None else f"cel.{value.__class__.__name__}"


def register(kind: type, cel_type: Type) -> None:
    """Let values of a class that knows nothing of CEL have a type."""
    _TYPES[kind] = cel_type
