"""The devices that a request may get, found as far as the search looks.

`Candidates` are the devices of a table that meet every condition which a device meets by itself; nodes with equal
devices share them. A `SubrequestPlan` is a request on one node: of these candidates, those that meet the conditions of
the node. Both are filled device by device, because most searches end after the first few.
Source: KEP-4381; the conditions are in `conditions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from haru.engine.dra.allocator.conditions import device_checks
from haru.engine.dra.model.claims import ALL, SubRequest
from haru.engine.dra.model.model import Features
from haru.engine.dra.pools.device_table import DeviceTable
from haru.engine.dra.selectors.compiled_selectors import SelectionError, compiled_selector_of

_MAX_OFFERS = 256
_FEW = 12
"""Devices judged one by one, before the others are judged all at once."""


class ListedCandidates:
    """The candidates among some devices of a table, by index; all of them are known."""

    __slots__ = ("complete", "errors", "found")

    def __init__(self, found: list[int], errors: dict[int, SelectionError]) -> None:
        self.found = found
        self.complete = True
        self.errors = errors

    def get(self, number: int) -> int | None:
        """Return a candidate by its number; None after the last one."""
        return self.found[number] if number < len(self.found) else None


class Candidates:
    """The indexes of a table's candidates, ascending: `found` so far; `errors` are those where a selector fails.

    An error counts when the search reaches it, even if the device breaks another condition (except `hides_errors`).
    """

    __slots__ = ("_ask", "_features", "_rest", "_table", "complete", "errors", "found")

    def __init__(self, table: DeviceTable, ask: SubRequest, features: Features) -> None:
        self.found: list[int] = []
        self.complete = False
        """Whether the whole table was looked through."""
        self.errors: dict[int, SelectionError] = {}
        self._table = table
        self._ask = ask
        self._features = features
        self._rest = self._among(range(len(table.devices)))

    def get(self, number: int) -> int | None:
        """Return a candidate by its number; None after the last one."""
        found = self.found
        if number == len(found):
            index = next(self._rest, None)
            if index is None:
                self.complete = True
                return None
            found.append(index)
        return found[number]

    def all(self) -> Sequence[int]:
        """Return all candidates."""
        self.found.extend(self._rest)
        self.complete = True
        return self.found

    def listed(self, indexes: Iterable[int]) -> ListedCandidates:
        """Return the candidates among some devices; no other device is looked at."""
        return ListedCandidates(list(self._among(indexes)), self.errors)

    def _among(self, indexes: Iterable[int]) -> Iterator[int]:
        table, ask, features = self._table, self._ask, self._features
        selector, devices = compiled_selector_of(ask.selection, table.tables.cache), table.devices
        hiding, others = device_checks(table, ask, features)
        for count, index in enumerate(indexes):
            if count == _FEW:
                selector.learn(table)
            device = devices[index]
            verdict = selector.verdict(device.shape)
            if verdict is False or (hiding and not all(met(device, ask, features) for met in hiding)):
                continue
            if verdict is not True:
                self.errors[index] = verdict
            elif others and not all(met(device, ask, features) for met in others):
                continue
            yield index


def candidates_of(table: DeviceTable, ask: SubRequest, features: Features) -> Candidates:
    """What a table offers to an ask; asks that are alike share it."""
    key = (ask.selection, ask.wanted, ask.tolerations, features)
    return table.cache.get_or_compute("candidates", key, lambda: Candidates(table, ask, features), _MAX_OFFERS)


class SubrequestPlan:
    """An ask on one node, numbered from 1 on, with its candidates in ascending order: `found` so far, and `rest`.

    For mode All the candidates are exactly what is needed. `errors` are those candidates that abort the attempt when
    they are reached, by position, `constraints` the claim's constraints that apply, by index.
    """

    __slots__ = ("_rest", "ask", "constraints", "errors", "found", "needed", "number", "takes_all")

    def __init__(
        self,
        number: int,
        ask: SubRequest,
        constraints: tuple[int, ...],
        found: list[int],
        errors: dict[int, str],
        rest: Iterator[int] | None = None,
    ) -> None:
        self.number = number
        self.ask = ask
        self.constraints = constraints
        self.found = found
        self.errors = errors
        self._rest = rest
        self.takes_all = ask.mode == ALL
        self.needed = len(self.found) if self.takes_all else ask.count

    def more(self) -> bool:
        """Look for another candidate; whether there is one."""
        if self._rest is None:
            return False
        position = next(self._rest, None)
        if position is None:
            self._rest = None
            return False
        self.found.append(position)
        return True

    def stop_looking(self) -> None:
        """Take what has been found so far for all candidates."""
        self._rest = None

    @property
    def candidates(self) -> Sequence[int]:
        """All candidates."""
        if self._rest is not None:
            self.found.extend(self._rest)
            self._rest = None
        return self.found

    def moved(self, places: Sequence[int]) -> SubrequestPlan:
        """Return the plan with each candidate at another position."""
        found = [places[position] for position in self.candidates]
        if not self.takes_all:  # where all are taken, they are listed as ever
            found.sort()
        errors = {places[position]: text for position, text in self.errors.items()}
        return SubrequestPlan(self.number, self.ask, self.constraints, found, errors)

    @property
    def faulty(self) -> bool:
        """Whether some candidate aborts the attempt when it is reached."""
        return bool(self.candidates and self.errors)
