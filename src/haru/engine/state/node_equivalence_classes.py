"""Classes of equal nodes, kept from one snapshot to the next at the cost of the nodes that differ.

A pod of a new signature is filtered once per class. Without the index each such pod would look at every node of the
cluster to find the classes, though only the nodes have changed that were placed on meanwhile.
Source: our own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from haru.engine.equivalence.node_device_classes import (
    Classified,
    ClassifiedNode,
    NodeDeviceClass,
    all_of,
    classified_nodes_of,
)
from haru.engine.state.cow_map import differing, values_of
from haru.engine.state.node_info import ABSENT, NodeInfo

_FEW = 100


class NodeEquivalenceClass(NamedTuple):
    """Nodes, in the order of their names, that are equal but for names, labels, and which images they have.

    Every filter that looks at none of these, nor at which pods are on a node, answers alike for them. Their devices are
    equal, too, unless `node_device_class` is None: then their devices are not classified.
    """

    first: NodeInfo
    node_device_class: NodeDeviceClass | None
    names: list[str]


def classes_among(
    names: Sequence[str], nodes: Mapping[str, NodeInfo], classified: Classified | None
) -> dict[Hashable, NodeEquivalenceClass]:
    """Return the classes of those of some nodes that are present, by what is equal in each."""
    found: dict[Hashable, NodeEquivalenceClass] = {}
    seen = all_of(classified, names) if classified is not None else (None,) * len(names)
    for name, info, own in zip(names, values_of(nodes, names), seen, strict=True):
        spec = info.spec if info is not None else ABSENT
        if info is None or spec is ABSENT:
            continue
        device_class = own.node_device_class if own is not None else None
        # As `_key` has it; a call for each node would cost as much again.
        key: Hashable = (spec.kind, info.load, info.affine, not spec.images, device_class)
        node_class = found.get(key)
        if node_class is None:
            found[key] = NodeEquivalenceClass(info, device_class, [name])
        else:
            node_class.names.append(name)
    return found


class NodeEquivalenceIndex:
    """The classes of the nodes of the last snapshot that was asked about."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._ascends = False
        """Whether the names are sorted, so that they can be searched."""
        self._nodes: Mapping[str, NodeInfo] = {}
        self._classified: Classified | None = None
        self._key_of: dict[str, Hashable] = {}
        self._classes: dict[Hashable, NodeEquivalenceClass] = {}
        self._ordered: tuple[NodeEquivalenceClass, ...] = ()

    def of(
        self, names: tuple[str, ...], nodes: Mapping[str, NodeInfo], classified: Classified | None
    ) -> Sequence[NodeEquivalenceClass]:
        """Return the classes of these nodes, in the order of their first nodes. Nobody may change them."""
        ascends = self._ascends if names is self._names else list(names) == sorted(names)
        changed = self._changed(names, nodes, classified) if ascends and self._ascends else None
        if changed is None or len(changed) > len(names) // 4 + _FEW:
            self._build(names, nodes, classified)
        else:
            self._update(changed, names, nodes, classified)
        self._names, self._nodes, self._classified, self._ascends = names, nodes, classified, ascends
        return self._ordered

    def _changed(
        self, names: tuple[str, ...], nodes: Mapping[str, NodeInfo], classified: Classified | None
    ) -> set[str] | None:
        """Return the nodes whose class may be another than before; None for all."""
        before = self._classified
        if (classified is None) != (before is None):
            return None
        changed = differing(nodes, self._nodes)
        if classified is not None and before is not None:
            changed |= differing(classified, before)
        if names is not self._names:
            changed |= set(names).symmetric_difference(self._names)
        return changed

    def _build(self, names: tuple[str, ...], nodes: Mapping[str, NodeInfo], classified: Classified | None) -> None:
        """Find the classes of all nodes."""
        found = classes_among(names, nodes, classified)
        key_of: dict[str, Hashable] = {}
        for key, node_class in found.items():
            key_of.update(dict.fromkeys(node_class.names, key))
        self._classes, self._key_of, self._ordered = found, key_of, tuple(found.values())

    def _update(
        self,
        changed: set[str],
        names: tuple[str, ...],
        nodes: Mapping[str, NodeInfo],
        classified: Classified | None,
    ) -> None:
        """Move the nodes that changed; classes that earlier snapshots share are replaced, not changed."""
        listed: dict[Hashable, list[str]] = {}
        for name in changed:
            info = nodes.get(name) if _contains(names, name) else None
            present = info is not None and info.spec is not ABSENT
            key = _key(info, classified_nodes_of(classified, name)) if info is not None and present else None
            before = self._key_of.pop(name, None)
            if before is not None:
                own = self._writable(listed, before)
                del own[bisect_left(own, name)]
            if key is not None:
                insort(self._writable(listed, key), name)
                self._key_of[name] = key
        for key, own in listed.items():
            if own:
                first = nodes[own[0]]
                device_class = classified_nodes_of(classified, own[0])
                self._classes[key] = NodeEquivalenceClass(first, device_class and device_class.node_device_class, own)
            else:
                self._classes.pop(key, None)
        if listed:
            self._ordered = tuple(sorted(self._classes.values(), key=_first_name))

    def _writable(self, listed: dict[Hashable, list[str]], key: Hashable) -> list[str]:
        own = listed.get(key)
        if own is None:
            known = self._classes.get(key)
            own = listed[key] = list(known.names) if known is not None else []
        return own


class NodeEquivalenceIndexes:
    """Indexes that nobody uses at the moment: one, unless several threads read snapshots of one cache.

    A thread takes one out while it uses it, and one that is interrupted does not give it back.
    """

    def __init__(self) -> None:
        self._idle: list[NodeEquivalenceIndex] = []

    def of(
        self, names: tuple[str, ...], nodes: Mapping[str, NodeInfo], classified: Classified | None
    ) -> Sequence[NodeEquivalenceClass]:
        """Return the classes of these nodes (`NodeEquivalenceIndex.of`)."""
        try:
            index = self._idle.pop()
        except IndexError:
            index = NodeEquivalenceIndex()
        found = index.of(names, nodes, classified)
        if not self._idle:
            self._idle.append(index)
        return found


def _key(info: NodeInfo, classified: ClassifiedNode | None) -> Hashable:
    """Return what is equal for nodes of one class."""
    spec = info.spec
    device_class = classified.node_device_class if classified is not None else None
    return spec.kind, info.load, info.affine, not spec.images, device_class


def _first_name(node_class: NodeEquivalenceClass) -> str:
    return node_class.names[0]


def _contains(names: tuple[str, ...], name: str) -> bool:
    place = bisect_left(names, name)
    return place < len(names) and names[place] == name
