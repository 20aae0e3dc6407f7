"""A pod's spec, in a Pod or in the template of a controller (core/v1; KEP 4381, 4671 for claims and groups)."""

from __future__ import annotations

from collections.abc import Sequence

from haru.kube import names, node_taints
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.validation.common import (
    each_message,
    in_range,
    indexed,
    items,
    label_key,
    label_name,
    one_of,
    part,
    required_label,
    required_subdomain,
    subdomain,
    unique,
)
from haru.kube.validation.containers import (
    PodParts,
    seccomp,
    validate_containers,
    validate_ephemeral_containers,
    validate_init_containers,
)
from haru.kube.validation.metadata import validate_labels, validate_template_metadata
from haru.kube.validation.resources import validate_pod_resources
from haru.kube.validation.selectors import (
    validate_label_selector,
    validate_node_selector,
    validate_node_selector_term,
)
from haru.kube.validation.types import Rules
from haru.kube.validation.volumes import validate_volumes

RESTART_POLICIES = ("Always", "Never", "OnFailure")
_DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_CLAIM_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")
_MAX_INT32 = 2**31 - 1
_MAX_ID = 2**32 - 1


def validate_pod_spec(field: str, spec: Obj, rules: Rules, *, is_pod: bool) -> list[FieldError]:
    """The spec; a Pod's own is held to a little more than a template's."""
    found: list[FieldError] = []
    if spec.get("terminationGracePeriodSeconds") is None:
        found.append(required(f"{field}.terminationGracePeriodSeconds"))
    found += validate_volumes(f"{field}.volumes", items(spec, "volumes"))
    claims = items(spec, "resourceClaims")
    found += _pod_claims(f"{field}.resourceClaims", claims)
    found += _containers(field, spec, claims)
    if spec.get("resources") and rules.gates.enabled("PodLevelResources"):
        found += validate_pod_resources(f"{field}.resources", spec["resources"])
    if spec.get("hostNetwork"):
        found += _host_ports(field, spec, is_pod=is_pod)
    found += one_of(f"{field}.restartPolicy", spec.get("restartPolicy"), RESTART_POLICIES)
    found += one_of(f"{field}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES)
    found += validate_labels(part(spec, "nodeSelector"), f"{field}.nodeSelector")
    found += _security(field, spec)
    found += _affinity(f"{field}.affinity", part(spec, "affinity"))
    found += _scheduling(field, spec)
    found += _names(field, spec)
    seconds = spec.get("activeDeadlineSeconds")
    found += in_range(f"{field}.activeDeadlineSeconds", seconds, 1, _MAX_INT32)
    found += validate_tolerations(f"{field}.tolerations", items(spec, "tolerations"))
    found += indexed(f"{field}.topologySpreadConstraints", items(spec, "topologySpreadConstraints"), _spread)
    found += unique(
        f"{field}.topologySpreadConstraints",
        items(spec, "topologySpreadConstraints"),
        lambda c: f"{{{c.get('topologyKey')}, {c.get('whenUnsatisfiable')}}}",
    )
    return found + _pod_group(f"{field}.schedulingGroup", spec.get("schedulingGroup"))


def validate_pod_template(field: str, template: Obj, rules: Rules) -> list[FieldError]:
    """The template of a controller: labels, annotations, and a spec without ephemeral containers."""
    found = validate_template_metadata(part(template, "metadata"), f"{field}.metadata")
    spec = part(template, "spec")
    found += validate_pod_spec(f"{field}.spec", spec, rules, is_pod=False)
    if items(spec, "ephemeralContainers"):
        why = "ephemeral containers not allowed in pod template"
        found.append(forbidden(f"{field}.spec.ephemeralContainers", why))
    return found


def _containers(field: str, spec: Obj, claims: Sequence[Obj]) -> list[FieldError]:
    pod = PodParts(
        volumes={volume.get("name") or "" for volume in items(spec, "volumes")},
        claims={claim.get("name") or "" for claim in claims},
        restart_policy=spec.get("restartPolicy") or "",
        grace_period=spec.get("terminationGracePeriodSeconds"),
    )
    regular, init = items(spec, "containers"), items(spec, "initContainers")
    found = validate_containers(f"{field}.containers", regular, pod)
    found += validate_init_containers(f"{field}.initContainers", init, regular, pod)
    return found + validate_ephemeral_containers(
        f"{field}.ephemeralContainers", items(spec, "ephemeralContainers"), [*regular, *init], pod
    )


def _pod_claims(field: str, claims: Sequence[Obj]) -> list[FieldError]:
    """References to claims or templates: each by one of the two names."""
    found: list[FieldError] = []
    for index, claim in enumerate(claims):
        place = f"{field}[{index}]"
        found += required_label(f"{place}.name", claim.get("name") or "")
        given = [name for name in _CLAIM_SOURCES if claim.get(name) is not None]
        if len(given) > 1:
            why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            found.append(invalid(place, claim, why))
        elif not given:
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            found.append(invalid(place, claim, why))
        for name in given:
            found += each_message(f"{place}.{name}", claim[name], names.is_dns1123_subdomain(claim[name]))
    return found + unique(field, claims, lambda c: c.get("name"), ".name")


def _pod_group(field: str, group: Obj | None) -> list[FieldError]:
    """Membership in a PodGroup, which need not exist yet (KEP 4671)."""
    if group is None:
        return []
    name = group.get("podGroupName")
    if name is None:
        return [invalid(field, "", "must specify one of: `podGroupName`")]
    return required_subdomain(f"{field}.podGroupName", name)


def _host_ports(field: str, spec: Obj, *, is_pod: bool) -> list[FieldError]:
    found: list[FieldError] = []
    for index, container in enumerate(items(spec, "containers")):
        for number, port in enumerate(items(container, "ports")):
            host, inner = port.get("hostPort") or 0, port.get("containerPort") or 0
            if (is_pod or host) and host != inner:
                place = f"{field}.containers[{index}].ports[{number}].hostPort"
                found.append(invalid(place, host, "must match `containerPort` when `hostNetwork` is true"))
    return found


def _security(field: str, spec: Obj) -> list[FieldError]:
    context = part(spec, "securityContext")
    place = f"{field}.securityContext"
    found: list[FieldError] = []
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        found += in_range(f"{place}.{name}", context.get(name), 0, _MAX_ID)
    for index, group in enumerate(items(context, "supplementalGroups")):
        found += in_range(f"{place}.supplementalGroups[{index}]", group, 0, _MAX_ID)
    policies = ("Always", "OnRootMismatch")
    found += one_of(f"{place}.fsGroupChangePolicy", context.get("fsGroupChangePolicy"), policies, optional=True)
    found += seccomp(f"{place}.seccompProfile", part(context, "seccompProfile"))
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        found.append(invalid(f"{place}.shareProcessNamespace", True, why))
    if spec.get("hostUsers") is False:
        for name in ("hostPID", "hostIPC", "hostNetwork"):
            if spec.get(name):
                found.append(forbidden(f"{field}.{name}", "when `hostUsers` is false"))
    return found


def _names(field: str, spec: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    for name in ("serviceAccountName", "nodeName", "runtimeClassName", "priorityClassName", "schedulerName"):
        if spec.get(name):
            found += subdomain(f"{field}.{name}", spec[name])
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            found += label_name(f"{field}.{name}", spec[name])
    found += one_of(
        f"{field}.preemptionPolicy", spec.get("preemptionPolicy"), ("Never", "PreemptLowerPriority"), optional=True
    )
    for index, alias in enumerate(items(spec, "hostAliases")):
        address = alias.get("ip") or ""
        found += each_message(f"{field}.hostAliases[{index}].ip", address, names.is_ip(address))
        for number, hostname in enumerate(items(alias, "hostnames")):
            found += subdomain(f"{field}.hostAliases[{index}].hostnames[{number}]", hostname)
    system = part(spec, "os").get("name")
    if spec.get("os") is not None:
        found += one_of(f"{field}.os.name", system, ("linux", "windows"))
    if spec.get("dnsPolicy") == "None" and not items(part(spec, "dnsConfig"), "nameservers"):
        why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        found.append(required(f"{field}.dnsConfig.nameservers", why))
    return found


def _scheduling(field: str, spec: Obj) -> list[FieldError]:
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


def validate_tolerations(field: str, tolerations: Sequence[Obj]) -> list[FieldError]:
    """Tolerations of node taints."""
    found: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        place = f"{field}[{index}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        value, effect = toleration.get("value") or "", toleration.get("effect") or ""
        if key:
            found += label_key(f"{place}.key", key)
        elif operator != "Exists":
            why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            found.append(invalid(f"{place}.operator", operator, why))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            found.append(invalid(f"{place}.effect", effect, why))
        found += _toleration_operator(f"{place}.operator", operator, value)
        found += one_of(f"{place}.effect", effect, node_taints.EFFECTS, optional=True)
    return found


def _toleration_operator(field: str, operator: str, value: str) -> list[FieldError]:
    if operator in ("", "Equal"):
        messages = names.is_label_value(value)
        return [invalid(field, value, ";".join(messages))] if messages else []
    if operator == "Exists":
        return [invalid(field, value, "value must be empty when `operator` is 'Exists'")] if value else []
    return [] if operator in ("Gt", "Lt") else [not_supported(field, operator, ("Equal", "Exists"))]


def _spread(field: str, constraint: Obj) -> list[FieldError]:
    skew = constraint.get("maxSkew") or 0
    found = [] if skew > 0 else [invalid(f"{field}.maxSkew", skew, "must be greater than zero")]
    key = constraint.get("topologyKey") or ""
    found += label_key(f"{field}.topologyKey", key) if key else [required(f"{field}.topologyKey", "can not be empty")]
    place = f"{field}.whenUnsatisfiable"
    when = constraint.get("whenUnsatisfiable") or ""
    if when not in ("DoNotSchedule", "ScheduleAnyway"):
        found.append(not_supported(place, when, ("DoNotSchedule", "ScheduleAnyway")))
    domains = constraint.get("minDomains")
    if domains is not None and domains <= 0:
        found.append(invalid(f"{field}.minDomains", domains, "must be greater than zero"))
    if domains is not None and when == "ScheduleAnyway":
        why = "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"
        found.append(invalid(f"{field}.minDomains", domains, why))
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        found += one_of(f"{field}.{name}", constraint.get(name), ("Honor", "Ignore"), optional=True)
    found += validate_label_selector(f"{field}.labelSelector", constraint.get("labelSelector"))
    return found + _label_keys(field, constraint)


def _label_keys(field: str, term: Obj) -> list[FieldError]:
    """matchLabelKeys and mismatchLabelKeys, once the pod's values of them have been added to the selector."""
    selector = term.get("labelSelector")
    keys, others = items(term, "matchLabelKeys"), items(term, "mismatchLabelKeys")
    found: list[FieldError] = []
    for place, named in ((f"{field}.matchLabelKeys", keys), (f"{field}.mismatchLabelKeys", others)):
        if named and selector is None:
            found.append(forbidden(place, "must not be specified when labelSelector is not set"))
        else:
            found += [error for index, key in enumerate(named) for error in label_key(f"{place}[{index}]", key)]
    seen = set(part(selector or {}, "matchLabels"))
    for expression in items(selector or {}, "matchExpressions"):
        key = expression.get("key")
        if key in keys and key in seen:
            why = "exists in both matchLabelKeys and labelSelector"
            found.append(invalid(f"{field}[{len(keys) - 1 - keys[::-1].index(key)}]", key, why))
        seen.add(key)
    for index, key in enumerate(keys):
        if key in others:
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            found.append(invalid(f"{field}.matchLabelKeys[{index}]", key, why))
    return found


# --- affinity ------------------------------------------------------------------------------------------------------

_REQUIRED_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED_TERMS = "preferredDuringSchedulingIgnoredDuringExecution"


def _affinity(field: str, affinity: Obj) -> list[FieldError]:
    node = part(affinity, "nodeAffinity")
    place = f"{field}.nodeAffinity"
    found: list[FieldError] = []
    if node.get(_REQUIRED_TERMS) is not None:
        found += validate_node_selector(f"{place}.{_REQUIRED_TERMS}", node[_REQUIRED_TERMS])
    for index, term in enumerate(items(node, _PREFERRED_TERMS)):
        here = f"{place}.{_PREFERRED_TERMS}[{index}]"
        found += _weight(f"{here}.weight", term)
        found += validate_node_selector_term(f"{here}.preference", part(term, "preference"))
    for name in ("podAffinity", "podAntiAffinity"):
        pods = part(affinity, name)
        for index, term in enumerate(items(pods, _REQUIRED_TERMS)):
            found += _pod_term(f"{field}.{name}.{_REQUIRED_TERMS}[{index}]", term)
        for index, term in enumerate(items(pods, _PREFERRED_TERMS)):
            here = f"{field}.{name}.{_PREFERRED_TERMS}[{index}]"
            found += _weight(f"{here}.weight", term)
            found += _pod_term(f"{here}.podAffinityTerm", part(term, "podAffinityTerm"))
    return found


def _weight(field: str, term: Obj) -> list[FieldError]:
    weight = term.get("weight") or 0
    return [] if 1 <= weight <= 100 else [invalid(field, weight, "must be in the range 1-100")]


def _pod_term(field: str, term: Obj) -> list[FieldError]:
    found = validate_label_selector(f"{field}.labelSelector", term.get("labelSelector"))
    found += validate_label_selector(f"{field}.namespaceSelector", term.get("namespaceSelector"))
    found += indexed(f"{field}.namespaces", items(term, "namespaces"), label_name)
    key = term.get("topologyKey") or ""
    place = f"{field}.topologyKey"
    found += label_key(place, key) if key else [required(place, "can not be empty")]
    return found + _label_keys(field, term)
