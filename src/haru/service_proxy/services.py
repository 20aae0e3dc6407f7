"""What a node has to know of Services: where each port is reached, and by which endpoints it is served.

Pure. Source: kube-proxy's selection of endpoints, as behaviour: ready ones, else those that still serve while they
terminate (KEP-1669); the traffic policies; session affinity. Topology hints are not followed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from haru.kube.meta import Obj

SERVICE_NAME: Final = "kubernetes.io/service-name"
OTHER_PROXY: Final = "service.kubernetes.io/service-proxy-name"
AFFINITY_SECONDS: Final = 10_800


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """A place that serves a port."""

    address: str
    port: int


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
    """The external IPs and those of its load balancer."""
    node_port: int = 0
    internal: tuple[Endpoint, ...] = ()
    """For the cluster IP."""
    external: tuple[Endpoint, ...] = ()
    """For what comes from outside the cluster."""
    internal_local: bool = False
    external_local: bool = False
    """Only endpoints of this node serve: what comes to others is dropped, and clients keep their address."""
    has_endpoints: bool = False
    """Whether any node has one: without, a client is refused at once."""
    affinity_seconds: int = 0
    """How long a client keeps its endpoint; 0: each connection is on its own."""


def service_ports(services: Iterable[Obj], slices: Iterable[Obj], node: str, family: int) -> list[ServicePort]:
    """All ports of Services with a cluster IP of a family (4 or 6), in the order of their names."""
    by_service: dict[str, list[Obj]] = {}
    for one in slices:
        if one.get("addressType") == f"IPv{family}":
            by_service.setdefault(_service_of(one), []).append(one)
    found = (
        port
        for service in services
        for port in _ports(service, by_service.get(_key(service["metadata"]), ()), node, family)
    )
    return sorted(found, key=lambda port: (port.name, port.protocol))


def _key(meta: Mapping[str, Any]) -> str:
    return f"{meta.get('namespace')}/{meta.get('name')}"


def _service_of(slice_: Obj) -> str:
    meta = slice_["metadata"]
    return f"{meta.get('namespace')}/{(meta.get('labels') or {}).get(SERVICE_NAME, '')}"


def _ports(service: Obj, slices: Iterable[Obj], node: str, family: int) -> Iterator[ServicePort]:
    spec, meta = service.get("spec") or {}, service["metadata"]
    cluster_ip = next(_of_family(spec.get("clusterIPs") or [spec.get("clusterIP")], family), None)
    if cluster_ip is None or spec.get("type") == "ExternalName" or OTHER_PROXY in (meta.get("labels") or {}):
        return
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    balancers = [one.get("ip") for one in ingress if one.get("ipMode", "VIP") == "VIP"]
    outside = tuple(dict.fromkeys(_of_family([*(spec.get("externalIPs") or ()), *balancers], family)))
    internal_local = spec.get("internalTrafficPolicy") == "Local"
    external_local = spec.get("externalTrafficPolicy") == "Local"
    for port in spec.get("ports") or ():
        protocol = port.get("protocol") or "TCP"
        usable = _usable(slices, port.get("name") or "", protocol)
        everywhere = tuple(sorted({endpoint for endpoint, _ in usable}))
        here = tuple(sorted({endpoint for endpoint, place in usable if place == node}))
        yield ServicePort(
            name=f"{_key(meta)}:{port.get('name') or ''}",
            protocol=protocol.lower(),
            port=port["port"],
            cluster_ip=cluster_ip,
            external_ips=outside,
            node_port=port.get("nodePort") or 0,
            internal=here if internal_local else everywhere,
            external=here if external_local else everywhere,
            internal_local=internal_local,
            external_local=external_local,
            has_endpoints=bool(everywhere),
            affinity_seconds=_affinity(spec),
        )


def _of_family(addresses: Iterable[str | None], family: int) -> Iterator[str]:
    for text in addresses:
        try:
            if text and ipaddress.ip_address(text).version == family:
                yield text
        except ValueError:
            continue


def _usable(slices: Iterable[Obj], port_name: str, protocol: str) -> list[tuple[Endpoint, str]]:
    """The endpoints that take new connections, each with its node."""
    ready, serving = [], []
    for one in slices:
        for port in one.get("ports") or ():
            if (port.get("name") or "") != port_name or (port.get("protocol") or "TCP") != protocol:
                continue
            if port.get("port") is None:
                continue
            for endpoint in one.get("endpoints") or ():
                conditions = endpoint.get("conditions") or {}
                places = [
                    (Endpoint(ip, port["port"]), endpoint.get("nodeName") or "") for ip in endpoint["addresses"][:1]
                ]
                if conditions.get("ready") is not False:
                    ready += places
                elif conditions.get("serving") and conditions.get("terminating"):
                    serving += places
    return ready or serving


def _affinity(spec: Mapping[str, Any]) -> int:
    if spec.get("sessionAffinity") != "ClientIP":
        return 0
    client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
    return int(client.get("timeoutSeconds") or AFFINITY_SECONDS)
