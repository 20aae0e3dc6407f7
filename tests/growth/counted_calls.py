"""Count what work costs, in steps of Python's interpreter, and hold it flat while a cluster grows.

A step is one instruction: a call counts, and so does each round of a loop that calls nothing. Counts are the same on
every machine, busy or not.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any

import pytest

SHORT = (10, 100)
LONG = (10, 100, 1000)
SIZES = [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.nightly)]
_TOOL = 4
FLAT = 2.0
"""The cost at the largest size is at most this many times that at the smallest."""


class Steps:
    """Counts the steps of this thread while it is entered, coroutines and generators that go on included."""

    def __init__(self) -> None:
        self.count = 0
        self.places: dict[str, int] = {}

    def __enter__(self) -> Steps:
        if sys.version_info >= (3, 12):  # where a trace function is not told each instruction of code that ran before
            self._thread, events = threading.get_ident(), sys.monitoring.events
            sys.monitoring.use_tool_id(_TOOL, "steps")
            sys.monitoring.register_callback(_TOOL, events.INSTRUCTION, self._monitor)
            sys.monitoring.set_events(_TOOL, events.INSTRUCTION)
        else:
            self._before = sys.gettrace()
            sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        if sys.version_info >= (3, 12):
            sys.monitoring.set_events(_TOOL, 0)
            sys.monitoring.register_callback(_TOOL, sys.monitoring.events.INSTRUCTION, None)
            sys.monitoring.free_tool_id(_TOOL)
        else:
            sys.settrace(self._before)

    def _monitor(self, code: CodeType, _: int) -> None:
        if threading.get_ident() == self._thread:
            self._step(code)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self._step(frame.f_code)
        return self._trace

    def _step(self, code: CodeType) -> None:
        self.count += 1
        where = f"{code.co_filename.rpartition('/haru/')[2]}:{code.co_name}"
        self.places[where] = self.places.get(where, 0) + 1


def steps(work: Callable[[], object]) -> Steps:
    """What some work takes."""
    with Steps() as counted:
        work()
    return counted


def assert_flat(costs: Mapping[int, Steps], what: str, most: float = FLAT) -> None:
    """Assert that the cost does not grow with the size; what grew most is told by function."""
    if told := growth(costs, what, most):
        pytest.fail(told)


def assert_all_flat(by_size: Mapping[int, Mapping[str, Steps]], most: float = FLAT) -> None:
    """Assert it of several pieces of work by name; all that grow are told."""
    names = next(iter(by_size.values()))
    told = [growth({size: costs[name] for size, costs in by_size.items()}, name, most) for name in names]
    if any(told):
        pytest.fail("\n".join(filter(None, told)))


def growth(costs: Mapping[int, Steps], what: str, most: float = FLAT) -> str:
    """How the cost grows with the size; nothing where it is flat."""
    few, many = costs[min(costs)], costs[max(costs)]
    if many.count <= most * few.count:
        return ""
    grown = {where: count - few.places.get(where, 0) for where, count in many.places.items()}
    worst = sorted(grown.items(), key=lambda each: -each[1])[:5]
    told = ", ".join(f"{size}: {cost.count}" for size, cost in sorted(costs.items()))
    return f"{what} takes steps by size: {told}; most of it in {worst}"
