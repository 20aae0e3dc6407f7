"""scheduling.k8s.io: PriorityClass, Workload, PodGroup (KEP 4671, 5710, 5729, 5732)."""

from __future__ import annotations

from collections.abc import Sequence

from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required, too_many
from haru.kube.meta import Obj
from haru.kube.validation.common import (
    bounded,
    bounded_set,
    immutable,
    immutable_member,
    items,
    label_key,
    one_of,
    only_forbidden,
    part,
    path_segment,
    required_label,
    required_subdomain,
    same,
    subdomain,
    union,
)
from haru.kube.validation.selectors import validate_conditions
from haru.kube.validation.types import Rules

MAX_TEMPLATES = 8
MAX_GROUP_CLAIMS = 4
MAX_TOPOLOGY_CONSTRAINTS = 1
HIGHEST_USER_PRIORITY = 1_000_000_000
LOWEST_PRIORITY = -(2**31)
_GROUP_MEMBERS = (
    *("podGroupTemplateRef", "schedulingPolicy", "schedulingConstraints", "resourceClaims"),
    *("disruptionMode", "priorityClassName", "priority"),
)
_WORKLOAD_SPEC, _GROUP_SPEC = "scheduling.v1alpha2.WorkloadSpec", "scheduling.v1alpha2.PodGroupSpec"
_SYSTEM_PREFIX = "system-"
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_DISRUPTION_MODES = ("Pod", "PodGroup")
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")


def validate_priority_class(priority_class: Obj) -> list[FieldError]:
    """A PriorityClass when it is created."""
    name, value = part(priority_class, "metadata").get("name") or "", priority_class.get("value") or 0
    found: list[FieldError] = []
    if name.startswith(_SYSTEM_PREFIX):
        problem = _system_class_problem(name, value, bool(priority_class.get("globalDefault")))
        if problem:
            why = f"priority class names with '{_SYSTEM_PREFIX}' prefix are reserved for system use only. error: "
            found.append(forbidden("metadata.name", why + problem))
    elif value > HIGHEST_USER_PRIORITY:
        why = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        found.append(forbidden("value", why))
    policy = priority_class.get("preemptionPolicy")
    return found if policy is None else found + one_of("preemptionPolicy", policy, _PREEMPTION_POLICIES, in_order=True)


def _system_class_problem(name: str, value: int, global_default: bool) -> str:
    expected = SYSTEM_CLASSES.get(name)
    if expected is None:
        return f"{name} is not a known system priority class"
    if value != expected:
        return f"value of {name} PriorityClass must be {expected}"
    return f"globalDefault of {name} PriorityClass must be false" if global_default else ""


def validate_priority_class_update(new: Obj, old: Obj) -> list[FieldError]:
    """Value and preemption policy stay as they are."""
    found: list[FieldError] = []
    if (new.get("value") or 0) != (old.get("value") or 0):
        found.append(forbidden("value", "may not be changed in an update."))
    return found + immutable("preemptionPolicy", new.get("preemptionPolicy"), old.get("preemptionPolicy"))


def validate_workload(workload: Obj, rules: Rules) -> list[FieldError]:
    """A Workload when it is created."""
    spec = part(workload, "spec")
    found: list[FieldError] = []
    reference = spec.get("controllerRef")
    if reference is not None:
        found += _controller_reference("spec.controllerRef", reference)
    templates = items(spec, "podGroupTemplates")
    if not templates:
        return [*found, required("spec.podGroupTemplates")]
    return found + bounded_set(
        "spec.podGroupTemplates",
        templates,
        MAX_TEMPLATES,
        lambda f, t: required_label(f"{f}.name", t.get("name") or "") + _group_fields(f, t, rules),
        lambda t: t.get("name") or "",
        whole=True,
    )


def validate_workload_update(new: Obj, old: Obj) -> list[FieldError]:
    """A workload's reference and templates are fixed."""
    spec, before = part(new, "spec"), part(old, "spec")
    found = immutable_member("spec", "controllerRef", spec, before, _WORKLOAD_SPEC)
    templates = items(spec, "podGroupTemplates")
    changed = immutable_member("spec", "podGroupTemplates", spec, before, _WORKLOAD_SPEC)
    if changed:
        changed += _too_many("spec.podGroupTemplates", templates, MAX_TEMPLATES)
        changed += [] if templates else [required("spec.podGroupTemplates")]
    return found + changed


def _controller_reference(field: str, reference: Obj) -> list[FieldError]:
    found = subdomain(f"{field}.apiGroup", reference["apiGroup"]) if reference.get("apiGroup") else []
    for name in ("kind", "name"):
        value = reference.get(name)
        found += path_segment(f"{field}.{name}", value) if value else [required(f"{field}.{name}")]
    return found


def validate_pod_group(group: Obj, rules: Rules) -> list[FieldError]:
    """A PodGroup when it is created."""
    spec = part(group, "spec")
    found: list[FieldError] = []
    reference = spec.get("podGroupTemplateRef")
    if reference is not None:
        found += union("spec.podGroupTemplateRef", reference, ("workload",))
        workload = reference.get("workload")
        if workload is not None:
            place = "spec.podGroupTemplateRef.workload"
            found += required_subdomain(f"{place}.workloadName", workload.get("workloadName") or "")
            found += required_label(f"{place}.podGroupTemplateName", workload.get("podGroupTemplateName") or "")
    return found + _group_fields("spec", spec, rules)


def validate_pod_group_update(new: Obj, old: Obj) -> list[FieldError]:
    """Every field of a group's spec is fixed: policy and constraints change by making a new group."""
    spec, before = part(new, "spec"), part(old, "spec")
    found: list[FieldError] = []
    for name in _GROUP_MEMBERS:
        changed = immutable_member("spec", name, spec, before, _GROUP_SPEC)
        if changed and name == "resourceClaims":
            changed += _too_many("spec.resourceClaims", items(spec, name), MAX_GROUP_CLAIMS)
        found += changed
    return found


def _too_many(field: str, values: Sequence[Obj], maximum: int) -> list[FieldError]:
    return [too_many(field, len(values), maximum)] if len(values) > maximum else []


def validate_pod_group_status(new: Obj, old: Obj) -> list[FieldError]:
    """A group's status: conditions, and the claims that were made for it."""
    status = part(new, "status")
    found = validate_conditions("status.conditions", items(status, "conditions"))
    known = {claim.get("name") for claim in items(part(new, "spec"), "resourceClaims")}
    place, claims = "status.resourceClaimStatuses", items(status, "resourceClaimStatuses")
    for index, claim in enumerate(claims):
        if claim.get("name") not in known:
            why = "must match the name of an entry in `spec.resourceClaims`"
            found.append(invalid(f"{place}[{index}].name", claim.get("name") or "", why))
    before = items(part(old, "status"), "resourceClaimStatuses")
    if same(claims, before):
        return found

    def made(field: str, claim: Obj) -> list[FieldError]:
        name = claim.get("resourceClaimName")
        return [] if name is None or claim in before else subdomain(f"{field}.resourceClaimName", name)

    return found + bounded_set(place, claims, MAX_GROUP_CLAIMS, made, lambda c: c.get("name"), whole=True)


def _group_fields(field: str, spec: Obj, rules: Rules) -> list[FieldError]:
    """What a template and a group have in common."""
    found = _policy(f"{field}.schedulingPolicy", part(spec, "schedulingPolicy"))
    if rules.gates.enabled("TopologyAwareWorkloadScheduling"):
        place = f"{field}.schedulingConstraints.topology"
        constraints = items(part(spec, "schedulingConstraints"), "topology")
        found += bounded(place, constraints, MAX_TOPOLOGY_CONSTRAINTS, _topology)
    else:
        found += only_forbidden(field, spec, ("schedulingConstraints",), "")
    claims = items(spec, "resourceClaims")
    found += bounded_set(
        f"{field}.resourceClaims", claims, MAX_GROUP_CLAIMS, _claim_reference, lambda c: c.get("name") or "", whole=True
    )
    if not rules.gates.enabled("WorkloadAwarePreemption"):
        return found + only_forbidden(field, spec, ("disruptionMode", "priorityClassName", "priority"), "")
    return found + _preemption_fields(field, spec)


def _policy(field: str, policy: Obj) -> list[FieldError]:
    found = union(field, policy, ("basic", "gang"))
    gang = policy.get("gang")
    if gang is not None:
        count = gang.get("minCount") or 0
        if not count:
            found.append(required(f"{field}.gang.minCount", "must be greater than or equal to 1"))
        elif count < 1:
            found.append(invalid(f"{field}.gang.minCount", count, "must be greater than or equal to 1"))
    return found


def _topology(field: str, constraint: Obj) -> list[FieldError]:
    key = constraint.get("key") or ""
    return label_key(f"{field}.key", key) if key else [required(f"{field}.key")]


def _claim_reference(field: str, claim: Obj) -> list[FieldError]:
    members = ("resourceClaimName", "resourceClaimTemplateName")
    found = union(field, claim, members)
    found += required_label(f"{field}.name", claim.get("name") or "")
    for name in members:
        if claim.get(name) is not None:
            found += subdomain(f"{field}.{name}", claim[name])
    return found


def _preemption_fields(field: str, spec: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    mode = spec.get("disruptionMode")
    if mode is not None and mode not in _DISRUPTION_MODES:
        found.append(not_supported(f"{field}.disruptionMode", mode, _DISRUPTION_MODES))
    if spec.get("priorityClassName"):
        found += subdomain(f"{field}.priorityClassName", spec["priorityClassName"])
    priority = spec.get("priority")
    if priority is not None and priority < LOWEST_PRIORITY:
        found.append(invalid(f"{field}.priority", priority, f"must be greater than or equal to {LOWEST_PRIORITY}"))
    if priority is not None and priority > HIGHEST_USER_PRIORITY:
        found.append(invalid(f"{field}.priority", priority, f"must be less than or equal to {HIGHEST_USER_PRIORITY}"))
    return found
