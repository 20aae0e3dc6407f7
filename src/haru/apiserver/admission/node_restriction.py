"""What nodes may write into the objects that they may write: their own, and nothing that opens more to them.

The node authorizer has let the request through; here its object is known. Everybody who is not a node costs one look
at the groups.
Source: admission plugin NodeRestriction, as behaviour; its words as in 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haru.apiserver.auth.node_authorizer import LEASES, node_of
from haru.apiserver.auth.node_graph import MIRROR, pod_links
from haru.apiserver.request.call import Call
from haru.kube.errors import StatusError, forbidden_error
from haru.kube.meta import Obj
from haru.kube.node_labels import KUBELET_LABELS, KUBELET_PREFIXES

_RESTRICTED = "node-restriction.kubernetes.io"


async def check_create(call: Call, obj: Obj) -> None:
    """On create of an object."""
    node = node_of(call.request.user)
    if node is None:
        return
    kind, name = call.resource.kind, obj["metadata"].get("name") or ""
    match kind.group_resource:
        case "pods":
            await _check_mirror_pod(call, obj, node)
        case "nodes":
            if name != node:
                raise _refusal(call, f'node "{node}" is not allowed to modify node "{name}"', name)
            forbidden = _forbidden_labels(obj["metadata"].get("labels") or {}, {})
            if forbidden:
                listed = ", ".join(forbidden)
                raise _refusal(call, f'node "{node}" is not allowed to set the following labels: {listed}', name)
        case "leases.coordination.k8s.io":
            if call.namespace != LEASES or name != node:
                raise _refusal(call, "can only access node lease with the same name as the requesting node", name)
        case "csinodes.storage.k8s.io":
            if name != node:
                raise _refusal(call, "can only access CSINode with the same name as the requesting node", name)
        case "resourceslices.resource.k8s.io":
            _check_slice(call, obj, node)


async def check_update(call: Call, new: Obj, old: Obj) -> None:
    """On update of an object, or of its status."""
    node = node_of(call.request.user)
    if node is None:
        return
    match call.resource.kind.group_resource:
        case "pods":
            _check_pod_status(call, new, old, node)
        case "nodes":
            _check_node(call, new, old, node)
        case "persistentvolumeclaims":
            if _without_sizes(new) != _without_sizes(old):
                why = f'node "{node}" is not allowed to update fields other than status.capacity and status.conditions'
                raise _refusal(call, why)
        case "resourceslices.resource.k8s.io":
            _check_slice(call, new, node)


async def check_delete(call: Call) -> None:
    """On deletion: of pods, only of those that are bound to the node."""
    node = node_of(call.request.user)
    if node is not None and call.resource.kind.group_resource == "pods":
        await check_pod(call, "delete pods")


async def check_pod(call: Call, what: str) -> None:
    """The pod that a call names must be bound to the node that calls; `what` is done to it."""
    node = node_of(call.request.user)
    if node is None:
        return
    pod = await call.objects.read("", "pods", call.namespace, call.name)
    if pod is None:
        raise call.not_found()
    if (pod.get("spec") or {}).get("nodeName") != node:
        raise _refusal(call, f'node "{node}" can only {what} with spec.nodeName set to itself')


async def check_token(call: Call, reference: Mapping[str, Any] | None) -> None:
    """On a request for a token: it must be bound to a pod of the node, by name and uid."""
    node = node_of(call.request.user)
    if node is None:
        return
    given = reference or {}
    if given.get("kind") != "Pod" or given.get("apiVersion") != "v1" or not given.get("name"):
        raise _refusal(call, "node requested token not bound to a pod")
    if not given.get("uid"):
        raise _refusal(call, "node requested token with a pod binding without a uid")
    pod = await call.objects.read("", "pods", call.namespace, given["name"])
    if pod is not None and (pod.get("spec") or {}).get("nodeName") != node:
        raise _refusal(call, "node requested token bound to a pod scheduled on a different node")


# --- kinds


async def _check_mirror_pod(call: Call, pod: Obj, node: str) -> None:
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    name = metadata.get("name") or ""
    if MIRROR not in (metadata.get("annotations") or {}):
        why = f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods'
        raise _refusal(call, why, name)
    if spec.get("nodeName") != node:
        raise _refusal(call, f'node "{node}" can only create pods with spec.nodeName set to itself', name)
    owners = metadata.get("ownerReferences") or []
    if len(owners) != 1 or (owners[0].get("apiVersion"), owners[0].get("kind"), owners[0].get("name")) != (
        "v1",
        "Node",
        node,
    ):
        raise _refusal(call, f'node "{node}" can only create pods with an owner reference set to itself', name)
    if not owners[0].get("controller"):
        why = f'node "{node}" can only create pods with a controller owner reference set to itself'
        raise _refusal(call, why, name)
    if owners[0].get("blockOwnerDeletion"):
        raise _refusal(call, f'node "{node}" must not set blockOwnerDeletion on an owner reference', name)
    own = await call.objects.peek("", "nodes", "", node)
    if own is None or own["metadata"]["uid"] != owners[0].get("uid"):
        raise _refusal(call, f"node {node} UID mismatch: the owner reference names another one", name)
    # Read as if it were no mirror pod: then everything that it refers to is seen.
    plain = {**pod, "metadata": {**metadata, "annotations": {}}}
    referred = sorted({reference.resource for reference in pod_links(plain)[1]} - {"pods", "serviceaccounts"})
    if spec.get("serviceAccountName") not in (None, ""):
        referred.append("a service account")
    if spec.get("resourceClaims"):
        referred.append("resourceclaims")
    if referred:
        raise _refusal(call, f'node "{node}" can not create pods that reference {referred[-1]}', name)


def _check_pod_status(call: Call, new: Obj, old: Obj, node: str) -> None:
    if (old.get("spec") or {}).get("nodeName") != node:
        why = f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
        raise _refusal(call, why)
    if (new["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {}):
        raise _refusal(call, f'node "{node}" cannot update labels through pod status')
    for name, shown in (
        ("resourceClaimStatuses", "resource claim statues"),
        ("extendedResourceClaimStatus", "extended resource claim status"),
    ):
        if ((new.get("status") or {}).get(name) or None) != ((old.get("status") or {}).get(name) or None):
            raise _refusal(call, f'node "{node}" cannot update {shown}')


def _check_node(call: Call, new: Obj, old: Obj, node: str) -> None:
    if call.name != node:
        raise _refusal(call, f'node "{node}" is not allowed to modify node "{call.name}"')
    after, before = new["metadata"], old["metadata"]
    if ((new.get("spec") or {}).get("taints") or []) != ((old.get("spec") or {}).get("taints") or []):
        raise _refusal(call, f'node "{node}" is not allowed to modify taints')
    if (after.get("ownerReferences") or []) != (before.get("ownerReferences") or []):
        raise _refusal(call, f'node "{node}" is not allowed to modify ownerReferences')
    forbidden = _forbidden_labels(after.get("labels") or {}, before.get("labels") or {})
    if forbidden:
        raise _refusal(call, f"is not allowed to modify labels: {', '.join(forbidden)}")


def _check_slice(call: Call, part: Obj, node: str) -> None:
    if (part.get("spec") or {}).get("nodeName") != node:
        why = "can only create or update a ResourceSlice with the same NodeName as the requesting node"
        raise _refusal(call, why, part["metadata"].get("name") or "")


def _forbidden_labels(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    """The labels that differ and that steer work: those of Kubernetes that are not a kubelet's, and the restricted."""
    changed = {key for key in new.keys() | old.keys() if new.get(key) != old.get(key)}
    return sorted(key for key in changed if _is_forbidden(key))


def _is_forbidden(key: str) -> bool:
    space, slash, _ = key.rpartition("/")
    if not slash or key in KUBELET_LABELS:
        return False
    if _within(space, _RESTRICTED):
        return True
    if any(_within(space, own) for own in KUBELET_PREFIXES):
        return False
    return _within(space, "kubernetes.io") or _within(space, "k8s.io")


def _within(space: str, domain: str) -> bool:
    return space == domain or space.endswith(f".{domain}")


def _without_sizes(claim: Obj) -> Obj:
    """A volume claim without what a node reports of it."""
    sizes = ("capacity", "conditions", "allocatedResourceStatuses", "allocatedResources")
    status = {name: value for name, value in (claim.get("status") or {}).items() if name not in sizes}
    metadata = {n: v for n, v in claim["metadata"].items() if n not in ("resourceVersion", "managedFields")}
    return {**claim, "metadata": metadata, "status": status}


def _refusal(call: Call, why: str, name: str = "") -> StatusError:
    kind = call.resource.kind
    return forbidden_error(kind.group, kind.plural, name or call.name, why)
