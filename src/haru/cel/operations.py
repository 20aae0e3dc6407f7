"""Which values an overload takes, and how a call finds its overload while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from haru.cel.overloads import Overload
from haru.cel.types import Type
from haru.cel.values import Duration, Optional, Timestamp, Uint, Value, no_such_overload, type_of

Frame = list[Any]
Run = Callable[[Frame], Any]
Test = Callable[[Value], bool]

_CLASSES: dict[str, frozenset[type]] = {
    "bool": frozenset((bool,)),
    "int": frozenset((int,)),
    "uint": frozenset((Uint,)),
    "double": frozenset((float,)),
    "string": frozenset((str,)),
    "bytes": frozenset((bytes,)),
    "null": frozenset((type(None),)),
    "timestamp": frozenset((Timestamp,)),
    "duration": frozenset((Duration,)),
    "type": frozenset((Type,)),
}


def is_exact(static: Type | None) -> bool:
    """Whether a static type says which Python class a value will have."""
    return static is not None and static.kind not in ("dyn", "any", "error", "param")


def acceptance(param: Type) -> Test | None:
    """A test for values of a parameter's type; None where every value will do."""
    kind = param.kind
    if kind in ("dyn", "any", "param"):
        return None
    if kind == "map":
        return lambda value: isinstance(value, dict)
    if kind == "list":
        return lambda value: isinstance(value, list | tuple)
    if kind == "opaque" and param.name == "optional_type":
        return lambda value: value.__class__ is Optional
    classes = _CLASSES.get(kind)
    if classes is not None:
        known = classes
        return lambda value: value.__class__ in known
    name = param.name
    return lambda value: type_of(value).name == name


def dispatcher(function: str, overloads: Sequence[Overload]) -> Callable[..., Any]:
    """One implementation out of several: the first overload that takes the values."""
    table = [(tuple(acceptance(param) for param in overload.params), overload.impl) for overload in overloads]

    def find(values: Sequence[Value]) -> Callable[..., Any]:
        for tests, impl in table:
            if len(tests) == len(values) and all(
                test is None or test(value) for test, value in zip(tests, values, strict=True)
            ):
                return impl
        raise no_such_overload(function, *values)

    if not all(_by_class(param) for overload in overloads for param in overload.params):
        return lambda *values: find(values)(*values)
    if overloads and all(len(overload.params) == 1 for overload in overloads):
        return _of_one(lambda value: find((value,)))
    known: dict[tuple[type, ...], Callable[..., Any]] = {}

    def call(*values: Value) -> Value:
        classes = tuple([value.__class__ for value in values])
        impl = known.get(classes)
        if impl is None:
            impl = known[classes] = find(values)
        return impl(*values)

    return call


def _of_one(find: Callable[[Value], Callable[[Value], Value]]) -> Callable[[Value], Value]:
    known: dict[type, Callable[[Value], Value]] = {}

    def call(value: Value) -> Value:
        impl = known.get(value.__class__)
        if impl is None:
            impl = known[value.__class__] = find(value)
        return impl(value)

    return call


def _by_class(param: Type) -> bool:
    """Whether a value's class alone says if it is taken for a parameter."""
    return (
        param.kind in ("dyn", "any", "param", "map", "list")
        or param.kind in _CLASSES
        or (param.kind == "opaque" and param.name == "optional_type")
    )


def fits(overload: Overload, types: Sequence[Type | None]) -> bool:
    """Whether the static types alone prove that an overload takes the values."""
    return len(overload.params) == len(types) and all(
        param.kind in ("dyn", "any", "param") or is_exact(static)
        for param, static in zip(overload.params, types, strict=True)
    )
