"""Every transaction leads from what stood in the table to what is wanted, and costs what changed."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from haru.service_proxy.ruleset import TABLE, ProxyOptions, Rules, base_rules, service_rules
from haru.service_proxy.services import Endpoint, ServicePort
from haru.service_proxy.table import Table

BASE = base_rules("ip", ProxyOptions())
PLACES = [Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080), Endpoint("10.0.0.3", 9)]


class Kernel:
    """What nftables has of one table, and what it refuses: names that are not there, or still used."""

    def __init__(self) -> None:
        self.chains: dict[str, list[str]] = {}
        self.containers: dict[str, dict[str, str]] = {}

    def run(self, lines: list[str]) -> None:
        for line in lines:
            verb, kind, family, table, *rest = line.split(" ", 5)
            assert (family, table) == ("ip", TABLE)
            getattr(self, f"_{verb}_{kind}")(*rest)
        # What is referred to must be there when all is done, as it must be at each step.
        for rule in self._uses():
            assert set(re.findall(r"(?:goto|jump) ([\w-]+)", rule)) <= self.chains.keys()
            assert set(re.findall(r"@([\w-]+)", rule)) <= self.containers.keys()

    def _uses(self) -> list[str]:
        used = [rule for rules in self.chains.values() for rule in rules]
        return used + [verdict for elements in self.containers.values() for verdict in elements.values()]

    def _add_table(self) -> None: ...

    def _delete_table(self) -> None:
        self.__init__()  # type: ignore[misc]

    def _flush_table(self) -> None:
        for rules in self.chains.values():
            rules.clear()

    def _add_set(self, name: str, _body: str) -> None:
        self.containers.setdefault(name, {})

    _add_map = _add_set

    def _flush_set(self, name: str) -> None:
        self.containers[name].clear()

    _flush_map = _flush_set

    def _delete_set(self, name: str) -> None:
        assert not any(f"@{name}" in rule for rule in self._uses())
        del self.containers[name]

    def _add_chain(self, name: str, _hook: str = "") -> None:
        self.chains.setdefault(name, [])

    def _flush_chain(self, name: str) -> None:
        self.chains[name] = []

    def _add_rule(self, chain: str, rule: str) -> None:
        assert set(re.findall(r"(?:goto|jump) ([\w-]+)", rule)) <= self.chains.keys(), rule
        assert set(re.findall(r"@([\w-]+)", rule)) <= self.containers.keys(), rule
        self.chains[chain].append(rule)

    def _delete_chain(self, name: str) -> None:
        assert not self.chains[name]
        assert not any(re.search(rf"(goto|jump) {name}\b", one) for one in self._uses()), name
        del self.chains[name]

    def _add_element(self, name: str, body: str) -> None:
        key, _, verdict = body.strip("{} ").partition(" : ")
        assert key not in self.containers[name]
        assert verdict in ("", "drop") or verdict.removeprefix("goto ") in self.chains
        self.containers[name][key] = verdict

    def _delete_element(self, name: str, body: str) -> None:
        del self.containers[name][body.strip("{} ")]


@st.composite
def services(draw: st.DrawFn) -> dict[str, Rules]:
    """Services of which some want the same external address and the same endpoints, and their rules."""
    found = {}
    endpoints = st.lists(st.sampled_from(PLACES), unique=True, max_size=3).map(tuple)
    for number in draw(st.lists(st.integers(0, 3), unique=True)):
        cluster = draw(endpoints)
        balancer_ips = draw(st.sampled_from([(), ("192.0.2.9",)]))
        port = ServicePort(
            f"n/s{number}:",
            "tcp",
            80,
            f"10.96.0.{number}",
            draw(st.sampled_from([(), ("192.0.2.1",)])),
            balancer_ips,
            ("10.1.0.0/16",) if balancer_ips and draw(st.booleans()) else (),
            draw(st.sampled_from([0, 30_000])),
            cluster,
            cluster[: draw(st.integers(0, 3))],
            cluster[:1],
            external_local=draw(st.booleans()),
            internal_local=draw(st.booleans()),
            has_endpoints=bool(cluster),
            affinity_seconds=draw(st.sampled_from([0, 60, 61])),
        )
        found[f"n/s{number}"] = service_rules([port], "ip", ProxyOptions())
    return found


def assert_holds(kernel: Kernel, wanted: dict[str, Rules]) -> None:
    chains = {name: list(rules) for name, rules in BASE.chains.items()}
    sets = set(BASE.containers)
    elements: dict[tuple[str, str], set[str]] = {}
    for rules in wanted.values():
        chains |= {name: list(found) for name, found in rules.chains.items()}
        sets |= rules.sets.keys()
        for key, verdict in rules.elements.items():
            elements.setdefault(key, set()).add(verdict)
    assert {name: rules for name, rules in kernel.chains.items() if name in chains} == chains
    assert not any(rules for name, rules in kernel.chains.items() if name not in chains)
    assert kernel.containers.keys() == sets
    has = {(name, key): verdict for name, found in kernel.containers.items() for key, verdict in found.items()}
    assert has.keys() == elements.keys()
    assert all(verdict in elements[key] for key, verdict in has.items())


@given(st.lists(services(), min_size=1, max_size=5), st.booleans())
def test_transactions_lead_from_any_services_to_any_others(histories: list[dict[str, Rules]], restart: bool) -> None:
    kernel, table = Kernel(), Table("ip", BASE)
    kernel.run(list(table.create({}, None)))
    before: dict[str, Rules] = {}
    for now, wanted in enumerate(histories):
        changes = {name: wanted.get(name, Rules()) for name in before.keys() | wanted.keys()}
        kernel.run(table.delete_rested(float(now)))
        kernel.run(table.update(changes, float(now)))
        assert_holds(kernel, wanted)
        assert table.update(dict(wanted), float(now)) == []
        before = wanted
    if restart:
        # Another process takes over what stands there, or replaces it.
        table = Table("ip", BASE)
        kernel.run(list(table.create(histories[0], kernel.chains.keys() | kernel.containers.keys())))
        assert_holds(kernel, histories[0])
    kernel.run(table.delete_rested(1e9))
    wanted = histories[0] if restart else before
    assert kernel.chains.keys() == BASE.chains.keys() | {name for rules in wanted.values() for name in rules.chains}


def rules_with(number: int, *endpoints: Endpoint) -> Rules:
    port = ServicePort(
        f"n/s{number}:", "tcp", 80, f"10.96.0.{number}", cluster=endpoints, has_endpoints=bool(endpoints)
    )
    return service_rules([port], "ip", ProxyOptions())


def test_change_of_endpoints_rewrites_one_chain() -> None:
    table = Table("ip", BASE)
    list(table.create({f"n/s{number}": rules_with(number, PLACES[0]) for number in range(5)}))
    lines = table.update({"n/s3": rules_with(3, *PLACES[:2])}, 1.0)
    assert [line.split(" ")[:2] for line in lines] == [["flush", "chain"], *[["add", "rule"]] * 2]


def test_chain_is_deleted_a_second_after_it_went_out_of_use() -> None:
    table = Table("ip", BASE)
    list(table.create({"n/s1": rules_with(1, PLACES[0])}))
    assert any(line.startswith("flush chain") for line in table.update({"n/s1": Rules()}, 5.0))
    assert table.delete_rested(5.9) == []
    [line] = table.delete_rested(6.0)
    assert line.startswith(f"delete chain ip {TABLE} cluster-")
    # One that is used again by then stays.
    table.update({"n/s1": rules_with(1, PLACES[0])}, 7.0)
    table.update({"n/s1": Rules()}, 8.0)
    table.update({"n/s1": rules_with(1, PLACES[1])}, 8.5)
    assert table.delete_rested(1e9) == []


def test_chain_that_cannot_be_deleted_is_tried_again() -> None:
    table = Table("ip", BASE)
    list(table.create({"n/s1": rules_with(1, PLACES[0])}))
    table.update({"n/s1": Rules()}, 5.0)
    refused = table.delete_rested(6.0)
    table.rest_again(refused, 6.0)
    assert table.delete_rested(6.9) == [] and table.delete_rested(7.0) == refused


def test_ports_without_a_local_endpoint_are_counted_by_policy() -> None:
    table = Table("ip", BASE)
    assert dict(table.no_local_endpoints()) == {"internal": 0, "external": 0}
    policies = {"internal_local": True, "external_local": True, "node_port": 30080, "has_endpoints": True}
    port = ServicePort("n/s:", "tcp", 80, "10.96.0.1", **policies)  # type: ignore[arg-type]
    made = {name: service_rules([port], "ip", ProxyOptions()) for name in ("n/s1", "n/s2")}
    made["n/s3"] = service_rules([replace(port, has_endpoints=False)], "ip", ProxyOptions())
    list(table.create(made))
    assert dict(table.no_local_endpoints()) == {"internal": 2, "external": 2}
    table.update(
        {"n/s1": service_rules([replace(port, internal_local=False, cluster=tuple(PLACES))], "ip", ProxyOptions())}, 1.0
    )
    assert dict(table.no_local_endpoints()) == {"internal": 1, "external": 2}
    table.update({"n/s1": Rules(), "n/s2": Rules()}, 2.0)
    assert dict(table.no_local_endpoints()) == {"internal": 0, "external": 0}


def test_table_that_is_kept_loses_what_nobody_wants_and_no_affinity() -> None:
    left = {"affinity-gone", "cluster-gone", *BASE.chains, *BASE.containers}
    table = Table("ip", BASE)
    lines = list(table.create({}, left))
    assert f"flush table ip {TABLE}" in lines and not any("delete table" in line for line in lines)
    assert [line for line in lines if line.startswith("delete")] == [f"delete set ip {TABLE} affinity-gone"]
    assert table.delete_rested(1.0) == [f"delete chain ip {TABLE} cluster-gone"]
