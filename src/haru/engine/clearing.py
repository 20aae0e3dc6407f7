"""The cluster without some of its pods: their room, their ports, their rules and the devices that only they used.

A `Clearing` is made for units of pods that go and come together. Its snapshots compute what is different only where
somebody looks: a node, a pool, a claim. What was computed is kept by the state that it belongs to, so a node that was
seen in some state before is the same object again, and whoever has judged it need not judge it anew.
Source: our own; KEP-4381 for when a claim is free (1.36 does not free devices when it simulates evictions).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

from haru.engine.cluster import Snapshot
from haru.engine.consumers import POD_GROUPS, PODS, consumer_key, freed, is_kept, kept_by_groups
from haru.engine.decision import GroupKey, Obj
from haru.engine.devices import AllocatedState, PoolKey
from haru.engine.devices.state import PoolUse
from haru.engine.groupstate import GroupState
from haru.engine.nodeinfo import NodeInfo
from haru.engine.persistent import Computed, Patched
from haru.engine.pods import PodInfo


def claim_users(snapshot: Snapshot, path: str) -> frozenset[str] | None:
    """The pods on nodes whose going frees a claim, by path; None if it is also held otherwise, or by nobody."""
    claim = snapshot.claims.get(path)
    if claim is None:
        return None
    namespace = claim["metadata"].get("namespace") or "default"
    users: set[str] = set()
    for entry in (claim.get("status") or {}).get("reservedFor") or ():
        name = entry.get("name") or ""
        if is_kept(entry):
            return None
        if entry.get("resource") == POD_GROUPS:
            group = GroupKey(namespace, name)
            members = [m for m in snapshot.group_state(group).scheduled if path in snapshot.pods[m].claim_paths]
            if not members and group.path not in snapshot.evicted_groups:
                return None
            users.update(members)
            continue
        pod = snapshot.pods.get(f"{namespace}/{name}")
        same = pod is not None and entry.get("uid") in (None, "", pod.key.uid)
        if entry.get("resource") != PODS or pod is None or not (same and pod.node):
            return None
        users.add(pod.key.path)
    return frozenset(users) or None


def left_to_groups(base: Snapshot, going: Iterable[PodInfo]) -> Snapshot:
    """The base to clear of pods that end, or that somebody deletes: what a group has reserved stays with the group.

    Unless members of it were evicted: then what nobody uses is given back.
    """
    found = list(going)
    groups = {pod.group for pod in found if pod.group is not None}
    if not groups:
        return base
    pods = {pod.key.path for pod in found}
    claims: dict[str, Obj | None] = {}
    for group in groups:
        if group.path not in base.evicted_groups:
            for path in base.used_claims.get(consumer_key(POD_GROUPS, *group)) or ():
                users = claim_users(base, path)
                if users is not None and users <= pods:
                    claims[path] = kept_by_groups(base.claims[path])
    return replace(base, claims=Patched(base.claims, claims)) if claims else base


def without_orphans(base: Snapshot, orphaned: Mapping[str, Obj]) -> Snapshot:
    """The base with those claims free whose consumers are all gone: whoever deallocates them does so in a moment."""
    free = {path: freed(claim) for path, claim in orphaned.items() if base.claims.get(path) is claim}
    if not free:
        return base
    return replace(
        base,
        claims=Patched(base.claims, free),
        in_flight=Patched(base.in_flight, dict.fromkeys(free)),
        allocated=base.allocated.freed(free),
    )


def _claims_of(snapshot: Snapshot, pods: Iterable[PodInfo]) -> set[str]:
    """The allocated claims that are reserved for pods or for their groups."""
    used, found = snapshot.used_claims, set[str]()
    for pod in pods:
        found |= used.get(consumer_key(PODS, pod.key.namespace, pod.key.name)) or frozenset()
        if pod.group is not None:
            found |= used.get(consumer_key(POD_GROUPS, *pod.group)) or frozenset()
    return found


class Clearing:
    """A base snapshot and units of its pods, by number. At first all units are gone."""

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
        self.gone = bytearray(b"\x01" * len(self.units))
        self._nodes: dict[tuple[str, tuple[int, ...]], NodeInfo] = {}
        self._uses: dict[tuple[PoolKey, tuple[str, ...]], PoolUse] = {}
        self._users: dict[str, frozenset[int] | None] = {}
        self._holders: dict[PoolKey, tuple[str, ...]] = {}

    def put_back(self, numbers: Iterable[int]) -> None:
        """Put units back in place."""
        for number in numbers:
            self.gone[number] = 0

    def take(self, numbers: Iterable[int]) -> None:
        """Take units away again."""
        for number in numbers:
            self.gone[number] = 1

    def nodes_of(self, numbers: Iterable[int]) -> set[str]:
        """The nodes that have pods of these units."""
        return set(chain.from_iterable(map(self._nodes_of.__getitem__, numbers)))

    def gone_on(self, node: str) -> tuple[int, ...]:
        """The units that are gone from a node: together with its name this says how it is."""
        return tuple([number for number, _ in self._on.get(node, ()) if self.gone[number]])

    @property
    def nodes(self) -> Mapping[str, object]:
        """The nodes that have pods of some unit."""
        return self._on

    def snapshot(self) -> Snapshot:
        """The base without the units that are gone at the moment."""
        if not any(self.gone):
            return self.base
        base, moment = self.base, _Moment(self, bytes(self.gone))
        pods = moment.pods()
        return replace(
            base,
            nodes=Patched(base.nodes, moment.nodes()),
            pods=Patched(base.pods, pods),
            claims=Patched(base.claims, moment.claims()),
            groups=Patched(base.groups, moment.groups()),
            allocated=moment.allocated(),
            anti_affine=Patched(base.anti_affine, pods),
            leaving=Patched(base.leaving, pods),
        )

    def settled(self) -> Snapshot:
        """The same, with all differences looked up: where few are gone this is cheaper to compare with the base."""
        gone = [unit for unit, is_gone in zip(self.units, self.gone, strict=True) if is_gone]
        if not gone:
            return self.base
        base, pods = self.base, [pod for unit in gone for pod in unit]
        moment = _Moment(Clearing(base, gone), b"\x01" * len(gone))
        nodes, groups = moment.nodes(), moment.groups()
        away: dict[str, PodInfo | None] = {pod.key.path: None for pod in pods}
        claims = {path: changed for path in _claims_of(base, pods) if (changed := moment.claim(path)) is not None}
        return replace(
            base,
            nodes=Patched(base.nodes, {name: nodes[name] for name in dict.fromkeys(pod.node for pod in pods)}),
            pods=Patched(base.pods, away),
            claims=Patched(base.claims, claims),
            groups=Patched(base.groups, {pod.group.path: groups[pod.group.path] for pod in pods if pod.group}),
            allocated=base.allocated.freed(path for path in claims if moment.frees(path)),
            anti_affine=Patched(base.anti_affine, away),
            leaving=Patched(base.leaving, away),
        )

    # What a moment asks for

    def node(self, name: str, gone: bytes) -> NodeInfo:
        """A node without the pods of these units."""
        before = self.base.nodes[name]
        away = [(number, path) for number, path in self._on[name] if gone[number]]
        if not away:
            return before
        key = (name, tuple([number for number, _ in away]))
        found = self._nodes.get(key)
        if found is None:
            paths = {path for _, path in away}
            found = self._nodes[key] = before.rebuilt(p for path, p in before.pods.items() if path not in paths)
        return found

    def pool_use(self, pool: PoolKey, gone: bytes) -> PoolUse:
        """What is taken of a pool once these units are gone."""
        use = self.base.allocated.use(pool)
        holders = self._holders.get(pool)
        if holders is None:
            listed = {holder for name in use.names() for holder in use.holders(name)}
            holders = self._holders[pool] = tuple(sorted(path for path in listed if self.users(path)))
        free = tuple([path for path in holders if self.is_free(path, gone)])
        if not free:
            return use
        found = self._uses.get((pool, free))
        if found is None:
            found = self._uses[pool, free] = use.without_holders(free)
        return found

    def users(self, claim: str) -> frozenset[int] | None:
        """The units whose going frees a claim; None if others hold it too."""
        if claim not in self._users:
            paths = claim_users(self.base, claim)
            numbers = [self.unit_of.get(path) for path in paths or ()]
            known = frozenset(number for number in numbers if number is not None)
            self._users[claim] = known if paths is not None and None not in numbers else None
        return self._users[claim]

    def is_free(self, claim: str, gone: bytes) -> bool:
        """Whether a claim that is allocated in the base is free without these units."""
        users = self.users(claim)
        return users is not None and all(gone[number] for number in users)

    def group(self, path: str, gone: bytes) -> GroupState | None:
        """How far a group is without the pods of these units; the very same state if it has none of them."""
        state = self.base.groups.get(path)
        if state is None:
            return None
        away = [pod for pod in state.scheduled if (number := self.unit_of.get(pod)) is not None and gone[number]]
        return state.without(away) if away else state


class _Moment:
    """A clearing with the units that are gone at one moment: what its snapshot asks."""

    def __init__(self, clearing: Clearing, gone: bytes) -> None:
        self._clearing = clearing
        self._gone = gone

    def nodes(self) -> Mapping[str, NodeInfo | None]:
        known = self._clearing.nodes
        return Computed(lambda: known, lambda name: self._clearing.node(name, self._gone), known.__contains__)

    def groups(self) -> Mapping[str, GroupState | None]:
        groups = self._clearing.base.groups

        def group(path: str) -> GroupState | None:
            return self._clearing.group(path, self._gone)

        def is_changed(path: str) -> bool:
            return group(path) is not groups.get(path)

        return Computed(lambda: filter(is_changed, groups), group, is_changed)

    def pods(self) -> Mapping[str, PodInfo | None]:
        unit_of, gone = self._clearing.unit_of, self._gone

        def is_gone(path: str) -> bool:
            number = unit_of.get(path)
            return number is not None and bool(gone[number])

        return Computed(lambda: filter(is_gone, unit_of), lambda path: None, is_gone)

    def claims(self) -> Mapping[str, Obj | None]:
        claims = self._clearing.base.claims

        def is_changed(path: str) -> bool:
            return self.claim(path) is not claims.get(path)

        return Computed(lambda: filter(is_changed, claims), self.claim, is_changed)

    def allocated(self) -> AllocatedState:
        clearing, gone = self._clearing, self._gone
        return clearing.base.allocated.seen_through(
            lambda pool: clearing.pool_use(pool, gone), lambda claim: clearing.is_free(claim, gone)
        )

    def frees(self, claim: str) -> bool:
        return self._clearing.is_free(claim, self._gone)

    def claim(self, path: str) -> Obj | None:
        """A claim as it is then: free, or without the pods that are gone among its users."""
        clearing = self._clearing
        claim = clearing.base.claims.get(path)
        entries = ((claim or {}).get("status") or {}).get("reservedFor") or ()
        if claim is None or not entries:
            return claim
        if clearing.is_free(path, self._gone):
            return freed(claim)
        namespace = claim["metadata"].get("namespace") or "default"
        numbers = [
            clearing.unit_of.get(f"{namespace}/{e.get('name')}") if e.get("resource") == PODS else None for e in entries
        ]
        staying = [e for e, n in zip(entries, numbers, strict=True) if n is None or not self._gone[n]]
        if len(staying) == len(entries):
            return claim
        return {**claim, "status": {**claim["status"], "reservedFor": staying}}
