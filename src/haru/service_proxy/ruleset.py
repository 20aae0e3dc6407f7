"""The rules of nftables: those of every table, and those of one Service.

Pure. One table per address family: a map leads from address, protocol and port to the chain of a traffic policy, which
rewrites the destination to an endpoint that it picks at random; with session affinity each endpoint has a chain and a
set of its clients. Ports without endpoints are refused or dropped where packets would leave the node.
Source: the nftables mode of kube-proxy (KEP-3866), as behaviour.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from haru.service_proxy.services import Endpoint, ServicePort

TABLE: Final = "haru-service-proxy"
MARK: Final = "0x4000"
"""The bit of packets whose source is rewritten, too; kube-proxy's."""
_SERVICES: Final = "service-ips"
_NODE_PORTS: Final = "service-nodeports"
_REFUSED: Final = "no-endpoint-services"
_REFUSED_NODE_PORTS: Final = "no-endpoint-nodeports"
_FIREWALL: Final = "firewall-ips"
_CLUSTER_IPS: Final = "cluster-ips"
_SERVICE_CIDRS: Final = "service-cidrs"
_HAIRPINS: Final = "hairpin-connections"
_FEW: Final = 8
"""Up to so many endpoints are picked by a rule each. More are picked by a map: to name it, the kernel looks through all
sets and maps of the table, so that one for each Service takes a time that grows with the square of their number."""
_MARKED: Final = f"meta mark set meta mark | {MARK}"


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """What of the network the rules depend on."""

    cluster_cidr: str = ""
    """Of pods; what comes to a cluster IP from elsewhere has its source rewritten."""
    masquerade_all: bool = False

    def pods_of(self, family: str) -> str:
        """The addresses of pods in a family, if they are known."""
        version = 4 if family == "ip" else 6
        known = self.cluster_cidr and ipaddress.ip_network(self.cluster_cidr).version == version
        return self.cluster_cidr if known else ""


@dataclass(slots=True)
class Rules:
    """Elements of maps and sets with their verdict (sets: none), chains with their rules, sets with their type.

    `flows` are destinations of UDP, each with the endpoints to which flows that have begun may go on.
    """

    elements: dict[tuple[str, str], str] = field(default_factory=dict)
    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)
    flows: dict[tuple[str, int], frozenset[Endpoint]] = field(default_factory=dict)
    no_local_endpoints: Counter[str] = field(default_factory=Counter)
    """How many ports have endpoints, but none here, though a traffic policy (`internal`, `external`) wants one."""


@dataclass(frozen=True, slots=True)
class BaseRules:
    """What a table holds for all Services: maps and sets with their type, chains, and those at hooks of the kernel."""

    containers: Mapping[str, str]
    chains: Mapping[str, tuple[str, ...]]
    hooks: Mapping[str, str]
    """Of base chains: type, hook and priority."""


def base_rules(family: str, options: ProxyOptions) -> BaseRules:
    """The rules of a table of one family (ip or ip6) without Services."""
    address = _address_type(family)
    place, port = f"{address} . inet_proto . inet_service", "inet_proto . inet_service"
    types = {_SERVICES: place, _REFUSED: place, _FIREWALL: place, _NODE_PORTS: port, _REFUSED_NODE_PORTS: port}
    containers = {name: f"map {{ type {type_} : verdict; }}" for name, type_ in types.items()}
    containers[_CLUSTER_IPS] = f"set {{ type {address}; }}"
    containers[_SERVICE_CIDRS] = f"set {{ type {address}; flags interval; }}"
    containers[_HAIRPINS] = f"set {{ type {address} . {address} . inet_proto . inet_service; }}"
    to_address = f"{family} daddr . meta l4proto . th dport vmap @"
    loopback = "ip daddr != 127.0.0.0/8" if family == "ip" else "ip6 daddr != ::1"
    to_node = f"fib daddr type local {loopback} meta l4proto . th dport vmap @"
    hairpin = f"ct status dnat {family} saddr . {family} daddr . meta l4proto . th dport @{_HAIRPINS}"
    unserved = (
        "ct state new jump refused",
        f"ct state new {family} daddr @{_CLUSTER_IPS} reject",
        f"ct state new {family} daddr @{_SERVICE_CIDRS} drop",
    )
    chains = {
        "reject-chain": ("reject",),
        "services": (
            *_source_rules(family, options),
            f"{to_address}{_SERVICES}",
            f"{to_node}{_NODE_PORTS}",
        ),
        "refused": (f"{to_address}{_REFUSED}",),
        "nat-prerouting": ("jump services",),
        "nat-output": ("jump services",),
        "nat-postrouting": (
            f"meta mark & {MARK} != 0 meta mark set meta mark ^ {MARK} masquerade fully-random",
            f"{hairpin} masquerade fully-random",
        ),
        "firewall-prerouting": (f"ct state new {to_address}{_FIREWALL}",),
        "firewall-output": (f"ct state new {to_address}{_FIREWALL}",),
        "filter-input": (f"ct state new {to_node}{_REFUSED_NODE_PORTS}", "ct state new jump refused"),
        "filter-forward": unserved,
        "filter-output": unserved,
    }
    hooks = {
        "nat-prerouting": "type nat hook prerouting priority -100",
        "nat-output": "type nat hook output priority -100",
        "nat-postrouting": "type nat hook postrouting priority 100",
        "firewall-prerouting": "type filter hook prerouting priority -110",
        "firewall-output": "type filter hook output priority -110",
        **{f"filter-{hook}": f"type filter hook {hook} priority 0" for hook in ("input", "forward", "output")},
    }
    return BaseRules(containers, chains, hooks)


def _source_rules(family: str, options: ProxyOptions) -> tuple[str, ...]:
    to_cluster = f"{family} daddr @{_CLUSTER_IPS}"
    if options.masquerade_all:
        return (f"{to_cluster} {_MARKED}",)
    if cidr := options.pods_of(family):
        return (f"{to_cluster} {family} saddr != {cidr} {_MARKED}",)
    return ()


def service_rules(ports: Iterable[ServicePort], family: str, options: ProxyOptions) -> Rules:
    """The rules of one Service, by its ports in a family (ip or ip6)."""
    made = _Builder(family, options)
    for port in ports:
        made.add(port)
    return made.rules


def service_cidr_rules(cidrs: Iterable[str], family: str) -> Rules:
    """What is known of the addresses that Services may get: where none has one, nobody answers."""
    networks: list[Any] = [ipaddress.ip_network(cidr) for cidr in cidrs]
    own = [network for network in networks if network.version == (4 if family == "ip" else 6)]
    # Intervals of a set may not overlap.
    return Rules({(_SERVICE_CIDRS, str(network)): "" for network in ipaddress.collapse_addresses(own)})


class _Builder:
    def __init__(self, family: str, options: ProxyOptions) -> None:
        self.family, self.options, self.rules = family, options, Rules()

    def add(self, port: ServicePort) -> None:
        """Add the elements and chains of a port."""
        key = f"{port.protocol} . {port.port}"
        self._element(_CLUSTER_IPS, port.cluster_ip)
        for endpoint in port.here:
            address = endpoint.address
            self._element(_HAIRPINS, f"{address} . {address} . {port.protocol} . {endpoint.port}")
        cluster, local = self._policy(port, "cluster", port.cluster), self._policy(port, "local", port.local)
        inside = local if port.internal_local else cluster
        if port.has_endpoints and not inside:
            self.rules.no_local_endpoints["internal"] += 1
        self._reach(_SERVICES, _REFUSED, f"{port.cluster_ip} . {key}", port, inside, inside)
        if port.protocol == "udp" and port.serving:
            addresses = (port.cluster_ip, *port.external_ips, *port.balancer_ips)
            self.rules.flows |= {(address, port.port): port.serving for address in addresses}
            if port.node_port:
                self.rules.flows["", port.node_port] = port.serving
        if not port.is_external:
            return
        serving = local if port.external_local else cluster
        if port.has_endpoints and not serving:
            self.rules.no_local_endpoints["external"] += 1
        outside = self._external(port, cluster, serving) if port.has_endpoints else ""
        for address in dict.fromkeys((*port.external_ips, *port.balancer_ips)):
            self._reach(_SERVICES, _REFUSED, f"{address} . {key}", port, outside, serving)
        if port.node_port:
            self._reach(_NODE_PORTS, _REFUSED_NODE_PORTS, f"{port.protocol} . {port.node_port}", port, outside, serving)
        if port.source_ranges:
            firewall = self._firewall(port)
            for address in port.balancer_ips:
                self._element(_FIREWALL, f"{address} . {key}", f"goto {firewall}")

    def _element(self, container: str, key: str, verdict: str = "") -> None:
        self.rules.elements[container, key] = verdict

    def _reach(self, found: str, refused: str, key: str, port: ServicePort, chain: str, serving: str) -> None:
        """Lead an address to a chain, and say what becomes of packets that the chain leaves alone."""
        if chain:
            self._element(found, key, f"goto {chain}")
        if not serving:
            self._element(refused, key, "drop" if port.has_endpoints else "goto reject-chain")

    def _policy(self, port: ServicePort, policy: str, endpoints: Sequence[Endpoint]) -> str:
        """The chain that picks an endpoint; empty if there is none."""
        if not endpoints:
            return ""
        name, many = f"{policy}-{_short(port.name, port.protocol)}", len(endpoints)
        if port.affinity_seconds:
            targets = [self._endpoint(port, endpoint) for endpoint in endpoints]
            kept = [f"{self.family} saddr @{clients} goto {chain}" for chain, clients in targets]
            gotos = [f"goto {chain}" for chain, _ in targets]
            choice = ", ".join(f"{number} : {goto}" for number, goto in enumerate(gotos))
            picks = _picks(gotos) if many <= _FEW else [f"numgen random mod {many} vmap {{ {choice} }}"]
            self.rules.chains[name] = (*kept, *picks)
        elif many <= _FEW:
            self.rules.chains[name] = tuple(_picks([self._dnat(port, endpoint) for endpoint in endpoints]))
        else:
            choice = ", ".join(f"{number} : {one.address} . {one.port}" for number, one in enumerate(endpoints))
            to = f"dnat {self.family} addr . port to numgen random mod {many} map {{ {choice} }}"
            self.rules.chains[name] = (f"meta l4proto {port.protocol} {to}",)
        return name

    def _dnat(self, port: ServicePort, endpoint: Endpoint) -> str:
        address = endpoint.address if self.family == "ip" else f"[{endpoint.address}]"
        return f"meta l4proto {port.protocol} dnat to {address}:{endpoint.port}"

    def _endpoint(self, port: ServicePort, endpoint: Endpoint) -> tuple[str, str]:
        """The chain of an endpoint with session affinity, and the set of its clients: one each, as in kube-proxy."""
        place = (port.name, port.protocol, endpoint.address, str(endpoint.port))
        name, clients = f"endpoint-{_short(*place)}", f"affinity-{_short(*place, str(port.affinity_seconds))}"
        kind, timeout = _address_type(self.family), f"{port.affinity_seconds}s"
        self.rules.sets[clients] = f"set {{ type {kind}; flags dynamic,timeout; timeout {timeout}; }}"
        self.rules.chains[name] = (f"update @{clients} {{ {self.family} saddr }}", self._dnat(port, endpoint))
        return name, clients

    def _external(self, port: ServicePort, cluster: str, serving: str) -> str:
        """The chain for what comes by other addresses than the cluster IP."""
        rules = [_MARKED]
        if port.external_local:
            # Clients of this node and pods reach all endpoints, as if they had gone out to the load balancer.
            rules = [f"fib saddr type local {_MARKED}", f"fib saddr type local goto {cluster}"]
            if cidr := self.options.pods_of(self.family):
                rules.insert(0, f"{self.family} saddr {cidr} goto {cluster}")
        name = f"external-{_short(port.name, port.protocol)}"
        self.rules.chains[name] = (*rules, *([f"goto {serving}"] if serving else ()))
        return name

    def _firewall(self, port: ServicePort) -> str:
        """The chain that drops what comes to the load balancer from elsewhere than its source ranges."""
        name = f"firewall-{_short(port.name, port.protocol)}"
        self.rules.chains[name] = (f"{self.family} saddr != {{ {', '.join(port.source_ranges)} }} drop",)
        return name


def _picks(verdicts: Sequence[str]) -> list[str]:
    """The rules that come to each of these verdicts equally often."""
    left = range(len(verdicts), 0, -1)
    return [f"numgen random mod {n} 0 {one}" if n > 1 else one for n, one in zip(left, verdicts, strict=True)]


def _address_type(family: str) -> str:
    return "ipv4_addr" if family == "ip" else "ipv6_addr"


def _short(*parts: str) -> str:
    """A name that nftables takes, different for different parts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
