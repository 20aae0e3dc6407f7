"""Choose volumes for the claims of pods on nodes: available ones first, the smallest that fits, else provisioned ones.

Where the first choice leaves a claim without a volume, claims of pods that are placed tentatively move to other
volumes, so that a pod is refused only if no assignment serves all claims (augmenting paths).
Source: kube-scheduler 1.36's volume binder and FindMatchingVolume, as behaviour; the augmenting paths are our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import NamedTuple

from haru.engine.plugins.volumebinding.provisioning import Provisioning, Shortage
from haru.engine.plugins.volumebinding.volume_index import Pin, VolumeIndex, pins_of
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.snapshot import Snapshot
from haru.engine.state.tentative_volumes import TentativeVolumes, VolumeChoice
from haru.kube.selectors import node_selector_matches
from haru.kube.volume_binding import (
    OfferedVolume,
    WantedVolume,
    class_of,
    is_fully_bound,
    is_reserved_for,
    waits_for_consumer,
)

_KINDS = ("PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSIDriver", "CSIStorageCapacity")


def late_claims(snapshot: Snapshot, pod: PodInfo) -> tuple[str, ...]:
    """Return the paths of the pod's claims that are to be bound once it has a node (WaitForFirstConsumer)."""
    claims, classes = snapshot.objects("PersistentVolumeClaim"), snapshot.objects("StorageClass")
    found = []
    for name in dict.fromkeys(pod.volume_claims):
        path = f"{pod.key.namespace}/{name}"
        claim = claims.get(path)
        if claim is None or is_fully_bound(claim) or (claim.get("spec") or {}).get("volumeName"):
            continue
        if waits_for_consumer(classes.get(class_of(claim))):
            found.append(path)
    return tuple(found)


class VolumeShortage(NamedTuple):
    """The first claim that a node cannot serve, and what is missing there."""

    claim: WantedVolume
    lacks: Shortage


class VolumeMatcher:
    """Follow the volumes of a cluster, and answer for the snapshot that was seen last."""

    def __init__(self) -> None:
        self._index = VolumeIndex()
        self._snapshot: Snapshot | None = None
        self._wanted: dict[str, WantedVolume] = {}
        self._lists: dict[tuple[str, Pin | None], list[OfferedVolume]] = {}
        self._provisioning: Provisioning | None = None

    @staticmethod
    def of(snapshot: Snapshot) -> VolumeMatcher:
        """Return the matcher of a snapshot's decision cache."""
        matcher = snapshot.decision_cache.get_or_compute("volume matcher", None, VolumeMatcher)
        matcher.catch_up(snapshot)
        return matcher

    def catch_up(self, snapshot: Snapshot) -> None:
        """Answer for this snapshot from now on."""
        last, self._snapshot = self._snapshot, snapshot
        if last is not None and all(last.others.get(kind) is snapshot.others.get(kind) for kind in _KINDS):
            return
        self._index.catch_up(snapshot.objects("PersistentVolume"))
        self._wanted, self._lists, self._provisioning = {}, {}, Provisioning(snapshot)

    def wanted(self, path: str) -> WantedVolume:
        """Return what a claim asks for. Raises KeyError for a claim that does not exist."""
        found = self._wanted.get(path)
        if found is None:
            assert self._snapshot is not None
            found = self._wanted[path] = WantedVolume.of(self._snapshot.objects("PersistentVolumeClaim")[path])
        return found

    def place(
        self, tentative: TentativeVolumes, claims: Sequence[str], node: NodeInfo
    ) -> TentativeVolumes | VolumeShortage:
        """Return the choices with those for a pod's claims on a node, or what is missing there."""
        return _Placement(self, tentative, node).place([self.wanted(path) for path in claims])

    def reached_from(self, volumes: Iterable[str], claims: Iterable[str]) -> frozenset[Pin] | None:
        """Return the labels of the nodes for which it makes a difference to claims that volumes are taken; None: all.

        Only volumes of the classes of these claims count.
        """
        classes = {self.wanted(path).class_name for path in claims}
        found: set[Pin] = set()
        for name in volumes:
            volume = self._index.get(name)
            if volume is None or volume.class_name not in classes:
                continue
            known = self._index.of_class(volume.class_name)
            if not known.is_partitioned:
                return None
            found.update(pins_of(volume.node_affinity))
        return frozenset(found)

    def candidates(self, wanted: WantedVolume, nodes: Sequence[NodeInfo]) -> Iterator[OfferedVolume]:
        """Yield the volumes that a claim may be bound to for pods on these nodes, the smallest first."""
        first = nodes[0]
        for volume in self._index.reserved_for(wanted.path):
            same_class = volume.class_name == wanted.class_name
            if same_class and is_reserved_for(volume.obj, wanted.claim) and volume.suffices(wanted):
                yield from (volume,) if _reach(volume, nodes) else ()
                return
        known = self._index.of_class(wanted.class_name)
        lists = [self._list(wanted, (key, first.labels[key])) for key in known.keys if key in first.labels]
        if known.others:
            lists.append(self._list(wanted, None))
        lists = [found for found in lists if found]
        if not lists:
            return
        yielded: set[str] = set()
        for volume in merge(*lists, key=lambda one: one.order):
            if volume.name not in yielded and _reach(volume, nodes):
                yielded.add(volume.name)
                yield volume

    def shortage(self, wanted: WantedVolume, nodes: Sequence[NodeInfo]) -> Shortage | None:
        """Return what the nodes lack for the provisioning of a claim: one volume is for one node."""
        assert self._provisioning is not None
        return self._provisioning.shortage(wanted, nodes[0]) if len(nodes) == 1 else "volume"

    def nodes(self, names: Sequence[str]) -> Sequence[NodeInfo]:
        """Return nodes by name."""
        assert self._snapshot is not None
        return [self._snapshot.nodes[name] for name in names]

    def _list(self, wanted: WantedVolume, pin: Pin | None) -> list[OfferedVolume]:
        found = self._lists.get((wanted.path, pin))
        if found is None:
            known = self._index.of_class(wanted.class_name)
            volumes = known.others if pin is None else known.pinned(pin)
            chosen = (volume for volume in volumes.values() if volume.is_free_for(wanted))
            found = self._lists[wanted.path, pin] = sorted(chosen, key=lambda one: one.order)
        return found


class _Placement:
    """One trial: the choices so far, and those for one more pod."""

    def __init__(self, matcher: VolumeMatcher, tentative: TentativeVolumes, node: NodeInfo) -> None:
        self._matcher = matcher
        self._node = node
        self._choices = dict(tentative.choices)
        self._taken = dict(tentative.taken)

    def place(self, claims: Sequence[WantedVolume]) -> TentativeVolumes | VolumeShortage:
        left: list[WantedVolume] = []
        for wanted in claims:
            before = self._choices.get(wanted.path)
            where = tuple(dict.fromkeys((*(before.nodes if before is not None else ()), self._node.name)))
            if wanted.selected_node is not None and where != (wanted.selected_node,):
                return VolumeShortage(wanted, "volume")
            if before is not None and before.volume:
                del self._taken[before.volume]
            self._choices[wanted.path] = VolumeChoice("", where)
            left.append(wanted)
        selected = [wanted for wanted in left if wanted.selected_node is not None]
        others = sorted((w for w in left if w.selected_node is None), key=lambda wanted: wanted.size)
        unmatched = [*selected, *(wanted for wanted in others if not self._take_free(wanted))]
        return next(filter(None, map(self._provide, unmatched)), None) or TentativeVolumes(self._choices, self._taken)

    def _nodes(self, wanted: WantedVolume) -> Sequence[NodeInfo]:
        names = self._choices[wanted.path].nodes
        return (self._node,) if names == (self._node.name,) else self._matcher.nodes(names)

    def _take_free(self, wanted: WantedVolume) -> bool:
        for volume in self._matcher.candidates(wanted, self._nodes(wanted)):
            if volume.name not in self._taken:
                self._give(wanted.path, volume.name)
                return True
        return False

    def _provide(self, wanted: WantedVolume) -> VolumeShortage | None:
        """Have a volume provisioned, or make other claims leave one; return what is missing."""
        lacks = self._matcher.shortage(wanted, self._nodes(wanted))
        if lacks is None or (wanted.selected_node is None and self._make_free(wanted)):
            return None
        return VolumeShortage(wanted, lacks)

    def _make_free(self, start: WantedVolume) -> bool:
        """Find a volume whose claim can have another one, or have one provisioned, step by step."""
        came_from: dict[str, str] = {}
        queue = [start]
        for wanted in queue:
            for volume in self._matcher.candidates(wanted, self._nodes(wanted)):
                if volume.name in came_from:
                    continue
                came_from[volume.name] = wanted.path
                owner = self._taken.get(volume.name)
                if owner is None:
                    self._shift(volume.name, came_from, start.path)
                    return True
                other = self._matcher.wanted(owner)
                if self._matcher.shortage(other, self._nodes(other)) is None:
                    self._choices[owner] = VolumeChoice("", self._choices[owner].nodes)
                    self._shift(volume.name, came_from, start.path)
                    return True
                queue.append(other)
        return False

    def _shift(self, volume: str, came_from: dict[str, str], start: str) -> None:
        """Give each claim on the way the volume that it found; its own goes to the claim before it."""
        while True:
            claim = came_from[volume]
            before = self._choices[claim].volume
            self._give(claim, volume)
            if claim == start:
                return
            volume = before

    def _give(self, claim: str, volume: str) -> None:
        self._choices[claim] = VolumeChoice(volume, self._choices[claim].nodes)
        self._taken[volume] = claim


def _reach(volume: OfferedVolume, nodes: Sequence[NodeInfo]) -> bool:
    affinity = volume.node_affinity
    return affinity is None or all(node_selector_matches(affinity, node.name, node.labels) for node in nodes)
