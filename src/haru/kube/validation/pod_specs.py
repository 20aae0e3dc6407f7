"""A pod's spec, in a Pod or in the template of a controller (core/v1; KEP 4381, 4671 for claims and groups)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from haru.kube import names
from haru.kube.container_restarts import RESTART_ALL, RESTART_ALL_FEATURE
from haru.kube.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
    too_long,
)
from haru.kube.known_specs import KnownSpecs
from haru.kube.meta import Obj
from haru.kube.validation.affinity import validate_affinity, validate_spread, validate_tolerations
from haru.kube.validation.common import (
    address,
    each_message,
    in_range,
    items,
    label_key,
    label_name,
    one_of,
    part,
    subdomain,
)
from haru.kube.validation.containers import (
    PodParts,
    validate_containers,
    validate_ephemeral_containers,
    validate_init_containers,
)
from haru.kube.validation.metadata import validate_labels, validate_template_metadata
from haru.kube.validation.pod_annotations import MIRROR, validate_matching_annotations, validate_pod_annotations
from haru.kube.validation.resources import validate_pod_resources, validate_requirements
from haru.kube.validation.security import validate_pod_security, validate_user_namespace
from haru.kube.validation.types import Rules
from haru.kube.validation.volumes import validate_volumes
from haru.kube.validation.windows import containers_with_places, validate_host_processes, validate_system

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION_POLICIES: Final = ("PreemptLowerPriority", "Never")
_CLAIM_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_MAX_INT32: Final = 2**31 - 1
_MAX_NAMESERVERS: Final = 3
_MAX_SEARCHES: Final = 32
_MAX_SEARCH_TEXT: Final = 2048
_MAX_HOSTNAME: Final = 64


_RIGHT: Final = KnownSpecs()
"""Specs about which nothing was wrong, but perhaps their host names."""


def validate_pod_spec(field: str, spec: Obj, rules: Rules, pod: Obj | None = None) -> list[FieldError]:
    """The spec; that of a Pod (whose metadata is given) is held to a little more than a template's."""
    depends = part(spec, "securityContext").get("seLinuxChangePolicy") is not None
    if pod is not None and not depends:
        volumes = items(spec, "volumes")
        depends = MIRROR in part(pod, "annotations") or any(one.get("ephemeral") is not None for one in volumes)
    if depends:
        return _pod_spec(field, spec, rules, pod)  # on more than the spec
    key = _RIGHT.key(spec, pod is not None, rules.gates.enabled("PodLevelResources"), _may_restart_all(rules))
    if key in _RIGHT:
        return label_name(f"{field}.hostname", spec["hostname"]) if spec.get("hostname") else []
    found = _pod_spec(field, spec, rules, pod)
    if not found:
        _RIGHT.add(key)
    return found


def _may_restart_all(rules: Rules) -> bool:
    """Whether the gate is on, or what an update replaces has such a rule: there it may stay."""
    return rules.gates.enabled(RESTART_ALL_FEATURE) or f'"{RESTART_ALL}"' in json.dumps(rules.stored, default=str)


def _pod_spec(field: str, spec: Obj, rules: Rules, pod: Obj | None) -> list[FieldError]:
    is_pod = pod is not None
    found: list[FieldError] = []
    if spec.get("terminationGracePeriodSeconds") is None:
        found.append(required(f"{field}.terminationGracePeriodSeconds"))
    name = (pod or {}).get("name") or ""
    volumes, wrong = validate_volumes(f"{field}.volumes", items(spec, "volumes"), name, is_pod=is_pod)
    claims = items(spec, "resourceClaims")
    found += wrong + _pod_claims(f"{field}.resourceClaims", claims, pod or {})
    claim_names = sorted({claim.get("name") for claim in claims if claim.get("name")})
    parts = PodParts(
        volumes=volumes,
        claims=claim_names,
        restart_policy=spec.get("restartPolicy") or "",
        grace_period=spec.get("terminationGracePeriodSeconds"),
        system=spec.get("os"),
        host_users=spec.get("hostUsers") is not False,
        restarts_all=_may_restart_all(rules),
    )
    found += _containers(field, spec, parts)
    if spec.get("resources") is not None and rules.gates.enabled("PodLevelResources"):
        found += validate_pod_resources(f"{field}.resources", spec, claim_names)
    found += _host_ports(field, spec, is_pod=is_pod) if spec.get("hostNetwork") else []
    found += _choices(field, spec)
    found += validate_labels(part(spec, "nodeSelector"), f"{field}.nodeSelector")
    found += validate_pod_security(field, spec, rules)
    found += validate_affinity(f"{field}.affinity", part(spec, "affinity"))
    found += _dns(f"{field}.dnsConfig", spec)
    found += _gates(field, spec)
    found += validate_spread(f"{field}.topologySpreadConstraints", items(spec, "topologySpreadConstraints"))
    found += validate_host_processes(field, spec) + validate_user_namespace(field, spec)
    found += _names(field, spec)
    seconds = spec.get("activeDeadlineSeconds")
    found += in_range(f"{field}.activeDeadlineSeconds", seconds, 1, _MAX_INT32)
    found += validate_tolerations(f"{field}.tolerations", items(spec, "tolerations"))
    found += validate_requirements(f"{field}.overhead", {"limits": spec.get("overhead")}, ())
    found += validate_system(field, spec)
    return found + _pod_group(f"{field}.schedulingGroup", spec.get("schedulingGroup")) + _files(field, spec)


def validate_pod_template(field: str, template: Obj, rules: Rules) -> list[FieldError]:
    """The template of a controller: labels, annotations, and a spec without ephemeral containers."""
    metadata, spec = part(template, "metadata"), part(template, "spec")
    annotations = part(metadata, "annotations")
    found = validate_template_metadata(metadata, field)
    found += validate_pod_annotations(f"{field}.annotations", annotations, spec)
    found += validate_pod_spec(f"{field}.spec", spec, rules)
    found += validate_matching_annotations(f"{field}.spec", annotations, spec)
    if items(spec, "ephemeralContainers"):
        why = "ephemeral containers not allowed in pod template"
        found.append(forbidden(f"{field}.spec.ephemeralContainers", why))
    return found


def _containers(field: str, spec: Obj, parts: PodParts) -> list[FieldError]:
    regular, init = items(spec, "containers"), items(spec, "initContainers")
    found = validate_containers(f"{field}.containers", regular, parts)
    found += validate_init_containers(f"{field}.initContainers", init, regular, parts)
    return found + validate_ephemeral_containers(
        f"{field}.ephemeralContainers", items(spec, "ephemeralContainers"), [*regular, *init], parts
    )


def _pod_claims(field: str, claims: Sequence[Obj], pod: Obj) -> list[FieldError]:
    """References to claims or templates: each by one of the two names."""
    if MIRROR in part(pod, "annotations"):
        return [forbidden("", "static pods do not support resource claims") for _ in claims]
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        place, name = f"{field}[{index}]", claim.get("name") or ""
        if not name:
            found.append(required(f"{place}.name"))
        elif name in seen:
            found.append(duplicate(f"{place}.name", name))
        else:
            found += label_name(f"{place}.name", name)
            seen.add(name)
        given = [source for source in _CLAIM_SOURCES if claim.get(source) is not None]
        if len(given) > 1:
            why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            found.append(invalid(place, claim, why))
        elif not given:
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            found.append(invalid(place, claim, why))
        for source in given:
            found += subdomain(f"{place}.{source}", claim[source])
    return found


def _pod_group(field: str, group: Obj | None) -> list[FieldError]:
    """Membership in a PodGroup, which need not exist yet (KEP 4671)."""
    if group is None:
        return []
    name, place = group.get("podGroupName"), f"{field}.podGroupName"
    if name is None:
        return [invalid(place, None, "must specify one of: `podGroupName`")]
    return subdomain(place, name)


def _host_ports(field: str, spec: Obj, *, is_pod: bool) -> list[FieldError]:
    found: list[FieldError] = []
    for index, container in enumerate(items(spec, "containers")):
        for number, port in enumerate(items(container, "ports")):
            host, inner = port.get("hostPort") or 0, port.get("containerPort") or 0
            if (is_pod or host) and host != inner:
                place = f"{field}.containers[{index}].ports[{number}].hostPort"
                found.append(invalid(place, host, "must match `containerPort` when `hostNetwork` is true"))
    return found


def _choices(field: str, spec: Obj) -> list[FieldError]:
    """Members that are one of a closed set; what has no default may be absent, but not empty."""
    found = one_of(f"{field}.restartPolicy", spec.get("restartPolicy"), RESTART_POLICIES, in_order=True)
    found += one_of(f"{field}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES, in_order=True)
    preemption = spec.get("preemptionPolicy")
    if preemption is not None:
        found += one_of(f"{field}.preemptionPolicy", preemption, _PREEMPTION_POLICIES, in_order=True)
    return found


def _dns(field: str, spec: Obj) -> list[FieldError]:
    config = spec.get("dnsConfig")
    servers, searches = items(config, "nameservers"), items(config, "searches")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            return [required(field, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not servers:
            why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{field}.nameservers", why)]
    found: list[FieldError] = []
    if len(servers) > _MAX_NAMESERVERS:
        why = f"must not have more than {_MAX_NAMESERVERS} nameservers"
        found.append(invalid(f"{field}.nameservers", servers, why))
    for index, server in enumerate(servers):
        found += address(f"{field}.nameservers[{index}]", server)
    if len(searches) > _MAX_SEARCHES:
        found.append(invalid(f"{field}.searches", searches, f"must not have more than {_MAX_SEARCHES} search paths"))
    if len(" ".join(searches).encode()) > _MAX_SEARCH_TEXT:
        why = f"must not have more than {_MAX_SEARCH_TEXT} characters (including spaces) in the search list"
        found.append(invalid(f"{field}.searches", searches, why))
    for index, search in enumerate(searches):
        shown = search.removesuffix(".")
        problems = names.is_dns1123_subdomain_with_underscore(shown) if search != "." else []
        found += each_message(f"{field}.searches[{index}]", shown, problems)
    for index, option in enumerate(items(config, "options")):
        found += [] if option.get("name") else [required(f"{field}.options[{index}]", "must not be empty")]
    return found


def _gates(field: str, spec: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    for index, gate in enumerate(items(spec, "readinessGates")):
        found += label_key(f"{field}.readinessGates[{index}].conditionType", gate.get("conditionType") or "")
    seen: set[str] = set()
    for index, gate in enumerate(items(spec, "schedulingGates")):
        place, name = f"{field}.schedulingGates[{index}]", gate.get("name") or ""
        found += label_key(place, name)
        if name in seen:
            found.append(duplicate(place, name))
        seen.add(name)
    return found


def _names(field: str, spec: Obj) -> list[FieldError]:
    found = _hostname_override(f"{field}.hostnameOverride", spec)
    for name in ("serviceAccountName", "nodeName", "priorityClassName"):
        found += subdomain(f"{field}.{name}", spec[name]) if spec.get(name) else []
    if spec.get("runtimeClassName") is not None:
        found += subdomain(f"{field}.runtimeClassName", spec["runtimeClassName"])
    for name in ("hostname", "subdomain"):
        found += label_name(f"{field}.{name}", spec[name]) if spec.get(name) else []
    for index, alias in enumerate(items(spec, "hostAliases")):
        place = f"{field}.hostAliases[{index}]"
        found += address(f"{place}.ip", alias.get("ip") or "")
        for number, hostname in enumerate(items(alias, "hostnames")):
            found += subdomain(f"{place}.hostnames[{number}]", hostname)
    return found


def _hostname_override(field: str, spec: Obj) -> list[FieldError]:
    name = spec.get("hostnameOverride")
    if name is None:
        return []
    found = [
        forbidden(field, f"may not be specified when {other} is true")
        for other in ("setHostnameAsFQDN", "hostNetwork")
        if spec.get(other)
    ]
    found += [too_long(field, _MAX_HOSTNAME)] if len(name.encode()) > _MAX_HOSTNAME else []
    return found + subdomain(field, name)


def _files(field: str, spec: Obj) -> list[FieldError]:
    """Variables that are read from files: the volume is an emptyDir of the pod."""
    volumes = {volume.get("name") or "": volume for volume in items(spec, "volumes")}
    found: list[FieldError] = []
    for place, container in containers_with_places(field, spec):
        for index, variable in enumerate(items(container, "env")):
            reference = part(variable, "valueFrom").get("fileKeyRef")
            if reference is None:
                continue
            name, here = reference.get("volumeName") or "", f"{place}.env[{index}].valueFrom.fileKeyRef.volumeName"
            if name not in volumes:
                found.append(not_found(here, name))
            elif volumes[name].get("emptyDir") is None:
                found.append(invalid(here, name, "referenced volume must be of type emptyDir"))
    return found
