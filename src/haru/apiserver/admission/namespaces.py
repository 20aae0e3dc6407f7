"""NamespaceLifecycle: nothing is created where there is no namespace, or in one that is going away."""

from __future__ import annotations

from typing import Any

from haru.apiserver.request.call import Call
from haru.kube.errors import forbidden_error, not_found_error

Obj = dict[str, Any]

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


async def require_live_namespace(call: Call, obj: Obj) -> None:
    """404 for an unknown namespace, 403 with cause NamespaceTerminating for one that is being deleted."""
    name = call.namespace
    namespace = await call.core.peek("", "namespaces", "", name)
    if namespace is None:
        raise not_found_error("", "namespaces", name)
    if namespace["metadata"].get("deletionTimestamp") or (namespace.get("status") or {}).get("phase") == "Terminating":
        kind = call.resource.kind
        why = f"unable to create new content in namespace {name} because it is being terminated"
        error = forbidden_error(kind.group, kind.plural, str(obj["metadata"].get("name") or ""), why)
        error.details["causes"] = [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {name} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        raise error


def refuse_immortal(call: Call) -> None:
    """The cluster's own namespaces can not be deleted."""
    kind = call.resource.kind
    if (kind.group, kind.plural) == ("", "namespaces") and call.name in IMMORTAL:
        raise forbidden_error("", "namespaces", call.name, "this namespace may not be deleted")
