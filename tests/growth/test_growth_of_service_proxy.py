"""What `haru proxy` does for a changed Service does not depend on how many Services there are."""

from __future__ import annotations

from typing import Any

import pytest
from counted_calls import SIZES, Steps, assert_all_flat, steps

from haru.service_proxy.change_tracker import FAMILIES, ChangeTracker
from haru.service_proxy.ruleset import ProxyOptions, base_rules
from haru.service_proxy.services import Place
from haru.service_proxy.table import Table

Obj = dict[str, Any]
PLACE, OPTIONS = Place("here", "a"), ProxyOptions("10.0.0.0/8")


def service(number: int, port: int = 80) -> Obj:
    address = f"10.96.{number // 250}.{number % 250}"
    ports = [{"name": "web", "port": port, "protocol": "TCP", "nodePort": 30_000 + number % 2000}]
    return {
        "metadata": {"namespace": "n", "name": f"s{number}"},
        "spec": {"clusterIP": address, "clusterIPs": [address], "ports": ports, "sessionAffinity": "ClientIP"},
    }


def slice_of(number: int, *hosts: int) -> Obj:
    return {
        "metadata": {
            "namespace": "n",
            "name": f"s{number}-1",
            "labels": {"kubernetes.io/service-name": f"s{number}"},
        },
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [f"10.{host}.{number // 250}.{number % 250}"], "nodeName": "here"} for host in hosts
        ],
        "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}],
    }


class Proxy:
    """The pure part of a proxy, with many Services."""

    def __init__(self, size: int) -> None:
        self.tracker, self.time = ChangeTracker(), 0.0
        for number in range(size):
            self.tracker.note_service(None, service(number))
            self.tracker.note_slice(None, slice_of(number, 1, 2))
        rules = self.tracker.rules(self.tracker.everything(), PLACE, OPTIONS)
        self.tables = {family: Table(family, base_rules(family, OPTIONS)) for family in FAMILIES}
        for family, table in self.tables.items():
            list(table.create(rules[family]))

    def sync(self) -> list[str]:
        """The commands for what has changed."""
        self.time += 10.0
        lines = [line for table in self.tables.values() for line in table.delete_rested(self.time)]
        rules = self.tracker.rules(self.tracker.take(), PLACE, OPTIONS)
        return lines + [
            line for family, table in self.tables.items() for line in table.update(rules[family], self.time)
        ]

    def endpoints_change(self) -> None:
        self.tracker.note_slice(slice_of(5, 1, 2), slice_of(5, 2, 3))
        assert self.sync()

    def service_changes(self) -> None:
        self.tracker.note_service(service(6), service(6, 81))
        assert self.sync()

    def service_goes_and_comes(self) -> None:
        self.tracker.note_service(service(7), None)
        self.tracker.note_slice(slice_of(7, 1, 2), None)
        assert self.sync()
        self.tracker.note_service(None, service(7))
        self.tracker.note_slice(None, slice_of(7, 1, 2))
        assert self.sync()


@pytest.mark.parametrize("sizes", SIZES)
def test_cost_of_changed_service_does_not_grow_with_services(sizes: tuple[int, ...]) -> None:
    costs: dict[int, dict[str, Steps]] = {}
    for size in sizes:
        proxy = Proxy(size)
        work = (proxy.endpoints_change, proxy.service_changes, proxy.service_goes_and_comes)
        costs[size] = {each.__name__: steps(each) for each in work}
    assert_all_flat(costs, most=1.1)


def test_services_that_have_gone_leave_nothing() -> None:
    proxy = Proxy(3)
    held: list[int] = []
    for number in range(100, 130):
        proxy.tracker.note_service(None, service(number))
        proxy.tracker.note_slice(None, slice_of(number, 1, 2))
        assert proxy.sync()
        proxy.tracker.note_service(service(number), None)
        proxy.tracker.note_slice(slice_of(number, 1, 2), None)
        assert proxy.sync()
        parts = (proxy.tracker, *proxy.tables.values())
        held.append(sum(len(kept) for part in parts for kept in vars(part).values() if isinstance(kept, dict | set)))
    assert held[5:] == [held[5]] * 25
