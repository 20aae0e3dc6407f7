"""Which namespaces have objects of a name; it follows the cluster, so that a question costs what has changed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from haru.engine import Snapshot
from haru.engine.state import PodInfo, differing

_PARTS = re.compile(r"[/:]")


def parts_of(token: str) -> list[str]:
    """Return the words of a path, or of a name with a prefix."""
    return _PARTS.split(token)


@dataclass(frozen=True, slots=True)
class KnownNames:
    """Of some words: the namespaces that have objects or owners of pods of that name, and which are namespaces."""

    namespaces_with: Mapping[str, frozenset[str]]
    namespaces: frozenset[str]


class NameIndex:
    """The names of all objects in namespaces, and of the owners of pods. It is for one thread at a time."""

    @staticmethod
    def of(snapshot: Snapshot) -> NameIndex:
        """Return the index of the cluster that a snapshot is of."""
        return snapshot.decision_cache.get_or_compute("names", "", NameIndex)

    def __init__(self) -> None:
        self._seen: Mapping[str, Mapping[str, object]] = {}
        self._counts: dict[str, dict[str, int]] = {}
        """By name: how often each namespace has it."""
        self._objects: dict[str, int] = {}
        """How many objects each namespace has."""

    def known(self, snapshot: Snapshot, words: Collection[str]) -> KnownNames:
        """Look up some words in a snapshot."""
        self._catch_up(snapshot)
        found = {word: frozenset(where) for word in words if (where := self._counts.get(word))}
        named = snapshot.objects("Namespace")
        return KnownNames(found, frozenset(word for word in words if word in self._objects or word in named))

    def _catch_up(self, snapshot: Snapshot) -> None:
        now = {**snapshot.others, "Pod": snapshot.pods, "ResourceClaim": snapshot.claims}
        before, self._seen = self._seen, now
        for kind in now.keys() | before.keys():
            new, old = now.get(kind) or {}, before.get(kind) or {}
            for path in differing(new, old):
                self._replace(path, old.get(path), new.get(path))

    def _replace(self, path: str, old: object, new: object) -> None:
        namespace, slash, name = path.partition("/")
        if not slash:
            return
        gone, come = ([] if obj is None else list(_names(name, obj)) for obj in (old, new))
        if gone == come:
            return
        _add(self._objects, namespace, bool(come) - bool(gone))
        for names, step in ((come, 1), (gone, -1)):
            for each in names:
                counts = self._counts.setdefault(each, {})
                _add(counts, namespace, step)
                if not counts:
                    del self._counts[each]


def _names(name: str, obj: object) -> Iterator[str]:
    """The words that name an object, and those that own it where it is a pod."""
    yield from parts_of(name)
    if isinstance(obj, PodInfo):
        for owner in obj.obj["metadata"].get("ownerReferences") or ():
            # A ReplicaSet's name without its hash is the Deployment's.
            yield from filter(None, (str(owner.get("name")), str(owner.get("name")).rpartition("-")[0]))


def _add(counts: dict[str, int], key: str, step: int) -> None:
    counts[key] = counts.get(key, 0) + step
    if not counts[key]:
        del counts[key]
