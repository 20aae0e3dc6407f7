"""Which devices a class and a request select, evaluated once per distinct device and remembered.

A selection is named by its expressions, so a changed class is another selection and nothing has to be invalidated.
Its results are kept per combination of what the expression reads, per shape and, as a column, per pool view.
An error is a result like any other: it counts only when the search comes upon the device.
Source: KEP-4381; errors are worded as kube-scheduler 1.36 does.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

from haru.cel.device import CompileError, DeviceView, EvaluationError, compile_device_selector
from haru.engine.devices.model import Shape
from haru.engine.devices.pools import PoolView
from haru.engine.devices.reads import Projection, names_read, whole

_MAX_COLUMNS = 256


class SelectionError(NamedTuple):
    """A selector that cannot be compiled or failed on a device: which one, of the class or the request, and why."""

    of_class: bool
    number: int
    message: str


Verdict = bool | SelectionError


class Selection(NamedTuple):
    """The selectors that a device has to satisfy: first those of the class, then the request's."""

    class_expressions: tuple[str | None, ...]
    request_expressions: tuple[str | None, ...]
    lists: bool
    consumable: bool

    def column(self, view: PoolView) -> Sequence[Verdict]:
        """The verdict for each device of a pool view."""
        found: list[Verdict] | None = view.columns.get(self)
        if found is None:
            if len(view.columns) >= _MAX_COLUMNS:
                view.columns.clear()
            known = _known(_verdicts, self)
            found = view.columns[self] = []
            for device in view.devices:
                verdict = known.get(device.shape)
                if verdict is None:
                    verdict = known[device.shape] = self.verdict(device.shape)
                found.append(verdict)
            if len(known) > _MAX_RESULTS:
                known.clear()
        return found

    def verdict(self, shape: Shape) -> Verdict:
        """Whether devices of this shape are selected."""
        for of_class, selectors in ((True, self.class_expressions), (False, self.request_expressions)):
            for number, expression in enumerate(selectors):
                result = evaluate(expression, shape, self.lists, self.consumable)
                if isinstance(result, str):
                    return SelectionError(of_class, number, result)
                if not result:
                    return False
        return True


_MAX_RESULTS = 65536
_results: dict[tuple[str, bool, bool], dict[Projection, bool | str]] = {}
_verdicts: dict[Selection, dict[Shape, Verdict]] = {}

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def evaluate(expression: str | None, shape: Shape, lists: bool, consumable: bool) -> bool | str:
    """What one expression says of a shape: true, false, or the text of an error."""
    if expression is None:
        return "CEL expression empty (unsupported selector type?)"
    names = names_read(expression, lists, consumable)
    seen = whole(shape) if names is None else names.of(shape)
    known = _known(_results, (expression, lists, consumable))
    result = known.get(seen)
    if result is None:
        if len(known) >= _MAX_RESULTS:
            known.clear()
        result = known[seen] = _evaluate(expression, seen, lists, consumable)
    return result


def _known(table: dict[K, dict[Any, V]], key: K) -> dict[Any, V]:
    found = table.get(key)
    if found is None:
        if len(table) >= _MAX_COLUMNS:
            table.clear()
        found = table[key] = {}
    return found


def _evaluate(expression: str, seen: Projection, lists: bool, consumable: bool) -> bool | str:
    try:
        # Expressions that are stored already are not compiled as new ones: what an older server let in stays valid.
        selector = compile_device_selector(expression, consumable_capacity=consumable, list_attributes=lists, new=False)
    except CompileError as error:
        return f"CEL compile error: {error}"
    capacity = {name: {"value": c.text} for name, c in seen.capacity}
    view = DeviceView(seen.driver, {name: a.raw for name, a in seen.attributes}, capacity, seen.shareable)
    try:
        return selector.matches(view)
    except EvaluationError as error:
        return f"CEL runtime error: {error}"
