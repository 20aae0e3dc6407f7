"""What the API server does to an object of a kind between decoding and validation.

Status belongs to `/status`, everything else to the main resource; a Pod starts Pending with its QoS class; a Job gets
the selector and labels that tie its pods to it. Nothing here needs other objects, that is admission. All functions
return new objects. Source: the registry strategies of each API group, as behaviour; KEP 4381, 4671, 3521, 5055.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from haru.kube import api_services
from haru.kube.custom import definitions
from haru.kube.data import rows
from haru.kube.disabled import drop_disabled_fields
from haru.kube.equality import same_member, same_members
from haru.kube.gates import FeatureGates
from haru.kube.kind_strategies import (
    first_definition,
    first_namespace,
    generated_job,
    template_generation,
    with_both_addresses,
    with_both_sources,
    with_member,
    with_named_secrets,
    with_namespace_finalizers,
    with_phase_time,
    with_stored_versions,
    with_taint_time,
    with_template_generation,
    without_deallocated,
    without_load_balancer,
)
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.schema import Field, type_of
from haru.kube.signing_requests import with_condition_times, with_kept_answers

_RESOURCE = "resource.k8s.io"
# Metadata that a write to /status does not change.
_METADATA = ("generation",)
_OF_USERS = ("labels", "annotations", "finalizers", "ownerReferences")
_ALL_METADATA = (*_METADATA, "deletionTimestamp", *_OF_USERS)
_STATUS_KEEPS = {
    "Pod": (*_METADATA, "ownerReferences"),
    "Deployment": (*_METADATA, "labels"),
    "APIService": (*_METADATA, *_OF_USERS),
}


def prepare_for_create(obj: Obj, kind: Kind, gates: FeatureGates, now: str) -> Obj:
    """An object as it is created: without status, without disabled fields, with what the server adds.

    The object has been defaulted and has its name and uid; `now` (RFC 3339) dates the first conditions.
    """
    obj = drop_disabled_fields(obj, None, kind, gates)
    if "status" in kind.subresources and "status" in obj and kind.kind != "Node":
        obj = {name: value for name, value in obj.items() if name != "status"}
    key = (kind.group, kind.kind)
    if key == ("", "Pod"):
        spec = _with_label_keys(obj.get("spec") or {}, obj["metadata"].get("labels") or {}, gates.minor)
        return {**obj, "spec": spec, "status": _first_pod_status(spec, now)}
    if key == ("", "Namespace"):
        return first_namespace(obj)
    if key == ("", "Service"):
        return with_both_addresses(obj)
    if key == ("", "ServiceAccount"):
        return with_named_secrets(obj)
    if key == (definitions.GROUP, "CustomResourceDefinition"):
        return first_definition(obj)
    if key == (api_services.GROUP, "APIService"):
        return api_services.with_first_status(obj, now)
    if key == ("batch", "Job"):
        return generated_job(obj)
    if key == ("apps", "DaemonSet"):
        return with_template_generation(obj, max(1, template_generation(obj)))
    if key == ("", "PersistentVolumeClaim"):
        return {**with_both_sources(obj, None), "status": {"phase": "Pending"}}
    if key == ("", "PersistentVolume"):
        return {**obj, "status": {"phase": "Pending", "lastPhaseTransitionTime": now}}
    return obj


def prepare_for_update(new: Obj, old: Obj, kind: Kind, gates: FeatureGates, now: str = "") -> Obj:
    """A write to the main resource: status comes from the stored object, disabled fields that are not in use go."""
    if "status" in kind.subresources:
        new = with_member(new, "status", old.get("status"))
    if (kind.group, kind.kind) == (definitions.GROUP, "CustomResourceDefinition"):
        new = with_stored_versions(new)
    if (kind.group, kind.kind) == ("apps", "DaemonSet"):
        same_template = same_members(new.get("spec") or {}, old.get("spec") or {}, "template", "apps.v1.DaemonSetSpec")
        new = with_template_generation(new, template_generation(old) + (not same_template))
    if (kind.group, kind.kind) == ("", "ServiceAccount"):
        new = with_named_secrets(new)
    if kind.kind == "Namespace":
        new = with_namespace_finalizers(new, old)
    if (kind.group, kind.kind) == (_RESOURCE, "DeviceTaintRule"):
        new = with_taint_time(new, old, now)
    if (kind.group, kind.kind) == ("", "PersistentVolumeClaim"):
        new = with_both_sources(new, old)
    if (kind.group, kind.kind) == ("", "Service"):
        new = without_load_balancer(new)
    return drop_disabled_fields(new, old, kind, gates)


def prepare_for_status_update(new: Obj, old: Obj, kind: Kind, gates: FeatureGates, now: str = "") -> Obj:
    """A write to `/status`: everything but status comes from the stored object, and most of its metadata too."""
    metadata = _metadata_beside_status(new.get("metadata") or {}, old.get("metadata") or {}, kind)
    kept = {name: value for name, value in old.items() if name not in ("metadata", "status")}
    prepared = {**kept, "metadata": metadata}
    if "status" in new:
        prepared["status"] = new["status"]
    if (kind.group, kind.kind) == (_RESOURCE, "ResourceClaim"):
        prepared = without_deallocated(prepared, old)
    if (kind.group, kind.kind) == ("", "Pod"):
        prepared = _with_kept_pod_status(prepared, old)
    if (kind.group, kind.kind) == ("", "PersistentVolume"):
        prepared = with_phase_time(prepared, old, now)
    if (kind.group, kind.kind) == _SIGNING:
        prepared = with_condition_times(with_kept_answers(prepared, old), old, now)
    return drop_disabled_fields(prepared, old, kind, gates)


def _metadata_beside_status(new: Obj, old: Obj, kind: Kind) -> Obj:
    """The metadata after a write to `/status`; of some kinds all stay, of some a few names."""
    rules = _rules_of(kind)
    if "status-only" in rules:
        return with_member(old, "managedFields", new.get("managedFields"))
    metadata = dict(new)
    kept = _STATUS_KEEPS.get(kind.kind) or (_ALL_METADATA if "status-alone" in rules else _METADATA)
    for name in kept:
        if name in old:
            metadata[name] = old[name]
        else:
            metadata.pop(name, None)
    return metadata


def allows_unconditional_update(kind: Kind) -> bool:
    """Whether an object of the kind may be replaced by who does not say which version of it is meant.

    Of two who believe that they lead, or that they spend the last of a budget, one has to learn that it does not.
    """
    return "conditional" not in _rules_of(kind)


def creates_on_update(kind: Kind) -> bool:
    """Whether an update of an object that is not there creates it."""
    return "creates" in _rules_of(kind)


def is_shown_when_deleted(kind: Kind) -> bool:
    """Whether a deletion answers with the object itself even when it is gone."""
    return "shown" in _rules_of(kind)


def also_reset(kind: Kind, subresource: str) -> tuple[str, ...]:
    """What a write to the (sub)resource does not set beyond what is so for most kinds, as paths."""
    found = _ALSO_RESET.get((kind.group, kind.kind, subresource), ())
    alone = subresource == "status" and ("status-alone" in _rules_of(kind) or kind.group == definitions.GROUP)
    return (*found, "metadata") if alone else found


_SIGNING = ("certificates.k8s.io", "CertificateSigningRequest")
_ALSO_RESET: Mapping[tuple[str, str, str], tuple[str, ...]] = {
    ("", "Pod", "status"): ("metadata.deletionTimestamp", "metadata.ownerReferences"),
    ("apps", "Deployment", "status"): ("metadata.labels",),
    (*_SIGNING, ""): ("spec",),
    (*_SIGNING, "status"): ("status.conditions",),
    (*_SIGNING, "approval"): ("spec", "status.certificate"),
}


def begins_generation(kind: Kind) -> bool:
    """Whether a new object of the kind is of generation 1."""
    return not {"generation", "first-generation"}.isdisjoint(_rules_of(kind))


def next_generation(new: Obj, old: Obj, kind: Kind) -> int | None:
    """The generation of an update that changes what `metadata.generation` counts, else None.

    That is everything but metadata and status; of some kinds labels or annotations too.
    """
    rules = _rules_of(kind)
    if "generation" not in rules and "later-generations" not in rules:
        return None
    names = (new.keys() | old.keys()) - {"apiVersion", "kind", "metadata", "status"}
    if kind.custom is not None and not kind.custom.has_status:
        names |= {"status"}
    before = old["metadata"]
    counted = [name for name in ("labels", "annotations") if f"generation-of-{name}" in rules]
    fields = type_of(kind).fields if kind.custom is None else _NO_FIELDS
    if any(not same_member(new.get(name), old.get(name), fields.get(name)) for name in names) or any(
        (new["metadata"].get(name) or {}) != (before.get(name) or {}) for name in counted
    ):
        return int(before.get("generation") or 0) + 1
    return None


_NO_FIELDS: Mapping[str, Field] = {}
_RULES = {("" if group == "core" else group, kind): rules for group, kind, *rules in rows("write_rules")}


def _rules_of(kind: Kind) -> Sequence[str]:
    if kind.custom is not None:
        return ("generation", "conditional", "status-alone", "status-only")
    return _RULES.get((kind.group, kind.kind), ())


# --- pods ----------------------------------------------------------------------------------------------------------


def _first_pod_status(spec: Obj, now: str) -> Obj:
    status: Obj = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": now,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    return status


_POD_TERMS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")
_SPREAD_MERGED_SINCE = 34


def _with_label_keys(spec: Obj, labels: Obj, minor: int) -> Obj:
    """The spec with the pod's values of matchLabelKeys and mismatchLabelKeys in the selectors (KEP-3633, KEP-3243)."""
    affinity = spec.get("affinity") or {}
    merged = {
        name: {
            **affinity[name],
            **{
                terms: [_pod_term(term, labels) for term in affinity[name].get(terms) or ()]
                for terms in _POD_TERMS
                if terms in affinity[name]
            },
        }
        for name in ("podAffinity", "podAntiAffinity")
        if affinity.get(name)
    }
    if merged:
        spec = {**spec, "affinity": {**affinity, **merged}}
    if minor >= _SPREAD_MERGED_SINCE and spec.get("topologySpreadConstraints"):
        constraints = [_with_keys_selected(one, labels) for one in spec["topologySpreadConstraints"]]
        spec = {**spec, "topologySpreadConstraints": constraints}
    return spec


def _pod_term(term: Obj, labels: Obj) -> Obj:
    if "weight" in term:
        return {**term, "podAffinityTerm": _with_keys_selected(term.get("podAffinityTerm") or {}, labels)}
    return _with_keys_selected(term, labels)


def _with_keys_selected(term: Obj, labels: Obj) -> Obj:
    """A term or constraint whose label selector also holds what its label keys name."""
    selector = term.get("labelSelector")
    more = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(field) or ()
        if key in labels
    ]
    if selector is None or not more:
        return term
    return {
        **term,
        "labelSelector": {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *more]},
    }


def _with_kept_pod_status(new: Obj, old: Obj) -> Obj:
    """A status write that leaves out the QoS class, or of what generation it speaks, does not take them away.

    The first of all addresses and the address are one.
    """
    status, before = dict(new.get("status") or {}), old.get("status") or {}
    addresses, first = status.get("podIPs") or [], status.get("podIP")
    if first and (not addresses or addresses[0].get("ip") != first):
        status["podIPs"] = [{"ip": first}]
    elif addresses and addresses[0].get("ip"):
        status["podIP"] = addresses[0]["ip"]
    for name in ("qosClass", "observedGeneration"):
        if not status.get(name) and before.get(name):
            status[name] = before[name]
    known: dict[Any, list[Any]] = {}
    for condition in before.get("conditions") or ():
        known.setdefault(condition.get("type"), []).append(condition.get("observedGeneration"))
    conditions = status.get("conditions") or ()
    # A type may occur more than once: the first one of now follows the first one of before.
    kept = [known[c.get("type")].pop(0) if known.get(c.get("type")) else None for c in conditions]
    if any(kept):
        status["conditions"] = [
            {**condition, "observedGeneration": generation}
            if generation and not condition.get("observedGeneration")
            else condition
            for condition, generation in zip(conditions, kept, strict=True)
        ]
    return {**new, "status": status}


def qos_class(spec: Obj) -> str:
    """Guaranteed, Burstable or BestEffort, by the cpu and memory of the containers (or of the pod, KEP 2837)."""
    pod_level = spec.get("resources") or {}
    if pod_level.get("requests") or pod_level.get("limits"):
        holders = [pod_level]
    else:
        holders = [
            c.get("resources") or {} for c in (*_containers(spec, "containers"), *_containers(spec, "initContainers"))
        ]
    sides = [(_amounts(holder.get("requests")), _amounts(holder.get("limits"))) for holder in holders]
    if not any(requests or limits for requests, limits in sides):
        return "BestEffort"
    guaranteed = all(
        limits.keys() == {"cpu", "memory"} and (requests or limits) == limits for requests, limits in sides
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _containers(spec: Obj, name: str) -> list[Obj]:
    return spec.get(name) or []


def _amounts(resources: Mapping[str, Any] | None) -> dict[str, Quantity]:
    """The cpu and memory amounts that are more than zero; malformed ones are validation's business."""
    found: dict[str, Quantity] = {}
    for name in ("cpu", "memory"):
        value = (resources or {}).get(name)
        if value is None:
            continue
        try:
            amount = parse_quantity(value)
        except ValueError:
            continue
        if amount > Quantity(0):
            found[name] = amount
    return found
