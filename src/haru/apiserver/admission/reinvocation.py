"""Changes by others that the server's own changing plugins need not look at again.

Whoever changes an object (a policy, a webhook) has those plugins run once more. They are the same functions of the same
object then, but for what was changed: where they read none of it, they would find all as they left it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from haru.apiserver.auth.node_authorizer import node_of
from haru.apiserver.auth.node_graph import MIRROR
from haru.apiserver.request.call import Call
from haru.kube.kinds import Kind
from haru.kube.meta import Obj

POD_SPEC = frozenset(
    (
        *("activeDeadlineSeconds", "affinity", "dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases"),
        *("hostname", "readinessGates", "resourceClaims", "restartPolicy", "schedulerName", "schedulingGates"),
        *("setHostnameAsFQDN", "shareProcessNamespace", "subdomain", "terminationGracePeriodSeconds"),
        "topologySpreadConstraints",
    )
)
"""Members of a pod's spec that no changing plugin reads when a pod is created, unless a node creates it."""


_PARTS = frozenset(("metadata", "spec"))
_NOTES = frozenset(("labels", "annotations"))


def nothing_new(call: Call, before: Obj, after: Obj) -> bool:
    """Whether an object that is created shows the changing plugins what they have seen before. Only pods are known."""
    if call.resource.kind.group_resource != "pods" or node_of(call.request.user) is not None:
        return False
    spec, metadata = after.get("spec"), after.get("metadata")
    if not (isinstance(spec, dict) and isinstance(metadata, dict)):
        return False
    if not _differs_only(before["spec"], spec, POD_SPEC) or not _differs_only(before, after, _PARTS):
        return False
    known = before["metadata"]
    if not _differs_only(known, metadata, _NOTES):
        return False
    return known.get("annotations") is metadata.get("annotations") or _is_mirror(known) == _is_mirror(metadata)


def unread(kind: Kind, names: Mapping[str, Collection[str]]) -> bool:
    """Whether no changing plugin reads these members of the parts of a new object, unless a node creates it."""
    notes = names.get("metadata") or ()
    return (
        kind.group_resource == "pods"
        and names.keys() <= _PARTS
        and _NOTES.issuperset(notes)
        and "annotations" not in notes  # a mirror pod is known by one
        and POD_SPEC.issuperset(names.get("spec") or ())
    )


def _differs_only(before: Obj, after: Obj, members: Set[str]) -> bool:
    """Whether all other members are the very same."""
    for name, value in after.items():
        if value is not before.get(name) and name not in members:
            return False
    return before.keys() - after.keys() <= members


def _is_mirror(metadata: Obj) -> bool:
    return MIRROR in (metadata.get("annotations") or {})
