"""Compute the passes with nominated pods: keep nominated placements for their pods, now and after pending evictions.

A pending pod is nominated by a decision, with devices and the victims that it waits for (`Nomination`), or by
`status.nominatedNodeName` alone. A nomination binds all pods of at most its priority. Members that a running gang still
lacks bind every pod: a pod that took their place would leave half a gang for good. Where a more important pod evicted a
member, or the gang has too few members to be whole, they no longer do.
Source: kube-scheduler's treatment of nominated pods when it filters (with them and without them), as behaviour
(KEP-268, KEP-5278); ADR 2 for gangs, ADR 4 for devices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.plugins.dynamicresources.pod_claims import resolve_claims
from haru.engine.podgroup.podgroup_info import has_quorum, keeps_places
from haru.engine.preemption.dry_run import claim_users, keep_group_reservations, without_orphans, without_pods
from haru.engine.state.cache import Snapshot
from haru.engine.state.cow_map import Patched
from haru.engine.state.deadlines import latest_end
from haru.engine.state.decision import ClaimAllocation, Decision, GroupKey, PodKey, Reason
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pending_reservations import evicted_pods
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.reserved_for import POD_GROUPS
from haru.engine.state.snapshot import ClusterView
from haru.kube.meta import Obj, allocation_of


@dataclass(frozen=True, slots=True)
class NominatedPlacement:
    """Hold a pending pod's nominated place; it is kept from pods of at most this priority.

    `claimed` are the node resources that its devices will take; None means what its status says (KEP-5517).
    """

    pod: PodInfo
    node: str
    priority: int
    allocations: tuple[ClaimAllocation, ...] = ()
    claimed: tuple[Obj, ...] | None = None


def has_nominations(snapshot: ClusterView) -> bool:
    """Tell whether any pending pod is nominated, validly or not."""
    return bool(snapshot.pod_index.nominations or snapshot.pod_index.nominated)


def nominated_placements(snapshot: ClusterView) -> Iterator[NominatedPlacement]:
    """Yield all nominations that are still valid, by pod path."""
    for path in sorted({*snapshot.pod_index.nominations, *snapshot.pod_index.nominated}):
        pod, nomination = snapshot.pods.get(path), snapshot.pod_index.nominations.get(path)
        if pod is None:
            continue
        name = nomination.node if nomination is not None else pod.nominated_node
        if not _is_pending_for(snapshot, pod, name):
            continue
        if nomination is not None:
            yield NominatedPlacement(pod, name, nomination.priority, nomination.allocations, nomination.claimed)
        else:
            yield NominatedPlacement(pod, name, pod.priority)


def terminating_pods(snapshot: Snapshot, except_for: Collection[str] = ()) -> list[PodInfo]:
    """Return the pods evicted for others: by a decision, or seen terminating for that reason.

    `but` are pending pods whose nominations are void, so their victims do not count.
    """
    found = {path: pod for path, pod in snapshot.pod_index.terminating.items() if pod.preempted}
    evicted = evicted_pods(one for path, one in snapshot.pod_index.nominations.items() if path not in except_for)
    found.update((pod.key.path, pod) for pod in _still_bound(snapshot, evicted))
    return [found[path] for path in sorted(found)]


def with_nominated_pods(
    snapshot: Snapshot, pods: Collection[PodInfo], *, groups: bool = True, now: float = 0.0
) -> Snapshot:
    """Return the snapshot for pods decided together; `next_pass` holds the later passes, if places are kept from them.

    Nominated placements count in the pass after the victims are gone. The reserved places of the head of the queue may
    wait for other pods too, whose end makes a third pass.
    """
    index = snapshot.pod_index
    if not (index.nominations or index.nominated or index.terminating or snapshot.reservation):
        return snapshot
    kept = [
        placement for placement in nominated_placements(snapshot) if _must_respect(snapshot, placement, pods, groups)
    ]
    void = [path for path in snapshot.pod_index.nominations if _may_override(snapshot, path, pods, groups)]
    terminating = terminating_pods(snapshot, except_for=void)
    reservation = blocking_reservation(snapshot, pods, groups=groups, now=now)
    reserved: list[NominatedPlacement] = []
    ending: list[PodInfo] = []
    if reservation is not None:
        reserved = list(_reserved_placements(snapshot, reservation))
        ending = list(_still_bound(snapshot, sorted(reservation.waits_for.difference(pod.key for pod in terminating))))
    freeing_claims = _pods_freeing_claims(snapshot, kept)
    ending = [pod for pod in ending if pod not in freeing_claims]
    if not (kept or terminating or reserved or ending):
        return snapshot
    marked: dict[str, bool | None] = {pod.group.path: True for pod in terminating if pod.group is not None}
    base = replace(snapshot, podgroup_index=snapshot.podgroup_index.with_evicted(marked)) if marked else snapshot
    # Only the head of the queue counts on claims that are about to be free.
    free = base if reservation is None else without_orphans(base, snapshot.claim_index.orphaned)
    last = _after_evictions(free, terminating, [*freeing_claims, *ending], [*kept, *reserved])
    if kept and (ending or free is not base):
        last = replace(_after_evictions(base, terminating, freeing_claims, kept), next_pass=last)
    return replace(snapshot, next_pass=last)


def _pods_freeing_claims(snapshot: Snapshot, kept: Sequence[NominatedPlacement]) -> list[PodInfo]:
    """Return terminating pods that hold claims for which a nomination has other devices."""
    found: dict[str, PodInfo] = {}
    for placement in kept:
        for given in placement.allocations:
            held = allocation_of(snapshot.claims.get(given.path))
            users = claim_users(snapshot, given.path) if held is not None and held != given.allocation else None
            if users and all(user in snapshot.pod_index.terminating for user in users):
                found.update((user, snapshot.pod_index.terminating[user]) for user in users)
    return [found[path] for path in sorted(found)]


def _after_evictions(
    snapshot: Snapshot, terminating: Sequence[PodInfo], ending: Sequence[PodInfo], kept: Sequence[NominatedPlacement]
) -> Snapshot:
    """Return the cluster without evicted and ended pods, and with the kept placements assumed."""
    return _with_placements(without_pods(keep_group_reservations(snapshot, ending), [*terminating, *ending]), kept)


def blocking_reservation(
    snapshot: Snapshot, pods: Collection[PodInfo], *, groups: bool = True, now: float = 0.0
) -> BackfillReservation | None:
    """Return the reservation if these pods must respect it: others, no more important, and possibly too long."""
    reservation = conflicting_reservation(snapshot, pods, groups=groups)
    if reservation is not None and reservation.until is not None:
        ends = [latest_end(snapshot, pod, now) for pod in pods]
        in_time = all(end is not None and end <= reservation.until for end in ends)
        if in_time and not (groups and any(_has_claim_that_outlives_it(snapshot, pod) for pod in pods)):
            return None
    return reservation


def _has_claim_that_outlives_it(snapshot: Snapshot, pod: PodInfo) -> bool:
    """Tell whether a claim allocated for the pod would outlive it, because it is reserved for its PodGroup."""
    group = None if pod.group is None else snapshot.pod_group(pod.group)
    if group is None or not group["spec"].get("resourceClaims"):
        return False
    uses = resolve_claims(snapshot, pod, group, workload_claims=True)
    if isinstance(uses, Reason):
        return False
    return any(use.allocation is None and use.reserve_for.get("resource") == POD_GROUPS for use in uses)


def conflicting_reservation(
    snapshot: Snapshot, pods: Collection[PodInfo], *, groups: bool = True
) -> BackfillReservation | None:
    """Return the reservation if these pods must respect it whatever their run time.

    That holds for preemptors: they start at an unknown time, after evictions. Nominated pods whose end the head of the
    queue waits for go first: would the head's places bind them, each would take those of the other for ever.
    """
    reservation = snapshot.reservation
    if reservation is None or reservation.priority < max(pod.priority for pod in pods):
        return None
    if any(_is_own(other, pods, groups) for other in _awaited_pending_pods(snapshot, reservation)):
        return None
    if any(
        (groups and pod.group is not None and (pod.group == reservation.group or is_half_placed(snapshot, pod)))
        or reservation.concerns(pod.key)
        for pod in pods
    ):
        return None
    return reservation


def _awaited_pending_pods(snapshot: Snapshot, reservation: BackfillReservation) -> Iterator[PodInfo]:
    """Yield the pods without a node whose end the head waits for: they were nominated when it got its places."""
    for key in reservation.waits_for:
        pod = snapshot.pods.get(key.path)
        if pod is not None and pod.key == key and not pod.node:
            yield pod


def reserved_now(snapshot: Snapshot, reservation: BackfillReservation) -> Snapshot:
    """Return the snapshot with the reservation assumed now, beside the pods that the head waits for.

    Others may evict less important pods for unreserved resources, but may not count on pods that have yet to end, nor
    join a claim that is to be free by then. A device does not become shareable because the head is to get a share of
    it, nor stay shareable because a pod that ends before has a share.
    """
    places = list(_reserved_placements(snapshot, reservation))
    ending = list(_still_bound(snapshot, sorted(reservation.waits_for)))
    ended = _after_evictions(without_orphans(snapshot, snapshot.claim_index.orphaned), (), ending, ())
    used = {path for pod in ending for path in pod.claim_paths} | set(snapshot.claim_index.orphaned)
    freed: dict[str, Obj | None] = {
        path: snapshot.claims[path]
        for path in sorted(used)
        if allocation_of(snapshot.claims.get(path)) and not allocation_of(ended.claims.get(path))
    }
    kept, later = _with_placements(snapshot, places), _with_placements(ended, places)
    return replace(
        kept,
        claim_index=kept.claim_index.with_in_flight(freed),
        allocated=snapshot.allocated.and_also(kept.allocated).and_also(later.allocated),
        reservation=None,
    )


def _reserved_placements(snapshot: Snapshot, reservation: BackfillReservation) -> Iterator[NominatedPlacement]:
    """Yield the reserved places of members still pending; nominated members count by their nomination."""
    for place in reservation.places:
        pod = snapshot.pods.get(place.pod.path)
        known = pod is not None and pod.key == place.pod and place.pod.path not in snapshot.pod_index.nominations
        if pod is not None and known and _is_pending_for(snapshot, pod, place.node):
            yield NominatedPlacement(pod, place.node, place.priority, place.allocations, place.claimed)


def _is_pending_for(snapshot: ClusterView, pod: PodInfo, name: str) -> bool:
    """Tell whether the pod is still pending and its node exists."""
    node = snapshot.nodes.get(name)
    return not (pod.node or pod.terminal or pod.deleting) and node is not None and node.present


def _still_bound(snapshot: Snapshot, keys: Iterable[PodKey]) -> Iterator[PodInfo]:
    """Yield those of the pods that are still bound."""
    for key in keys:
        pod = snapshot.pods.get(key.path)
        if pod is not None and pod.key == key and pod.node and not pod.terminal:
            yield pod


def own_nominated_placements(snapshot: Snapshot, pods: Collection[PodInfo]) -> list[NominatedPlacement]:
    """Return the nominated placements of these pods."""
    paths = {pod.key.path for pod in pods}
    return [placement for placement in nominated_placements(snapshot) if placement.pod.key.path in paths]


def displaced(snapshot: Snapshot, decision: Decision, priority: int) -> list[PodKey]:
    """Return the less important pods whose nominations a nominated decision overrides and voids."""
    own = {member.pod.path for member in decision.members}
    nodes = {member.node for member in decision.nominated}
    devices = {device for member in decision.nominated for device in _devices(member.allocations)}
    return [
        placement.pod.key
        for placement in nominated_placements(snapshot)
        if placement.priority < priority
        and placement.pod.key.path not in own
        and (placement.node in nodes or not devices.isdisjoint(_devices(placement.allocations)))
    ]


def is_half_placed(snapshot: Snapshot, pod: PodInfo) -> bool:
    """Tell whether the pod's gang has placed members, but fewer than it needs."""
    if pod.group is None:
        return False
    placed = snapshot.group_state(pod.group).scheduled_count
    return placed > 0 and not has_quorum(snapshot, pod.group, snapshot.pod_group(pod.group))


def keeps_nomination(snapshot: Snapshot, pod: PodInfo, *, preempts: bool = True, failed: bool = False) -> bool:
    """Tell whether a nomination of a pod that has no place stays: its node exists, and there is a reason.

    It is decided, or the pod is of a half-placed gang, or it never preempts, or its profile does not (`preempts`): then
    nobody looked for another node, and the nomination is somebody else's (KEP-5278). An attempt that `failed` by an
    error leaves none of those.
    """
    node = snapshot.nodes.get(pod.nominated_node)
    if node is None or not node.present:
        return False
    if pod.group is None and not failed and not (preempts and pod.spec.get("preemptionPolicy") != "Never"):
        return True
    return pod.key.path in snapshot.pod_index.nominations or is_half_placed(snapshot, pod)


def _must_respect(snapshot: Snapshot, placement: NominatedPlacement, pods: Collection[PodInfo], groups: bool) -> bool:
    """Tell whether these pods must respect another pod's nomination."""
    other = placement.pod
    return not _is_own(other, pods, groups) and _is_kept_from(snapshot, other, placement.priority, pods, groups)


def _may_override(snapshot: Snapshot, path: str, pods: Collection[PodInfo], groups: bool) -> bool:
    """Tell whether these pods may override a nomination, and so void the evictions made for it."""
    other, priority = snapshot.pods.get(path), snapshot.pod_index.nominations[path].priority
    return (
        other is not None
        and not _is_own(other, pods, groups)
        and not _is_kept_from(snapshot, other, priority, pods, groups)
    )


def _is_own(other: PodInfo, pods: Collection[PodInfo], groups: bool) -> bool:
    """Tell whether the pod is one of these, or in a group of theirs."""
    own_groups = {pod.group for pod in pods} - {None} if groups else set()
    return other.group in own_groups or any(pod.key.path == other.key.path for pod in pods)


def _is_kept_from(snapshot: Snapshot, other: PodInfo, priority: int, pods: Collection[PodInfo], groups: bool) -> bool:
    """Tell whether a nomination of this priority is kept from these pods."""
    if priority >= max(pod.priority for pod in pods):
        return True
    return groups and other.group is not None and keeps_places_from_all(snapshot, other.group)


def keeps_places_from_all(snapshot: ClusterView, key: GroupKey) -> bool:
    """Tell whether what members of this gang were promised is kept from more important pods too.

    A gang that lost a member by eviction is halved already: who evicted the member may take the places of others too.
    Nor does a place help a gang that has too few members to be whole.
    """
    state = snapshot.group_state(key)
    half_placed = keeps_places(snapshot.pod_group(key), state.count, state.scheduled_count)
    return half_placed and key.path not in snapshot.podgroup_index.evicted


def has_promised_places(snapshot: ClusterView, key: GroupKey) -> bool:
    """Tell whether a pending member of this gang is promised a place."""
    return any(placement.pod.group == key for placement in nominated_placements(snapshot))


def has_places_kept_from_all(snapshot: ClusterView) -> bool:
    """Tell whether half a gang keeps places from everybody. A preemptor may evict it once they are taken."""
    found = {placement.pod.group for placement in nominated_placements(snapshot)}
    return any(group is not None and keeps_places_from_all(snapshot, group) for group in found)


def _with_placements(snapshot: Snapshot, kept: Iterable[NominatedPlacement]) -> Snapshot:
    """Return the snapshot with the nominated pods assumed in their places."""
    nodes: dict[str, NodeInfo | None] = {}
    pods: dict[str, PodInfo | None] = {}
    anti_affinity: dict[str, PodInfo | None] = {}
    claims: dict[str, Obj | None] = {}
    allocated = snapshot.allocated
    for placement in kept:
        pod = placement.pod.bound_to(placement.node, placement.claimed)
        nodes[placement.node] = (nodes.get(placement.node) or snapshot.nodes[placement.node]).with_pod(pod)
        pods[pod.key.path] = pod
        if pod.has_required_anti_affinity:
            anti_affinity[pod.key.path] = pod
        for given in placement.allocations:
            claim = snapshot.claims.get(given.path, given.new_claim)
            if claim is None or allocation_of(claim):
                continue
            status = {**(claim.get("status") or {}), "allocation": given.allocation, "reservedFor": [given.reserve_for]}
            claims[given.path] = {**claim, "status": status}
            allocated = allocated.with_allocation(given.path, given.allocation)
    return replace(
        snapshot,
        nodes=Patched(snapshot.nodes, nodes),
        pods=Patched(snapshot.pods, pods),
        pod_index=snapshot.pod_index.with_anti_affinity(anti_affinity),
        claims=Patched(snapshot.claims, claims),
        # Other pods must not rely on these allocations before they are written: they may not come about.
        claim_index=snapshot.claim_index.with_in_flight(claims),
        allocated=allocated,
        promised=snapshot.promised | pods.keys(),
    )


def _devices(allocations: Collection[ClaimAllocation]) -> set[tuple[str, str, str]]:
    bodies = [given.allocation.get("devices") or {} for given in allocations]
    return {(r["driver"], r["pool"], r["device"]) for body in bodies for r in body.get("results") or ()}
