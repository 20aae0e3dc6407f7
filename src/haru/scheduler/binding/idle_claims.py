"""Find allocated claims that a rejected unit cannot use.

A pod with reserved devices that was not bound (a crash, a deleted node, failed binding conditions) may be limited to
devices that no node can serve any more. Its claims are deallocated, so that the next attempt or another pod can use the
devices; not those that running members of the group use too, nor the reservations of a gang that runs below its quorum,
unless deallocating them is known to complete it.
Source: PostFilter of kube-scheduler's DynamicResources plugin; docs/adr/0002.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from haru.engine import Snapshot
from haru.engine.plugins import ClaimUse, extended_resource_claim_use, resolve_claims
from haru.engine.state import ClusterView, GroupKey, Patched, PodInfo, consumer_key, freed
from haru.kube.meta import Obj
from haru.kube.selectors import node_selector_matches


def idle_claims(
    snapshot: Snapshot, pods: Iterable[Obj], others: Iterable[Obj], group: Obj | None, *, workload_claims: bool
) -> dict[str, Obj]:
    """By path: the allocated claims of rejected pods that nobody else has reserved or, as `others`, is about to."""
    running = False
    if group is not None:
        metadata = group["metadata"]
        running = snapshot.group_state(GroupKey(metadata.get("namespace", ""), metadata["name"])).scheduled_count > 0
    uses = _uses(snapshot, pods, group, workload_claims)
    taken = {use.path for use in _uses(snapshot, others, group, workload_claims)}
    consumers = {use.reserve_for["uid"] for use in uses}
    if running and group is not None:
        consumers.discard(group["metadata"].get("uid") or "")
    return {
        use.path: use.claim
        for use in uses
        if use.allocation is not None
        and use.path not in snapshot.claim_index.in_flight
        and use.path not in taken
        and {entry.get("uid") for entry in use.reserved_for} <= consumers
    }


def without_allocations(snapshot: Snapshot, claims: Mapping[str, Obj]) -> Snapshot:
    """The snapshot as if these claims were not allocated."""
    free = {path: freed(claim) for path, claim in claims.items()}
    return replace(snapshot, claims=Patched(snapshot.claims, free), allocated=snapshot.allocated.freed(free))


def abandoned_claims(snapshot: ClusterView, group: GroupKey) -> list[Obj]:
    """The allocated claims of a PodGroup that lost members by eviction, as far as none of its members uses them."""
    if group.path not in snapshot.podgroup_index.evicted:
        return []
    reserved = snapshot.claim_index.by_consumer.get(consumer_key("podgroups", group.namespace, group.name)) or ()
    return [
        snapshot.claim_index.orphaned[p]
        for p in sorted(reserved)
        if p in snapshot.claim_index.orphaned and p not in snapshot.claim_index.in_flight
    ]


def claims_left_behind(snapshot: Snapshot) -> list[Obj]:
    """The claims that only PodGroups without users of them hold, on nodes that more important pods are promised.

    A scheduler before this one evicted the users, and died before it freed the claims: nobody else would.
    """
    promised = [pod for pod in snapshot.pod_index.nominated.values() if pod.status.get("nominatedNodeName")]
    return [claim for path, claim in snapshot.claims.items() if promised and _is_left(snapshot, path, claim, promised)]


def _is_left(snapshot: Snapshot, path: str, claim: Obj, promised: Iterable[PodInfo]) -> bool:
    status = claim.get("status") or {}
    entries, selector = status.get("reservedFor") or (), (status.get("allocation") or {}).get("nodeSelector")
    if not entries or not selector or path in snapshot.claim_index.in_flight:
        return False
    priorities = []
    for entry in entries:
        key = GroupKey(claim["metadata"].get("namespace") or "default", entry.get("name") or "")
        group = snapshot.pod_group(key) if entry.get("resource") == "podgroups" else None
        if group is None or any(path in snapshot.pods[pod].claim_paths for pod in snapshot.group_state(key).scheduled):
            return False
        priorities.append(int((group.get("spec") or {}).get("priority") or 0))
    nodes = [snapshot.nodes.get(pod.nominated_node) for pod in promised if pod.priority > max(priorities)]
    return any(node is not None and node_selector_matches(selector, node.name, node.labels) for node in nodes)


def _uses(snapshot: Snapshot, pods: Iterable[Obj], group: Obj | None, workload_claims: bool) -> list[ClaimUse]:
    found: list[ClaimUse] = []
    for pod in pods:
        info = PodInfo.of(pod)
        resolved = resolve_claims(snapshot, info, group, workload_claims=workload_claims)
        if isinstance(resolved, tuple):
            found += resolved
        extended_claim = extended_resource_claim_use(snapshot, info)
        if extended_claim is not None:
            found.append(extended_claim)
    return found
