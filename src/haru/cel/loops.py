"""Loops of macros, directly rather than through the folds that the macros expand to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from haru.cel.errors import EvaluationError
from haru.cel.operations import Frame, Run
from haru.cel.values import Value, iterate, iterate_pairs, no_such_overload


def singles(ranged: Run) -> Callable[[Frame], Any]:
    """The visited elements, each with a second value that nobody uses."""
    return lambda frame: ((element, None) for element in iterate(ranged(frame)))


def pairs(ranged: Run) -> Callable[[Frame], Any]:
    """The visited pairs."""
    return lambda frame: iterate_pairs(ranged(frame))


def loop(macro: str, ranged: Run, slots: tuple[int, int], predicate: Run | None, transform: Run | None) -> Run:
    """The loop of a macro."""
    first, second = slots

    def visit(frame: Frame) -> Any:
        if second:
            for one, other in iterate_pairs(ranged(frame)):
                frame[first] = one
                frame[second] = other
                yield
        else:
            for element in iterate(ranged(frame)):
                frame[first] = element
                yield

    if macro == "map":
        assert transform is not None
        return _collect(visit, predicate, transform)
    assert predicate is not None
    if macro == "exists_one":
        return _count_one(visit, predicate)
    return _quantify(visit, predicate, decisive=macro == "exists")


def _quantify(visit: Callable[[Frame], Any], predicate: Run, decisive: bool) -> Run:
    def run(frame: Frame) -> bool:
        error: EvaluationError | None = None
        for _ in visit(frame):
            try:
                value = predicate(frame)
            except EvaluationError as caught:
                error = error or caught
                continue
            if value is decisive:
                return bool(decisive)
            if value.__class__ is not bool:
                error = error or EvaluationError("no such overload")
        if error is not None:
            try:
                raise error
            finally:
                del error  # knows this frame, which must not hold it
        return not decisive

    return run


def _count_one(visit: Callable[[Frame], Any], predicate: Run) -> Run:
    def run(frame: Frame) -> bool:
        found = 0
        for _ in visit(frame):
            value = predicate(frame)
            if value is True:
                found += 1
            elif value is not False:
                raise no_such_overload()
        return found == 1

    return run


def _collect(visit: Callable[[Frame], Any], predicate: Run | None, transform: Run) -> Run:
    def run(frame: Frame) -> list[Value]:
        made: list[Value] = []
        for _ in visit(frame):
            if predicate is not None:
                chosen = predicate(frame)
                if chosen is False:
                    continue
                if chosen is not True:
                    raise no_such_overload()
            made.append(transform(frame))
        return made

    return run
