"""scheduling.k8s.io: PriorityClass, Workload, PodGroup (KEP 4671, 5710, 5729, 5732)."""

from __future__ import annotations

from haru.kube.errors import FieldError, forbidden, invalid, required
from haru.kube.meta import Obj
from haru.kube.validation.common import (
    bounded,
    bounded_set,
    immutable,
    items,
    label_key,
    one_of,
    only_forbidden,
    part,
    path_segment,
    required_label,
    required_subdomain,
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
_SYSTEM_PREFIX = "system-"
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_DISRUPTION_MODES = ("Pod", "PodGroup")
_PREEMPTION_POLICIES = ("Never", "PreemptLowerPriority")


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
    return found + one_of(
        "preemptionPolicy", priority_class.get("preemptionPolicy"), _PREEMPTION_POLICIES, optional=True
    )


def _system_class_problem(name: str, value: int, global_default: bool) -> str:
    expected = _SYSTEM_CLASSES.get(name)
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
        return [*found, required("spec.podGroupTemplates", "must have at least one item")]
    return found + bounded_set(
        "spec.podGroupTemplates",
        templates,
        MAX_TEMPLATES,
        lambda f, t: required_label(f"{f}.name", t.get("name") or "") + _group_fields(f, t, rules),
        lambda t: t.get("name") or "",
    )


def validate_workload_update(new: Obj, old: Obj) -> list[FieldError]:
    """A workload's reference and templates are fixed."""
    spec, before = part(new, "spec"), part(old, "spec")
    found = immutable("spec.controllerRef", spec.get("controllerRef"), before.get("controllerRef"))
    return found + immutable("spec.podGroupTemplates", spec.get("podGroupTemplates"), before.get("podGroupTemplates"))


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
    for name in sorted(spec.keys() | before.keys()):
        found += immutable(f"spec.{name}", spec.get(name), before.get(name))
    return found


def validate_pod_group_status(new: Obj) -> list[FieldError]:
    """A group's status: conditions, and the claims that were made for it."""
    status = part(new, "status")
    known = {claim.get("name") for claim in items(part(new, "spec"), "resourceClaims")}
    found = validate_conditions("status.conditions", items(status, "conditions"))

    def one(field: str, claim: Obj) -> list[FieldError]:
        name = claim.get("name") or ""
        errors = required_label(f"{field}.name", name)
        if name and name not in known:
            why = "must match the name of an entry in `spec.resourceClaims`"
            errors.append(invalid(f"{field}.name", name, why))
        made = claim.get("resourceClaimName")
        return errors + (subdomain(f"{field}.resourceClaimName", made) if made is not None else [])

    return found + bounded_set(
        "status.resourceClaimStatuses",
        items(status, "resourceClaimStatuses"),
        MAX_GROUP_CLAIMS,
        one,
        lambda c: c.get("name"),
    )


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
        f"{field}.resourceClaims", claims, MAX_GROUP_CLAIMS, _claim_reference, lambda c: c.get("name") or ""
    )
    if not rules.gates.enabled("WorkloadAwarePreemption"):
        return found + only_forbidden(field, spec, ("disruptionMode", "priorityClassName", "priority"), "")
    return found + _preemption_fields(field, spec)


def _policy(field: str, policy: Obj) -> list[FieldError]:
    found = union(field, policy, ("basic", "gang"))
    gang = policy.get("gang")
    if gang is not None:
        count = gang.get("minCount") or 0
        if count < 1:
            found.append(invalid(f"{field}.gang.minCount", count, "must be greater than or equal to 1"))
    return found


def _topology(field: str, constraint: Obj) -> list[FieldError]:
    key = constraint.get("key") or ""
    return label_key(f"{field}.key", key) if key else [required(f"{field}.key")]


def _claim_reference(field: str, claim: Obj) -> list[FieldError]:
    found = required_label(f"{field}.name", claim.get("name") or "")
    members = ("resourceClaimName", "resourceClaimTemplateName")
    found += union(field, claim, members)
    for name in members:
        if claim.get(name) is not None:
            found += subdomain(f"{field}.{name}", claim[name])
    return found


def _preemption_fields(field: str, spec: Obj) -> list[FieldError]:
    found = one_of(f"{field}.disruptionMode", spec.get("disruptionMode"), _DISRUPTION_MODES, optional=True)
    if spec.get("disruptionMode") == "PodGroup" and part(spec, "schedulingPolicy").get("basic") is not None:
        # A unit of preemption must not be larger than the unit of scheduling (KEP 5710).
        why = "may not be `PodGroup` when the scheduling policy is `basic`"
        found.append(invalid(f"{field}.disruptionMode", "PodGroup", why))
    if spec.get("priorityClassName"):
        found += subdomain(f"{field}.priorityClassName", spec["priorityClassName"])
    priority = spec.get("priority")
    if priority is not None and priority < LOWEST_PRIORITY:
        found.append(invalid(f"{field}.priority", priority, f"must be greater than or equal to {LOWEST_PRIORITY}"))
    if priority is not None and priority > HIGHEST_USER_PRIORITY:
        found.append(invalid(f"{field}.priority", priority, f"must be less than or equal to {HIGHEST_USER_PRIORITY}"))
    return found
