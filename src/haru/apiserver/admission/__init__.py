"""Admission: what the cluster's policy adds to a write, or why it refuses it.

The plugins run in 1.36's order. Each is an async function over (call, object[, old object]); a mutating one changes
the object, whose top level, metadata and spec belong to the call. Which plugin looks at which resource is the table
below; a resource that is in no row costs one dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from haru.apiserver.admission import (
    accounts,
    classes,
    devices,
    escalation,
    jobs,
    limit_ranges,
    namespaces,
    node_restriction,
    nodes,
    parameters,
    pod_standards,
    pods,
    priority,
    signing,
    workloads,
)
from haru.apiserver.request.call import Call
from haru.kube.pod_security.templates import WORKLOADS

Obj = dict[str, Any]
OnCreate = Callable[[Call, Obj], Awaitable[None]]
OnUpdate = Callable[[Call, Obj, Obj], Awaitable[None]]

_RESOURCE = "resource.k8s.io"
_SCHEDULING = "scheduling.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_POLICIES = ("validatingadmissionpolicies", "mutatingadmissionpolicies")
_BINDINGS = ("validatingadmissionpolicybindings", "mutatingadmissionpolicybindings")

_MUTATE_NEW: dict[tuple[str, str], tuple[OnCreate, ...]] = {
    ("", "pods"): (
        limit_ranges.complete_pod,
        accounts.set_service_account,
        priority.set_pod_priority,
        pods.add_default_tolerations,
        classes.apply_runtime_class,
    ),
    ("", "persistentvolumeclaims"): (classes.set_storage_class,),
    ("networking.k8s.io", "ingresses"): (classes.set_ingress_class,),
    ("", "nodes"): (nodes.taint_until_ready,),
    (_SCHEDULING, "podgroups"): (priority.set_group_priority, workloads.add_protection),
}
_NAMESPACES = ("", "namespaces")
_SIGNING = ("certificates.k8s.io", "certificatesigningrequests")
_VALIDATE_NEW: dict[tuple[str, str], tuple[OnCreate, ...]] = {
    (_SCHEDULING, "podgroups"): (workloads.require_workload,),
    (_SCHEDULING, "priorityclasses"): (priority.require_single_default,),
    (_RESOURCE, "resourceclaims"): (devices.require_admin_namespace,),
    (_RESOURCE, "resourceclaimtemplates"): (devices.require_admin_namespace,),
    **{(_ADMISSION, plural): (parameters.check_kind,) for plural in _POLICIES},
    **{(_ADMISSION, plural): (parameters.check_reference,) for plural in _BINDINGS},
}
_VALIDATE_NEW.update(
    {
        ("", "pods"): (limit_ranges.check_pod, pod_standards.check_pod),
        ("", "persistentvolumeclaims"): (limit_ranges.check_volume_claim,),
        _SIGNING: (signing.check_subject,),
        _NAMESPACES: (pod_standards.check_namespace,),
    }
)
_VALIDATE_NEW.update(dict.fromkeys(WORKLOADS, (pod_standards.check_workload,)))
_VALIDATE_NEW.update({(_RBAC, plural): (escalation.check_role,) for plural in ("roles", "clusterroles")})
_VALIDATE_NEW.update(
    {(_RBAC, plural): (escalation.check_binding,) for plural in ("rolebindings", "clusterrolebindings")}
)
_UPDATE: dict[tuple[str, str], tuple[OnUpdate, ...]] = {
    ("", "pods"): (pods.keep_defaults, priority.keep_pod_priority),
    (_SCHEDULING, "priorityclasses"): (priority.require_single_default_on_update,),
    **{(_ADMISSION, plural): (parameters.check_kind_update,) for plural in _POLICIES},
    **{(_ADMISSION, plural): (parameters.check_reference_update,) for plural in _BINDINGS},
}
_UPDATE.update({(_RBAC, plural): (escalation.check_role_update,) for plural in ("roles", "clusterroles")})
_UPDATE.update(
    {(_RBAC, plural): (escalation.check_binding_update,) for plural in ("rolebindings", "clusterrolebindings")}
)
_STATUS: dict[tuple[str, str], tuple[OnUpdate, ...]] = {
    (_RESOURCE, "resourceclaims"): (devices.require_admin_namespace_for_status, devices.authorize_status),
    _SIGNING: (signing.check_signature,),
}


_VALIDATE_UPDATE: dict[tuple[str, str], tuple[OnUpdate, ...]] = {
    ("", "pods"): (pod_standards.check_pod_update,),
    ("", "persistentvolumeclaims"): (limit_ranges.check_volume_claim_update,),
    _NAMESPACES: (pod_standards.check_namespace_update,),
    **dict.fromkeys(WORKLOADS, (pod_standards.check_workload_update,)),
    ("batch", "jobs"): (pod_standards.check_workload_update, jobs.keep_gang_size),
}


def _of(call: Call) -> tuple[str, str]:
    kind = call.resource.kind
    return kind.group, kind.plural


async def admit_create(call: Call, obj: Obj) -> None:
    """Change or refuse an object before the kind's strategy sees it."""
    if call.resource.kind.namespaced:
        await namespaces.require_live_namespace(call, obj)
    await node_restriction.check_create(call, obj)
    for plugin in _MUTATE_NEW.get(_of(call), ()):
        await plugin(call, obj)


async def validate_create(call: Call, obj: Obj) -> None:
    """Refuse an object that is complete and valid."""
    for plugin in _VALIDATE_NEW.get(_of(call), ()):
        await plugin(call, obj)


async def validate_update(call: Call, new: Obj, old: Obj) -> None:
    """Refuse an update of the main resource that is complete and valid."""
    for plugin in _VALIDATE_UPDATE.get(_of(call), ()):
        await plugin(call, new, old)


async def admit_update(call: Call, new: Obj, old: Obj) -> None:
    """Change or refuse an update of the main resource."""
    await node_restriction.check_update(call, new, old)
    for plugin in _UPDATE.get(_of(call), ()):
        await plugin(call, new, old)


async def admit_status(call: Call, new: Obj, old: Obj) -> None:
    """Refuse a status write."""
    await node_restriction.check_update(call, new, old)
    for plugin in _STATUS.get(_of(call), ()):
        await plugin(call, new, old)


async def admit_delete(call: Call) -> None:
    """Refuse a deletion."""
    namespaces.refuse_immortal(call)
    await node_restriction.check_delete(call)
