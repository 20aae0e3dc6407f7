"""What a node has to know of a Service: where each port is reached, and by which endpoints it is served.

Pure. Source: kube-proxy's selection of endpoints, as behaviour: ready ones, else those that still serve while they
terminate (KEP-1669); the traffic policies; hints of nodes and zones (KEP-2433, KEP-3015); session affinity.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from haru.kube.meta import Obj

SERVICE_NAME: Final = "kubernetes.io/service-name"
OTHER_PROXY: Final = "service.kubernetes.io/service-proxy-name"
ZONE: Final = "topology.kubernetes.io/zone"
AFFINITY_SECONDS: Final = 10_800


class Endpoint(NamedTuple):
    """A place that serves a port."""

    address: str
    port: int


class Place(NamedTuple):
    """The node of the proxy, its zone and its addresses."""

    node: str
    zone: str = ""
    addresses: tuple[str, ...] = ()


def place_of(name: str, node: Obj | None) -> Place:
    """The place of a node, whose object may not be there yet."""
    if node is None:
        return Place(name)
    zone = (node["metadata"].get("labels") or {}).get(ZONE) or ""
    listed = (node.get("status") or {}).get("addresses") or ()
    return Place(name, zone, tuple(one["address"] for one in listed if one.get("type") == "InternalIP"))


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One port of a Service in one address family."""

    name: str
    """NAMESPACE/NAME:PORT."""
    protocol: str
    """tcp, udp or sctp."""
    port: int
    cluster_ip: str
    external_ips: tuple[str, ...] = ()
    balancer_ips: tuple[str, ...] = ()
    """Of its load balancer, where traffic comes with that destination."""
    source_ranges: tuple[str, ...] = ()
    """Who may reach the load balancer's addresses, as networks that do not overlap; empty: everybody."""
    node_port: int = 0
    cluster: tuple[Endpoint, ...] = ()
    """The endpoints for the policy Cluster."""
    local: tuple[Endpoint, ...] = ()
    """The endpoints for the policy Local: of this node."""
    here: tuple[Endpoint, ...] = ()
    """Which of both are of this node: they may reach themselves by way of the Service."""
    serving: frozenset[Endpoint] = frozenset()
    """Of all nodes, whoever still serves: where a flow of UDP may go on."""
    internal_local: bool = False
    external_local: bool = False
    has_endpoints: bool = False
    """Whether any node has one: without, a client is refused at once."""
    affinity_seconds: int = 0
    """How long a client keeps its endpoint; 0: each connection is on its own."""

    @property
    def is_external(self) -> bool:
        """Whether it is reached by more than its cluster IP."""
        return bool(self.node_port or self.external_ips or self.balancer_ips)


def service_ports(service: Obj, slices: Iterable[Obj], place: Place, family: int) -> list[ServicePort]:
    """The ports of one Service in a family (4 or 6), by its EndpointSlices; none if it is not proxied."""
    spec, meta = service.get("spec") or {}, service["metadata"]
    cluster_ip = next(_of_family(spec.get("clusterIPs") or [spec.get("clusterIP")], family), None)
    if cluster_ip is None or spec.get("type") == "ExternalName" or OTHER_PROXY in (meta.get("labels") or {}):
        return []
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    balancers = [one.get("ip") for one in ingress if one.get("ipMode", "VIP") == "VIP"]
    external_ips = tuple(dict.fromkeys(_of_family(spec.get("externalIPs") or (), family)))
    balancer_ips = tuple(dict.fromkeys(_of_family(balancers, family)))
    in_family = [one for one in slices if one.get("addressType") == f"IPv{family}"]
    found = []
    for port in spec.get("ports") or ():
        protocol, node_port = port.get("protocol") or "TCP", port.get("nodePort") or 0
        candidates = _candidates(in_family, port.get("name") or "", protocol, place)
        internal_local = spec.get("internalTrafficPolicy") == "Local"
        external_local = spec.get("externalTrafficPolicy") == "Local"
        is_external = bool(node_port or external_ips or balancer_ips)
        cluster = _usable(_near(candidates, place)) if is_external or not internal_local else []
        local = []
        if internal_local or (external_local and is_external):
            local = _usable([one for one in candidates if one.is_here])
        found.append(
            ServicePort(
                name=f"{meta.get('namespace')}/{meta['name']}:{port.get('name') or ''}",
                protocol=protocol.lower(),
                port=port["port"],
                cluster_ip=cluster_ip,
                external_ips=external_ips,
                balancer_ips=balancer_ips,
                source_ranges=_source_ranges(spec, family, balancer_ips, place),
                node_port=node_port,
                cluster=_endpoints(cluster),
                local=_endpoints(local),
                here=_endpoints([one for one in (*cluster, *local) if one.is_here]),
                serving=frozenset(one.endpoint for one in candidates if one.serving),
                internal_local=internal_local,
                external_local=external_local,
                has_endpoints=bool(_usable(candidates)),
                affinity_seconds=_affinity(spec),
            )
        )
    return found


class HealthCheck(NamedTuple):
    """The port at which to tell load balancers how many ready endpoints of a Service this node has, and the number."""

    port: int
    endpoints: int


def health_check(service: Obj, slices: Iterable[Obj], place: Place) -> HealthCheck | None:
    """What a load balancer is told of a Service at its healthCheckNodePort, if it has one."""
    spec = service.get("spec") or {}
    port = spec.get("healthCheckNodePort") or 0
    if not port or spec.get("type") != "LoadBalancer" or spec.get("externalTrafficPolicy") != "Local":
        return None
    if OTHER_PROXY in (service["metadata"].get("labels") or {}):
        return None
    endpoints = (endpoint for one in slices for endpoint in one.get("endpoints") or ())
    ready = {
        endpoint["addresses"][0]
        for endpoint in endpoints
        if endpoint.get("nodeName") == place.node and (endpoint.get("conditions") or {}).get("ready") is not False
    }
    return HealthCheck(port, len(ready))


def _of_family(addresses: Iterable[str | None], family: int) -> Iterator[str]:
    for text in addresses:
        with contextlib.suppress(ValueError):
            if text and ipaddress.ip_address(text).version == family:
                yield text


def _source_ranges(spec: Mapping[str, Any], family: int, balancer_ips: Sequence[str], place: Place) -> tuple[str, ...]:
    """The ranges of a family without overlaps, which nftables refuses; none where one of them is everybody."""
    ranges = [text.strip() for text in spec.get("loadBalancerSourceRanges") or ()] if balancer_ips else ()
    found = list(_networks(ranges, family))
    if not found or any(not network.prefixlen for network in found):
        return ()
    if any(network.overlaps(own) for own in _networks(place.addresses, family) for network in found):
        # What this node sends to the load balancer may come back with that address as its source.
        found += _networks(balancer_ips, family)
    return tuple(map(str, ipaddress.collapse_addresses(found)))


def _networks(texts: Iterable[str], family: int) -> Iterator[Any]:
    for text in texts:
        with contextlib.suppress(ValueError):
            network = ipaddress.ip_network(text, strict=False)
            if network.version == family:
                yield network


def _affinity(spec: Mapping[str, Any]) -> int:
    if spec.get("sessionAffinity") != "ClientIP":
        return 0
    client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
    return int(client.get("timeoutSeconds") or AFFINITY_SECONDS)


# -- endpoints


class _Candidate(NamedTuple):
    endpoint: Endpoint
    ready: bool
    serving: bool
    terminating: bool
    is_here: bool
    for_nodes: frozenset[str]
    for_zones: frozenset[str]


def _candidates(slices: Iterable[Obj], port_name: str, protocol: str, place: Place) -> list[_Candidate]:
    """All endpoints of a port; of two with one address, the one that does not terminate."""
    found: dict[Endpoint, _Candidate] = {}
    for one in slices:
        for port in one.get("ports") or ():
            if (port.get("name") or "") != port_name or (port.get("protocol") or "TCP") != protocol:
                continue
            if port.get("port") is None:
                continue
            for given in one.get("endpoints") or ():
                conditions, hints = given.get("conditions") or {}, given.get("hints") or {}
                endpoint, terminating = (
                    Endpoint(given["addresses"][0], port["port"]),
                    bool(conditions.get("terminating")),
                )
                if terminating and endpoint in found:
                    continue
                found[endpoint] = _Candidate(
                    endpoint,
                    ready=conditions.get("ready") is not False,
                    serving=conditions.get("serving") is not False,
                    terminating=terminating,
                    is_here=given.get("nodeName") == place.node,
                    for_nodes=frozenset(hint["name"] for hint in hints.get("forNodes") or ()),
                    for_zones=frozenset(hint["name"] for hint in hints.get("forZones") or ()),
                )
    return list(found.values())


def _near(candidates: Sequence[_Candidate], place: Place) -> Sequence[_Candidate]:
    """Those that hints keep for this node or zone; all where a ready one has no hint, or none is for this place."""
    ready = [one for one in candidates if one.ready]
    for_node = [one for one in ready if place.node in one.for_nodes]
    if for_node and all(one.for_nodes for one in ready):
        return for_node
    for_zone = [one for one in ready if place.zone in one.for_zones]
    if for_zone and all(one.for_zones for one in ready):
        return for_zone
    return candidates


def _usable(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """Those that take new connections: who is ready, else who still serves while it terminates."""
    ready = [one for one in candidates if one.ready]
    return ready or [one for one in candidates if one.serving and one.terminating]


def _endpoints(candidates: Iterable[_Candidate]) -> tuple[Endpoint, ...]:
    return tuple(sorted({one.endpoint for one in candidates}))
