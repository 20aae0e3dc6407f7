"""The built-in admission plugins: which of them look at which resource, in 1.36's order.

A plugin is an async function over (call, object[, old object]); one that changes the object does so in place: its top
level, metadata and spec belong to the call. What else a plugin needs (the authorizer, the limits of namespaces) is
bound when the server is assembled. A resource that is in no row costs one dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from haru.apiserver.admission import (
    accounts,
    classes,
    devices,
    escalation,
    node_restriction,
    parameters,
    priority,
    signing,
    workloads,
)
from haru.apiserver.admission.pod_resize import check_room_on_node
from haru.apiserver.admission.pod_security import PodSecurity
from haru.apiserver.admission.protection import add_finalizer
from haru.apiserver.admission.quotas import NamespaceLimits, ResourceQuota
from haru.apiserver.auth.authorization import MASTERS, Authorizer, refusal
from haru.apiserver.auth.node_authorizer import Attributes
from haru.apiserver.request.call import Call
from haru.kube.errors import StatusError, aggregate, forbidden_error, not_found_error
from haru.kube.finalizers import (
    POD_GROUP_PROTECTION,
    VOLUME_ATTRIBUTES_CLASS_PROTECTION,
    VOLUME_CLAIM_PROTECTION,
    VOLUME_PROTECTION,
)
from haru.kube.kinds import Kind
from haru.kube.limit_ranges import pod_faults, set_defaults, volume_claim_faults
from haru.kube.meta import Obj, get_condition, told_name
from haru.kube.pod_security.templates import WORKLOADS
from haru.storage import Event, Put, Record

TOLERATION_SECONDS = 300
_NOT_READY, _UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


async def taint_until_ready(call: Call, node: Obj) -> None:
    """Taint a new node, unless it registers itself and is ready."""
    ready = get_condition(node, "Ready")
    itself = call.request.user.name == f"system:node:{node['metadata'].get('name')}"
    if itself and ready is not None and ready.get("status") == "True":
        return
    spec: Obj = node.setdefault("spec", {})
    taints = list(spec.get("taints") or ())
    if not any(taint.get("key") == _NOT_READY and taint.get("effect") == "NoSchedule" for taint in taints):
        spec["taints"] = [*taints, {"key": _NOT_READY, "effect": "NoSchedule"}]


async def add_default_tolerations(call: Call, pod: Obj) -> None:
    """Tolerate a node that is not ready or unreachable for 300 s, unless the pod has tolerations for these taints."""
    spec = pod["spec"]
    tolerations = list(spec.get("tolerations") or ())
    for key in (_NOT_READY, _UNREACHABLE):
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
            )
    spec["tolerations"] = tolerations


def _covers(toleration: Obj, key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


async def keep_default_tolerations(call: Call, new: Obj, old: Obj) -> None:
    """Add to a pod that is replaced what a new one gets; nothing else that admission added may be left out."""
    await add_default_tolerations(call, new)


class LimitRanger:
    """Apply the LimitRanges of one server's namespaces, in the order of their names."""

    def __init__(self, limits: NamespaceLimits) -> None:
        self._limits = limits

    async def _ranges(self, call: Call) -> list[Obj]:
        found = await self._limits.ranges(call.namespace) if self._limits.started else []
        return [each for each in found if not each["metadata"].get("deletionTimestamp")]

    async def complete_pod(self, call: Call, pod: Obj) -> None:
        """Set defaults for requests and limits that the containers of a new pod leave out."""
        for limit_range in await self._ranges(call):
            set_defaults(limit_range, pod)

    async def check_pod(self, call: Call, pod: Obj) -> None:
        """Refuse a new pod that a LimitRange does not allow."""
        for limit_range in await self._ranges(call):
            _require(call, pod, pod_faults(limit_range, pod))

    async def check_resized_pod(self, call: Call, new: Obj, old: Obj) -> None:
        """Refuse a resized pod that a LimitRange does not allow."""
        await self.check_pod(call, new)

    async def check_volume_claim(self, call: Call, claim: Obj) -> None:
        """Refuse a new volume claim that a LimitRange does not allow."""
        for limit_range in await self._ranges(call):
            _require(call, claim, volume_claim_faults(limit_range, claim))

    async def check_volume_claim_update(self, call: Call, new: Obj, old: Obj) -> None:
        """Check a volume claim whose requested size changes."""
        if (new.get("spec") or {}).get("resources") != (old.get("spec") or {}).get("resources"):
            await self.check_volume_claim(call, new)


def _require(call: Call, obj: Obj, faults: list[str]) -> None:
    if faults:
        kind = call.resource.kind
        raise forbidden_error(kind.group, kind.plural, obj["metadata"]["name"], aggregate(faults))


OnCreate = Callable[[Call, Obj], Awaitable[None]]
OnUpdate = Callable[[Call, Obj, Obj], Awaitable[None]]
GroupPlural = tuple[str, str]
CreateTable = Mapping[GroupPlural, tuple[OnCreate, ...]]
UpdateTable = Mapping[GroupPlural, tuple[OnUpdate, ...]]

_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
_RESOURCE = "resource.k8s.io"
_SCHEDULING = "scheduling.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_PODS = ("", "pods")
_VOLUME_CLAIMS = ("", "persistentvolumeclaims")
_NAMESPACES = ("", "namespaces")
_SIGNING = ("certificates.k8s.io", "certificatesigningrequests")
_POLICIES = [(_ADMISSION, name) for name in ("validatingadmissionpolicies", "mutatingadmissionpolicies")]
_BINDINGS = [(_ADMISSION, name) for name in ("validatingadmissionpolicybindings", "mutatingadmissionpolicybindings")]
_ROLES = [(_RBAC, "roles"), (_RBAC, "clusterroles")]
_ROLE_BINDINGS = [(_RBAC, "rolebindings"), (_RBAC, "clusterrolebindings")]


class Admission:
    """The built-in admission plugins of one server."""

    def __init__(
        self, authorizer: Authorizer, limits: NamespaceLimits, pod_security: PodSecurity, quota: ResourceQuota
    ):
        self._quota = quota
        self._authorizer = authorizer
        ranger = LimitRanger(limits)
        self._admit_create = _admit_create(ranger)
        self._grants = dict.fromkeys(_ROLES, escalation.check_role)
        self._grants |= dict.fromkeys(_ROLE_BINDINGS, escalation.check_binding)
        self._validate_create = _validate_create(authorizer, ranger, pod_security)
        self._admit_update = _admit_update(authorizer)
        self._validate_update = _validate_update(ranger, pod_security)
        self._admit_status: UpdateTable = {
            (_RESOURCE, "resourceclaims"): (
                devices.require_admin_namespace_for_status,
                partial(devices.authorize_status, authorizer),
            ),
            _SIGNING: (partial(signing.check_signature, authorizer),),
        }
        self._subresources: Mapping[str, tuple[OnUpdate, ...]] = {
            "approval": (partial(signing.check_approval, authorizer),),
            "ephemeralcontainers": (accounts.check_ephemeral_containers, pod_security.check_pod),
            "resize": (ranger.check_resized_pod, check_room_on_node),
        }

    async def admit_create(self, call: Call, obj: Obj) -> None:
        """Change or refuse an object before the kind's strategy sees it."""
        if call.resource.kind.namespaced:
            await require_live_namespace(call, obj)
        await node_restriction.check_create(call, obj)
        for plugin in self._admit_create.get(_key(call), ()):
            await plugin(call, obj)

    async def check_grant(self, call: Call, new: Obj, old: Obj | None) -> None:
        """Refuse a role or binding that grants more than its writer holds."""
        if _key(call) in self._grants:
            await self._grants[_key(call)](self._authorizer, call, new, old or {})

    async def validate_create(self, call: Call, obj: Obj) -> None:
        """Refuse an object that is complete and valid."""
        for plugin in self._validate_create.get(_key(call), ()):
            await plugin(call, obj)

    async def admit_update(self, call: Call, new: Obj, old: Obj) -> None:
        """Change or refuse an update of the main resource."""
        await node_restriction.check_update(call, new, old)
        for plugin in self._admit_update.get(_key(call), ()):
            await plugin(call, new, old)

    async def validate_update(self, call: Call, new: Obj, old: Obj) -> None:
        """Refuse an update of the main resource that is complete and valid."""
        for plugin in self._validate_update.get(_key(call), ()):
            await plugin(call, new, old)

    async def admit_status(self, call: Call, new: Obj, old: Obj, given: Obj) -> None:
        """Refuse an update of the status; nodes may not even send (`given`) what is left as it was."""
        await node_restriction.check_update(call, given, old)
        for plugin in self._admit_status.get(_key(call), ()):
            await plugin(call, new, old)

    async def admit_posted(self, call: Call, name: str) -> None:
        """Refuse what is posted to a subresource (Binding, Eviction, TokenRequest) of a namespace that is going."""
        await require_live_namespace(call, {"metadata": {"name": name}})

    async def admit_token(self, call: Call, asked: Mapping[str, Any]) -> None:
        """Refuse a request for a token."""
        await node_restriction.check_token(self._authorizer, call, asked)

    async def validate_subresource(self, call: Call, new: Obj, old: Obj) -> None:
        """Refuse an update through another subresource than the status."""
        for plugin in self._subresources.get(call.subresource, ()):
            await plugin(call, new, old)

    async def permit_creation(self, call: Call) -> None:
        """Refuse an update or an apply that would create, to who may not create."""
        user, kind = call.request.user, call.resource.kind
        if MASTERS in user.groups:
            return
        namespace = call.name if kind.group_resource == "namespaces" else call.namespace
        asked = Attributes("create", kind.group, kind.plural, "", namespace, call.name)
        await self._authorizer.prepare(user, asked)
        if not (decision := self._authorizer.decide(user, asked)):
            raise refusal(user, asked, decision, call.name)

    async def admit_delete(self, call: Call) -> None:
        """Refuse a deletion."""
        if _key(call) == _NAMESPACES and call.name in _IMMORTAL:
            raise forbidden_error("", "namespaces", call.name, "this namespace may not be deleted")
        await node_restriction.check_delete(call)

    async def write_with_quota(self, call: Call, put: Put, new: Obj, record: Record | None) -> Sequence[Event]:
        """Store an object and charge its quotas."""
        return await self._quota.write(call, put, new, record)

    async def check_quota(self, call: Call, new: Obj, record: Record | None) -> None:
        """Refuse what `write_with_quota` would refuse."""
        await self._quota.check(call, new, record)


def _key(call: Call) -> GroupPlural:
    kind = call.resource.kind
    return kind.group, kind.plural


def _admit_create(ranger: LimitRanger) -> CreateTable:
    return {
        _PODS: (
            ranger.complete_pod,
            accounts.set_service_account,
            priority.set_pod_priority,
            add_default_tolerations,
            classes.apply_runtime_class,
        ),
        _VOLUME_CLAIMS: (classes.set_storage_class, add_finalizer(VOLUME_CLAIM_PROTECTION)),
        ("", "persistentvolumes"): (add_finalizer(VOLUME_PROTECTION),),
        ("storage.k8s.io", "volumeattributesclasses"): (add_finalizer(VOLUME_ATTRIBUTES_CLASS_PROTECTION),),
        ("networking.k8s.io", "ingresses"): (classes.set_ingress_class,),
        ("", "nodes"): (taint_until_ready,),
        (_RESOURCE, "resourceclaims"): (devices.require_admin_namespace,),
        (_RESOURCE, "resourceclaimtemplates"): (devices.require_admin_namespace,),
        (_SCHEDULING, "podgroups"): (priority.set_group_priority, add_finalizer(POD_GROUP_PROTECTION, always=True)),
    }


def _validate_create(authorizer: Authorizer, ranger: LimitRanger, pod_security: PodSecurity) -> CreateTable:
    return {
        (_SCHEDULING, "podgroups"): (workloads.require_workload,),
        (_SCHEDULING, "priorityclasses"): (priority.require_single_default,),
        **dict.fromkeys(_POLICIES, (partial(parameters.check_kind, authorizer),)),
        **dict.fromkeys(_BINDINGS, (partial(parameters.check_reference, authorizer),)),
        _PODS: (ranger.check_pod, pod_security.check_pod, classes.check_overhead),
        _VOLUME_CLAIMS: (ranger.check_volume_claim,),
        _SIGNING: (signing.check_subject,),
        _NAMESPACES: (pod_security.check_namespace,),
        **dict.fromkeys(WORKLOADS, (pod_security.check_workload,)),
    }


def _admit_update(authorizer: Authorizer) -> UpdateTable:
    return {
        _PODS: (keep_default_tolerations, priority.keep_pod_priority),
        (_SCHEDULING, "priorityclasses"): (priority.require_single_default_on_update,),
        **dict.fromkeys(_POLICIES, (partial(parameters.check_kind_update, authorizer),)),
        **dict.fromkeys(_BINDINGS, (partial(parameters.check_reference_update, authorizer),)),
    }


def _validate_update(ranger: LimitRanger, pod_security: PodSecurity) -> UpdateTable:
    return {
        _PODS: (pod_security.check_pod,),
        _VOLUME_CLAIMS: (ranger.check_volume_claim_update,),
        _NAMESPACES: (pod_security.check_namespace,),
        **dict.fromkeys(WORKLOADS, (pod_security.check_workload,)),
        ("batch", "jobs"): (pod_security.check_workload, workloads.keep_gang_size),
    }


async def require_live_namespace(call: Call, obj: Obj) -> None:
    """Refuse to create in a namespace that does not exist (404) or is being deleted (403); NamespaceLifecycle."""
    name = call.namespace
    namespace = await call.objects.peek("", "namespaces", "", name)
    if namespace is None:
        raise not_found_error("", "namespaces", name)
    if namespace["metadata"].get("deletionTimestamp") or (namespace.get("status") or {}).get("phase") == "Terminating":
        raise _terminating(call.resource.kind, name, told_name(obj))


def _terminating(kind: Kind, namespace: str, name: str) -> StatusError:
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    error = forbidden_error(kind.group, kind.plural, name, why)
    error.details["causes"] = [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    return error
