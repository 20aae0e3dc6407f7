"""The rules of nftables for the ports of Services, and the transaction from one set of rules to another.

Pure. One table per address family: a map from address, protocol and port to the chain of a Service port, which picks
an endpoint at random; the chain of an endpoint rewrites the destination. Ports without endpoints are refused or
dropped before they leave the node. Source: the nftables mode of kube-proxy (KEP-3866), as behaviour.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from haru.service_proxy.services import Endpoint, ServicePort

TABLE: Final = "haru-service-proxy"
_MARK: Final = "0x4000"
"""The bit of packets whose source is rewritten, too; kube-proxy's."""
_SERVICES: Final = "service-ips"
_NODE_PORTS: Final = "service-nodeports"
_REFUSED: Final = "no-endpoint-services"
_REFUSED_NODE_PORTS: Final = "no-endpoint-nodeports"


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """What of the network the rules depend on."""

    cluster_cidr: str = ""
    """Of pods; what comes to a cluster IP from elsewhere has its source rewritten."""
    masquerade_all: bool = False


@dataclass(frozen=True, slots=True)
class Ruleset:
    """One table: maps and sets by name with their type, their elements, and chains with their rules."""

    family: str
    """ip or ip6."""
    maps: Mapping[str, str] = field(default_factory=dict)
    elements: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hooks: Mapping[str, str] = field(default_factory=dict)
    """Of base chains: type, hook and priority."""


def ruleset(ports: Sequence[ServicePort], family: int, options: ProxyOptions | None = None) -> Ruleset:
    """The rules for all ports of one family (4 or 6)."""
    made = _Builder("ip" if family == 4 else "ip6", options or ProxyOptions())
    for port in ports:
        made.add(port)
    return made.whole()


class _Builder:
    def __init__(self, family: str, options: ProxyOptions) -> None:
        self.family, self.options = family, options
        self.chains: dict[str, tuple[str, ...]] = {}
        self.maps: dict[str, str] = {}
        self.elements: dict[str, dict[str, str]] = {
            name: {} for name in (_SERVICES, _NODE_PORTS, _REFUSED, _REFUSED_NODE_PORTS)
        }

    def add(self, port: ServicePort) -> None:
        """Add the maps' elements and the chains of a port."""
        key = f"{port.protocol} . {port.port}"
        inside = self._chain(port, "svc", port.internal, self._source_rules(port))
        self._reach(_SERVICES, _REFUSED, f"{port.cluster_ip} . {key}", inside, port)
        outside_ports = [(_SERVICES, _REFUSED, f"{ip} . {key}") for ip in port.external_ips]
        if port.node_port:
            outside_ports.append((_NODE_PORTS, _REFUSED_NODE_PORTS, f"{port.protocol} . {port.node_port}"))
        if not outside_ports:
            return
        outside = self._chain(port, "ext", port.external, () if port.external_local else (_marked(),))
        for found, refused, element in outside_ports:
            self._reach(found, refused, element, outside, port)

    def _reach(self, found: str, refused: str, element: str, chain: str, port: ServicePort) -> None:
        if chain:
            self.elements[found][element] = f"goto {chain}"
        else:
            self.elements[refused][element] = "drop" if port.has_endpoints else "goto reject-chain"

    def _source_rules(self, port: ServicePort) -> tuple[str, ...]:
        if self.options.masquerade_all:
            return (_marked(),)
        cidr = self.options.cluster_cidr
        if cidr and ipaddress.ip_network(cidr).version == (4 if self.family == "ip" else 6):
            return (f"{self.family} daddr {port.cluster_ip} {self.family} saddr != {cidr} {_marked()}",)
        return ()

    def _chain(self, port: ServicePort, kind: str, endpoints: Sequence[Endpoint], first: tuple[str, ...]) -> str:
        """The chain that picks an endpoint; empty if there is none."""
        if not endpoints:
            return ""
        name = f"{kind}-{_short(port.name, port.protocol)}"
        targets = [self._endpoint(port, endpoint) for endpoint in endpoints]
        kept = [f"{self.family} saddr @{_affinity(target)} goto {target}" for target in targets]
        choice = ", ".join(f"{number} : goto {target}" for number, target in enumerate(targets))
        pick = f"numgen random mod {len(targets)} vmap {{ {choice} }}"
        self.chains[name] = (*first, *(kept if port.affinity_seconds else ()), pick)
        return name

    def _endpoint(self, port: ServicePort, endpoint: Endpoint) -> str:
        name = f"ep-{_short(port.name, port.protocol, endpoint.address, str(endpoint.port))}"
        rules = [f"{self.family} saddr {endpoint.address} {_marked()}"]
        if port.affinity_seconds:
            kind = "ipv4_addr" if self.family == "ip" else "ipv6_addr"
            timeout = f"{port.affinity_seconds}s"
            self.maps[_affinity(name)] = f"set {{ type {kind}; flags dynamic,timeout; timeout {timeout}; }}"
            rules.append(f"update @{_affinity(name)} {{ {self.family} saddr }}")
        address = endpoint.address if self.family == "ip" else f"[{endpoint.address}]"
        rules.append(f"meta l4proto {port.protocol} dnat to {address}:{endpoint.port}")
        self.chains[name] = tuple(rules)
        return name

    def whole(self) -> Ruleset:
        """Everything, with the chains at the hooks of the kernel."""
        kind = "ipv4_addr" if self.family == "ip" else "ipv6_addr"
        place, port = f"{kind} . inet_proto . inet_service", "inet_proto . inet_service"
        types = {_SERVICES: place, _REFUSED: place, _NODE_PORTS: port, _REFUSED_NODE_PORTS: port}
        maps = {name: f"map {{ type {type_} : verdict; }}" for name, type_ in types.items()}
        to_address = f"{self.family} daddr . meta l4proto . th dport vmap @"
        loopback = "ip daddr != 127.0.0.0/8" if self.family == "ip" else "ip6 daddr != ::1"
        to_node = f"fib daddr type local {loopback} meta l4proto . th dport vmap @"
        chains = {
            "reject-chain": ("reject",),
            "services": (f"{to_address}{_SERVICES}", f"{to_node}{_NODE_PORTS}"),
            "refused": (f"{to_address}{_REFUSED}", f"{to_node}{_REFUSED_NODE_PORTS}"),
            "nat-prerouting": ("jump services",),
            "nat-output": ("jump services",),
            "nat-postrouting": (f"meta mark & {_MARK} != 0 meta mark set meta mark ^ {_MARK} masquerade fully-random",),
            **{f"filter-{hook}": ("ct state new jump refused",) for hook in ("input", "forward", "output")},
        }
        hooks = {
            "nat-prerouting": "type nat hook prerouting priority dstnat",
            "nat-output": "type nat hook output priority -100",
            "nat-postrouting": "type nat hook postrouting priority srcnat",
            **{f"filter-{hook}": f"type filter hook {hook} priority -110" for hook in ("input", "forward", "output")},
        }
        return Ruleset(self.family, {**maps, **self.maps}, self.elements, {**chains, **self.chains}, hooks)


def _marked() -> str:
    return f"meta mark set meta mark | {_MARK}"


def _affinity(chain: str) -> str:
    return f"affinity-{chain}"


def _short(*parts: str) -> str:
    """A name that nftables takes, different for different parts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


# -- transactions


def full_transaction(new: Ruleset) -> str:
    """The commands that put a table in place of whatever stands under its name, at once."""
    head = [f"add table {new.family} {TABLE}", f"delete table {new.family} {TABLE}", f"add table {new.family} {TABLE}"]
    return "\n".join([*head, *_changes(Ruleset(new.family), new)]) + "\n"


def transaction(old: Ruleset, new: Ruleset) -> str:
    """The commands from one set of rules to another; empty for none. Connections and affinities that stay, stay."""
    lines = list(_changes(old, new))
    return "\n".join(lines) + "\n" if lines else ""


def removal(family: str) -> str:
    """The commands after which nothing is left of a family's rules."""
    return f"add table {family} {TABLE}\ndelete table {family} {TABLE}\n"


def _changes(old: Ruleset, new: Ruleset) -> Iterator[str]:
    """What refers goes before what is referred to, and comes after it."""
    table = f"{new.family} {TABLE}"
    for name, definition in new.maps.items():
        if name not in old.maps:
            kind, _, body = definition.partition(" ")
            yield f"add {kind} {table} {name} {body}"
    for chain in new.chains.keys() - old.chains.keys():
        hook = new.hooks.get(chain)
        yield f"add chain {table} {chain}" + (f" {{ {hook}; policy accept; }}" if hook else "")
    for name, elements in old.elements.items():
        kept = new.elements.get(name, {})
        for key, verdict in elements.items():
            if kept.get(key) != verdict:
                yield f"delete element {table} {name} {{ {key} }}"
    changed = {chain for chain in new.chains if new.chains[chain] != old.chains.get(chain)}
    gone = old.chains.keys() - new.chains.keys()
    for chain in sorted((changed & old.chains.keys()) | gone):
        yield f"flush chain {table} {chain}"
    for chain in sorted(changed):
        yield from (f"add rule {table} {chain} {rule}" for rule in new.chains[chain])
    for name, elements in new.elements.items():
        had = old.elements.get(name, {})
        for key, verdict in elements.items():
            if had.get(key) != verdict:
                yield f"add element {table} {name} {{ {key} : {verdict} }}"
    for chain in sorted(gone):
        yield f"delete chain {table} {chain}"
    for name in sorted(old.maps.keys() - new.maps.keys()):
        yield f"delete {old.maps[name].partition(' ')[0]} {table} {name}"
