"""What every cluster starts with: namespaces, priority classes, and the roles that Kubernetes' components know.

Only what is absent is written: an administrator's changes stay.
"""

from __future__ import annotations

from typing import Any

from haru.apiserver.bootstrap_roles import role_objects
from haru.apiserver.call import Call
from haru.apiserver.config import UserInfo
from haru.apiserver.core import Core
from haru.apiserver.http import Message, Request
from haru.apiserver.writing import create
from haru.kube.errors import StatusError

Obj = dict[str, Any]

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_SELF = UserInfo("system:apiserver", ("system:masters",))


def _objects() -> list[Obj]:
    found: list[Obj] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES]
    for name, value, description in (
        ("system-cluster-critical", 2_000_000_000, "must run in the cluster, but can be moved to another node"),
        ("system-node-critical", 2_000_001_000, "must not be moved from their current node"),
    ):
        found.append(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "description": f"Used for system critical pods that {description}.",
            }
        )
    return found + role_objects()


async def ensure(core: Core) -> None:
    """Write what is absent."""
    for obj in _objects():
        await ensure_object(core, obj)


def own_call(core: Core, obj: Obj, verb: str) -> Call:
    """A call that the server makes itself, for the resource of an object."""
    resource = next(
        r for r in core.served.all() if (r.kind.api_version, r.kind.kind) == (obj["apiVersion"], obj["kind"])
    )
    request = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, _nothing, _nowhere)
    request.user = _SELF
    namespace = obj["metadata"].get("namespace", "")
    return Call(core, request, resource, namespace, "", "", verb, core.now(), manager="haru")


async def ensure_object(core: Core, obj: Obj) -> bool:
    """Write one object in the server's own name; False when there is one already."""
    call = own_call(core, obj, "create")
    if await core.store.get(call.resource.key(call.namespace, obj["metadata"]["name"])) is not None:
        return False
    try:
        await create(call, obj)
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise
        return False
    return True


async def _nothing() -> Message:
    return {"type": "http.request", "body": b""}


async def _nowhere(message: Message) -> None:
    return None
