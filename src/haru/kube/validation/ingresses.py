"""Ingresses, their classes, and network policies (networking.k8s.io/v1)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Any

from haru.kube import names
from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required, too_long
from haru.kube.meta import Obj
from haru.kube.validation.common import each_message, immutable, items, label_name, part, path_segment, port, subdomain
from haru.kube.validation.selectors import validate_label_selector

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_IN_NO_PATH = ("//", "/./", "/../", "%2f", "%2F")
_AT_NO_END = ("/..", "/.")
_WILDCARD = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WILDCARD_WHY = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character"
)
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_MAX_CONTROLLER = 250
_CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_SCOPES = ("Cluster", "Namespace")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_POLICY_TYPES = ("Ingress", "Egress")


def validate_ingress(ingress: Obj) -> list[FieldError]:
    """An Ingress when it is created: the annotation of before, and the member, agree on the class."""
    found = _ingress_spec(part(ingress, "spec"))
    told = part(part(ingress, "metadata"), "annotations").get(_CLASS_ANNOTATION)
    name = part(ingress, "spec").get("ingressClassName")
    if told is not None and name is not None and told != name:
        why = "must match `ingressClassName` when both are specified"
        found.append(invalid(f"annotations.{_CLASS_ANNOTATION}", told, why))
    return found


def validate_ingress_update(new: Obj, old: Obj) -> list[FieldError]:
    """Validate an update; the names of stored secrets and the rules of stored wild hosts are kept."""
    return _ingress_spec(part(new, "spec"))


def _ingress_spec(spec: Obj) -> list[FieldError]:
    backend, found = spec.get("defaultBackend"), list[FieldError]()
    if not items(spec, "rules") and backend is None:
        found.append(invalid("spec", None, "either `defaultBackend` or `rules` must be specified"))
    if backend is not None:
        found += _backend("spec.defaultBackend", backend)
    for index, rule in enumerate(items(spec, "rules")):
        found += _rule(f"spec.rules[{index}]", rule)
    for index, tls in enumerate(items(spec, "tls")):
        for number, host in enumerate(items(tls, "hosts")):
            found += _host(f"spec.tls[{index}].hosts[{number}]", host)
        if tls.get("secretName"):
            found += subdomain(f"spec.tls[{index}].secretName", tls["secretName"])
    name = spec.get("ingressClassName")
    return found + (subdomain("spec.ingressClassName", name) if name is not None else [])


def _host(field: str, host: str) -> list[FieldError]:
    if "*" not in host:
        return subdomain(field, host)
    if len(host) > 253:
        return [invalid(field, host, names.max_length_error(253))]
    if re.fullmatch(_WILDCARD, host):
        return []
    return [invalid(field, host, names.regex_error(_WILDCARD_WHY, _WILDCARD, "*.example.com"))]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _rule(field: str, rule: Obj) -> list[FieldError]:
    host, found = rule.get("host") or "", list[FieldError]()
    if _is_address(host):
        found.append(invalid(f"{field}.host", host, "must be a DNS name, not an IP address"))
    found += _host(f"{field}.host", host) if host else []
    if rule.get("http") is None:
        return found
    paths = items(rule["http"], "paths")
    if not paths:
        found.append(required(f"{field}.http.paths"))
    for index, path in enumerate(paths):
        found += _path(f"{field}.http.paths[{index}]", path)
    return found


def _path(field: str, path: Obj) -> list[FieldError]:
    sort, text, found = path.get("pathType"), path.get("path") or "", list[FieldError]()
    if sort is None:
        return [required(f"{field}.pathType", "pathType must be specified")]
    if sort not in _PATH_TYPES:
        found.append(not_supported(f"{field}.pathType", sort, _PATH_TYPES))
    elif not text.startswith("/") and (text or sort != "ImplementationSpecific"):
        found.append(invalid(f"{field}.path", text, "must be an absolute path"))
    if sort in ("Exact", "Prefix"):
        found += [invalid(f"{field}.path", text, f"must not contain '{bad}'") for bad in _IN_NO_PATH if bad in text]
        found += [
            invalid(f"{field}.path", text, f"cannot end with '{bad}'") for bad in _AT_NO_END if text.endswith(bad)
        ]
    return found + _backend(f"{field}.backend", part(path, "backend"))


def _backend(field: str, backend: Obj) -> list[FieldError]:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        return [invalid(field, "", "cannot set both resource and service backends")]
    if resource is not None:
        return _reference(f"{field}.resource", resource)
    if service is None:
        return [invalid(field, "", "resource or service backend is required")]
    name, target = service.get("name") or "", part(service, "port")
    found = (
        each_message(f"{field}.service.name", name, names.is_dns1123_label(name))
        if name
        else [required(f"{field}.service.name")]
    )
    if target.get("name") and target.get("number"):
        return [*found, invalid(field, "", "cannot set both port name & port number")]
    if target.get("name"):
        place = f"{field}.service.port.name"
        return found + each_message(place, target["name"], names.is_port_name(target["name"]))
    if target.get("number"):
        return found + port(f"{field}.service.port.number", target["number"])
    return [*found, required(field, "port name or number is required")]


def _reference(field: str, reference: Obj) -> list[FieldError]:
    group = reference.get("apiGroup")
    found = subdomain(f"{field}.apiGroup", group) if group is not None else []
    for name in ("kind", "name"):
        value = reference.get(name) or ""
        found += path_segment(f"{field}.{name}", value) if value else [required(f"{field}.{name}")]
    return found


def validate_ingress_status(new: Obj, old: Obj) -> list[FieldError]:
    """Where an Ingress is reached: addresses and names."""
    return validate_balancers(new, old, lambda field, entry: [])


def validate_balancers(new: Obj, old: Obj, also: Callable[[str, Obj], list[FieldError]]) -> list[FieldError]:
    """Where load balancers are reached; `also` finds what is between the address and the name of one."""
    found: list[FieldError] = []
    known = [entry.get("ip") for entry in items(part(part(old, "status"), "loadBalancer"), "ingress")]
    for index, entry in enumerate(items(part(part(new, "status"), "loadBalancer"), "ingress")):
        field, address, host = f"status.loadBalancer.ingress[{index}]", entry.get("ip"), entry.get("hostname")
        if address and address not in known:
            found += each_message(f"{field}.ip", address, names.is_ip(address))
        found += also(field, entry)
        if host:
            found += subdomain(f"{field}.hostname", host)
            if _is_address(host):
                found.append(invalid(f"{field}.hostname", host, "must be a DNS name, not an IP address"))
    return found


# --- classes


def validate_ingress_class(ingress_class: Obj) -> list[FieldError]:
    """An IngressClass: its controller, and where its parameters are."""
    spec = part(ingress_class, "spec")
    controller, parameters = spec.get("controller") or "", spec.get("parameters")
    found = [too_long("spec.controller", _MAX_CONTROLLER)] if len(controller) > _MAX_CONTROLLER else []
    found += domain_prefixed_path("spec.controller", controller)
    if parameters is None:
        return found
    field, scope, namespace = "spec.parameters", parameters.get("scope"), parameters.get("namespace")
    found += _reference(field, parameters)
    if scope is None:
        return [*found, required(f"{field}.scope")]
    if scope not in _SCOPES:
        return [*found, not_supported(f"{field}.scope", scope, _SCOPES)]
    if scope == "Cluster":
        why = "`parameters.scope` is set to 'Cluster'"
        return found + ([forbidden(f"{field}.namespace", why)] if namespace is not None else [])
    if namespace is None:
        return [*found, required(f"{field}.namespace", "`parameters.scope` is set to 'Namespace'")]
    return found + label_name(f"{field}.namespace", namespace)


def validate_ingress_class_update(new: Obj, old: Obj) -> list[FieldError]:
    """A class keeps its controller."""
    controllers = (part(each, "spec").get("controller") or "" for each in (new, old))
    return immutable("spec.controller", *controllers) + validate_ingress_class(new)


def domain_prefixed_path(field: str, text: str) -> list[FieldError]:
    """A domain, a slash and a path."""
    if not text:
        return [required(field)]
    domain, _, path = text.partition("/")
    if not domain or not path:
        return [invalid(field, text, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    found = subdomain(field, domain)
    if not re.fullmatch(_HTTP_PATH, path):
        found.append(invalid(field, path, names.regex_error("Invalid path", _HTTP_PATH)))
    return found


# --- network policies


def validate_network_policy(policy: Obj) -> list[FieldError]:
    """A NetworkPolicy when it is created."""
    return _policy(part(policy, "spec"), ())


def validate_network_policy_update(new: Obj, old: Obj) -> list[FieldError]:
    """Validate an update; networks that were stored may be of an older form."""
    known = [
        network
        for member, side in (("ingress", "from"), ("egress", "to"))
        for rule in items(part(old, "spec"), member)
        for peer in items(rule, side)
        for network in (part(peer, "ipBlock").get("cidr"), *items(part(peer, "ipBlock"), "except"))
    ]
    return _policy(part(new, "spec"), known)


def _policy(spec: Obj, known: Sequence[str | None]) -> list[FieldError]:
    found = validate_label_selector("spec.podSelector", part(spec, "podSelector"))
    for member, side in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(items(spec, member)):
            field = f"spec.{member}[{index}]"
            for number, target in enumerate(items(rule, "ports")):
                found += _policy_port(f"{field}.ports[{number}]", target)
            for number, peer in enumerate(items(rule, side)):
                found += _peer(f"{field}.{side}[{number}]", peer, known)
    types = items(spec, "policyTypes")
    if len(types) > len(_POLICY_TYPES):
        return [*found, invalid("spec.policyTypes", types, "may not specify more than two policyTypes")]
    return found + [
        not_supported(f"spec.policyTypes[{index}]", name, _POLICY_TYPES)
        for index, name in enumerate(types)
        if name not in _POLICY_TYPES
    ]


def _policy_port(field: str, target: Obj) -> list[FieldError]:
    protocol, number, end = target.get("protocol"), target.get("port"), target.get("endPort")
    found: list[FieldError] = []
    if protocol is not None and protocol not in _PROTOCOLS:
        found.append(not_supported(f"{field}.protocol", protocol, _PROTOCOLS))
    if number is None:
        why = "may not be specified when `port` is not specified"
        return found + ([invalid(f"{field}.endPort", end, why)] if end is not None else [])
    if isinstance(number, int):
        found += port(f"{field}.port", number)
        if end is not None:
            if end < number:
                found.append(invalid(f"{field}.endPort", number, "must be greater than or equal to `port`"))
            found += port(f"{field}.endPort", end)
        return found
    if end is not None:
        found.append(invalid(f"{field}.endPort", end, "may not be specified when `port` is non-numeric"))
    return found + each_message(f"{field}.port", number, names.is_port_name(number))


def _peer(field: str, peer: Obj, known: Sequence[str | None]) -> list[FieldError]:
    given = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(name) is not None]
    found: list[FieldError] = []
    for name in given:
        check: Any = validate_label_selector if name != "ipBlock" else _block
        found += check(f"{field}.{name}", peer[name], *((known,) if name == "ipBlock" else ()))
    if not given:
        return [required(field, "must specify a peer")]
    if len(given) > 1 and "ipBlock" in given:
        found.append(forbidden(field, "may not specify both ipBlock and another peer"))
    return found


def _block(field: str, block: Obj, known: Sequence[str | None]) -> list[FieldError]:
    cidr = block.get("cidr") or ""
    if not cidr:
        return [required(f"{field}.cidr")]
    found = [] if cidr in known else each_message(f"{field}.cidr", cidr, names.is_network(cidr))
    whole = _network(cidr)
    if whole is None:
        return found
    for index, text in enumerate(items(block, "except")):
        place, without = f"{field}.except[{index}]", _network(text)
        found += [] if text in known else each_message(place, text, names.is_network(text))
        if without is not None and not (
            whole.version == without.version
            and without.network_address in whole
            and whole.prefixlen < without.prefixlen
        ):
            found.append(invalid(place, text, "must be a strict subset of `cidr`"))
    return found


def _network(text: str) -> Any:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None
