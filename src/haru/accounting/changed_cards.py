"""The states of all cards, kept from one snapshot to the next: a card is looked at again where something of it changed.

A pool's cards depend on the pool, on what is allocated of it, on the claims that hold it, on their pods, and on its
nodes. What nobody holds depends on the waiting work too: a pool is looked at again where some waits for its devices
that did not, or for another reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from haru.accounting.device_states import HELD, CardLook, CardState, UsageKey, amounts, words
from haru.accounting.missed_devices import WaitingWorkload
from haru.engine import Options, Snapshot
from haru.engine.backfill import is_reserved
from haru.engine.dra import DeviceId, Pool, PoolKey
from haru.engine.state import PodInfo, consumer_key, differing
from haru.explain.card_counts import CardCounts, Word
from haru.explain.cards import PoolLayout, layout_of
from haru.explain.happenings import Happening, faults_of_cards, faults_of_node
from haru.explain.pending_pods import pending_pods
from haru.kube.meta import Obj, allocation_of


class CardChanges(NamedTuple):
    """The cards that are other than they were, and the faults of what has changed, by what they are of."""

    before: list[CardState]
    after: list[CardState]
    faults: dict[str, list[Happening]]


class ChangedCards:
    """The cards of one cluster. `look` takes the next snapshot."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._seen: Snapshot | None = None
        self._layouts: dict[str, PoolLayout] = {}
        self._states: dict[str, list[CardState]] = {}
        self._of_node: dict[str, dict[str, None]] = {}
        self._with_rest: set[str] = set()
        self._reserved_groups: dict[str, Obj] = {}
        self._reserved: set[DeviceId] = set()
        self._waiting: list[WaitingWorkload] = []
        self._units: Counter[UsageKey] = Counter()
        self._words: Counter[Word] = Counter()

    @property
    def units(self) -> Counter[UsageKey]:
        """The shares by key, in thousandths of cards."""
        return Counter(self._units)

    @property
    def counts(self) -> CardCounts:
        """The shares by word."""
        return CardCounts.of(self._words)

    def look(self, snapshot: Snapshot, now: int) -> CardChanges:
        """Take a snapshot; what is other than in the one before."""
        nodes, pods = self._changed_nodes(snapshot), self._changed_pods(snapshot)
        faults = {f"node {name}": faults_of_node(snapshot, name, now) for name in nodes}
        pools = self._changed_layouts(snapshot)
        for name in pools:
            known = self._layouts.get(name)
            faults[f"pool {name}"] = faults_of_cards(known, now) if known is not None else []
        pools |= self._of_holders(snapshot, [*pods, *_pods_on(snapshot, nodes)])
        pools.update(pool for name in nodes for pool in self._of_node.get(name, ()))
        self._note_reserved_groups(snapshot)
        heads = [*self._reserved_groups.values(), *(pod.obj for pod in pending_pods(snapshot).values())]
        look = CardLook(snapshot, self._options, heads)
        pools.update(f"{device.driver}/{device.pool}" for device in self._reserved ^ look.reserved)
        # Where nothing is free nobody asks what waiting work could use.
        pools |= self._of_waiting(list(look.waiting) if self._with_rest else [])
        self._reserved, self._seen = look.reserved, snapshot
        return self._replace(pools, look, faults)

    def _changed_nodes(self, snapshot: Snapshot) -> set[str]:
        """The nodes whose own objects came, changed or went."""
        before = self._seen.nodes if self._seen is not None else {}
        changed = set()
        for name in differing(snapshot.nodes, before):
            now, then = snapshot.nodes.get(name), before.get(name)
            if now is None or then is None or now.spec is not then.spec or now.present != then.present:
                changed.add(name)
        return changed

    def _changed_pods(self, snapshot: Snapshot) -> list[PodInfo]:
        """The pods that came, changed or went, as they were and are."""
        before = self._seen.pods if self._seen is not None else {}
        changed = []
        for path in differing(snapshot.pods, before):
            pod = snapshot.pods.get(path)
            changed += [known for known in (pod, before.get(path)) if known is not None]
        return changed

    def _note_reserved_groups(self, snapshot: Snapshot) -> None:
        before: Mapping[str, Obj] = self._seen.pod_groups if self._seen is not None else {}
        for path in differing(snapshot.pod_groups, before):
            group = snapshot.pod_groups.get(path)
            if group is not None and is_reserved(group):
                self._reserved_groups[path] = group
            else:
                self._reserved_groups.pop(path, None)

    def _changed_layouts(self, snapshot: Snapshot) -> set[str]:
        pools: Mapping[str, Pool] = self._seen.devices.pools if self._seen is not None else {}
        changed = differing(snapshot.devices.pools, pools)
        for name in changed:
            for node in _nodes_of(self._layouts.pop(name, None)):
                self._of_node[node].pop(name, None)
            pool = snapshot.devices.pools.get(name)
            if pool is not None:
                known = self._layouts[name] = layout_of(pool)
                for node in _nodes_of(known):
                    self._of_node.setdefault(node, {})[name] = None
        return changed

    def _of_holders(self, snapshot: Snapshot, pods: Iterable[PodInfo]) -> set[str]:
        """The pools held by claims that changed, or whose pods did."""
        claims: Mapping[str, Obj] = self._seen.claims if self._seen is not None else {}
        changed = differing(snapshot.claims, claims)
        of_consumer = snapshot.claim_index.by_consumer
        for pod in pods:
            changed |= of_consumer.get(consumer_key("pods", pod.key.namespace, pod.key.name)) or frozenset()
            if pod.group is not None:
                changed |= of_consumer.get(consumer_key("podgroups", *pod.group)) or frozenset()
        held = {pool for path in changed for pool in _pools_held(snapshot.claims.get(path))}
        if self._seen is not None:
            held.update(map(str, snapshot.allocated.changed(self._seen.allocated)))
        return held

    def _of_waiting(self, now: list[WaitingWorkload]) -> set[str]:
        """The pools with devices that other work waits for than before, or for another reason."""
        before, self._waiting = self._waiting, now
        owners = [[(unit.namespace, unit.owner) for unit in units] for units in (before, now)]
        if owners[0] != owners[1]:
            return {pool for unit in (*before, *now) for pool, _ in unit.states}
        pairs = zip(before, now, strict=True)
        return {pool for old, new in pairs for (pool, _), _ in old.states.items() ^ new.states.items()}

    def _replace(self, pools: Iterable[str], look: CardLook, faults: dict[str, list[Happening]]) -> CardChanges:
        changes = CardChanges([], [], faults)
        for name in pools:
            known, before = self._layouts.get(name), self._states.get(name, [])
            after = look.states(known) if known is not None else []
            if after == before:
                continue
            changes.before.extend(before)
            changes.after.extend(after)
            self._states[name] = after
            self._with_rest.discard(name)
            if any(part.state not in HELD for card in after for part in card.parts):
                self._with_rest.add(name)
            if known is None:
                del self._states[name]
        gone = amounts(changes.before)
        self._units.update(amounts(changes.after))
        self._units.subtract(gone)
        for key in gone:
            if not self._units[key]:
                del self._units[key]
        self._words.subtract(words(changes.before))
        self._words.update(words(changes.after))
        return changes


def _pods_on(snapshot: Snapshot, nodes: Iterable[str]) -> Iterator[PodInfo]:
    """The pods on some nodes: what they say of their devices counts by the labels of the node."""
    for name in nodes:
        info = snapshot.nodes.get(name)
        yield from info.pods.values() if info is not None else ()


def _nodes_of(known: PoolLayout | None) -> Iterator[str]:
    return iter({card.node for card in known.cards if card.node} if known is not None else ())


def _pools_held(claim: Obj | None) -> Iterator[str]:
    allocation = allocation_of(claim) or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        yield str(PoolKey(result["driver"], result["pool"]))
