"""Rules for Services: type, ports, addresses, families of addresses, policies of traffic.

Source: validation of core/v1 Service, as behaviour.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.validation.common import each_message, in_range, items, one_of, part, port
from haru.kube.validation.ingresses import validate_balancers
from haru.kube.validation.metadata import validate_labels

_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_POLICIES: Final = ("Cluster", "Local")
_FAMILIES: Final = ("IPv4", "IPv6")
_FAMILY_POLICIES: Final = ("PreferDualStack", "RequireDualStack", "SingleStack")
_DISTRIBUTIONS: Final = ("PreferClose", "PreferSameZone", "PreferSameNode")
_ADDRESS_MODES: Final = ("Proxy", "VIP")
_HALF_A_DAY: Final = 86400
_SOURCES: Final = "service.beta.kubernetes.io/load-balancer-source-ranges"
_ONLY_FOR_BALANCERS: Final = "may only be used when `type` is 'LoadBalancer'"


def validate_service_status(new: Obj, old: Obj) -> list[FieldError]:
    """Where a Service is reached from outside: only one of type LoadBalancer is."""
    if part(new, "spec").get("type") != "LoadBalancer":
        given = items(part(part(new, "status"), "loadBalancer"), "ingress")
        why = "may only be used when `spec.type` is 'LoadBalancer'"
        return [forbidden("status.loadBalancer.ingress", why)] if given else []
    return validate_balancers(new, old, _address_mode)


def _address_mode(field: str, entry: Obj) -> list[FieldError]:
    place, mode = f"{field}.ipMode", entry.get("ipMode")
    if mode is None:
        return [required(place, "must be specified when `ip` is set")] if entry.get("ip") else []
    if not entry.get("ip"):
        return [forbidden(place, "may not be specified when `ip` is not set")]
    return [] if mode in _ADDRESS_MODES else [not_supported(place, mode, _ADDRESS_MODES)]


def is_headless(spec: Obj) -> bool:
    """Whether a Service has no address of its own."""
    return items(spec, "clusterIPs") == ["None"] or spec.get("clusterIP") == "None"


def is_external(spec: Obj) -> bool:
    """Whether a Service can be reached from outside of the cluster."""
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def needs_health_port(spec: Obj) -> bool:
    """Whether a load balancer asks nodes if they have an endpoint of the Service."""
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def validate_service(service: Obj, old: Obj | None = None) -> list[FieldError]:
    """Validate a Service; addresses that stood in `old` are not judged again."""
    spec, before = part(service, "spec"), part(old, "spec")
    kind = spec.get("type")
    found = list(_by_type(spec, kind))
    found += _ports(spec, kind)
    found += validate_labels(part(spec, "selector"), "spec.selector")
    found += _affinity(spec)
    found += validate_addresses(spec, before)
    found += _external_addresses(spec, before)
    found += one_of("spec.type", kind, _TYPES)
    found += _load_balancer(service, old)
    found += _external_policy(spec)
    inside, must_say = spec.get("internalTrafficPolicy"), kind in ("ClusterIP", "LoadBalancer", "NodePort")
    found += one_of("spec.internalTrafficPolicy", inside, _POLICIES, optional=not must_say)
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        found.append(not_supported("spec.trafficDistribution", distribution, _DISTRIBUTIONS))
    return found


def validate_service_update(new: Obj, old: Obj) -> list[FieldError]:
    """Validate a change: an address that was given stays, unless the Service turns into an external name."""
    spec, before = part(new, "spec"), part(old, "spec")
    found: list[FieldError] = []
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        found += _first_stays(spec, before, "clusterIPs")
        found += _first_stays(spec, before, "ipFamilies")
    if spec.get("type") == before.get("type") == "LoadBalancer":
        name = "loadBalancerClass"
        if spec.get(name) != before.get(name):
            found.append(invalid(f"spec.{name}", spec.get(name), "may not change once set"))
    if needs_health_port(spec) and needs_health_port(before):
        name = "healthCheckNodePort"
        if spec.get(name) != before.get(name):
            found.append(forbidden(f"spec.{name}", "field is immutable"))
    return found + validate_service(new, old)


def _first_stays(spec: Obj, before: Obj, name: str) -> list[FieldError]:
    now, then = items(spec, name), items(before, name)
    if name == "ipFamilies" and is_headless(spec) and not part(spec, "selector"):
        return []  # whoever writes the endpoints chooses their families
    if not then or now[:1] == then[:1]:
        return []
    why = "may not change once set" if now else f"primary {name.removesuffix('s')} can not be unset"
    return [invalid(f"spec.{name}[0]", now or None, why)]


def _by_type(spec: Obj, kind: Any) -> Iterator[FieldError]:
    if not items(spec, "ports") and not is_headless(spec) and kind != "ExternalName":
        yield required("spec.ports")
    if kind in ("LoadBalancer", "NodePort") and is_headless(spec):
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind != "ExternalName":
        return
    for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(name):
            yield forbidden(f"spec.{name}", "may not be set for ExternalName services")
    host = (spec.get("externalName") or "").removesuffix(".")
    if host:
        yield from each_message("spec.externalName", host, names.is_dns1123_subdomain(host))
    else:
        yield required("spec.externalName")


# --- ports


def _ports(spec: Obj, kind: Any) -> Iterator[FieldError]:
    ports = items(spec, "ports")
    seen: dict[str, set[Any]] = {"name": set(), "nodePort": set(), "": set()}
    for index, entry in enumerate(ports):
        place = f"spec.ports[{index}]"
        name, number, protocol = entry.get("name") or "", entry.get("port") or 0, entry.get("protocol") or ""
        yield from _port(entry, place, needs_name=len(ports) > 1)
        if name and _repeated(seen["name"], name):
            yield duplicate(f"{place}.name", name)
        node_port = entry.get("nodePort")
        if node_port and kind == "ClusterIP":
            yield forbidden(f"{place}.nodePort", "may not be used when `type` is 'ClusterIP'")
        if node_port and _repeated(seen["nodePort"], (protocol, node_port)):
            yield duplicate(f"{place}.nodePort", node_port)
        if _repeated(seen[""], (protocol, number)):
            yield duplicate(place, {"protocol": protocol, "port": number})


def _port(entry: Obj, place: str, *, needs_name: bool) -> Iterator[FieldError]:
    name, number, protocol = entry.get("name") or "", entry.get("port") or 0, entry.get("protocol") or ""
    if name:
        yield from each_message(f"{place}.name", name, names.is_dns1123_label(name))
    elif needs_name:
        yield required(f"{place}.name")
    yield from in_range(f"{place}.port", number, 1, 65535)
    yield from one_of(f"{place}.protocol", protocol, _PROTOCOLS)
    yield from port(f"{place}.targetPort", entry.get("targetPort", number))
    if entry.get("appProtocol") is not None:
        value = entry["appProtocol"]
        yield from each_message(f"{place}.appProtocol", value, names.is_qualified_name(value))


def _repeated(seen: set[Any], key: Any) -> bool:
    if key in seen:
        return True
    seen.add(key)
    return False


def _affinity(spec: Obj) -> Iterator[FieldError]:
    affinity, config = spec.get("sessionAffinity"), spec.get("sessionAffinityConfig")
    yield from one_of("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    place = "spec.sessionAffinityConfig"
    if affinity == "None" and config is not None:
        yield forbidden(place, "must not be set when session affinity is None")
    if affinity != "ClientIP":
        return
    seconds = part(config, "clientIP").get("timeoutSeconds")
    if config is None:
        yield required(place, "when session affinity type is ClientIP")
    elif config.get("clientIP") is None:
        yield required(f"{place}.clientIP", "when session affinity type is ClientIP")
    elif seconds is None:
        yield required(f"{place}.clientIP.timeoutSeconds", "when session affinity type is ClientIP")
    elif not 0 < seconds <= _HALF_A_DAY:
        why = f"must be greater than 0 and less than {_HALF_A_DAY}"
        yield invalid(f"{place}.clientIP.timeoutSeconds", seconds, why)


# --- addresses


def validate_addresses(spec: Obj, before: Obj) -> list[FieldError]:
    """Validate the addresses of a Service in the cluster, and their families."""
    if spec.get("type") == "ExternalName":
        return []
    found = list(_address_list(spec))
    for index, family in enumerate(items(spec, "ipFamilies")):
        if family not in _FAMILIES:
            found.append(not_supported(f"spec.ipFamilies[{index}]", family, _FAMILIES))
        if family in items(spec, "ipFamilies")[:index]:
            found.append(duplicate(f"spec.ipFamilies[{index}]", family))
    found += one_of("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), _FAMILY_POLICIES, optional=True)
    return found + list(_cluster_addresses(spec, items(before, "clusterIPs")))


def _address_list(spec: Obj) -> Iterator[FieldError]:
    first, addresses = spec.get("clusterIP"), items(spec, "clusterIPs")
    if first and not addresses:
        yield required("spec.clusterIPs")
    elif first and addresses[0] != first:
        yield invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`")
    elif addresses and not first:
        yield invalid("spec.clusterIPs", addresses, "must be empty when `clusterIP` is not specified")


def _cluster_addresses(spec: Obj, known: Collection[str]) -> Iterator[FieldError]:
    addresses = items(spec, "clusterIPs")
    wrong = addresses[:1] == ["None"] and len(addresses) > 1
    if wrong:
        yield invalid("spec.clusterIPs", addresses, "'None' must be the first and only value")
    for index, address in enumerate(addresses):
        if (index or address != "None") and address not in known and family_of(address) is None:
            wrong = True
            yield from each_message(f"spec.clusterIPs[{index}]", address, names.is_ip(address))
    if len(addresses) > 2:
        yield invalid("spec.clusterIPs", addresses, "may only hold up to 2 values")
    if wrong:
        return
    families = [family_of(address) for address in addresses]
    if len(addresses) > 1 and len(set(families)) < len(families):
        yield invalid("spec.clusterIPs", addresses, "may specify no more than one IP for each IP family")
    if not is_headless(spec):
        pairs = zip(families, items(spec, "ipFamilies"), strict=False)
        for index, (family, declared) in enumerate(pairs):
            if declared in _FAMILIES and family != declared:
                why = f"expected an {declared} value as indicated by `ipFamilies[{index}]`"
                yield invalid(f"spec.clusterIPs[{index}]", addresses[index], why)


def family_of(address: str) -> str | None:
    """The family of an address; None for a text that is none."""
    try:
        return f"IPv{ipaddress.ip_address(address).version}"
    except ValueError:
        return None


def _external_addresses(spec: Obj, before: Obj) -> Iterator[FieldError]:
    for index, address in enumerate(items(spec, "externalIPs")):
        place = f"spec.externalIPs[{index}]"
        if family_of(address) is None:
            if address not in items(before, "externalIPs"):
                yield from each_message(place, address, names.is_ip(address))
            continue
        yield from (invalid(place, address, why) for why in _special(address))


def _special(address: str) -> Iterator[str]:
    """Why an address can belong to no endpoint."""
    parsed = ipaddress.ip_address(address)
    if parsed.is_unspecified:
        yield f"may not be unspecified ({address})"
    if parsed.is_loopback:
        yield "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    if parsed.is_link_local:
        yield "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    if parsed in ipaddress.ip_network("224.0.0.0/24" if parsed.version == 4 else "ff02::/16"):
        yield "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"


# --- traffic from outside


def _load_balancer(service: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = part(service, "spec")
    balances = spec.get("type") == "LoadBalancer"
    yield from _source_ranges(service, old, balances=balances)
    allocates, chosen = spec.get("allocateLoadBalancerNodePorts"), spec.get("loadBalancerClass")
    if allocates is not None and not balances:
        yield forbidden("spec.allocateLoadBalancerNodePorts", _ONLY_FOR_BALANCERS)
    if allocates is None and balances:
        yield required("allocateLoadBalancerNodePorts")
    if chosen is not None and balances:
        yield from each_message("spec.loadBalancerClass", chosen, names.is_qualified_name(chosen))
    elif chosen is not None:
        yield forbidden("spec.loadBalancerClass", _ONLY_FOR_BALANCERS)


def _source_ranges(service: Obj, old: Obj | None, *, balances: bool) -> Iterator[FieldError]:
    """The sources that a load balancer lets in: a list, or an annotation from before there was one."""
    place, ranges = "spec.LoadBalancerSourceRanges", items(part(service, "spec"), "loadBalancerSourceRanges")
    annotation = part(part(service, "metadata"), "annotations").get(_SOURCES)
    if ranges:
        known = items(part(old, "spec"), "loadBalancerSourceRanges")
        places: Sequence[tuple[str, str]] = [
            (f"{place}[{index}]", value) for index, value in enumerate(ranges) if value not in known
        ]
    elif annotation is not None:
        place = f"metadata.annotations[{_SOURCES}]"
        same = part(part(old, "metadata"), "annotations").get(_SOURCES) == annotation
        places = [] if same or not annotation.strip() else [(place, value) for value in annotation.split(",")]
    else:
        return
    if not balances:
        yield forbidden(place, _ONLY_FOR_BALANCERS)
    for where, value in places:
        yield from each_message(where, value.strip(), names.is_network(value.strip()))


def _external_policy(spec: Obj) -> Iterator[FieldError]:
    policy, health = spec.get("externalTrafficPolicy"), spec.get("healthCheckNodePort") or 0
    if is_external(spec):
        yield from one_of("spec.externalTrafficPolicy", policy, _POLICIES)
    elif policy:
        yield invalid("spec.externalTrafficPolicy", policy, "may only be set for externally-accessible services")
    if not needs_health_port(spec):
        if health:
            why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            yield invalid("spec.healthCheckNodePort", health, why)
    elif not health:
        yield required("spec.healthCheckNodePort")
    else:
        yield from in_range("spec.healthCheckNodePort", health, 1, 65535)
