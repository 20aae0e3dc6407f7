"""What nodes may write into the objects that they may write: their own, and nothing that opens more to them.

The node authorizer has let the request through; here its object is known. Everybody who is not a node costs one look
at the groups.
Source: admission plugin NodeRestriction, as behaviour; its words as in 1.36.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from haru.apiserver.auth.authorization import Authorizer
from haru.apiserver.auth.node_authorizer import LEASES, Attributes, node_of
from haru.apiserver.auth.node_graph import MIRROR, pod_links
from haru.apiserver.request.call import Call
from haru.kube.errors import StatusError, forbidden_error, not_found_error
from haru.kube.meta import Obj
from haru.kube.node_labels import KUBELET_LABELS, KUBELET_PREFIXES

_AUDIENCE = "request-serviceaccounts-token-audience"
_KUBELET_SIGNERS = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")
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
            if call.namespace != LEASES:
                raise _refusal(call, f'can only access leases in the "{LEASES}" system namespace', name)
            if name != node:
                raise _refusal(call, "can only access node lease with the same name as the requesting node", name)
        case "csinodes.storage.k8s.io":
            if name != node:
                raise _refusal(call, "can only access CSINode with the same name as the requesting node", name)
        case "resourceslices.resource.k8s.io":
            if (obj.get("spec") or {}).get("nodeName") != node:
                why = "can only create ResourceSlice with the same NodeName as the requesting node"
                raise _refusal(call, why, name)
        case "certificatesigningrequests.certificates.k8s.io":
            _check_signing_request(call, obj, node)


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


async def check_delete(call: Call) -> None:
    """On deletion: of pods, only of those that are bound to the node."""
    node = node_of(call.request.user)
    if node is not None and call.resource.kind.group_resource == "pods":
        await _check_own_pod(call, node, f'node "{node}" can only delete pods', call.not_found())


async def check_eviction(call: Call) -> None:
    """On an eviction: of a pod that is bound to the node."""
    node = node_of(call.request.user)
    if node is not None:
        await _check_own_pod(call, node, f"node {node} can only evict pods", not_found_error("", "pod", call.name))


async def _check_own_pod(call: Call, node: str, what: str, missing: StatusError) -> None:
    pod = await call.objects.read("", "pods", call.namespace, call.name)
    if pod is None:
        raise missing
    if (pod.get("spec") or {}).get("nodeName") != node:
        raise _refusal(call, f"{what} with spec.nodeName set to itself")


async def check_token(authorizer: Authorizer, call: Call, asked: Mapping[str, Any]) -> None:
    """On a request for a token: it must be bound to a pod of the node, by name and uid, and be for whom the pod says.

    For other audiences the node needs a right of its own (KEP 4412).
    """
    node = node_of(call.request.user)
    if node is None:
        return
    given = asked.get("boundObjectRef") or {}
    if given.get("kind") != "Pod" or given.get("apiVersion") != "v1" or not given.get("name"):
        raise _refusal(call, "node requested token not bound to a pod")
    if not given.get("uid"):
        raise _refusal(call, "node requested token with a pod binding without a uid")
    pod = await call.objects.read("", "pods", call.namespace, given["name"])
    if pod is None:
        raise not_found_error("", "pod", given["name"])
    if pod["metadata"]["uid"] != given["uid"]:
        why = f"the UID in the bound object reference ({given['uid']}) does not match the UID in record"
        raise _refusal(call, f"{why}. The object might have been deleted and then recreated")
    if (pod.get("spec") or {}).get("nodeName") != node:
        raise _refusal(call, "node requested token bound to a pod scheduled on a different node")
    audiences = asked.get("audiences") or [""]
    if len(audiences) > 1:
        raise _refusal(call, "node may only request 0 or 1 audiences")
    await _check_audience(authorizer, call, pod, audiences[0])


async def _check_audience(authorizer: Authorizer, call: Call, pod: Obj, audience: str) -> None:
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        sources = (volume.get("projected") or {}).get("sources") or ()
        tokens = [one["serviceAccountToken"] for one in sources if one.get("serviceAccountToken")]
        if any((token.get("audience") or "") == audience for token in tokens):
            return
        driver = await _driver_of(call, pod, volume)
        found = await call.objects.peek("storage.k8s.io", "csidrivers", "", driver) if driver else None
        asked = ((found or {}).get("spec") or {}).get("tokenRequests") or ()
        if any((token.get("audience") or "") == audience for token in asked):
            return
    user = call.request.user
    right = Attributes(_AUDIENCE, "", audience, "", call.namespace, call.name)
    await authorizer.prepare(user, right)
    if not authorizer.decide(user, right):
        why = f"{user.name} is not authorized to request tokens for this audience"
        raise _refusal(call, f'audience "{audience}" not found in pod spec volume, {why}')


async def _driver_of(call: Call, pod: Obj, volume: Obj) -> str:
    """The CSI driver of a pod's volume; empty for a volume without one, or whose claim or volume is not there."""
    if volume.get("csi"):
        return str(volume["csi"].get("driver") or "")
    name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
    if volume.get("ephemeral"):
        name = f"{pod['metadata']['name']}-{volume['name']}"
    claim = await call.objects.peek("", "persistentvolumeclaims", call.namespace, name) if name else None
    bound = ((claim or {}).get("spec") or {}).get("volumeName")
    found = await call.objects.peek("", "persistentvolumes", "", bound) if bound else None
    return str((((found or {}).get("spec") or {}).get("csi") or {}).get("driver") or "")


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
    if len(owners) > 1:
        why = f'node "{node}" can only create pods with a single owner reference set to itself'
        raise _refusal(call, why, name)
    if not owners or (owners[0].get("apiVersion"), owners[0].get("kind"), owners[0].get("name")) != (
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
    if own is None:
        raise not_found_error("", "node", node)
    if (uid := own["metadata"]["uid"]) != owners[0].get("uid"):
        raise _refusal(call, f"node {node} UID mismatch: expected {owners[0].get('uid')} got {uid}", name)
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


def _check_signing_request(call: Call, request: Obj, node: str) -> None:
    """A certificate for kubelets is for the node that asks for it (KEP 4601)."""
    name, spec = request["metadata"].get("name") or "", request.get("spec") or {}
    if spec.get("signerName") not in _KUBELET_SIGNERS:
        return
    try:
        asked = x509.load_pem_x509_csr(base64.b64decode(spec.get("request") or ""))
    except (ValueError, binascii.Error) as error:
        raise _refusal(call, f"unable to parse csr: {error}", name) from None
    if [str(one.value) for one in asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] != [f"system:node:{node}"]:
        raise _refusal(call, f"can only create a node CSR with CN=system:node:{node}", name)


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
