"""Where a proxied request goes: the address that a pod has, or that of a pod behind a service, and nowhere else.

An address is asked for only if a pod of a real node has it by its status, and if it is one that others than the machine
itself are reached by: never loopback, link-local, multicast or unspecified. Pods of simulated nodes run nothing; their
addresses are made up, and may be somebody's.
Source: pod and service locations, `SplitSchemeNamePort` and `IsProxyableIP` of Kubernetes 1.36, as behaviour.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from haru.apiserver.auth.node_authorizer import Attributes
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.proxy.kubelets.client import Kubelets
from haru.apiserver.proxy.kubelets.connections import VERBS
from haru.apiserver.request.http import Request
from haru.apiserver.service_endpoints import ready_endpoints, slices_of
from haru.errors import raise_first
from haru.kube.errors import (
    StatusError,
    bad_request_error,
    method_not_allowed_error,
    not_found_error,
)

Obj = Mapping[str, Any]

_PATH = re.compile(r"/api/v1/namespaces/([^/]+)/(pods|services)/([^/]+)/proxy(/.*)?", re.DOTALL)
_BROADCAST = "255.255.255.255"


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """What a path names; `name` as it is written, `rest` from the slash behind `proxy` on."""

    plural: str
    namespace: str
    name: str
    rest: str

    @property
    def subresource(self) -> str:
        """Always the one way."""
        return "proxy"


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    """Where it goes: `http` or `https`, an address, and a port, which may be the scheme's."""

    scheme: str
    address: str
    port: int

    @property
    def netloc(self) -> str:
        """As in a URL."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}" if self.port != {"http": 80, "https": 443}[self.scheme] else host


def proxy_request_of(path: str) -> ProxyRequest | None:
    """What a path is about, if it is one of these."""
    found = _PATH.fullmatch(path)
    return ProxyRequest(found[2], found[1], found[3], found[4] or "") if found else None


def required_right(request: Request, wanted: ProxyRequest) -> Attributes:
    """What the user must be allowed. Rights to one name are to what stands in the path, scheme and port included."""
    verb = VERBS.get(request.method)
    if verb is None:
        raise method_not_allowed_error("the server does not allow this method on the requested resource")
    return Attributes(verb, "", wanted.plural, "proxy", wanted.namespace, wanted.name)


def split_name(text: str) -> tuple[str, str, str] | None:
    """Scheme, name and port of `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`; None for what is none of them."""
    parts = text.split(":")
    scheme, name, port = ("", parts[0], parts[1] if len(parts) == 2 else "") if len(parts) < 3 else (*parts, "", "")[:3]
    if len(parts) > 3 or not name or (len(parts) == 3 and scheme not in ("http", "https")):
        return None
    return scheme or "http", name, port


def is_proxyable(address: str) -> bool:
    """Whether an address is one of a host among others."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    bad = found.is_unspecified or found.is_loopback or found.is_multicast or found.is_link_local
    return not bad and str(found) != _BROADCAST


class TargetResolver:
    """Find where requests to pods and services of one cluster go; `kubelets` is None if all nodes are simulated."""

    def __init__(self, objects: ObjectStore, kubelets: Kubelets | None) -> None:
        self._objects, self._kubelets = objects, kubelets

    async def resolve(self, wanted: ProxyRequest) -> ProxyTarget:
        """Where a request is to go. Raises StatusError."""
        split = split_name(wanted.name)
        if split is None:
            raise bad_request_error(f'invalid {wanted.plural[:-1]} request "{wanted.name}"')
        if wanted.plural == "pods":
            return await self._pod(wanted.namespace, *split)
        return await self._service(wanted, *split)

    async def _pod(self, namespace: str, scheme: str, name: str, port: str) -> ProxyTarget:
        pod = await self._objects.read("", "pods", namespace, name)
        if pod is None:
            raise not_found_error("", "pods", name)
        number = _number(port) if port else _first_port(pod)
        address = (pod.get("status") or {}).get("podIP") or ""
        if not address:
            raise bad_request_error("address not allowed")
        await self._check_real(pod)
        if not is_proxyable(address):
            raise bad_request_error("address not allowed")
        return ProxyTarget(scheme, address, number or (443 if scheme == "https" else 80))

    async def _check_real(self, pod: Obj) -> None:
        """503 for a pod that nobody runs."""
        node = (pod.get("spec") or {}).get("nodeName")
        if not node:
            raise bad_request_error(f"pod {pod['metadata']['name']} does not have a host assigned")
        if self._kubelets is None or await self._kubelets.endpoint(node) is None:
            raise StatusError(503, "ServiceUnavailable", f"there is no kubelet on node {node}: its pods are simulated")

    async def _service(self, wanted: ProxyRequest, scheme: str, name: str, port: str) -> ProxyTarget:
        service = await self._objects.peek("", "services", wanted.namespace, name)
        if service is None:
            raise not_found_error("", "services", name)
        if port.isascii() and port.isdigit():
            declared = [
                each for each in (service.get("spec") or {}).get("ports") or () if each.get("port") == int(port)
            ]
            if not declared:
                raise _unavailable(f'no service port {port} found for service "{name}"')
            port = declared[0].get("name") or ""
        found = await self._endpoints(wanted.namespace, name, port)
        # A few are looked at, not all: of a service with thousands of endpoints most are good, or none is.
        refused: list[StatusError] = []
        for address, number, pod_name in Random().sample(found, min(len(found), 16)):
            pod = await self._objects.peek("", "pods", wanted.namespace, pod_name)
            if pod is None or address not in _addresses(pod) or not is_proxyable(address):
                continue
            try:
                await self._check_real(pod)
            except StatusError as error:
                refused = [error]
                continue
            return ProxyTarget(scheme, address, number)
        raise_first(refused)
        raise _unavailable(f'no endpoints available for service "{wanted.name}"')

    async def _endpoints(self, namespace: str, service: str, port: str) -> Sequence[tuple[str, int, str]]:
        """Address, port and pod of the ready endpoints of a service's port; of those that are pods of its namespace."""
        found: list[tuple[str, int, str]] = []
        for endpoint, number in ready_endpoints(await slices_of(self._objects, namespace, service), port):
            target = endpoint.get("targetRef") or {}
            own = target.get("kind") == "Pod" and target.get("namespace", namespace) == namespace
            if own and target.get("name"):
                found.append((endpoint["addresses"][0], number, target["name"]))
        return found


def _number(port: str) -> int:
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise bad_request_error(f'invalid port "{port[:64]}": must be a number from 1 to 65535')
    return int(port)


def _first_port(pod: Obj) -> int:
    """The first port that a container declares; 0: none does."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    ports = [port.get("containerPort") or 0 for each in containers for port in each.get("ports") or ()]
    return int(ports[0]) if ports else 0


def _addresses(pod: Obj) -> set[str]:
    status = pod.get("status") or {}
    return {status.get("podIP") or "", *(each.get("ip") or "" for each in status.get("podIPs") or ())}


def _unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message)
