"""Which addresses and ports of nodes the Services of a store have: what is free is known without a look at all of them.

An address is held by a Service, and by the IPAddress of its name; each ServiceCIDR that is ready gives addresses out.
Source: core/v1 Service allocators and KEP 1880, as behaviour; ports are not stored, but derived from the Services.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from haru.apiserver.encoding.objects import shared
from haru.kube.meta import Obj
from haru.kube.service_networks import (
    DEFAULT,
    Network,
    address,
    addresses_of,
    bands,
    gives_out,
    holds,
    networks_of,
)
from haru.storage import Record, Store
from haru.storage.reflector import Reflector

SERVICE_NETWORK = ipaddress.IPv4Network("10.96.0.0/16")
"""Of the ServiceCIDR `kubernetes`."""
NODE_PORTS = range(30000, 32768)
SERVICES, IP_ADDRESSES, CIDRS = "services/", "ipaddresses.networking.k8s.io/", "servicecidrs.networking.k8s.io/"
_FAMILY = SERVICE_NETWORK.version


class Numbers:
    """The numbers of a range: who holds each, and which are free."""

    def __init__(self, numbers: range, last: range = range(0)) -> None:
        """`last`: more numbers, which are given when there are no others."""
        self._numbers, self._last = numbers, last
        self._holders: dict[int, set[str]] = {}
        self._next = numbers.start
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

    def held(self) -> list[tuple[int, str]]:
        """Who holds what."""
        return [(number, key) for number, holders in self._holders.items() for key in holders]

    def is_held(self, number: int, but: str) -> bool:
        """Whether somebody else holds a number."""
        return any(key != but for key in self._holders.get(number, ()))

    def free(self) -> Iterator[int]:
        """The free numbers, the lowest first."""
        others = chain(range(self._next, self._numbers.stop), self._last)
        return chain(self._gaps, (number for number in others if number not in self._holders))

    def _is_below_next(self, number: int) -> bool:
        return self._numbers.start <= number < self._next


class _Cidr(NamedTuple):
    networks: Sequence[Network]
    gives_out: bool


class Addresses:
    """The addresses of Services in the networks that give them out, which may overlap."""

    def __init__(self) -> None:
        self._all = Numbers(range(0))
        self._cidrs: dict[str, _Cidr] = {}
        self._networks: dict[Network, Numbers] = {}
        self._set_cidrs({})

    def hold(self, number: int, key: str) -> None:
        """Somebody holds an address."""
        self._all.hold(number, key)
        for numbers in self._within(number):
            numbers.hold(number, key)

    def release(self, number: int, key: str) -> None:
        """Somebody holds an address no more."""
        self._all.release(number, key)
        for numbers in self._within(number):
            numbers.release(number, key)

    def held(self) -> list[tuple[int, str]]:
        """Who holds what."""
        return self._all.held()

    def is_held(self, number: int, but: str) -> bool:
        """Whether somebody else holds an address."""
        return self._all.is_held(number, but)

    def is_given_out(self, number: int) -> bool:
        """Whether a network gives this address out."""
        return any(True for _ in self._within(number))

    def free(self) -> Iterator[int]:
        """The free addresses: of the network that every cluster has first, and of each the lowest first."""
        return chain.from_iterable(numbers.free() for numbers in self._networks.values())

    def change_cidr(self, key: str, cidr: Obj | None) -> None:
        """A ServiceCIDR is there, is other than before, or is gone."""
        cidrs = {name: known for name, known in self._cidrs.items() if name != key}
        if cidr is not None:
            ours = [network for network in networks_of(cidr) if network.version == _FAMILY]
            cidrs[key] = _Cidr(ours, gives_out(cidr))
        if cidrs != self._cidrs:
            self._set_cidrs(cidrs)

    def forget_cidrs(self) -> None:
        """There is none any more."""
        self._set_cidrs({})

    def _set_cidrs(self, cidrs: dict[str, _Cidr]) -> None:
        """Before the server has made the first one, its network gives addresses out all the same."""
        self._cidrs = cidrs
        ordered = sorted(cidrs, key=lambda key: (key != CIDRS + DEFAULT, key))
        ready = [network for key in ordered if cidrs[key].gives_out for network in cidrs[key].networks]
        before, self._networks = self._networks, {}
        for network in ready if cidrs else [SERVICE_NETWORK]:
            self._networks[network] = before.get(network) or self._filled(network)

    def _filled(self, network: Network) -> Numbers:
        numbers = Numbers(*bands(network))
        for number, key in self._all.held():
            if holds(network, ipaddress.IPv4Address(number)):
                numbers.hold(number, key)
        return numbers

    def _within(self, number: int) -> Iterator[Numbers]:
        """The networks that give this address out."""
        address = ipaddress.IPv4Address(number)
        return (numbers for network, numbers in self._networks.items() if holds(network, address))


class ServiceAllocations:
    """What the Services of a store hold, each under the key of its record."""

    def __init__(self, store: Store) -> None:
        self.addresses = Addresses()
        self.ports = Numbers(NODE_PORTS)
        self._followed = (
            Reflector(store, CIDRS, self.addresses.forget_cidrs, self._change_cidr),
            *(Reflector(store, each, partial(self._begin, each), self._change) for each in (SERVICES, IP_ADDRESSES)),
        )

    async def take_in(self) -> None:
        """Take in what was written since the last call."""
        for each in self._followed:
            await each.take_in()

    def _begin(self, prefix: str) -> None:
        for numbers in (self.addresses, self.ports):
            for number, key in numbers.held():
                if key.startswith(prefix):
                    numbers.release(number, key)

    def _change_cidr(self, old: Record | None, new: Record | None) -> None:
        record = new or old
        assert record is not None
        self.addresses.change_cidr(record.key, shared(new) if new is not None else None)

    def _change(self, old: Record | None, new: Record | None) -> None:
        for numbers, number, key in self._held(old):
            numbers.release(number, key)
        for numbers, number, key in self._held(new):
            numbers.hold(number, key)

    def _held(self, record: Record | None) -> Iterator[tuple[Addresses | Numbers, int, str]]:
        if record is None:
            return
        if record.key.startswith(IP_ADDRESSES):
            texts: Iterable[str] = (record.key.removeprefix(IP_ADDRESSES),)
        else:
            service = shared(record)
            texts = addresses_of(service)
            yield from ((self.ports, port, record.key) for port in ports_of(service.get("spec") or {}))
        numbers = {address_number(text) for text in texts} - {None}
        yield from ((self.addresses, number, record.key) for number in numbers if number is not None)


def address_number(text: str) -> int | None:
    """The number of an address; None for what is none of the family of Services."""
    found = address(text)
    return int(found) if found is not None and found.version == _FAMILY else None


def ports_of(spec: Obj) -> set[int]:
    """The ports of nodes that a Service has."""
    return {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")} | (
        {spec["healthCheckNodePort"]} if spec.get("healthCheckNodePort") else set()
    )
