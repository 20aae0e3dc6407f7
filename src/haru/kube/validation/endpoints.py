"""Endpoints and EndpointSlices: where the pods of a Service are reached."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, invalid, not_supported, required, too_many
from haru.kube.meta import Obj
from haru.kube.validation.common import (
    each_message,
    immutable,
    items,
    label_key,
    label_name,
    label_value,
    one_of,
    part,
    port,
    same,
    subdomain,
)

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_MAX_PORTS = 20000
_MAX_ENDPOINTS = 1000
_MAX_ADDRESSES = 100
_MAX_HINTS = 8
_MAX_TOPOLOGY = 16


def validate_endpoints(endpoints: Obj) -> list[FieldError]:
    """Endpoints when they are created."""
    found: list[FieldError] = []
    for index, subset in enumerate(items(endpoints, "subsets")):
        field, ports = f"subsets[{index}]", items(subset, "ports")
        if not items(subset, "addresses") and not items(subset, "notReadyAddresses"):
            found.append(required(field, "must specify `addresses` or `notReadyAddresses`"))
        for member in ("addresses", "notReadyAddresses"):
            for number, address in enumerate(items(subset, member)):
                found += _address(f"{field}.{member}[{number}]", address)
        for number, target in enumerate(ports):
            found += _port(f"{field}.ports[{number}]", target, named=len(ports) > 1)
    return found


def validate_endpoints_update(new: Obj, old: Obj) -> list[FieldError]:
    """Subsets that did not change are not judged again."""
    return [] if same(new.get("subsets"), old.get("subsets")) else validate_endpoints(new)


def _address(field: str, address: Obj) -> list[FieldError]:
    ip = address.get("ip") or ""
    found = each_message(f"{field}.ip", ip, names.is_ip(ip))
    found += label_name(f"{field}.hostname", address["hostname"]) if address.get("hostname") else []
    if address.get("nodeName") is not None:
        found += subdomain(f"{field}.nodeName", address["nodeName"])
    return found + _reachable(f"{field}.ip", ip)


def _reachable(field: str, text: str) -> list[FieldError]:
    """An address that others reach; those of the loopback are let through, for clusters on one machine."""
    try:
        ip = ipaddress.ip_address(names.without_leading_zeros(text))
    except ValueError:
        return [invalid(field, text, "must be a valid IP address")]
    first = ip.packed[:2]
    wrong = {
        f"may not be unspecified ({text})": ip.is_unspecified,
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)": ip.is_link_local,
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)": (
            ip.packed[:3] == b"\xe0\0\0" if ip.version == 4 else first == b"\xff\x02"
        ),
    }
    return [invalid(field, text, why) for why, is_so in wrong.items() if is_so]


def _port(field: str, target: Obj, *, named: bool) -> list[FieldError]:
    name = target.get("name") or ""
    found = [required(f"{field}.name")] if named and not name else []
    found += label_name(f"{field}.name", name) if name else []
    found += port(f"{field}.port", target.get("port") or 0)
    found += one_of(f"{field}.protocol", target.get("protocol"), _PROTOCOLS)
    protocol = target.get("appProtocol")
    return found + (label_key(f"{field}.appProtocol", protocol) if protocol is not None else [])


# --- slices


def validate_endpoint_slice(endpoint_slice: Obj) -> list[FieldError]:
    """An EndpointSlice when it is created."""
    kind = endpoint_slice.get("addressType") or ""
    found = one_of("addressType", kind, _ADDRESS_TYPES) + _slice_ports(items(endpoint_slice, "ports"))
    return found + _slice_endpoints(items(endpoint_slice, "endpoints"), kind)


def validate_endpoint_slice_update(new: Obj, old: Obj) -> list[FieldError]:
    """A slice keeps the type of its addresses; endpoints that did not change are not judged again."""
    kind = new.get("addressType") or ""
    found = one_of("addressType", kind, _ADDRESS_TYPES) + _slice_ports(items(new, "ports"))
    if not same(new.get("endpoints"), old.get("endpoints")):
        found += _slice_endpoints(items(new, "endpoints"), kind)
    return found + immutable("addressType", kind, old.get("addressType") or "")


def _slice_ports(ports: Sequence[Obj]) -> list[FieldError]:
    if len(ports) > _MAX_PORTS:
        return [too_many("ports", len(ports), _MAX_PORTS)]
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, target in enumerate(ports):
        field, name, protocol = f"ports[{index}]", target.get("name") or "", target.get("appProtocol")
        found += label_name(f"{field}.name", name) if name else []
        if name in seen:
            found.append(duplicate(f"{field}.name", name))
        seen.add(name)
        told = target.get("protocol")
        if told is None:
            found.append(required(f"{field}.protocol"))
        elif told not in _PROTOCOLS:
            found.append(not_supported(f"{field}.protocol", told, _PROTOCOLS))
        found += label_key(f"{field}.appProtocol", protocol) if protocol is not None else []
    return found


def _slice_endpoints(endpoints: Sequence[Obj], kind: str) -> list[FieldError]:
    if len(endpoints) > _MAX_ENDPOINTS:
        return [too_many("endpoints", len(endpoints), _MAX_ENDPOINTS)]
    found: list[FieldError] = []
    for index, endpoint in enumerate(endpoints):
        field, addresses = f"endpoints[{index}]", items(endpoint, "addresses")
        if not addresses:
            found.append(required(f"{field}.addresses", "must contain at least 1 address"))
        elif len(addresses) > _MAX_ADDRESSES:
            found.append(too_many(f"{field}.addresses", len(addresses), _MAX_ADDRESSES))
        for number, address in enumerate(addresses):
            found += _slice_address(f"{field}.addresses", number, address, kind)
        if endpoint.get("nodeName") is not None:
            found += subdomain(f"{field}.nodeName", endpoint["nodeName"])
        topology = part(endpoint, "deprecatedTopology")
        if len(topology) > _MAX_TOPOLOGY:
            found.append(too_many(f"{field}.deprecatedTopology", len(topology), _MAX_TOPOLOGY))
        if endpoint.get("hostname") is not None:
            found += label_name(f"{field}.hostname", endpoint["hostname"])
        found += _hints(f"{field}.hints", part(endpoint, "hints"))
    return found


def _slice_address(field: str, number: int, address: str, kind: str) -> list[FieldError]:
    place = f"{field}[{number}]"
    if kind == "FQDN":
        return fully_qualified(place, address)
    if kind not in _ADDRESS_TYPES:
        return []
    wrong = names.is_ip(address) or (names.is_canonical_ip(address) if kind == "IPv6" else [])
    if wrong:
        return each_message(place, address, wrong)
    found = []
    if (":" in address) != (kind == "IPv6"):
        found.append(invalid(field, address, f"must be an {kind} address"))
    return found + _reachable(place, address)


def fully_qualified(field: str, name: str) -> list[FieldError]:
    """A domain name of two segments or more."""
    if not name:
        return [required(field)]
    name = name.removesuffix(".")
    if wrong := names.is_dns1123_subdomain(name):
        return each_message(field, name, wrong)
    if "." not in name:
        return [invalid(field, name, "should be a domain with at least two segments separated by dots")]
    return [error for label in name.split(".") for error in each_message(field, label, names.is_dns1123_label(label))]


def _hints(field: str, hints: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    for member, check in (("forZones", label_value), ("forNodes", subdomain)):
        given = items(hints, member)
        if len(given) > _MAX_HINTS:
            return [*found, too_many(f"{field}.{member}", len(given), _MAX_HINTS)]
        seen: set[str] = set()
        for index, hint in enumerate(given):
            place, name = f"{field}.{member}[{index}].name", hint.get("name") or ""
            if name in seen:
                found.append(duplicate(place, name))
            seen.add(name)
            found += check(place, name)
    return found
