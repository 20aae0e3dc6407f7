"""What Services are given: addresses, families of addresses, ports of nodes; and what a new type takes from them.

Source: core/v1 Service storage and its allocators, as behaviour.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from haru.apiserver.registry.service_allocations import (
    NODE_PORTS,
    SERVICE_NETWORK,
    Addresses,
    Numbers,
    ServiceAllocations,
    address_number,
    ports_of,
)
from haru.apiserver.request.call import Call
from haru.kube.errors import FieldError, internal_error, invalid
from haru.kube.kind_strategies import with_both_addresses
from haru.kube.meta import Obj
from haru.kube.validation.services import is_external, is_headless, needs_health_port, validate_addresses
from haru.storage import Put

GIVEN_OUT = "ranges/services"
_FAMILY = "IPv4"
_OF_CLUSTER = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


async def create_service(call: Call, service: Obj) -> None:
    """Give a new Service what it did not ask for, and refuse what it cannot have."""
    await _allocate(call, service, None)


async def update_service(call: Call, new: Obj, old: Obj) -> None:
    """Keep what was given: a client that applies its own manifest does not know it. Take back what is of no use."""
    spec, before = dict(new.get("spec") or {}), old.get("spec") or {}
    spec["ports"] = [dict(port) for port in spec.get("ports") or ()]
    new["spec"] = spec
    _take_over(spec, before)
    _drop_what_the_type_lacks(spec, before)
    if not spec["ports"]:
        del spec["ports"]
    await _allocate(call, new, old)


def _take_over(spec: Obj, before: Obj) -> None:
    """What was given, where the writer says nothing of it."""
    if before.get("type") != "ExternalName" and spec.get("type") != "ExternalName":
        for name in _OF_CLUSTER:
            if not spec.get(name) and name in before:
                spec[name] = before[name]
    if _has_node_ports(spec) and _has_node_ports(before):
        known = {
            (p.get("port"), p.get("protocol")): p["nodePort"] for p in before.get("ports") or () if "nodePort" in p
        }
        taken = {port.get("nodePort") for port in spec["ports"]}
        for port in spec["ports"]:
            given = known.get((port.get("port"), port.get("protocol")))
            if not port.get("nodePort") and given and given not in taken:
                port["nodePort"] = given
    if needs_health_port(spec) and needs_health_port(before) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = before.get("healthCheckNodePort")


def _drop_what_the_type_lacks(spec: Obj, before: Obj) -> None:
    """Unless the writer changed it, which validation refuses."""
    if spec.get("type") == "ExternalName" != before.get("type"):
        if all(spec.get(name) == before.get(name) for name in ("clusterIP", "clusterIPs")):
            _drop(spec, "clusterIP", "clusterIPs")
        _drop_unchanged(spec, before, "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy")
    if _has_node_ports(before) and not _has_node_ports(spec):
        then = {port.get("nodePort") for port in before.get("ports") or ()}
        if all(port.get("nodePort") in then for port in spec["ports"] if port.get("nodePort")):
            for port in spec["ports"]:
                port.pop("nodePort", None)
    if needs_health_port(before) and not needs_health_port(spec):
        _drop_unchanged(spec, before, "healthCheckNodePort")
    if before.get("type") == "LoadBalancer" != spec.get("type"):
        _drop_unchanged(spec, before, "allocateLoadBalancerNodePorts", "loadBalancerClass")
    if is_external(before) and not is_external(spec):
        _drop_unchanged(spec, before, "externalTrafficPolicy")


def _drop_unchanged(spec: Obj, before: Obj, *names: str) -> None:
    _drop(spec, *(name for name in names if spec.get(name) == before.get(name)))


def _drop(spec: Obj, *names: str) -> None:
    for name in names:
        spec.pop(name, None)


async def _allocate(call: Call, service: Obj, old: Obj | None) -> None:
    """Addresses and ports for what has none; 422 for those that it cannot have."""
    spec: Obj = service.setdefault("spec", {})
    before = (old or {}).get("spec") or {}
    if old is not None:
        _mirror_addresses(spec, before)
    else:
        spec.update(with_both_addresses(service)["spec"])
    if spec.get("type") == "ExternalName":
        return
    problems = list(_choose_families(spec, before))
    if problems:
        raise call.invalid(service["metadata"].get("name", ""), problems)
    wants_ports = needs_health_port(spec) or _has_node_ports(spec)
    if not wants_ports and not _wants_address(spec, before):
        return
    own = call.resource.key(service["metadata"].get("namespace", ""), service["metadata"].get("name", ""))
    held = await _allocations_in_turn(call)
    problems = list(_choose_address(call, spec, before, held.addresses, own))
    if wants_ports:
        problems += _choose_ports(spec, before, held.ports, own)
    if problems:
        raise call.invalid(service["metadata"].get("name", ""), problems)


def _mirror_addresses(spec: Obj, before: Obj) -> None:
    """Who changes or clears `clusterIP` alone, as old clients do, means `clusterIPs` as well."""
    one, many = spec.get("clusterIP"), spec.get("clusterIPs")
    if one != before.get("clusterIP") and many == before.get("clusterIPs"):
        if one:
            spec["clusterIPs"] = [one]
        elif before.get("clusterIP"):
            _drop(spec, "clusterIPs")


def _choose_families(spec: Obj, before: Obj) -> Iterator[FieldError]:
    free = is_headless(spec) and not spec.get("selector")  # its endpoints are written by somebody, of any family
    if not spec.get("ipFamilyPolicy"):
        spec["ipFamilyPolicy"] = before.get("ipFamilyPolicy") or ("RequireDualStack" if free else "SingleStack")
    problems = validate_addresses(spec, before)
    if problems:
        yield from problems
        return
    single = spec["ipFamilyPolicy"] == "SingleStack"
    if problems := list(_too_many_families(spec)) if single else []:
        yield from problems
        return
    if free:
        families = list(spec.get("ipFamilies") or [_FAMILY])
        if len(families) < 2 and not single:
            families.append("IPv6" if families[0] == "IPv4" else "IPv4")
        spec["ipFamilies"] = families
        return
    if spec["ipFamilyPolicy"] == "RequireDualStack":
        why = "this cluster is not configured for dual-stack services"
        yield invalid("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], why)
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        if family != _FAMILY:
            yield invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
    for index, address in enumerate(spec.get("clusterIPs") or ()):
        if ":" in address:
            yield invalid(f"spec.clusterIPs[{index}]", spec["clusterIPs"], "IPv6 is not configured on this cluster")
    if not spec.get("ipFamilies"):
        spec["ipFamilies"] = [_FAMILY]


def _too_many_families(spec: Obj) -> Iterator[FieldError]:
    """What a Service of one family has of two; where it has, nothing else of its families is looked at."""
    for name, what in (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")):
        if len(spec.get(name) or ()) == 2:
            why = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
            yield invalid("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], why)


async def _allocations_in_turn(call: Call) -> ServiceAllocations:
    """What Services have, to give out what they do not have yet.

    Whoever does writes one key with the Service, at the version from before the look: of two who looked at the same
    time, at this server or another, one starts again.
    """
    record = await call.objects.store.get(GIVEN_OUT)
    call.together.append(Put(GIVEN_OUT, b"{}", record.revision if record is not None else 0))
    await call.objects.service_allocations.take_in()
    return call.objects.service_allocations


def _wants_address(spec: Obj, before: Obj) -> bool:
    return not is_headless(spec) and (not spec.get("clusterIP") or spec["clusterIP"] != before.get("clusterIP"))


def _choose_address(call: Call, spec: Obj, before: Obj, held: Addresses, own: str) -> Iterator[FieldError]:
    if not _wants_address(spec, before):
        return
    if not spec.get("clusterIP"):
        number = next(held.free(), None)
        if number is None:
            raise internal_error("failed to allocate a serviceIP: range is full")
        spec["clusterIP"] = str(ipaddress.IPv4Address(number))
        spec["clusterIPs"] = [spec["clusterIP"]]
        return
    if not is_headless(before) and before.get("clusterIP"):
        return  # validation says that it may not change
    address = spec["clusterIP"]
    number = address_number(address)
    if number is None or not held.is_given_out(number):
        why = "the provided network does not match the current range"
        if call.dry_run:
            why = f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {SERVICE_NETWORK}"
        yield invalid("spec.clusterIPs", [address], f"failed to allocate IP {address}: {why}")
    elif held.is_held(number, but=own):
        why = f"failed to allocate IP {address}: provided IP is already allocated"
        yield invalid("spec.clusterIPs", [address], why)


def _has_node_ports(spec: Obj) -> bool:
    if spec.get("type") == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False or any(
            port.get("nodePort") for port in spec.get("ports") or ()
        )
    return spec.get("type") == "NodePort"


def _choose_ports(spec: Obj, before: Obj, held: Numbers, own: str) -> Iterator[FieldError]:
    kept, asked = ports_of(before), ports_of(spec)
    free = (port for port in held.free() if port not in asked)
    given: dict[tuple[int, str], int] = {}
    chooses = spec.get("allocateLoadBalancerNodePorts") is not False or spec.get("type") == "NodePort"
    for index, port in enumerate(spec.get("ports") or ()):
        if port.get("nodePort"):
            yield from _refused(f"spec.ports[{index}].nodePort", port["nodePort"], held, own, kept)
        elif chooses:
            # TCP and UDP of one port share a port of the nodes.
            key = (port.get("port") or 0, "" if port.get("protocol") in ("TCP", "UDP") else str(port.get("protocol")))
            port["nodePort"] = given.get(key) or _next_port(free)
            given[key] = port["nodePort"]
    if needs_health_port(spec):
        if spec.get("healthCheckNodePort"):
            yield from _refused("spec.healthCheckNodePort", spec["healthCheckNodePort"], held, own, kept)
        else:
            spec["healthCheckNodePort"] = _next_port(free)


def _next_port(free: Iterator[int]) -> int:
    port = next(free, None)
    if port is None:
        raise internal_error("failed to allocate a nodePort: range is full")
    return port


def _refused(place: str, port: int, held: Numbers, own: str, kept: set[int]) -> Iterator[FieldError]:
    if port in kept:
        return
    if port not in NODE_PORTS:
        valid = f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
        yield invalid(place, port, f"provided port is not in the valid range. The range of valid ports is {valid}")
    elif held.is_held(port, but=own):
        yield invalid(place, port, "provided port is already allocated")
