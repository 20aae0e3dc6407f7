"""The rules of nftables for Services, and that every transaction leads from what was there to what is wanted."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from haru.service_proxy.ruleset import TABLE, ProxyOptions, Ruleset, full_transaction, ruleset, transaction
from haru.service_proxy.services import Endpoint, ServicePort

A, B = Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080)
PORT = ServicePort("n/s:web", "tcp", 80, "10.96.0.9", internal=(A, B), external=(A, B), has_endpoints=True)


def chain(rules: Ruleset, element: str, map_name: str = "service-ips") -> tuple[str, ...]:
    return rules.chains[rules.elements[map_name][element].removeprefix("goto ")]


def test_cluster_ip_leads_to_one_of_its_endpoints() -> None:
    rules = ruleset([PORT], 4)
    (pick,) = chain(rules, "10.96.0.9 . tcp . 80")
    targets = re.findall(r"goto (ep-\w+)", pick)
    assert pick.startswith("numgen random mod 2 vmap")
    assert [rules.chains[target][-1] for target in targets] == [
        "meta l4proto tcp dnat to 10.0.0.1:8080",
        "meta l4proto tcp dnat to 10.0.0.2:8080",
    ]
    # What an endpoint sends to its own Service comes back with another source.
    assert rules.chains[targets[0]][0].startswith("ip saddr 10.0.0.1 meta mark set")


def test_port_without_endpoints_is_refused_and_one_without_local_ones_dropped() -> None:
    nobody = replace(PORT, internal=(), external=(), has_endpoints=False)
    assert ruleset([nobody], 4).elements["no-endpoint-services"] == {"10.96.0.9 . tcp . 80": "goto reject-chain"}
    elsewhere = replace(PORT, internal=(), internal_local=True)
    assert ruleset([elsewhere], 4).elements["no-endpoint-services"] == {"10.96.0.9 . tcp . 80": "drop"}


def test_source_is_rewritten_for_outside_clients_unless_policy_is_local() -> None:
    outside = replace(PORT, node_port=30_080, external_ips=("192.0.2.1",))
    rules = ruleset([outside], 4)
    for name, element in (("service-nodeports", "tcp . 30080"), ("service-ips", "192.0.2.1 . tcp . 80")):
        assert chain(rules, element, name)[0].startswith("meta mark set")
    local = ruleset([replace(outside, external_local=True)], 4)
    assert len(chain(local, "tcp . 30080", "service-nodeports")) == 1


def test_cluster_cidr_and_masquerade_all_rewrite_source_for_cluster_ip() -> None:
    element = "10.96.0.9 . tcp . 80"
    assert "ip saddr != 10.0.0.0/8" in chain(ruleset([PORT], 4, ProxyOptions("10.0.0.0/8")), element)[0]
    assert chain(ruleset([PORT], 4, ProxyOptions(masquerade_all=True)), element)[0].startswith("meta mark set")
    six = replace(PORT, cluster_ip="fd00::9", internal=(Endpoint("fd00::1", 80),), external=())
    assert len(chain(ruleset([six], 6, ProxyOptions("10.0.0.0/8")), "fd00::9 . tcp . 80")) == 1


def test_client_keeps_its_endpoint_for_the_affinity_timeout() -> None:
    rules = ruleset([replace(PORT, affinity_seconds=60)], 4)
    first, *_ = chain(rules, "10.96.0.9 . tcp . 80")
    name = re.findall(r"@(\S+)", first)[0]
    assert rules.maps[name] == "set { type ipv4_addr; flags dynamic,timeout; timeout 60s; }"
    assert any(f"update @{name}" in rule for rule in rules.chains[name.removeprefix("affinity-")])


class Kernel:
    """What nftables has of one table, and what it refuses: names that are not there, or still used."""

    def __init__(self) -> None:
        self.chains: dict[str, list[str]] = {}
        self.maps: dict[str, dict[str, str]] = {}

    def run(self, text: str) -> None:
        for line in text.splitlines():
            verb, kind, family, table, *rest = line.split(" ", 5)
            assert (family, table) == ("ip", TABLE)
            getattr(self, f"_{verb}_{kind}")(*rest)

    def _add_table(self) -> None: ...

    def _delete_table(self) -> None:
        self.__init__()  # type: ignore[misc]

    def _add_map(self, name: str, _body: str) -> None:
        assert name not in self.maps
        self.maps[name] = {}

    _add_set = _add_map

    def _delete_set(self, name: str) -> None:
        assert not any(f"@{name}" in rule for rules in self.chains.values() for rule in rules)
        del self.maps[name]

    def _add_chain(self, name: str, _hook: str = "") -> None:
        assert name not in self.chains
        self.chains[name] = []

    def _flush_chain(self, name: str) -> None:
        self.chains[name] = []

    def _add_rule(self, chain: str, rule: str) -> None:
        for target in re.findall(r"(?:goto|jump) ([\w-]+)", rule):
            assert target in self.chains, rule
        for name in re.findall(r"@([\w-]+)", rule):
            assert name in self.maps, rule
        self.chains[chain].append(rule)

    def _delete_chain(self, name: str) -> None:
        assert not self.chains[name]
        used = [rule for rules in self.chains.values() for rule in rules]
        used += [verdict for elements in self.maps.values() for verdict in elements.values()]
        assert not any(re.search(rf"(goto|jump) {name}\b", one) for one in used), name
        del self.chains[name]

    def _add_element(self, name: str, body: str) -> None:
        key, verdict = body.strip("{} ").rsplit(" : ", 1)
        assert key not in self.maps[name] and (verdict == "drop" or verdict.removeprefix("goto ") in self.chains)
        self.maps[name][key] = verdict

    def _delete_element(self, name: str, body: str) -> None:
        del self.maps[name][body.strip("{} ")]


ENDPOINTS = st.lists(st.sampled_from([A, B, Endpoint("10.0.0.3", 9)]), unique=True, max_size=3).map(tuple)


@st.composite
def ports(draw: st.DrawFn) -> list[ServicePort]:
    found = []
    for number in draw(st.lists(st.integers(0, 3), unique=True)):
        inside, outside = draw(ENDPOINTS), draw(ENDPOINTS)
        found.append(
            ServicePort(
                f"n/s{number}:",
                "tcp",
                80,
                f"10.96.0.{number}",
                draw(st.sampled_from([(), ("192.0.2.1",)])) if number == 0 else (),
                draw(st.sampled_from([0, 30_000 + number])),
                inside,
                outside,
                external_local=draw(st.booleans()),
                has_endpoints=bool(inside or outside),
                affinity_seconds=draw(st.sampled_from([0, 60])),
            )
        )
    return found


@given(st.lists(ports(), min_size=1, max_size=4))
def test_transactions_lead_from_any_rules_to_any_others(histories: list[list[ServicePort]]) -> None:
    kernel, before = Kernel(), Ruleset("ip")
    for number, wanted in enumerate(histories):
        after = ruleset(wanted, 4)
        kernel.run(transaction(before, after) if number else full_transaction(after))
        assert {name: tuple(rules) for name, rules in kernel.chains.items()} == dict(after.chains)
        assert kernel.maps.keys() == after.maps.keys()
        assert {name: kernel.maps[name] for name in after.elements} == after.elements
        assert transaction(after, after) == ""
        before = after
