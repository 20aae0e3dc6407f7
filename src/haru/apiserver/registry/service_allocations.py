"""Which addresses and ports of nodes the Services of a store have: what is free is known without a look at all of them.

Source: core/v1 Service allocators, as behaviour; the range is not stored, but derived from the Services.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import chain

from haru.apiserver.encoding.objects import shared
from haru.kube.meta import Obj
from haru.storage import Record, Store
from haru.storage.reflector import Reflector

SERVICE_NETWORK = ipaddress.IPv4Network("10.96.0.0/16")
NODE_PORTS = range(30000, 32768)
_FIRST = int(SERVICE_NETWORK.network_address)
_ADDRESSES = range(_FIRST + 256, _FIRST + SERVICE_NETWORK.num_addresses - 1)
_NAMED_ADDRESSES = range(_FIRST + 1, _FIRST + 256)
"""Left to those who ask for one by name (the API server's own, DNS), as long as there are others."""


class Numbers:
    """The numbers of a range: who holds each, and which are free."""

    def __init__(self, numbers: range, last: range = range(0)) -> None:
        """`last`: more numbers, which are given when there are no others."""
        self._numbers, self._last = numbers, last
        self.clear()

    def clear(self) -> None:
        """Nobody holds any."""
        self._holders: dict[int, set[str]] = {}
        self._next = self._numbers.start
        self._gaps: list[int] = []
        """The free ones below the next, in order."""

    def hold(self, number: int, key: str) -> None:
        """Somebody holds a number; of what was stored by others several may hold one."""
        if number not in self._holders and self._is_below_next(number):
            del self._gaps[bisect_left(self._gaps, number)]
        self._holders.setdefault(number, set()).add(key)
        while self._next in self._holders:
            self._next += 1

    def release(self, number: int, key: str) -> None:
        """Somebody holds a number no more."""
        holders = self._holders[number]
        holders.discard(key)
        if not holders:
            del self._holders[number]
            if self._is_below_next(number):
                insort(self._gaps, number)

    def is_held(self, number: int, but: str) -> bool:
        """Whether somebody else holds a number."""
        return any(key != but for key in self._holders.get(number, ()))

    def free(self) -> Iterator[int]:
        """The free numbers, the lowest first."""
        others = chain(range(self._next, self._numbers.stop), self._last)
        return chain(self._gaps, (number for number in others if number not in self._holders))

    def _is_below_next(self, number: int) -> bool:
        return self._numbers.start <= number < self._next


class ServiceAllocations:
    """What the Services of a store hold, each under the key of its record."""

    def __init__(self, store: Store) -> None:
        self.addresses = Numbers(_ADDRESSES, _NAMED_ADDRESSES)
        self.ports = Numbers(NODE_PORTS)
        self._followed = Reflector(store, "services/", self._begin, self._change)

    async def take_in(self) -> None:
        """Take in what was written since the last call."""
        await self._followed.take_in()

    def _begin(self) -> None:
        self.addresses.clear()
        self.ports.clear()

    def _change(self, old: Record | None, new: Record | None) -> None:
        for numbers, number, key in self._held(old):
            numbers.release(number, key)
        for numbers, number, key in self._held(new):
            numbers.hold(number, key)

    def _held(self, record: Record | None) -> Iterator[tuple[Numbers, int, str]]:
        if record is not None:
            spec = shared(record).get("spec") or {}
            yield from ((self.addresses, number, record.key) for number in addresses_of(spec))
            yield from ((self.ports, port, record.key) for port in ports_of(spec))


def addresses_of(spec: Obj) -> Iterable[int]:
    """The addresses of a Service in the network of Services."""
    return {number for address in spec.get("clusterIPs") or () if (number := address_number(address)) is not None}


def address_number(address: str) -> int | None:
    """The number of an address; None for what is none of the network of Services."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return None
    return int(found) if found in SERVICE_NETWORK else None


def ports_of(spec: Obj) -> set[int]:
    """The ports of nodes that a Service has."""
    return {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")} | (
        {spec["healthCheckNodePort"]} if spec.get("healthCheckNodePort") else set()
    )
