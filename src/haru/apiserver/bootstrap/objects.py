"""What every cluster starts with: namespaces, priority classes and levels, the roles that Kubernetes' components know.

Only what is absent is written: an administrator's changes stay. Roles and bindings are also given the rules and
subjects that they lack (those of an older version do), unless they are annotated not to be.
Source: RBAC's bootstrap policy and its reconciliation, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from haru.apiserver.bootstrap.flow_control_ensurer import ensure_flow_control
from haru.apiserver.bootstrap.policy import AUTOUPDATE
from haru.apiserver.bootstrap.roles import role_objects
from haru.apiserver.encoding.objects import shared
from haru.apiserver.registry.loopback import Loopback
from haru.apiserver.registry.service_allocations import SERVICE_NETWORK
from haru.kube.errors import suppress_status
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, get_condition, is_being_deleted
from haru.kube.names import format_time
from haru.kube.service_networks import DEFAULT

_CIDRS = known_kind("networking.k8s.io/v1", "ServiceCIDR")
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_COMPLETED = {"ClusterRole": "rules", "ClusterRoleBinding": "subjects"}
"""Which field of what is completed."""


@lru_cache(maxsize=8)
def _objects(gates: FeatureGates) -> Sequence[Obj]:
    """Return what is only read: servers of one process share it."""
    found: list[Obj] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES]
    movable = "must run in the cluster, but can be moved to another node if necessary"
    for name, value, description in (
        ("system-cluster-critical", 2_000_000_000, movable),
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
    return found + role_objects(lambda gate: gates.all().get(gate, False))


def _token_tracking(now: datetime) -> Obj:
    """Since when uses of tokens from Secrets are known: the cleaner of such Secrets removes none before a year."""
    metadata = {"name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"since": f"{now:%Y-%m-%d}"}}


async def ensure_service_network(loopback: Loopback) -> None:
    """The addresses of Services, as an object that says that they can be given out."""
    if loopback.objects.served.find(_CIDRS.group, _CIDRS.plural) is None:
        return
    spec = {"cidrs": [str(SERVICE_NETWORK)]}
    wanted: Obj = {"apiVersion": _CIDRS.api_version, "kind": _CIDRS.kind, "metadata": {"name": DEFAULT}}
    await loopback.ensure({**wanted, "spec": spec})
    ready = {"type": "Ready", "status": "True", "message": "Kubernetes default Service CIDR is ready"}
    live = await loopback.objects.peek(_CIDRS.group, _CIDRS.plural, "", DEFAULT)
    # Also at a later start: the one that created it may have been cut off before it wrote this.
    if live is None or get_condition(live, "Ready") is not None or live["spec"] != spec or is_being_deleted(live):
        return
    status = {"conditions": [{**ready, "lastTransitionTime": format_time(loopback.objects.clock())}]}
    await loopback.apply({**wanted, "status": status}, "kubernetes-service-cidr-controller", "status")


async def ensure(loopback: Loopback, gates: FeatureGates) -> None:
    """Write what is absent."""
    for obj in (*_objects(gates), _token_tracking(loopback.objects.clock())):
        if not await loopback.ensure(obj) and obj["kind"] in _COMPLETED:
            await _complete(loopback, obj)
    await ensure_service_network(loopback)
    await ensure_flow_control(loopback)


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

    with suppress_status(404):
        await loopback.update(obj, make)


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
