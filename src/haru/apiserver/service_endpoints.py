"""Resolve a Service to the ready addresses of its EndpointSlices, and choose one to connect to.

Source: kube-apiserver's service resolver for webhooks and extension API servers, as behaviour.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from haru.apiserver.object_store import ObjectStore
from haru.kube.errors import StatusError, not_found_error
from haru.kube.meta import Obj

_SERVICE_NAME = "kubernetes.io/service-name"


async def slices_of(objects: ObjectStore, namespace: str, service: str) -> list[Obj]:
    """The EndpointSlices of a Service."""
    found = await objects.peek_all("discovery.k8s.io", "endpointslices", namespace)
    return [each for each in found if (each["metadata"].get("labels") or {}).get(_SERVICE_NAME) == service]


def ready_endpoints(slices: Iterable[Obj], port: str) -> Iterator[tuple[Obj, int]]:
    """The endpoints that are ready and have an address, each with a number of the port of that name."""
    for each in slices:
        numbers = [p["port"] for p in each.get("ports") or () if (p.get("name") or "") == port and p.get("port")]
        for endpoint in each.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is not False and endpoint.get("addresses"):
                yield from ((endpoint, number) for number in numbers)


class _Endpoint(NamedTuple):
    """Where a service leads, and the node that this is on, if anybody says so."""

    address: str
    port: int
    node: str


async def endpoint_behind(objects: ObjectStore, namespace: str, name: str, port: int) -> tuple[str, int]:
    """An address and port behind a service. Raises StatusError."""
    service = await objects.peek("", "services", namespace, name)
    if service is None:
        missing = not_found_error("", "services", name)
        missing.message = f'service "{name}" not found'
        raise missing
    spec = service.get("spec") or {}
    kind = spec.get("type") or "ClusterIP"
    if kind not in ("ClusterIP", "LoadBalancer", "NodePort"):
        raise StatusError(503, "ServiceUnavailable", f'unsupported service type "{kind}"')
    wanted = next((each for each in spec.get("ports") or () if each.get("port") == port), None)
    if wanted is None:
        raise StatusError(503, "ServiceUnavailable", f'no service port {port} found for service "{name}"')
    known = await _endpoints(objects, namespace, name, wanted.get("name") or "")
    found = [(each.address, each.port) for each in known if not await _is_simulated(objects, each.node)]
    if not found:
        why = f'no endpoints available for service "{name}"'
        # Their addresses are made up: whoever has them in the network around is not meant.
        why = f"{why}: its pods are simulated, and run nothing" if known else why
        raise StatusError(503, "ServiceUnavailable", why)
    family = (spec.get("ipFamilies") or ["IPv4"])[0]
    preferred = [each for each in found if _family(each[0]) == family]
    return Random().choice(preferred or found)


async def _endpoints(objects: ObjectStore, namespace: str, name: str, port: str) -> list[_Endpoint]:
    """What is ready behind a service's port, from its EndpointSlices, or else from its Endpoints."""
    slices = await slices_of(objects, namespace, name)
    if slices:
        ready = ready_endpoints(slices, port)
        return [_Endpoint(each["addresses"][0], number, each.get("nodeName") or "") for each, number in ready]
    found: list[_Endpoint] = []
    endpoints = await objects.peek("", "endpoints", namespace, name) or {}
    for subset in endpoints.get("subsets") or ():
        numbers = [p["port"] for p in subset.get("ports") or () if (p.get("name") or "") == port]
        for known in subset.get("addresses") or ():
            found += [_Endpoint(known["ip"], number, known.get("nodeName") or "") for number in numbers]
    return found


async def _is_simulated(objects: ObjectStore, name: str) -> bool:
    """Whether a node is known to have no kubelet."""
    node = await objects.peek("", "nodes", "", name) if name else None
    endpoints = ((node or {}).get("status") or {}).get("daemonEndpoints") or {}
    return node is not None and not (endpoints.get("kubeletEndpoint") or {}).get("Port")


def _family(address: str) -> str:
    return f"IPv{ipaddress.ip_address(address).version}"
