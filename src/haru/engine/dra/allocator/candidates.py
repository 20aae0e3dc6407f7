"""The devices that an ask may have, found as far as the search gets.

An `Offer` is what a table's devices say for themselves: selected, offered with the gates as they are, large enough,
not tainted; nodes with equal devices share it. A `Plan` is an ask on one node: its candidates are the offered devices
that are not taken. Both are filled device by device, for most searches end after the first few.
Source: KEP-4381, 5007 (binding conditions), 5055 (taints), 5075 (capacity).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.engine.dra.allocator.consumable_capacity import fits
from haru.engine.dra.model.claims import ALL, SubRequest
from haru.engine.dra.model.model import Features
from haru.engine.dra.pools.device_table import DeviceTable
from haru.engine.dra.selectors.compiled_selectors import SelectionError, compiled_selector_of
from haru.engine.dra.taints import untolerated

_MAX_OFFERS = 256
_FEW = 12
"""Devices judged one by one, before the others are judged all at once."""


class Candidates:
    """Ascending places in a table: `found` as far as it was looked through; `errors` are those where a selector fails.

    An error counts when the search reaches it, whatever else speaks against the device.
    """

    __slots__ = ("_rest", "complete", "errors", "found")

    def __init__(self, table: DeviceTable, ask: SubRequest, features: Features) -> None:
        self.found: list[int] = []
        self.complete = False
        """Whether the whole table was looked through."""
        self.errors: dict[int, SelectionError] = {}
        self._rest = self._scan(table, ask, features)

    def __iter__(self) -> Iterator[int]:
        index, found = 0, self.found
        while index < len(found) or next(self._rest, None) is not None:
            yield found[index]
            index += 1

    def _scan(self, table: DeviceTable, ask: SubRequest, features: Features) -> Iterator[int]:
        judge = compiled_selector_of(ask.selection, table.tables.cache)
        conditional, taints = features.DeviceBindingAndStatus, features.DeviceTaints
        capacity, counters = features.ConsumableCapacity, features.PartitionableDevices
        wanted, tolerations, found = ask.wanted, ask.tolerations, self.found
        for index, device in enumerate(table.devices):
            if index == _FEW:
                judge.learn(table)
            verdict = judge.verdict(device.shape)
            if verdict is False or not (conditional or device.binding is None or not device.binding.conditions):
                continue
            if verdict is not True:
                self.errors[index] = verdict
            elif (
                (capacity and not fits(device.shape, wanted, None))
                or (device.consumes and not counters)
                or (taints and device.taints and untolerated(device.taints, tolerations))
            ):
                continue
            found.append(index)
            yield index
        self.complete = True


def candidates_of(table: DeviceTable, ask: SubRequest, features: Features) -> Candidates:
    """What a table offers to an ask; asks that are alike share it."""
    key = (ask.selection, ask.wanted, ask.tolerations, features)
    return table.cache.get_or_compute("candidates", key, lambda: Candidates(table, ask, features), _MAX_OFFERS)


class SubrequestPlan:
    """An ask on one node, numbered from 1 on, with its candidates in ascending order.

    For mode All the candidates are exactly what is needed. `errors` are those candidates that abort the attempt when
    they are reached, `constraints` the claim's constraints that apply, by index.
    """

    __slots__ = ("_rest", "ask", "constraints", "errors", "found", "needed", "number", "takes_all")

    def __init__(
        self,
        number: int,
        ask: SubRequest,
        constraints: tuple[int, ...],
        found: list[int],
        rest: Iterator[int] | None,
        errors: dict[int, str],
    ) -> None:
        self.number = number
        self.ask = ask
        self.constraints = constraints
        self.found = found
        """The candidates that were looked for so far."""
        self.errors = errors
        self.takes_all = ask.mode == ALL
        self.needed = len(found) if self.takes_all else ask.count
        self._rest = rest

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

    @property
    def candidates(self) -> Sequence[int]:
        """All candidates."""
        if self._rest is not None:
            self.found.extend(self._rest)
            self._rest = None
        return self.found

    @property
    def faulty(self) -> bool:
        """Whether some candidate aborts the attempt when it is reached."""
        return bool(self.candidates and self.errors)
