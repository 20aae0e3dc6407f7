"""Simulate evictions: snapshots without some pods, their resources, ports, rules and solely used devices.

An `EvictionDryRun` holds disruption units that it removes and puts back as a whole. Its snapshots compute a node, a
device pool or a claim only when a reader asks for it. Results are cached by the removed units that they depend on, so a
node in a state seen before is the same object again, and caches keyed by it stay valid.
Source: our own; KEP-4381 for when a claim is free (1.36 does not free devices when it simulates evictions).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from haru.engine.dra.allocated_state import AllocatedState, PoolUse
from haru.engine.dra.model.model import PoolKey
from haru.engine.state.cache import Snapshot
from haru.engine.state.cow_map import Computed, Patched, values_of
from haru.engine.state.decision import GroupKey
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.podgroup_state import PodGroupState
from haru.engine.state.reserved_for import POD_GROUPS, PODS, consumer_key, freed, is_kept, kept_by_groups, sole_users
from haru.kube.meta import Obj


def claim_users(snapshot: Snapshot, path: str) -> frozenset[str] | None:
    """Return the paths of the bound pods whose removal frees a claim; None if it has other users, or none."""
    claim = snapshot.claims.get(path)
    if claim is None:
        return None
    entries = (claim.get("status") or {}).get("reservedFor") or ()
    if not entries:
        return None
    namespace = claim["metadata"].get("namespace") or "default"
    if len(entries) == 1 and entries[0].get("resource") == PODS:
        sole = _bound_user(snapshot, namespace, entries[0])
        return None if sole is None else frozenset((sole,))
    users: set[str] = set()
    for entry in entries:
        name = entry.get("name") or ""
        if is_kept(entry):
            return None
        if entry.get("resource") == POD_GROUPS:
            group = GroupKey(namespace, name)
            members = [m for m in snapshot.group_state(group).scheduled if path in snapshot.pods[m].claim_paths]
            if not members and group.path not in snapshot.podgroup_index.evicted:
                return None
            users.update(members)
            continue
        user = _bound_user(snapshot, namespace, entry) if entry.get("resource") == PODS else None
        if user is None:
            return None
        users.add(user)
    return frozenset(users) or None


def _bound_user(snapshot: Snapshot, namespace: str, entry: Obj) -> str | None:
    """Return the path of the pod of an entry of `reservedFor`; None if it is not bound, or is another pod now."""
    path, uid = f"{namespace}/{entry.get('name') or ''}", entry.get("uid")
    pod = snapshot.pods.get(path)
    if pod is None or not pod.node or (uid and uid != pod.key.uid) or promised_members(snapshot, (pod,)):
        return None
    return path


def promised_members(snapshot: Snapshot, pods: Iterable[PodInfo]) -> list[tuple[PodInfo, GroupKey]]:
    """Return those of some pods that are pending members, though assumed in places kept for them, with their groups.

    They keep their claims.
    """
    if not snapshot.promised:  # as nearly always: no pod is looked at
        return []
    members = [(pod, pod.group) for pod in pods if pod.group is not None and pod.key.path in snapshot.promised]
    return [(pod, group) for pod, group in members if pod.key.path in snapshot.group_state(group).unscheduled]


def keep_group_reservations(base: Snapshot, going: Iterable[PodInfo]) -> Snapshot:
    """Return a base in which claims reserved for a group stay with it when its pods terminate.

    Claims of groups with evicted members are deallocated as soon as no pod uses them.
    """
    found = list(going)
    groups = {pod.group for pod in found if pod.group is not None}
    if not groups:
        return base
    pods = {pod.key.path for pod in found}
    claims: dict[str, Obj | None] = {}
    for group in groups:
        if group.path not in base.podgroup_index.evicted:
            for path in base.claim_index.by_consumer.get(consumer_key(POD_GROUPS, *group)) or ():
                users = claim_users(base, path)
                if users is not None and users <= pods:
                    claims[path] = kept_by_groups(base.claims[path])
    return replace(base, claims=Patched(base.claims, claims)) if claims else base


def without_orphans(base: Snapshot, orphaned: Mapping[str, Obj]) -> Snapshot:
    """Return the base with claims freed whose consumers are all gone and which will be deallocated shortly."""
    free = {path: freed(claim) for path, claim in orphaned.items() if base.claims.get(path) is claim}
    if not free:
        return base
    return replace(
        base,
        claims=Patched(base.claims, free),
        claim_index=base.claim_index.with_in_flight(dict.fromkeys(free)),
        allocated=base.allocated.freed(free),
    )


def _claims_of(snapshot: Snapshot, pods: Iterable[PodInfo]) -> set[str]:
    """Return the allocated claims reserved for pods or for their groups."""
    used = snapshot.claim_index.by_consumer
    found: set[str] = set()
    groups = dict.fromkeys([pod.group for pod in pods if pod.group is not None])
    keys = [consumer_key(PODS, pod.key.namespace, pod.key.name) for pod in pods]
    keys += [consumer_key(POD_GROUPS, *group) for group in groups]
    found.update(*filter(None, values_of(used, keys)))
    return found


def without_pods(base: Snapshot, pods: Sequence[PodInfo]) -> Snapshot:
    """Return a snapshot without some pods on nodes, as a dry run that removes them, but with all differences computed.

    With few pods it compares faster with the base.
    """
    if not pods:
        return base
    gone = {pod.key.path: pod for pod in pods}
    removed: dict[str, PodInfo | None] = dict.fromkeys(gone)
    names = dict.fromkeys([pod.node for pod in gone.values()])
    nodes: dict[str, NodeInfo | None] = {name: base.nodes[name].without_pods(gone.keys()) for name in names}
    of_group: dict[str, list[str]] = {}
    for path, pod in gone.items():
        if pod.group is not None:
            of_group.setdefault(pod.group.path, []).append(path)
    states = base.podgroup_index.states
    groups = {path: states[path].without(members) for path, members in of_group.items() if path in states}
    claims, free = _claims_without(base, pods)
    return replace(
        base,
        nodes=Patched(base.nodes, nodes),
        pods=Patched(base.pods, removed),
        claims=Patched(base.claims, claims),
        podgroup_index=base.podgroup_index.with_states(groups),
        allocated=base.allocated.freed(free),
        pod_index=base.pod_index.without(removed),
    )


def _claims_without(base: Snapshot, pods: Sequence[PodInfo]) -> tuple[dict[str, Obj | None], list[str]]:
    """Return the claims that differ without some pods, and the paths of those that are free then."""
    claims: dict[str, Obj | None] = {}
    free: list[str] = []
    paths, uids = _claims_of(base, pods), {pod.key.uid for pod in pods if pod.key.uid}
    uids.difference_update([pod.key.uid for pod, _ in promised_members(base, pods)])
    found = values_of(base.claims, paths)
    users = sole_users(found)
    if uids.issuperset(users):  # as mostly; then all of them exist
        return dict(zip(paths, map(freed, filter(None, found)), strict=True)), list(paths)
    state: _State | None = None
    for path, claim, user in zip(paths, found, users, strict=True):
        if claim is None:
            continue
        if user not in uids:
            state = state or _State(EvictionDryRun(base, [pods]), b"\x01")
            if not state.frees(path):
                claims[path] = state.claim(path)
                continue
        free.append(path)
        claims[path] = freed(claim)
    return claims, free


class EvictionDryRun:
    """Hold a base snapshot and disruption units by number; at first all units are removed."""

    def __init__(self, base: Snapshot, units: Iterable[Iterable[PodInfo]]) -> None:
        self.base = base
        self.units = [tuple(unit) for unit in units]
        self.unit_of: dict[str, int] = {}
        self._on: dict[str, list[tuple[int, str]]] = {}
        for number, unit in enumerate(self.units):
            for pod in unit:
                self.unit_of[pod.key.path] = number
                self._on.setdefault(pod.node, []).append((number, pod.key.path))
        self._nodes_of = [tuple({pod.node for pod in unit}) for unit in self.units]
        self.removed = bytearray(b"\x01" * len(self.units))
        self._nodes: dict[tuple[str, tuple[int, ...]], NodeInfo] = {}
        self._uses: dict[tuple[PoolKey, tuple[str, ...]], PoolUse] = {}
        self._users: dict[str, frozenset[int] | None] = {}
        self._holders: dict[PoolKey, tuple[str, ...]] = {}

    def put_back(self, numbers: Iterable[int]) -> None:
        """Put units back."""
        for number in numbers:
            self.removed[number] = 0

    def take(self, numbers: Iterable[int]) -> None:
        """Remove units again."""
        for number in numbers:
            self.removed[number] = 1

    def nodes_of(self, numbers: Iterable[int]) -> set[str]:
        """Return the nodes with pods of these units."""
        return set(chain.from_iterable(map(self._nodes_of.__getitem__, numbers)))

    def removed_on(self, node: str) -> tuple[int, ...]:
        """Return the units removed from a node; they determine the node's state."""
        return tuple([number for number, _ in self._on.get(node, ()) if self.removed[number]])

    @property
    def nodes(self) -> Mapping[str, object]:
        """Return the nodes with pods of any unit."""
        return self._on

    def snapshot(self) -> Snapshot:
        """Return the base without the removed units, computed lazily."""
        if not any(self.removed):
            return self.base
        base, state = self.base, _State(self, bytes(self.removed))
        pods = state.pods()
        return replace(
            base,
            nodes=Patched(base.nodes, state.nodes()),
            pods=Patched(base.pods, pods),
            claims=Patched(base.claims, state.claims()),
            podgroup_index=base.podgroup_index.with_states(state.groups()),
            allocated=state.allocated(),
            pod_index=base.pod_index.without(pods),
        )

    # Queries of `_State`

    def node(self, name: str, removed: bytes) -> NodeInfo:
        """Return a node without the pods of these units."""
        before = self.base.nodes[name]
        removed_pods = [(number, path) for number, path in self._on[name] if removed[number]]
        if not removed_pods:
            return before
        key = (name, tuple([number for number, _ in removed_pods]))
        found = self._nodes.get(key)
        if found is None:
            paths = {path for _, path in removed_pods}
            found = self._nodes[key] = before.without_pods(paths)
        return found

    def pool_use(self, pool: PoolKey, removed: bytes) -> PoolUse:
        """Return the allocated part of a pool without these units."""
        use = self.base.allocated.use(pool)
        holders = self._holders.get(pool)
        if holders is None:
            listed = {holder for name in use.names() for holder in use.holders(name)}
            holders = self._holders[pool] = tuple(sorted(path for path in listed if self.users(path)))
        free = tuple([path for path in holders if self.is_free(path, removed)])
        if not free:
            return use
        found = self._uses.get((pool, free))
        if found is None:
            found = self._uses[pool, free] = use.without_holders(free)
        return found

    def users(self, claim: str) -> frozenset[int] | None:
        """Return the units whose removal frees a claim; None if it has other users too."""
        if claim not in self._users:
            paths = claim_users(self.base, claim) or ()
            numbers = [self.unit_of[path] for path in paths if path in self.unit_of]
            self._users[claim] = frozenset(numbers) if paths and len(numbers) == len(paths) else None
        return self._users[claim]

    def is_free(self, claim: str, removed: bytes) -> bool:
        """Tell whether a claim allocated in the base is free without these units."""
        users = self.users(claim)
        return users is not None and all(removed[number] for number in users)

    def group(self, path: str, removed: bytes) -> PodGroupState | None:
        """Return a group's state without the pods of these units; the same object if it has none of them."""
        state = self.base.podgroup_index.states.get(path)
        if state is None:
            return None
        removed_pods = [
            pod for pod in state.scheduled if (number := self.unit_of.get(pod)) is not None and removed[number]
        ]
        return state.without(removed_pods) if removed_pods else state


class _State:
    """Answer the queries of one snapshot of a dry run, for a fixed set of removed units."""

    def __init__(self, dry_run: EvictionDryRun, removed: bytes) -> None:
        self._dry_run = dry_run
        self._gone = removed

    def nodes(self) -> Mapping[str, NodeInfo | None]:
        known = self._dry_run.nodes
        return Computed(lambda: known, lambda name: self._dry_run.node(name, self._gone), known.__contains__)

    def groups(self) -> Mapping[str, PodGroupState | None]:
        groups = self._dry_run.base.podgroup_index.states

        def group(path: str) -> PodGroupState | None:
            return self._dry_run.group(path, self._gone)

        def is_changed(path: str) -> bool:
            return group(path) is not groups.get(path)

        return Computed(lambda: filter(is_changed, groups), group, is_changed)

    def pods(self) -> Mapping[str, PodInfo | None]:
        unit_of, removed = self._dry_run.unit_of, self._gone

        def is_gone(path: str) -> bool:
            number = unit_of.get(path)
            return number is not None and bool(removed[number])

        return Computed(lambda: filter(is_gone, unit_of), lambda path: None, is_gone)

    def claims(self) -> Mapping[str, Obj | None]:
        claims = self._dry_run.base.claims

        def is_changed(path: str) -> bool:
            return self.claim(path) is not claims.get(path)

        return Computed(lambda: filter(is_changed, claims), self.claim, is_changed)

    def allocated(self) -> AllocatedState:
        dry_run, removed = self._dry_run, self._gone
        return dry_run.base.allocated.seen_through(
            lambda pool: dry_run.pool_use(pool, removed), lambda claim: dry_run.is_free(claim, removed)
        )

    def frees(self, claim: str) -> bool:
        return self._dry_run.is_free(claim, self._gone)

    def claim(self, path: str) -> Obj | None:
        """Return a claim in this state: freed, or without the removed pods among its users."""
        dry_run = self._dry_run
        claim = dry_run.base.claims.get(path)
        entries = ((claim or {}).get("status") or {}).get("reservedFor") or ()
        if claim is None or not entries:
            return claim
        if dry_run.is_free(path, self._gone):
            return freed(claim)
        namespace = claim["metadata"].get("namespace") or "default"
        numbers = [
            dry_run.unit_of.get(f"{namespace}/{e.get('name')}") if e.get("resource") == PODS else None for e in entries
        ]
        staying = [e for e, n in zip(entries, numbers, strict=True) if n is None or not self._gone[n]]
        if len(staying) == len(entries):
            return claim
        return {**claim, "status": {**claim["status"], "reservedFor": staying}}
