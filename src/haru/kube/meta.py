"""Small helpers for what every object has: identity, owners, finalizers, conditions; and node taints.

Source: k8s.io/apimachinery `apis/meta/v1` and k8s.io/component-helpers `scheduling/corev1`, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Obj = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON decodes it."""


def name_of(obj: Mapping[str, Any]) -> str:
    """`metadata.name`, or an empty text."""
    return str((obj.get("metadata") or {}).get("name") or "")


def told_name(obj: Mapping[str, Any]) -> str:
    """The name by which a refusal tells of an object that may have none yet."""
    return name_of(obj) or str((obj.get("metadata") or {}).get("generateName") or "") or "Unknown"


def namespace_of(obj: Mapping[str, Any]) -> str:
    """`metadata.namespace`, or an empty text."""
    return str((obj.get("metadata") or {}).get("namespace") or "")


def uid_of(obj: Mapping[str, Any]) -> str:
    """`metadata.uid`, or an empty text."""
    return str((obj.get("metadata") or {}).get("uid") or "")


def node_of(pod: Mapping[str, Any]) -> str:
    """The node that a pod is bound to, or an empty text."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def allocation_of(claim: Mapping[str, Any] | None) -> Any:
    """What a ResourceClaim has been given; None for one that has nothing yet, or is not there."""
    return ((claim or {}).get("status") or {}).get("allocation")


def phase_of(pod: Mapping[str, Any]) -> str:
    """`status.phase`; a pod without one is Pending."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def podgroup_of(pod: Mapping[str, Any]) -> str:
    """The name of the PodGroup that a pod belongs to, or an empty text."""
    return str(((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or "")


def key_of(obj: Mapping[str, Any]) -> str:
    """`namespace/name`, or the name alone for a cluster-scoped object."""
    meta = obj.get("metadata") or {}
    namespace = meta.get("namespace")
    return f"{namespace}/{meta.get('name', '')}" if namespace else str(meta.get("name", ""))


def labels_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """`metadata.labels`, or an empty mapping."""
    return (obj.get("metadata") or {}).get("labels") or {}


def annotations_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """`metadata.annotations`, or an empty mapping."""
    return (obj.get("metadata") or {}).get("annotations") or {}


def value_at(obj: Any, *keys: str) -> Any:
    """Return the value at a path of keys, or None."""
    found = obj
    for key in keys:
        if not isinstance(found, dict):
            return None
        found = found.get(key)
    return found


def is_being_deleted(obj: Mapping[str, Any]) -> bool:
    """Whether a deletion has been asked for and not been finished."""
    return bool((obj.get("metadata") or {}).get("deletionTimestamp"))


def has_finalizer(obj: Mapping[str, Any], finalizer: str) -> bool:
    """Whether the object carries this finalizer."""
    return finalizer in ((obj.get("metadata") or {}).get("finalizers") or ())


def controller_of(obj: Mapping[str, Any]) -> Obj | None:
    """The owner reference of the managing controller, if there is one; it is the object's own: do not change it."""
    for reference in (obj.get("metadata") or {}).get("ownerReferences") or ():
        if reference.get("controller"):
            found: Obj = reference
            return found
    return None


def controller_uid_of(obj: Mapping[str, Any]) -> str | None:
    """The UID of the managing controller, if there is one."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            uid: str | None = reference.get("uid")
            return uid
    return None


def owner_reference(obj: Mapping[str, Any], kind: Any, controller: bool = True) -> Obj:
    """A reference to `obj` as owner; `kind` has `.api_version` and `.kind`. A controller also blocks its deletion."""
    reference: Obj = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name_of(obj),
        "uid": uid_of(obj),
    }
    if controller:
        reference["controller"] = True
        reference["blockOwnerDeletion"] = True
    return reference


def get_condition(obj_or_conditions: Mapping[str, Any] | Sequence[Obj] | None, type: str) -> Obj | None:
    """The condition of this type, from a list of conditions or from an object's status."""
    conditions: Sequence[Obj] | None
    if isinstance(obj_or_conditions, Mapping):
        conditions = (obj_or_conditions.get("status") or {}).get("conditions")
    else:
        conditions = obj_or_conditions
    for condition in conditions or ():
        if condition.get("type") == type:
            return condition
    return None


def has_condition(obj: Mapping[str, Any], type: str, status: str = "True") -> bool:
    """Whether an object's condition of this type is there and has that status."""
    condition = get_condition(obj, type)
    return condition is not None and condition.get("status") == status


def set_condition(conditions: Sequence[Obj] | None, new: Obj, now: str) -> list[Obj]:
    """The conditions with `new` in them; its `lastTransitionTime` moves only when its status does."""
    entry = dict(new)
    result = list(conditions or ())
    for index, old in enumerate(result):
        if old.get("type") == entry.get("type"):
            same = old.get("status") == entry.get("status") and old.get("lastTransitionTime")
            entry["lastTransitionTime"] = old["lastTransitionTime"] if same else entry.get("lastTransitionTime") or now
            result[index] = entry
            return result
    entry.setdefault("lastTransitionTime", now)
    result.append(entry)
    return result


def toleration_matches(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether one toleration covers one node taint (Lt and Gt compare integers, KEP-5471)."""
    effect = toleration.get("effect")
    if effect and effect != taint.get("effect"):
        return False
    key = toleration.get("key")
    if key and key != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    if not key:
        return False
    wanted, given = toleration.get("value") or "", taint.get("value") or ""
    if operator == "Equal":
        return bool(wanted == given)
    if operator in ("Lt", "Gt"):
        try:
            limit, number = int(wanted), int(given)
        except ValueError:
            return False
        return number < limit if operator == "Lt" else number > limit
    return False


def tolerates(tolerations: Sequence[Mapping[str, Any]] | None, taint: Mapping[str, Any]) -> bool:
    """Whether any of the tolerations covers the node taint."""
    return any(toleration_matches(toleration, taint) for toleration in tolerations or ())
