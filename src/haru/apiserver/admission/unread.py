"""Changes by others that the server's own changing plugins need not look at again.

Whoever changes an object (a policy, a webhook) has those plugins run once more. They are the same functions of the same
object then, but for what was changed: where they read none of it, they would find all as they left it.
"""

from __future__ import annotations

from typing import Any

from haru.apiserver.call import Call
from haru.apiserver.node_authorization import node_of
from haru.apiserver.node_graph import MIRROR

Obj = dict[str, Any]

POD_SPEC = frozenset(
    (
        *("activeDeadlineSeconds", "affinity", "dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases"),
        *("hostname", "readinessGates", "resourceClaims", "restartPolicy", "schedulerName", "schedulingGates"),
        *("setHostnameAsFQDN", "shareProcessNamespace", "subdomain", "terminationGracePeriodSeconds"),
        "topologySpreadConstraints",
    )
)
"""Members of a pod's spec that no changing plugin reads when a pod is created, unless a node creates it."""


def nothing_new(call: Call, before: Obj, after: Obj) -> bool:
    """Whether an object that is created shows the changing plugins what they have seen before. Only pods are known."""
    if call.resource.kind.group_resource != "pods" or node_of(call.request.user) is not None:
        return False
    for name in before.keys() | after.keys():
        one, other = before.get(name), after.get(name)
        if one is other:
            continue
        if not (isinstance(one, dict) and isinstance(other, dict)):
            return False
        if name == "spec":
            if not _changed(one, other) <= POD_SPEC:
                return False
        elif name != "metadata" or not _same_metadata(one, other):
            return False
    return True


def _changed(before: Obj, after: Obj) -> set[str]:
    """The members that are not the same; equal ones may be among them."""
    found = {name for name, value in after.items() if value is not before.get(name)}
    return found | (before.keys() - after.keys())


def _same_metadata(before: Obj, after: Obj) -> bool:
    """Whether nothing but labels and annotations differs, the mark of mirror pods excepted."""
    changed = _changed(before, after)
    if not changed <= {"labels", "annotations"}:
        return False
    return "annotations" not in changed or _is_mirror(before) == _is_mirror(after)


def _is_mirror(metadata: Obj) -> bool:
    return MIRROR in (metadata.get("annotations") or {})
