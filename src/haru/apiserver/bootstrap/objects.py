"""What every cluster starts with: namespaces, priority classes, and the roles that Kubernetes' components know.

Only what is absent is written: an administrator's changes stay. Roles and bindings are also given the rules and
subjects that they lack (those of an older version do), unless they are annotated not to be.
Source: RBAC's bootstrap policy and its reconciliation, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from haru.apiserver.bootstrap.roles import AUTOUPDATE, role_objects
from haru.apiserver.encoding.objects import shared
from haru.apiserver.registry.loopback import Loopback
from haru.kube.errors import StatusError

Obj = dict[str, Any]

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_COMPLETED = {"ClusterRole": "rules", "ClusterRoleBinding": "subjects"}
"""Which field of what is completed."""


@cache
def _objects() -> Sequence[Obj]:
    """To be read only."""
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


async def ensure(loopback: Loopback) -> None:
    """Write what is absent."""
    for obj in _objects():
        if not await loopback.ensure(obj) and obj["kind"] in _COMPLETED:
            await _complete(loopback, obj)


async def _complete(loopback: Loopback, obj: Obj) -> None:
    """Add what a role or binding lacks; nothing is taken away."""
    objects = loopback.objects
    resource = objects.served.of_kind(obj["apiVersion"], obj["kind"])
    record = await objects.record(resource, "", obj["metadata"]["name"])
    field = _COMPLETED[obj["kind"]]
    if record is None or not (_lacking(shared(record), obj, field) or _is_too_wide(shared(record))):
        return

    async def make(live: Obj) -> Obj:
        if _is_too_wide(live):
            return {**live, field: []}
        lacking = _lacking(live, obj, field)
        return {**live, field: [*(live.get(field) or ()), *lacking]} if lacking else live

    try:
        await loopback.update(obj, make)
    except StatusError as error:
        if error.code != 404:
            raise


def _is_too_wide(live: Obj) -> bool:
    """The one thing that is taken back: before there was a node authorizer, all nodes were bound to their role."""
    metadata = live["metadata"]
    return (
        (live["kind"], metadata["name"]) == ("ClusterRoleBinding", "system:node")
        and "kubernetes.io/bootstrapping" in (metadata.get("labels") or {})
        and AUTOUPDATE not in (metadata.get("annotations") or {})
        and bool(live.get("subjects"))
    )


def _lacking(live: Obj, wanted: Obj, field: str) -> list[Obj]:
    if (live["metadata"].get("annotations") or {}).get(AUTOUPDATE) == "false":
        return []
    there = live.get(field) or ()
    return [part for part in wanted.get(field) or () if part not in there]
