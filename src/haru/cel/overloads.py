"""Declare the signatures of functions, each with its implementation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from haru.cel.errors import EvaluationError
from haru.cel.types import Type

Implementation = Callable[..., Any]


class Overload:
    """One signature of a function. `impl` takes the operands' values, the target first."""

    __slots__ = ("id", "impl", "member", "params", "result", "type_params")

    def __init__(self, id: str, params: Sequence[Type], result: Type, impl: Implementation, member: bool) -> None:
        self.id = id
        self.params = tuple(params)
        self.result = result
        self.impl = impl
        self.member = member
        self.type_params = frozenset(_params_in([*params, result]))
        """The names of the type parameters in the signature."""


def _params_in(types: Sequence[Type]) -> set[str]:
    found: set[str] = set()
    for value in types:
        found |= {value.name} if value.kind == "param" else _params_in(value.params)
    return found


def function(id: str, params: Sequence[Type], result: Type, impl: Implementation) -> Overload:
    """An overload that is called as `f(a, b)`."""
    return Overload(id, params, result, impl, member=False)


def member(id: str, params: Sequence[Type], result: Type, impl: Implementation) -> Overload:
    """An overload that is called as `a.f(b)`; the first parameter is the target."""
    return Overload(id, params, result, impl, member=True)


def accepted_by(parse: Callable[[str], Any]) -> Implementation:
    """The function that says whether `parse` takes a text."""

    def accepted(text: str) -> bool:
        try:
            parse(text)
        except (EvaluationError, ValueError):
            return False
        return True

    return accepted
