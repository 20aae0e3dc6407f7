"""The types of what callers of the Python API pass in: an argument of another type is refused where it is given."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from numbers import Real
from pathlib import Path
from types import UnionType
from typing import Any, Final, ParamSpec, TypeVar, get_args, get_origin

from haru.errors import InputError

_P = ParamSpec("_P")
_R = TypeVar("_R")

_WIDER: Final[Mapping[Any, type]] = {Any: object, dict: Mapping, float: Real, Path: os.PathLike}
"""What serves as well as the type that is annotated."""


def checks_types(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a function raise InputError that names the argument whose type is not the annotated one."""

    @wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        signature = inspect.signature(function)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            parameter = signature.parameters[name]
            if parameter.annotation is inspect.Parameter.empty:  # self, cls
                continue
            for each in value if parameter.kind is inspect.Parameter.VAR_POSITIONAL else (value,):
                check_type(f"{function.__name__}: {name}", each, parameter.annotation, function.__globals__)
        return function(*args, **kwargs)

    return checked


def check_type(where: str, value: object, annotation: str, names: dict[str, Any]) -> None:
    """Raise InputError unless a value is of an annotated type; one with names for type checkers only is passed over."""
    try:
        hint = eval(annotation, names)
    except NameError:
        return
    classes = tuple(_classes(hint))
    if not isinstance(value, classes):
        asked = " or ".join(dict.fromkeys("None" if one is type(None) else one.__name__ for one in classes))
        raise InputError(f"{where}: give {asked}, not {type(value).__name__}: {value!r}")


def _classes(hint: Any) -> Iterator[type]:
    if isinstance(hint, UnionType):
        for part in get_args(hint):
            yield from _classes(part)
    elif hint is None:
        yield type(None)
    else:
        origin = get_origin(hint) or hint
        yield _WIDER.get(origin, origin)
