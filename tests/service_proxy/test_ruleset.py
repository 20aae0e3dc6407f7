"""The rules of nftables for the ports of a Service."""

from __future__ import annotations

import re
from dataclasses import replace

from haru.service_proxy.ruleset import ProxyOptions, Rules, base_rules, service_cidr_rules, service_rules
from haru.service_proxy.services import Endpoint, ServicePort

A, B = Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080)
PORT = ServicePort("n/s:web", "tcp", 80, "10.96.0.9", cluster=(A, B), here=(A,), has_endpoints=True)
OUTSIDE = replace(PORT, node_port=30_080, external_ips=("192.0.2.1",), balancer_ips=("192.0.2.9",))
CLUSTER_IP = "10.96.0.9 . tcp . 80"
OUTSIDE_WAYS = [
    ("service-ips", "no-endpoint-services", "192.0.2.1 . tcp . 80"),
    ("service-ips", "no-endpoint-services", "192.0.2.9 . tcp . 80"),
    ("service-nodeports", "no-endpoint-nodeports", "tcp . 30080"),
]
MARKED = "meta mark set meta mark | 0x4000"


def rules_of(*ports: ServicePort, options: ProxyOptions | None = None, family: str = "ip") -> Rules:
    return service_rules(ports, family, options or ProxyOptions())


def chain(rules: Rules, element: str, container: str = "service-ips") -> tuple[str, ...]:
    return rules.chains[rules.elements[container, element].removeprefix("goto ")]


def test_cluster_ip_leads_to_one_of_its_endpoints() -> None:
    rules = rules_of(PORT)
    assert chain(rules, CLUSTER_IP) == (
        "numgen random mod 2 0 meta l4proto tcp dnat to 10.0.0.1:8080",
        "meta l4proto tcp dnat to 10.0.0.2:8080",
    )
    assert ("cluster-ips", "10.96.0.9") in rules.elements
    # What an endpoint of this node sends to its own Service comes back with another source.
    hairpins = [key for container, key in rules.elements if container == "hairpin-connections"]
    assert hairpins == ["10.0.0.1 . 10.0.0.1 . tcp . 8080"]


def test_service_cidrs_are_joined_and_told_apart_by_family() -> None:
    cidrs = ("10.96.0.0/16", "10.97.0.0/16", "10.96.4.0/24", "fd00::/112")
    assert service_cidr_rules(cidrs, "ip").elements == {("service-cidrs", "10.96.0.0/15"): ""}
    assert service_cidr_rules(cidrs, "ip6").elements == {("service-cidrs", "fd00::/112"): ""}
    for chain_name in ("filter-forward", "filter-output"):
        rules = base_rules("ip", ProxyOptions()).chains[chain_name]
        assert rules[-1] == "ct state new ip daddr @service-cidrs drop"


def test_port_without_endpoints_is_refused_and_one_without_local_ones_dropped() -> None:
    nobody = replace(OUTSIDE, cluster=(), here=(), has_endpoints=False)
    rules = rules_of(nobody)
    for _, refused, key in [("", "no-endpoint-services", CLUSTER_IP), *OUTSIDE_WAYS]:
        assert rules.elements[refused, key] == "goto reject-chain"
    assert not rules.chains
    elsewhere = rules_of(replace(PORT, internal_local=True)).elements
    assert elsewhere["no-endpoint-services", CLUSTER_IP] == "drop"
    assert ("service-ips", CLUSTER_IP) not in elsewhere


def test_few_endpoints_are_picked_by_a_rule_each_and_many_by_a_map() -> None:
    many = [Endpoint(f"10.0.1.{number}", 80) for number in range(9)]
    eight = chain(rules_of(replace(PORT, cluster=tuple(many[:8]))), CLUSTER_IP)
    assert [re.findall(r"mod (\d) 0 ", rule) for rule in eight] == [[str(n)] for n in range(8, 1, -1)] + [[]]
    (nine,) = chain(rules_of(replace(PORT, cluster=tuple(many))), CLUSTER_IP)
    assert nine.startswith("meta l4proto tcp dnat ip addr . port to numgen random mod 9 map { 0 : 10.0.1.0 . 80, ")
    rules = rules_of(replace(PORT, cluster=tuple(many), affinity_seconds=60))
    *kept, pick = chain(rules, CLUSTER_IP)
    assert len(kept) == 9 and pick.startswith("numgen random mod 9 vmap { 0 : goto endpoint-")


def test_source_is_rewritten_for_outside_clients() -> None:
    rules = rules_of(OUTSIDE)
    cluster = rules.elements["service-ips", CLUSTER_IP]
    for container, _, key in OUTSIDE_WAYS:
        assert chain(rules, key, container) == (MARKED, cluster)


def test_external_policy_local_keeps_clients_address_but_for_the_node_and_pods() -> None:
    local = replace(OUTSIDE, external_local=True, local=(A,))
    rules = rules_of(local, options=ProxyOptions("10.0.0.0/16"))
    cluster = rules.elements["service-ips", CLUSTER_IP]
    *own, last = chain(rules, "tcp . 30080", "service-nodeports")
    assert own == [
        f"ip saddr 10.0.0.0/16 {cluster}",
        f"fib saddr type local {MARKED}",
        f"fib saddr type local {cluster}",
    ]
    assert rules.chains[last.removeprefix("goto ")] == ("meta l4proto tcp dnat to 10.0.0.1:8080",)
    # Without an endpoint here those still reach all, and what others send is dropped.
    rules = rules_of(replace(local, local=()))
    assert chain(rules, "tcp . 30080", "service-nodeports") == tuple(own[1:])
    for _, refused, key in OUTSIDE_WAYS:
        assert rules.elements[refused, key] == "drop"


def test_source_ranges_guard_addresses_of_the_load_balancer_alone() -> None:
    rules = rules_of(replace(OUTSIDE, source_ranges=("10.1.0.0/16", "10.3.0.0/16")))
    guarded = [key for container, key in rules.elements if container == "firewall-ips"]
    assert guarded == ["192.0.2.9 . tcp . 80"]
    assert chain(rules, guarded[0], "firewall-ips") == ("ip saddr != { 10.1.0.0/16, 10.3.0.0/16 } drop",)


def test_cluster_cidr_and_masquerade_all_rewrite_source_for_cluster_ips() -> None:
    def first(family: str, options: ProxyOptions) -> str:
        return base_rules(family, options).chains["services"][0]

    assert first("ip", ProxyOptions("10.0.0.0/8")) == f"ip daddr @cluster-ips ip saddr != 10.0.0.0/8 {MARKED}"
    assert first("ip", ProxyOptions(masquerade_all=True)) == f"ip daddr @cluster-ips {MARKED}"
    assert "@cluster-ips" not in first("ip6", ProxyOptions("10.0.0.0/8"))


def test_client_keeps_its_endpoint_for_the_affinity_timeout() -> None:
    rules = rules_of(replace(PORT, affinity_seconds=60))
    *kept, first, second = chain(rules, CLUSTER_IP)
    targets = [first.removeprefix("numgen random mod 2 0 goto "), second.removeprefix("goto ")]
    assert all(re.fullmatch(r"endpoint-\w+", target) for target in targets)
    for rule, target, endpoint in zip(kept, targets, (A, B), strict=True):
        clients = re.findall(r"@(\S+)", rule)[0]
        assert rule == f"ip saddr @{clients} goto {target}"
        assert rules.sets[clients] == "set { type ipv4_addr; flags dynamic,timeout; timeout 60s; }"
        to = f"meta l4proto tcp dnat to {endpoint.address}:{endpoint.port}"
        assert rules.chains[target] == (f"update @{clients} {{ ip saddr }}", to)
    # Another timeout needs other sets.
    assert not rules.sets.keys() & rules_of(replace(PORT, affinity_seconds=61)).sets.keys()


def test_addresses_of_version_six_are_written_as_nftables_reads_them() -> None:
    six = replace(PORT, cluster_ip="fd00::9", cluster=(Endpoint("fd00::1", 80),), here=())
    assert chain(rules_of(six, family="ip6"), "fd00::9 . tcp . 80") == ("meta l4proto tcp dnat to [fd00::1]:80",)
    kept = rules_of(replace(six, affinity_seconds=60), family="ip6")
    assert any("meta l4proto tcp dnat to [fd00::1]:80" in rules for rules in kept.chains.values())


def test_flows_of_udp_may_go_on_to_whoever_serves() -> None:
    udp = replace(OUTSIDE, protocol="udp", serving=frozenset({A, B}))
    assert rules_of(udp).flows == {
        ("10.96.0.9", 80): {A, B},
        ("192.0.2.1", 80): {A, B},
        ("192.0.2.9", 80): {A, B},
        ("", 30_080): {A, B},
    }
    # Without anybody who serves, flows are left alone; those of TCP end by themselves.
    assert not rules_of(replace(udp, serving=frozenset())).flows and not rules_of(OUTSIDE).flows
