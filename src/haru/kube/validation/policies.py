"""RBAC, disruption budgets, leases and runtime classes: what admission must be able to trust."""

from __future__ import annotations

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.validation.affinity import validate_tolerations
from haru.kube.validation.common import (
    each_message,
    immutable,
    items,
    not_negative,
    part,
    path_segment,
)
from haru.kube.validation.metadata import validate_labels
from haru.kube.validation.resources import validate_requirements
from haru.kube.validation.selectors import validate_conditions, validate_label_selector
from haru.kube.validation.workloads import count_or_percent

_RBAC = "rbac.authorization.k8s.io"


def validate_role(role: Obj) -> list[FieldError]:
    """A Role or ClusterRole: only the latter may name URLs."""
    cluster = role.get("kind") == "ClusterRole"
    found: list[FieldError] = []
    for index, rule in enumerate(items(role, "rules")):
        found += _policy_rule(f"rules[{index}]", rule, cluster=cluster)
    aggregation = role.get("aggregationRule")
    if aggregation is not None:
        selectors = items(aggregation, "clusterRoleSelectors")
        place = "aggregationRule.clusterRoleSelectors"
        if not selectors:
            found.append(required(place, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
        for index, selector in enumerate(selectors):
            wrong = validate_label_selector(f"{place}[{index}]", selector)
            # Said twice by 1.36: of the label, and of the selector that cannot be made.
            found += [*wrong, *(invalid(f"{place}[{index}]", selector, "invalid label selector.") for _ in wrong[:1])]
    return found


def _policy_rule(field: str, rule: Obj, *, cluster: bool) -> list[FieldError]:
    found = [] if items(rule, "verbs") else [required(f"{field}.verbs", "verbs must contain at least one value")]
    urls, groups = items(rule, "nonResourceURLs"), items(rule, "apiGroups")
    resources = items(rule, "resources")
    if urls:
        if not cluster:
            why = "namespaced rules cannot apply to non-resource URLs"
            found.append(invalid(f"{field}.nonResourceURLs", urls, why))
        if groups or resources or items(rule, "resourceNames"):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            found.append(invalid(f"{field}.nonResourceURLs", urls, why))
        return found
    if not groups:
        found.append(required(f"{field}.apiGroups", "resource rules must supply at least one api group"))
    if not resources:
        found.append(required(f"{field}.resources", "resource rules must supply at least one resource"))
    return found


def validate_role_binding(binding: Obj) -> list[FieldError]:
    """A RoleBinding or ClusterRoleBinding: what it refers to and whom it is for."""
    cluster = binding.get("kind") == "ClusterRoleBinding"
    reference = part(binding, "roleRef")
    found: list[FieldError] = []
    if reference.get("apiGroup") != _RBAC:
        found.append(not_supported("roleRef.apiGroup", reference.get("apiGroup") or "", (_RBAC,)))
    kinds = ("ClusterRole",) if cluster else ("Role", "ClusterRole")
    if reference.get("kind") not in kinds:
        found.append(not_supported("roleRef.kind", reference.get("kind") or "", kinds))
    name = reference.get("name") or ""
    found += path_segment("roleRef.name", name) if name else [required("roleRef.name")]
    for index, subject in enumerate(items(binding, "subjects")):
        found += _subject(f"subjects[{index}]", subject, cluster=cluster)
    return found


def _subject(field: str, subject: Obj, *, cluster: bool) -> list[FieldError]:
    kind, group, name = subject.get("kind") or "", subject.get("apiGroup") or "", subject.get("name") or ""
    found = [] if name else [required(f"{field}.name")]
    if kind == "ServiceAccount":
        if name:
            found += each_message(f"{field}.name", name, names.is_dns1123_subdomain(name))
        if group:
            found.append(not_supported(f"{field}.apiGroup", group, ("",)))
        if cluster and not subject.get("namespace"):
            found.append(required(f"{field}.namespace"))
    elif kind in ("User", "Group"):
        if group != _RBAC:
            found.append(not_supported(f"{field}.apiGroup", group, (_RBAC,)))
    else:
        found.append(not_supported(f"{field}.kind", kind, ("ServiceAccount", "User", "Group")))
    return found


def validate_role_binding_update(new: Obj, old: Obj) -> list[FieldError]:
    """A binding keeps its role."""
    reference = new.get("roleRef")
    changed = immutable("roleRef", reference, old.get("roleRef"))
    return validate_role_binding(new) + [invalid("roleRef", reference, "cannot change roleRef") for _ in changed]


def validate_disruption_budget(budget: Obj) -> list[FieldError]:
    """A PodDisruptionBudget: one of the two bounds."""
    spec = part(budget, "spec")
    found: list[FieldError] = []
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        found.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for name, value in (("minAvailable", least), ("maxUnavailable", most)):
        if value is not None:
            found += count_or_percent(f"spec.{name}", value)
            if str(value).endswith("%") and str(value)[:-1].isdigit() and int(str(value)[:-1]) > 100:
                found.append(invalid(f"spec.{name}", value, "must not be greater than 100%"))
    found += validate_label_selector("spec.selector", spec.get("selector"))
    policies, policy = ("AlwaysAllow", "IfHealthyBudget"), spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in policies:
        found.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, policies))
    return found


def validate_disruption_budget_status(new: Obj, old: Obj) -> list[FieldError]:
    """The status of a PodDisruptionBudget: conditions that are complete, counts that are not negative."""
    status = part(new, "status")
    found = validate_conditions("status.conditions", items(status, "conditions"))
    for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        found += not_negative(f"status.{name}", status.get(name))
    return found


def validate_runtime_class(runtime: Obj) -> list[FieldError]:
    """A RuntimeClass (node.k8s.io/v1): its handler, and which pods it has where."""
    handler, scheduling = runtime.get("handler") or "", runtime.get("scheduling") or {}
    found = each_message("handler", handler, names.is_dns1123_label(handler)) if handler else [required("handler")]
    fixed = part(runtime.get("overhead"), "podFixed")
    if fixed:
        found += validate_requirements("overhead", {"limits": fixed}, ())
    found += validate_labels(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector")
    tolerations = items(scheduling, "tolerations")
    found += validate_tolerations("scheduling.tolerations", tolerations)
    seen: set[tuple[str, ...]] = set()
    for index, toleration in enumerate(tolerations):
        key = tuple(toleration.get(name) or "" for name in ("key", "operator", "value", "effect"))
        if key in seen:
            found.append(duplicate(f"scheduling.tolerations[{index}]", toleration))
        seen.add(key)
    return found


def validate_runtime_class_update(new: Obj, old: Obj) -> list[FieldError]:
    """A class keeps its handler."""
    return validate_runtime_class(new) + immutable("handler", new.get("handler"), old.get("handler"))
