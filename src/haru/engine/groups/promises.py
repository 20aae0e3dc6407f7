"""Promised places: what is decided for others must leave them alone, both now and once room has been made for them.

Room is promised to pending pods: by a decision, with devices and the pods whose going it waits for (`Nomination`), or
by `status.nominatedNodeName` alone. A promise holds against all that are no more important. Members that a running
gang still lacks count for everybody: whoever took their room would leave half a gang for good.
Source: kube-scheduler's treatment of nominated pods when it filters (with them and without them), as behaviour
(KEP-268, KEP-5278); ADR 2 for gangs, ADR 4 for devices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from haru.engine.assumed_claims import allocation_of
from haru.engine.clearing import Clearing, claim_users, left_to_groups, without_orphans
from haru.engine.cluster import Snapshot
from haru.engine.consumers import POD_GROUPS
from haru.engine.decision import ClaimAllocation, Decision, Obj, PodKey, Reason
from haru.engine.groups.claims import resolve_claims
from haru.engine.groups.quorum import min_count
from haru.engine.nodeinfo import NodeInfo
from haru.engine.nominations import evicted_pods
from haru.engine.persistent import Patched
from haru.engine.pods import PodInfo
from haru.engine.reservation import Reservation
from haru.engine.run_times import latest_end


@dataclass(frozen=True, slots=True)
class Promise:
    """A place that a pending pod was promised, and from whom it is kept: those of at most this priority.

    `claimed`: what its devices will take of the node; None for what its status says (KEP-5517).
    """

    pod: PodInfo
    node: str
    priority: int
    allocations: tuple[ClaimAllocation, ...] = ()
    claimed: tuple[Obj, ...] | None = None


def promises(snapshot: Snapshot) -> Iterator[Promise]:
    """All promises that still stand, by pod."""
    for path in sorted({*snapshot.nominations, *snapshot.nominated}):
        pod, nomination = snapshot.pods.get(path), snapshot.nominations.get(path)
        if pod is None:
            continue
        name = nomination.node if nomination is not None else pod.nominated_node
        if not _may_still_have(snapshot, pod, name):
            continue
        if nomination is not None:
            yield Promise(pod, name, nomination.priority, nomination.allocations, nomination.claimed)
        else:
            yield Promise(pod, name, pod.priority)


def leaving(snapshot: Snapshot, but: Collection[str] = ()) -> list[PodInfo]:
    """The pods that make room for others: evicted by a decision, or seen to be deleted for that reason.

    `but`: pending pods for whom nobody may be known to go; whose promise is void they do not wait for any more.
    """
    found = {path: pod for path, pod in snapshot.leaving.items() if pod.preempted}
    evicted = evicted_pods(one for path, one in snapshot.nominations.items() if path not in but)
    found.update((pod.key.path, pod) for pod in _on_nodes(snapshot, evicted))
    return [found[path] for path in sorted(found)]


def with_promises(snapshot: Snapshot, pods: Collection[PodInfo], *, groups: bool = True, now: float = 0.0) -> Snapshot:
    """The snapshot as pods that are decided together must see it: `after` is set if places are kept from them.

    Promised places are taken when those are gone who were evicted for them; the places of the head of the queue may
    have to wait for others, whose end is a third moment.
    """
    kept = [promise for promise in promises(snapshot) if _counts(snapshot, promise, pods, groups)]
    lesser = [path for path in snapshot.nominations if _may_take(snapshot, path, pods, groups)]
    going = leaving(snapshot, but=lesser)
    reservation = held_against(snapshot, pods, groups=groups, now=now)
    reserved: list[Promise] = []
    ending: list[PodInfo] = []
    if reservation is not None:
        reserved = list(_reserved(snapshot, reservation))
        ending = list(_on_nodes(snapshot, sorted(reservation.waits_for.difference(pod.key for pod in going))))
    freeing = _about_to_free(snapshot, kept)
    ending = [pod for pod in ending if pod not in freeing]
    if not (kept or going or reserved or ending):
        return snapshot
    marked: dict[str, bool | None] = {pod.group.path: True for pod in going if pod.group is not None}
    base = replace(snapshot, evicted_groups=Patched(snapshot.evicted_groups, marked)) if marked else snapshot
    # The head counts on claims that are about to be free; nobody else has to wait for that.
    free = base if reservation is None else without_orphans(base, snapshot.orphaned)
    last = _cleared(free, going, [*freeing, *ending], [*kept, *reserved])
    if kept and (ending or free is not base):
        last = replace(_cleared(base, going, freeing, kept), after=last)
    return replace(snapshot, after=last)


def _about_to_free(snapshot: Snapshot, kept: Sequence[Promise]) -> list[PodInfo]:
    """The pods that are being deleted, whoever wanted that, whose claims were promised other devices from then on."""
    found: dict[str, PodInfo] = {}
    for promise in kept:
        for given in promise.allocations:
            held = allocation_of(snapshot.claims.get(given.path))
            users = claim_users(snapshot, given.path) if held is not None and held != given.allocation else None
            if users and all(user in snapshot.leaving for user in users):
                found.update((user, snapshot.leaving[user]) for user in users)
    return [found[path] for path in sorted(found)]


def _cleared(
    snapshot: Snapshot, going: Sequence[PodInfo], ending: Sequence[PodInfo], kept: Sequence[Promise]
) -> Snapshot:
    """The cluster when some are gone who were evicted and some who ended, and others have the places kept for them."""
    return _kept_places(Clearing(left_to_groups(snapshot, ending), [[*going, *ending]]).settled(), kept)


def held_against(
    snapshot: Snapshot, pods: Collection[PodInfo], *, groups: bool = True, now: float = 0.0
) -> Reservation | None:
    """The reservation, if these pods have to respect it: they are others, no more important, and may last too long."""
    reservation = kept_from(snapshot, pods, groups=groups)
    if reservation is not None and reservation.until is not None:
        ends = [latest_end(snapshot, pod, now) for pod in pods]
        in_time = all(end is not None and end <= reservation.until for end in ends)
        if in_time and not (groups and any(_leaves_claims(snapshot, pod) for pod in pods)):
            return None
    return reservation


def _leaves_claims(snapshot: Snapshot, pod: PodInfo) -> bool:
    """Whether a claim that the pod would be given stays with its group when it ends, for as long as that is there."""
    group = None if pod.group is None else snapshot.pod_group(pod.group)
    if group is None or not group["spec"].get("resourceClaims"):
        return False
    uses = resolve_claims(snapshot, pod, group, workload_claims=True)
    if isinstance(uses, Reason):
        return False
    return any(use.allocation is None and use.reserve_for.get("resource") == POD_GROUPS for use in uses)


def kept_from(snapshot: Snapshot, pods: Collection[PodInfo], *, groups: bool = True) -> Reservation | None:
    """The reservation, if these pods have to respect it however short they run: nobody knows when they will start.

    That is so for those for whom room has to be made first.
    """
    reservation = snapshot.reservation
    if reservation is None or reservation.priority < max(pod.priority for pod in pods):
        return None
    if any(
        (groups and pod.group is not None and pod.group == reservation.group) or reservation.concerns(pod.key)
        for pod in pods
    ):
        return None
    return reservation


def reserved_now(snapshot: Snapshot, reservation: Reservation) -> Snapshot:
    """The snapshot as if the head had its places already, beside those that it waits for: nobody else may rely on them.

    Others may evict less important work for what is not reserved, but not count on what has yet to end, nor join a
    claim that is to be free by then. Nor is a device shared yet because the head is to have a share of it, nor still
    because somebody has one who ends before.
    """
    places = list(_reserved(snapshot, reservation))
    ending = list(_on_nodes(snapshot, sorted(reservation.waits_for)))
    ended = _cleared(without_orphans(snapshot, snapshot.orphaned), (), ending, ())
    used = {path for pod in ending for path in pod.claim_paths} | set(snapshot.orphaned)
    freed: dict[str, Obj | None] = {
        path: snapshot.claims[path]
        for path in sorted(used)
        if allocation_of(snapshot.claims.get(path)) and not allocation_of(ended.claims.get(path))
    }
    kept, later = _kept_places(snapshot, places), _kept_places(ended, places)
    return replace(
        kept,
        in_flight=Patched(kept.in_flight, freed),
        allocated=snapshot.allocated.and_also(kept.allocated).and_also(later.allocated),
        reservation=None,
    )


def _reserved(snapshot: Snapshot, reservation: Reservation) -> Iterator[Promise]:
    """The places of the head that still waits for them; those that it was promised otherwise count there."""
    for place in reservation.places:
        pod = snapshot.pods.get(place.pod.path)
        known = pod is not None and pod.key == place.pod and place.pod.path not in snapshot.nominations
        if pod is not None and known and _may_still_have(snapshot, pod, place.node):
            yield Promise(pod, place.node, place.priority, place.allocations, place.claimed)


def _may_still_have(snapshot: Snapshot, pod: PodInfo, name: str) -> bool:
    """Whether the pod still waits, and the node that it is to have is there."""
    node = snapshot.nodes.get(name)
    return not (pod.node or pod.terminal or pod.deleting) and node is not None and node.present


def _on_nodes(snapshot: Snapshot, keys: Iterable[PodKey]) -> Iterator[PodInfo]:
    """Those of the pods that are still on their nodes."""
    for key in keys:
        pod = snapshot.pods.get(key.path)
        if pod is not None and pod.key == key and pod.node and not pod.terminal:
            yield pod


def own_promises(snapshot: Snapshot, pods: Collection[PodInfo]) -> list[Promise]:
    """What these pods were promised themselves."""
    paths = {pod.key.path for pod in pods}
    return [promise for promise in promises(snapshot) if promise.pod.key.path in paths]


def displaced(snapshot: Snapshot, decision: Decision, priority: int) -> list[PodKey]:
    """The less important pods whose promised places a nominated decision takes: their nominations are void."""
    own = {member.pod.path for member in decision.members}
    nodes = {member.node for member in decision.nominated}
    devices = {device for member in decision.nominated for device in _devices(member.allocations)}
    return [
        promise.pod.key
        for promise in promises(snapshot)
        if promise.priority < priority
        and promise.pod.key.path not in own
        and (promise.node in nodes or not devices.isdisjoint(_devices(promise.allocations)))
    ]


def is_half_placed(snapshot: Snapshot, pod: PodInfo) -> bool:
    """Whether the pod's gang has members with a place, but fewer than it needs."""
    if pod.group is None:
        return False
    minimum = min_count(snapshot.pod_group(pod.group))
    return minimum is not None and 0 < snapshot.group_state(pod.group).scheduled_count < minimum


def keeps_nomination(snapshot: Snapshot, pod: PodInfo) -> bool:
    """A promised place stays while its node is there, and so does that of a member that its half-placed gang lacks."""
    node = snapshot.nodes.get(pod.nominated_node)
    if node is None or not node.present:
        return False
    return pod.key.path in snapshot.nominations or is_half_placed(snapshot, pod)


def _counts(snapshot: Snapshot, promise: Promise, pods: Collection[PodInfo], groups: bool) -> bool:
    """Whether these pods have to respect what another one was promised."""
    other = promise.pod
    return not _is_own(other, pods, groups) and _holds(snapshot, other, promise.priority, pods, groups)


def _may_take(snapshot: Snapshot, path: str, pods: Collection[PodInfo], groups: bool) -> bool:
    """Whether these pods may take the place that a pod was promised, and so void the evictions made for it."""
    other, priority = snapshot.pods.get(path), snapshot.nominations[path].priority
    return (
        other is not None and not _is_own(other, pods, groups) and not _holds(snapshot, other, priority, pods, groups)
    )


def _is_own(other: PodInfo, pods: Collection[PodInfo], groups: bool) -> bool:
    """Whether the pod is one of these, or of a group of theirs."""
    together = {pod.group for pod in pods} - {None} if groups else set()
    return other.group in together or any(pod.key.path == other.key.path for pod in pods)


def _holds(snapshot: Snapshot, other: PodInfo, priority: int, pods: Collection[PodInfo], groups: bool) -> bool:
    """Whether a promise of this priority to another pod is kept from these."""
    return priority >= max(pod.priority for pod in pods) or (groups and is_half_placed(snapshot, other))


def _kept_places(snapshot: Snapshot, kept: Iterable[Promise]) -> Snapshot:
    """The snapshot with the promised pods in their places."""
    nodes: dict[str, NodeInfo | None] = {}
    pods: dict[str, PodInfo | None] = {}
    anti_affine: dict[str, PodInfo | None] = {}
    claims: dict[str, Obj | None] = {}
    allocated = snapshot.allocated
    for promise in kept:
        pod = promise.pod.bound_to(promise.node, promise.claimed)
        nodes[promise.node] = (nodes.get(promise.node) or snapshot.nodes[promise.node]).with_pod(pod)
        pods[pod.key.path] = pod
        if pod.has_required_anti_affinity:
            anti_affine[pod.key.path] = pod
        for given in promise.allocations:
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
        anti_affine=Patched(snapshot.anti_affine, anti_affine),
        claims=Patched(snapshot.claims, claims),
        # Nobody else relies on them before they are allocated: that may come to nothing.
        in_flight=Patched(snapshot.in_flight, claims),
        allocated=allocated,
    )


def _devices(allocations: Collection[ClaimAllocation]) -> set[tuple[str, str, str]]:
    bodies = [given.allocation.get("devices") or {} for given in allocations]
    return {(r["driver"], r["pool"], r["device"]) for body in bodies for r in body.get("results") or ()}
