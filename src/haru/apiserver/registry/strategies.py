"""What is particular to a few kinds and needs the server: addresses, requesters, what a client can not know.

The rest of what happens to an object between decoding and validation is pure, and lies in `haru.kube.strategy`.
The hooks change the object they are given in place: its top level, metadata and spec belong to the call.
Source: the registry strategies of each kind, as behaviour.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from haru.apiserver.request.call import Call
from haru.kube.errors import internal_error, invalid
from haru.kube.meta import Obj
from haru.storage import Put

Complete = Callable[[Call, Obj], Awaitable[None]]
CompleteUpdate = Callable[[Call, Obj, Obj], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Strategy:
    """The hooks of one kind; `complete_update` is given the new and the old object."""

    complete_create: Complete | None = None
    complete_update: CompleteUpdate | None = None
    allocates: bool = False
    """Whether something is given out with a new object that no other one may have."""


async def _update_pod(call: Call, new: Obj, old: Obj) -> None:
    """Removing the last scheduling gate takes back the condition that it caused."""
    if (old.get("spec") or {}).get("schedulingGates") and not (new.get("spec") or {}).get("schedulingGates"):
        status = dict(new.get("status") or {})
        status["conditions"] = [
            c
            for c in status.get("conditions") or []
            if not (c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated")
        ]
        new["status"] = status


GIVEN_OUT = "ranges/services"
SERVICE_NETWORK = ipaddress.IPv4Network("10.96.0.0/16")


async def _create_service(call: Call, service: Obj) -> None:
    spec = service.setdefault("spec", {})
    kind = spec.get("type", "ClusterIP")
    if kind == "ExternalName":
        return
    if not spec.get("clusterIP") and spec.get("clusterIPs"):
        spec["clusterIP"] = spec["clusterIPs"][0]
    services = await _services_in_turn(call)
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _free_address(services)
    else:
        _require_free_address(call, service, services)
    spec["clusterIPs"] = [spec["clusterIP"]]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if kind in ("NodePort", "LoadBalancer"):
        _assign_node_ports(spec, services)


async def _services_in_turn(call: Call) -> list[Obj]:
    """All Services, to give out what they do not have yet.

    Whoever does writes one key with the Service, at the version from before the look: of two who looked at the same
    time, at this server or another, one starts again.
    """
    record = await call.objects.store.get(GIVEN_OUT)
    call.together.append(Put(GIVEN_OUT, b"{}", record.revision if record is not None else 0))
    return await call.objects.peek_all("", "services")


def _free_address(services: list[Obj]) -> str:
    taken = {ip for s in services for ip in (s.get("spec") or {}).get("clusterIPs") or ()}
    # The first addresses are left to those who ask for one by name (the API server's own, DNS).
    for offset in range(256, SERVICE_NETWORK.num_addresses - 1):
        address = str(SERVICE_NETWORK[offset])
        if address not in taken:
            return address
    raise internal_error("failed to allocate a serviceIP: range is full")


def _require_free_address(call: Call, service: Obj, services: list[Obj]) -> None:
    address = service["spec"]["clusterIP"]
    if address == "None" or not _is_ipv4(address):  # headless, or for validation to refuse
        return
    why = ""
    if ipaddress.IPv4Address(address) not in SERVICE_NETWORK:
        why = f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {SERVICE_NETWORK}"
    elif any(address in ((s.get("spec") or {}).get("clusterIPs") or ()) for s in services):
        why = f"failed to allocate IP {address}: provided IP is already allocated"
    if why:
        raise call.invalid(service["metadata"].get("name", ""), [invalid("spec.clusterIPs", [address], why)])


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _assign_node_ports(spec: Obj, services: list[Obj]) -> None:
    taken = {p.get("nodePort") for s in services for p in (s.get("spec") or {}).get("ports") or ()}
    free = (port for port in range(30000, 32768) if port not in taken)
    for port in spec.get("ports") or ():
        if not port.get("nodePort"):
            port["nodePort"] = next(free)


async def _update_service(call: Call, new: Obj, old: Obj) -> None:
    """A client that applies its own manifest does not know the addresses that were assigned to it."""
    spec, before = dict(new.get("spec") or {}), old.get("spec") or {}
    for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if not spec.get(name) and name in before and spec.get("type") != "ExternalName":
            spec[name] = before[name]
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        ports = [dict(port) for port in spec.get("ports") or ()]
        known = {(p.get("port"), p.get("protocol")): p.get("nodePort") for p in before.get("ports") or ()}
        for port in ports:
            port.setdefault("nodePort", known.get((port.get("port"), port.get("protocol"))))
        spec["ports"] = ports
        _assign_node_ports(spec, await _services_in_turn(call))
    new["spec"] = spec


async def _create_signing_request(call: Call, request: Obj) -> None:
    """A signing request carries who asked for it."""
    user = call.request.user
    spec = request.setdefault("spec", {})
    spec["username"], spec["groups"] = user.name, list(user.groups)
    for name in ("uid", "extra"):
        spec.pop(name, None)
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {k: list(v) for k, v in user.extra.items()}


async def _update_signing_request(call: Call, new: Obj, old: Obj) -> None:
    """Keep the spec of a signing request: an update cannot change it."""
    new["spec"] = old["spec"]


async def _create_secret(call: Call, secret: Obj) -> None:
    write_string_data(secret)


async def _update_secret(call: Call, new: Obj, old: Obj) -> None:
    write_string_data(new)
    if not new.get("type"):
        new["type"] = old.get("type")


def write_string_data(secret: Obj) -> None:
    """`stringData` is a way to write `data`, and is never stored."""
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {name: base64.b64encode(value.encode()).decode() for name, value in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


_STRATEGIES: dict[tuple[str, str], Strategy] = {
    ("", "pods"): Strategy(complete_update=_update_pod),
    ("", "services"): Strategy(_create_service, _update_service, allocates=True),
    ("", "secrets"): Strategy(_create_secret, _update_secret),
    ("certificates.k8s.io", "certificatesigningrequests"): Strategy(_create_signing_request, _update_signing_request),
}
_PLAIN = Strategy()


def strategy_for(group: str, plural: str) -> Strategy:
    """The strategy of a resource."""
    return _STRATEGIES.get((group, plural), _PLAIN)
