"""The node authorizer: what a kubelet may do, and to which objects.

A node is who is named `system:node:NAME` and belongs to `system:nodes`. Of what other pods may hold secrets in it gets
what its own pods refer to, its own Node, Lease, CSINode and ResourceSlices, and the rest by rules that are the same
for all nodes. What a node may put into objects of its own is the admission plugin NodeRestriction's to say.
Source: Kubernetes' authorization mode Node with AuthorizeNodeWithSelectors, as behaviour; its words as in 1.36.
"""

from __future__ import annotations

from dataclasses import dataclass

from haru.apiserver.auth.node_graph import ATTACHMENTS, CLAIMS, SLICES, NodeGraph, Reference
from haru.apiserver.auth.user import UserInfo
from haru.apiserver.object_store import ObjectStore

NODES = "system:nodes"
PREFIX = "system:node:"
LEASES = "kube-node-lease"
_READ = ("get", "list", "watch")
_OWN = ("get", "create", "update", "patch", "delete")

_STATIC: dict[str, tuple[str, ...]] = {
    "certificatesigningrequests.certificates.k8s.io": ("create", *_READ),
    "clustertrustbundles.certificates.k8s.io": _READ,
    "csidrivers.storage.k8s.io": _READ,
    "endpoints": ("get",),
    "events": ("create", "patch", "update"),
    "events.events.k8s.io": ("create", "patch", "update"),
    "localsubjectaccessreviews.authorization.k8s.io": ("create",),
    "runtimeclasses.node.k8s.io": _READ,
    "services": _READ,
    "subjectaccessreviews.authorization.k8s.io": ("create",),
    "tokenreviews.authentication.k8s.io": ("create",),
}
"""What every node may do, whichever it is."""

_GRAPHED = {
    "configmaps",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "secrets",
    "serviceaccounts",
    ATTACHMENTS,
    CLAIMS,
    SLICES,
}


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes that an authorizer decides on. `selected_node` is the `spec.nodeName` that a selector demands."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    selected_node: str = ""

    @property
    def group_resource(self) -> str:
        """`pods`, `deployments.apps`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


def node_of(user: UserInfo) -> str | None:
    """The node that a user is; empty if it is none in particular, None if it is not a node."""
    if NODES not in user.groups or not user.name.startswith(PREFIX):
        return None
    return user.name.removeprefix(PREFIX)


class NodeAuthorizer:
    """Judges the requests of nodes."""

    def __init__(self, objects: ObjectStore) -> None:
        self._graph = NodeGraph(objects)

    async def refresh(self, asked: Attributes) -> None:
        """Take in what the judgement of a node's request needs to know."""
        resource = asked.group_resource
        if resource == "pods" and (asked.subresource or asked.verb not in _READ):
            return  # judged by the verb alone: pods are written far more often than anything is read because of them
        if resource in _GRAPHED and (asked.name or resource == "serviceaccounts"):
            await self._graph.refresh(resource)

    def refusal(self, node: str, asked: Attributes) -> str | None:
        """Why not; None if the node may. An empty reason: there is nothing to say."""
        if not node:
            return "unknown node for user"
        match asked.group_resource:
            case "secrets" | "configmaps":
                return self._read_only(node, asked)
            case "persistentvolumeclaims" if asked.subresource == "status":
                return self._status_of_claim(node, asked)
            case "persistentvolumeclaims" | "persistentvolumes" | "volumeattachments.storage.k8s.io":
                return self._get_only(node, asked)
            case "resourceclaims.resource.k8s.io":
                return self._get_only(node, asked)
            case "serviceaccounts":
                return self._account(node, asked)
            case "leases.coordination.k8s.io":
                return _own_object(node, asked, "a node lease")
            case "csinodes.storage.k8s.io":
                return _own_object(node, asked, "a CSINode")
            case "resourceslices.resource.k8s.io":
                return self._slice(node, asked)
            case "nodes":
                return _node(node, asked)
            case "pods":
                return self._pod(node, asked)
            case other:
                return None if not asked.subresource and asked.verb in _STATIC.get(other, ()) else ""

    def _related(self, node: str, asked: Attributes) -> str | None:
        if not asked.name:
            return "No Object name found"
        if self._graph.reaches(node, Reference(asked.group_resource, asked.namespace, asked.name)):
            return None
        return f"no relationship found between node '{node}' and this object"

    def _read_only(self, node: str, asked: Attributes) -> str | None:
        if asked.verb not in _READ:
            return "can only read resources of this type"
        if asked.subresource:
            return "cannot read subresource"
        if not asked.namespace:
            return "can only read namespaced object of this type"
        return self._related(node, asked)

    def _get_only(self, node: str, asked: Attributes) -> str | None:
        if asked.verb != "get":
            return "can only get individual resources of this type"
        if asked.subresource:
            return "cannot get subresource"
        return self._related(node, asked)

    def _status_of_claim(self, node: str, asked: Attributes) -> str | None:
        if asked.verb not in ("update", "patch"):
            return "can only get/update/patch this type"
        return self._related(node, asked)

    def _account(self, node: str, asked: Attributes) -> str | None:
        if asked.verb == "get" and not asked.subresource:
            return self._related(node, asked)
        if asked.verb != "create" or not asked.name:
            return "can only create tokens for individual service accounts"
        if asked.subresource != "token":
            return "can only create token subresource of serviceaccount"
        return self._related(node, asked)

    def _slice(self, node: str, asked: Attributes) -> str | None:
        if asked.subresource:
            return "cannot authorize ResourceSlice subresources"
        if asked.verb == "create":
            return None
        if asked.verb in ("get", "update", "patch", "delete"):
            return self._related(node, asked)
        if asked.verb in ("list", "watch", "deletecollection"):
            if asked.selected_node == node:
                return None
            return "can only list/watch/deletecollection resourceslices with nodeName field selector"
        allowed = "get, watch, list, create, update, patch, delete, deletecollection"
        return f"only the following verbs are allowed for a ResourceSlice: {allowed}"

    def _pod(self, node: str, asked: Attributes) -> str | None:
        match asked.subresource, asked.verb:
            case "", "get":
                return self._related(node, asked)
            case "", ("list" | "watch"):
                if asked.selected_node == node or (asked.name and self._related(node, asked) is None):
                    return None
                return "can only list/watch pods with spec.nodeName field selector"
            case ("", ("create" | "delete")) | ("status", ("update" | "patch")) | ("eviction", "create"):
                return None
        return ""


def _node(node: str, asked: Attributes) -> str | None:
    match asked.subresource, asked.verb:
        case ("", ("create" | "update" | "patch")) | ("status", ("update" | "patch")):
            return None
        case "", ("get" | "list" | "watch"):
            if asked.name == node:
                return None
            whose = f"'{asked.name}'" if asked.name else "all nodes"
            return f"node '{node}' cannot read {whose}, only its own Node object"
    return ""


def _own_object(node: str, asked: Attributes, what: str) -> str | None:
    if asked.verb not in _OWN:
        return f"can only get, create, update, patch, or delete {what}"
    if asked.subresource:
        return f"cannot authorize subresources of {what}"
    if asked.resource == "leases" and asked.namespace != LEASES:
        return f'can only access leases in the "{LEASES}" system namespace'
    # Who is created is not known yet here; admission looks at the name.
    if asked.verb != "create" and asked.name != node:
        return f"can only access {what.removeprefix('a ')} with the same name as the requesting node"
    return None
