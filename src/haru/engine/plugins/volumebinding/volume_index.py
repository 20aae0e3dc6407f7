"""PersistentVolumes by StorageClass and by the node label that pins them, so that a node looks only at its own.

Source: our own; kube-scheduler goes through all volumes of a class for each node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from haru.engine.state.cow_map import differing
from haru.kube.meta import Obj
from haru.kube.volume_binding import OfferedVolume

Pin = tuple[str, str]
"""Key and value of a node label."""

_HOSTNAME = "kubernetes.io/hostname"
_NO_VOLUMES: Mapping[str, OfferedVolume] = {}


def pins_of(node_affinity: Obj | None) -> tuple[Pin, ...]:
    """Return labels of which a node must have one to reach a volume; none where that is not so simple."""
    terms: Sequence[Obj] = (node_affinity or {}).get("nodeSelectorTerms") or ()
    if len(terms) != 1:
        return ()
    inside = [e for e in terms[0].get("matchExpressions") or () if e.get("operator") == "In" and e.get("values")]
    if not inside:
        return ()
    chosen: Obj = next((e for e in inside if e.get("key") == _HOSTNAME), inside[0])
    return tuple((chosen["key"], value) for value in chosen["values"])


class ClassVolumes:
    """The volumes of one StorageClass."""

    def __init__(self) -> None:
        self._pinned: dict[Pin, dict[str, OfferedVolume]] = {}
        self._keys: Counter[str] = Counter()
        self._spread = 0
        self.others: dict[str, OfferedVolume] = {}
        """Volumes that no label pins."""

    @property
    def keys(self) -> Iterable[str]:
        """Return the keys of the labels that pin volumes."""
        return self._keys

    @property
    def is_partitioned(self) -> bool:
        """Return whether nodes with different values of one label have no volume in common."""
        return not self.others and not self._spread and len(self._keys) <= 1

    def pinned(self, pin: Pin) -> Mapping[str, OfferedVolume]:
        """Return the volumes that nodes with this label may reach."""
        return self._pinned.get(pin, _NO_VOLUMES)

    def put(self, volume: OfferedVolume) -> None:
        """Add a volume."""
        pins = pins_of(volume.node_affinity)
        if not pins:
            self.others[volume.name] = volume
        self._spread += len(pins) > 1
        for pin in pins:
            self._pinned.setdefault(pin, {})[volume.name] = volume
            self._keys[pin[0]] += 1

    def drop(self, volume: OfferedVolume) -> None:
        """Remove a volume."""
        pins = pins_of(volume.node_affinity)
        self.others.pop(volume.name, None)
        self._spread -= len(pins) > 1
        for pin in pins:
            known = self._pinned.get(pin, {})
            known.pop(volume.name, None)
            if not known:
                self._pinned.pop(pin, None)
            self._keys[pin[0]] -= 1
            if not self._keys[pin[0]]:
                del self._keys[pin[0]]


_NO_CLASS = ClassVolumes()


class VolumeIndex:
    """Follow the volumes of a cluster: a change costs what has changed."""

    def __init__(self) -> None:
        self._seen: Mapping[str, Obj] = {}
        self._volumes: dict[str, OfferedVolume] = {}
        self._classes: dict[str, ClassVolumes] = {}
        self._by_claim: dict[str, dict[str, OfferedVolume]] = {}

    def catch_up(self, volumes: Mapping[str, Obj]) -> None:
        """Take in what differs from the volumes that were seen last."""
        for name in differing(volumes, self._seen):
            before = self._volumes.pop(name, None)
            if before is not None:
                self._classes[before.class_name].drop(before)
                if (owner := _owner(before)) is not None:
                    self._by_claim[owner].pop(name, None)
            obj = volumes.get(name)
            if obj is not None:
                volume = self._volumes[name] = OfferedVolume(obj)
                self._classes.setdefault(volume.class_name, ClassVolumes()).put(volume)
                if (owner := _owner(volume)) is not None:
                    self._by_claim.setdefault(owner, {})[name] = volume
        self._seen = volumes

    def get(self, name: str) -> OfferedVolume | None:
        """Return a volume by name."""
        return self._volumes.get(name)

    def of_class(self, name: str) -> ClassVolumes:
        """Return the volumes of a class."""
        return self._classes.get(name) or _NO_CLASS

    def reserved_for(self, claim: str) -> Iterable[OfferedVolume]:
        """Return the volumes that name a claim (by path), in the order of their names."""
        known = self._by_claim.get(claim)
        return [known[name] for name in sorted(known)] if known else ()


def _owner(volume: OfferedVolume) -> str | None:
    owner = volume.spec.get("claimRef")
    return f"{owner.get('namespace')}/{owner.get('name')}" if owner else None
