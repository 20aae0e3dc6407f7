"""Tentative placements over a snapshot: the snapshot stays as it is, and everything can be taken back to a mark.

A search places pods and allocates claims here; what it keeps becomes a Decision, and the overlay is dropped.
Results that are kept per node follow overlays by a `ChangeCursor`: that costs the nodes that differ between two
snapshots, and those that tentative placements touched on either overlay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final
from weakref import ref

from haru.engine.dra.allocated_state import AllocatedState, PoolUse, uses_with
from haru.engine.dra.model.model import PoolKey
from haru.engine.equivalence.decision_cache import cached_property
from haru.engine.equivalence.node_device_classes import ClassifiedNode, classified_nodes_of
from haru.engine.state.cache import Snapshot
from haru.engine.state.cow_map import differing, mark_of, written_since
from haru.engine.state.node_info import ABSENT, NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.reserved_for import pinned_node
from haru.engine.state.tentative_volumes import NO_VOLUMES, TentativeVolumes
from haru.kube.meta import Obj

_NOBODY: Final = frozenset[str]()
_MOST_STATES: Final = 8
"""So many states of the nodes are kept for readers, however many these are, with pods that have gone since.

Of older ones it is known which nodes were written, which is as good unless they are very many.
"""


def touched_node(snapshot: Snapshot, allocation: Obj) -> str | None:
    """The one node for which an allocation makes a difference, or None if other nodes see its pools too."""
    node = pinned_node(allocation)
    if node is None:
        return None
    devices = snapshot.devices
    for result in (allocation.get("devices") or {}).get("results") or ():
        pool = devices.pools.get(str(PoolKey(result["driver"], result["pool"])))
        if pool is None or any(item.placement.node_name != node for item in pool.slices):
            return None
    return node


class Overlay:
    """The snapshot with tentatively placed pods and allocated claims.

    If the snapshot has a `next_pass`, a placement must fit in each pass, and a device counts as taken if it is in any.
    `changes` names the nodes that were touched, in order, rollbacks included; None stands for all.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.next_pass: Overlay | None = None
        self._allocated: AllocatedState = snapshot.allocated
        self._not_recorded: list[tuple[str, Obj]] = []
        """Tentative allocations that `_allocated` lacks."""
        self._waiting_on: dict[str, list[tuple[str, Obj]]] | None = {}
        """The same by the one node that sees the devices; None where that does not tell all of them."""
        self._uses_on: dict[str, tuple[PoolUse, ...]] = {}
        """By node: what is taken of its pools, with what was taken out of `_waiting_on` for that."""
        if snapshot.next_pass is not None:
            self.next_pass = Overlay(snapshot.next_pass)
            self._allocated = snapshot.allocated.and_also(self.next_pass.allocated)
        self._allocated_at_first = self._allocated
        self._nodes: dict[str, NodeInfo] = {}
        self._pods: dict[str, PodInfo] = {}
        self._allocations: dict[str, Obj] = {}
        self._consumers: dict[str, frozenset[str]] = {}
        self.volumes: TentativeVolumes = NO_VOLUMES
        self.changes: list[str | None] = []
        self._differences: list[tuple[Mapping[str, NodeInfo], set[str]]] = []
        self.presence: tuple[int, frozenset[str], list[tuple[str, NodeInfo | None]]] | None = None
        """What `present_nodes` answered last, with the number of changes then: several readers ask for the same."""
        self._journal: list[tuple[str, str, Any]] = []

    @property
    def passes(self) -> tuple[Overlay, ...]:
        """Return the overlays of all passes, this one first."""
        return (self,) if self.next_pass is None else (self, *self.next_pass.passes)

    @property
    def allocated(self) -> AllocatedState:
        """Return what is taken, tentative allocations included; they are recorded together, when a reader asks."""
        if self._not_recorded:
            self._allocated = self._allocated.with_allocations(self._not_recorded)
            self._not_recorded = []
        self._waiting_on, self._uses_on = {}, {}
        return self._allocated

    @property
    def allocates(self) -> bool:
        """Return whether there are tentative allocations."""
        return bool(self._not_recorded) or self._allocated is not self._allocated_at_first

    @cached_property
    def state(self) -> _State:
        """Return what readers keep of the snapshot's nodes (`ChangeCursor`)."""
        return _state_of(self.snapshot)

    @cached_property
    def differing(self) -> frozenset[str]:
        """Return the nodes that differ in a later pass, tentative placements left out."""
        now, *later = self.snapshot.passes
        return frozenset().union(*(differing(one.nodes, now.nodes) for one in later))

    @cached_property
    def differing_devices(self) -> frozenset[str] | None:
        """Return the nodes of whose devices others are taken in a later pass; None where several nodes may see them."""
        now, *later = self.snapshot.passes
        found: set[str] = set()
        for one in later:
            if one.devices is not now.devices:
                return None
            for key in one.allocated.changed(now.allocated):
                pool = now.devices.pools.get(str(key))
                nodes = {item.placement.node_name for item in pool.slices} if pool is not None else {""}
                if len(nodes) != 1 or "" in nodes:
                    return None
                found |= nodes
        return frozenset(found)

    def classified_node(self, name: str) -> ClassifiedNode | None:
        """Return a node with the class of its devices, tentative allocations included; None if it has no class.

        It costs what is taken of the node, not what is taken of others.
        """
        snapshot, classes = self.snapshot, self.snapshot.node_device_classes
        known = classified_nodes_of(snapshot.classified_nodes, name)
        if known is None or classes is None or self.next_pass is not None:
            return None
        allocated = self._allocated if self._waiting_on is not None else self.allocated
        uses = self._uses_on.get(name) or tuple([allocated.use(view.key) for view in known.views])
        waiting = self._waiting_on.pop(name, None) if self._waiting_on else None
        if waiting is not None:
            found = uses_with(dict(zip([view.key for view in known.views], uses, strict=True)), waiting)
            uses = self._uses_on[name] = tuple(found.values())
        return classes.with_uses(known, uses)

    def classified_by_devices(self, name: str) -> ClassifiedNode | None:
        """Return the same, but for the uses, where which devices are taken tells it; None where more may count.

        It takes a third of the steps.
        """
        waiting, classes = self._waiting_on, self.snapshot.node_device_classes
        if not waiting or classes is None or self.next_pass is not None:
            return None
        if self._allocated is not self._allocated_at_first or name in self._uses_on:
            return None
        known = classified_nodes_of(self.snapshot.classified_nodes, name)
        return None if known is None else classes.with_devices(known, [one for _, one in waiting.get(name, ())])

    def changed_since(self, before: Mapping[str, NodeInfo]) -> set[str]:
        """Return the nodes of the snapshot that differ from `before`. Many readers ask; it is computed once."""
        for asked, answer in self._differences:
            if asked is before:
                return answer
        found = differing(self.snapshot.nodes, before)
        self._differences.append((before, found))
        return found

    def node(self, name: str) -> NodeInfo:
        """A node with the tentative pods on it."""
        return self._nodes.get(name) or self.snapshot.nodes[name]

    @property
    def touched(self) -> Collection[str]:
        """The nodes with tentative pods."""
        return self._nodes.keys()

    def present_nodes(self) -> Iterable[tuple[str, NodeInfo | None]]:
        """All nodes of the snapshot by name; None for those that do not exist."""
        touched, known = self._nodes, self.snapshot.present_nodes
        return ((name, info and touched.get(name, info)) for name, info in known) if touched else known

    def placed(self) -> Iterator[PodInfo]:
        """The tentatively placed pods, in the order of placement."""
        return iter(self._pods.values())

    def allocation(self, path: str) -> Obj | None:
        """The tentative allocation of a claim."""
        return self._allocations.get(path)

    def consumers(self, path: str) -> frozenset[str]:
        """Return for whom a claim is tentatively reserved."""
        return self._consumers.get(path, _NOBODY)

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._journal)

    def place(self, pod: PodInfo, node: str, claimed: tuple[Obj, ...] = ()) -> None:
        """Put a pod on a node, of which its devices take so much (KEP-5517)."""
        bound, path = pod.bound_to(node, claimed), pod.key.path
        before = self._nodes.get(node)
        self._journal.append(("pod", path, (node, before)))
        self._nodes[node] = (before or self.snapshot.nodes[node]).with_pod(bound)
        self._pods[path] = bound
        self.changes.append(node)
        if self.next_pass is not None:
            self.next_pass.place(pod, node, claimed)

    def allocate(self, path: str, allocation: Obj, node: str | None = None) -> None:
        """Allocate a claim that is not allocated; `node` is the one that sees its devices, where that is known."""
        waiting = self._not_recorded
        self._journal.append(("claim", path, (self._allocated, waiting, len(waiting))))
        self._allocations[path] = allocation
        waiting.append((path, allocation))
        where = node or touched_node(self.snapshot, allocation)
        self.changes.append(where)
        if where is None:
            self._waiting_on = None
        elif self._waiting_on is not None:
            self._waiting_on.setdefault(where, []).append((path, allocation))

    def reserve(self, path: str, consumer: str) -> None:
        """Reserve a claim for a pod, or for a group, of which every member may do so."""
        before = self._consumers.get(path, _NOBODY)
        self._journal.append(("consumer", path, before))
        if consumer not in before:
            self._consumers[path] = before | {consumer}

    def bind_volumes(self, volumes: TentativeVolumes) -> None:
        """Have the claims of the tentatively placed pods bound like this."""
        self._journal.append(("volumes", "", self.volumes))
        self.volumes = volumes

    def rollback(self, mark: int) -> None:
        """Undo everything since the mark, last first."""
        while len(self._journal) > mark:
            what, path, before = self._journal.pop()
            if what == "pod":
                del self._pods[path]
                node, info = before
                if info is None:
                    del self._nodes[node]
                else:
                    self._nodes[node] = info
                self.changes.append(node)
                if self.next_pass is not None:
                    self.next_pass.rollback(self.next_pass.mark() - 1)
            elif what == "consumer":
                self._consumers[path] = before
            elif what == "volumes":
                self.volumes = before
            else:
                self._allocated, self._not_recorded, length = before
                del self._not_recorded[length:]
                self._waiting_on = None
                self.changes.append(touched_node(self.snapshot, self._allocations.pop(path)))


class _State:
    """The nodes that readers have seen, who keep this. `nodes` is None once others have been seen many times."""

    __slots__ = ("__weakref__", "_mark", "nodes")

    def __init__(self, nodes: Mapping[str, NodeInfo]) -> None:
        self.nodes: Mapping[str, NodeInfo] | None = nodes
        self._mark = mark_of(nodes)

    def changed(self, overlay: Overlay) -> set[str] | None:
        """Return the nodes of the overlay's snapshot that may differ; None if that is not known."""
        if self.nodes is not None:
            return overlay.changed_since(self.nodes)
        return written_since(overlay.snapshot.nodes, self._mark)


def _state_of(snapshot: Snapshot) -> _State:
    states: deque[ref[_State]] = snapshot.decision_cache.get_or_compute("states of nodes", None, deque)
    found = states[-1]() if states else None
    if found is None or found.nodes is not snapshot.nodes:
        found = _State(snapshot.nodes)
        states.append(ref(found))
        if len(states) > _MOST_STATES and (oldest := states.popleft()()) is not None:
            oldest.nodes = None
    return found


class ChangeCursor:
    """The position of one reader. The first use returns all nodes, as may one after many states of the nodes.

    It keeps neither an overlay nor nodes: they would keep pods that are long gone, for as long as nobody asks again.
    """

    __slots__ = ("_changes", "_seen", "_state", "devices_changed")

    def __init__(self) -> None:
        self._changes: list[str | None] = []
        self._state: _State | None = None
        self._seen = 0
        self.devices_changed = False

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """Return the names of nodes that may have changed, came or went; None for all.

        `devices_changed` then says whether devices changed that more than one node sees.
        """
        last, state, seen = self._changes, self._state, self._seen
        self._changes, self._seen = overlay.changes, len(overlay.changes)
        if last is overlay.changes:
            return self._named(last[seen:])
        self._state = overlay.state
        changed = None if state is None else state.changed(overlay)
        if changed is None:
            self.devices_changed = True
            return None
        return self._named([*last, *overlay.changes]) | changed

    def _named(self, changes: list[str | None]) -> set[str]:
        self.devices_changed = None in changes
        return set(filter(None, changes))


def present_nodes(overlay: Overlay, names: set[str] | None) -> Iterable[tuple[str, NodeInfo | None]]:
    """Yield the nodes of these names (None: all) on the overlay; None for those that do not exist."""
    if names is None:
        return overlay.present_nodes()
    state = len(overlay.changes)
    known = overlay.presence
    if known is not None and known[0] == state and known[1] == names:
        return known[2]
    touched, nodes = overlay._nodes, overlay.snapshot.nodes
    found: list[tuple[str, NodeInfo | None]] = []
    for name in sorted(names):
        node = touched.get(name) or nodes.get(name)
        found.append((name, None if node is None or node.spec is ABSENT else node))
    overlay.presence = state, frozenset(names), found
    return found


def present_node(overlay: Overlay, name: str) -> NodeInfo | None:
    """Return a node on the overlay; None if it does not exist."""
    try:
        info = overlay.node(name)
    except KeyError:
        return None
    return info if info.present else None
