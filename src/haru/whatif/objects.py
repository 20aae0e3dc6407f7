"""The objects of a cluster by kind and path, as changes see them: put, take away, and whatever goes with it.

Deleting follows owner references as the garbage collector does: an object goes when all its owners have gone. Pods do
not vanish here, because their claims and their makers matter: they are `doomed`, and the course of events ends them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from haru.engine.state import object_path
from haru.gangs import translated
from haru.kube.meta import Obj, controller_of, uid_of

Key = tuple[str, str]


class Objects:
    """A mutable copy of a cluster's objects; the objects themselves are shared and never changed."""

    def __init__(self, objects: Iterable[Obj] = ()) -> None:
        self._objects: dict[Key, Obj] = {}
        self.doomed: dict[str, bool] = {}
        """The pods that a change ends, by path, and whether who made them makes them again."""
        self._deleted: set[Key] = set()
        for obj in objects:
            self.put(obj)

    def copy(self) -> Objects:
        """The same objects; changes to the copy are the copy's."""
        other = Objects()
        other._objects, other.doomed, other._deleted = dict(self._objects), dict(self.doomed), set(self._deleted)
        return other

    def __iter__(self) -> Iterator[Obj]:
        return iter(self._objects.values())

    def regroup(self) -> None:
        """Find the gangs of other projects again: changes may have brought members, or what describes them."""
        found = translated(self._objects.values())
        self._objects = {(obj["kind"], object_path(obj)): obj for obj in found}

    def remaining(self) -> Iterator[Obj]:
        """The objects without the pods that a change ends."""
        return (obj for (kind, path), obj in self._objects.items() if kind != "Pod" or path not in self.doomed)

    def get(self, kind: str, path: str) -> Obj | None:
        """The object of a kind at `namespace/name`, or at `name` if its kind has no namespaces."""
        return self._objects.get((kind, path))

    def of_kind(self, kind: str) -> dict[str, Obj]:
        """All objects of a kind, by path."""
        return {path: obj for (of, path), obj in self._objects.items() if of == kind}

    def put(self, obj: Obj) -> None:
        """Add an object, or replace the one of its kind and path."""
        self._objects[obj["kind"], object_path(obj)] = obj
        self._deleted.discard((obj["kind"], object_path(obj)))

    def remove(self, kind: str, path: str) -> None:
        """Delete an object with all that it owns. Pods are doomed: this one unless it is gone already."""
        obj = self._objects[kind, path]
        if kind == "Pod":
            self.doomed[path] = self.has_maker(obj)
            return
        self._drop(obj)

    def end_pod(self, path: str) -> None:
        """A pod goes for good, whoever made it."""
        self.doomed[path] = False

    def has_maker(self, pod: Obj) -> bool:
        """Whether a controller stands behind a pod that makes it again; what was not read counts as there."""
        owner = controller_of(pod)
        if owner is None or owner.get("kind") == "Node":  # a static pod belongs to its node
            return False
        namespace = pod["metadata"].get("namespace") or "default"
        return (str(owner.get("kind")), f"{namespace}/{owner.get('name')}") not in self._deleted

    def _drop(self, obj: Obj) -> None:
        key = (obj["kind"], object_path(obj))
        del self._objects[key]
        self._deleted.add(key)
        for dependent in [other for other in self._objects.values() if self._loses_its_last_owner(other, obj)]:
            of, path = dependent["kind"], object_path(dependent)
            if of == "Pod":
                self.end_pod(path)
            elif (of, path) in self._objects:
                self._drop(dependent)

    def _loses_its_last_owner(self, obj: Obj, owner: Obj) -> bool:
        references = obj["metadata"].get("ownerReferences") or ()
        if not any(_names(reference, owner) for reference in references):
            return False
        namespace = obj["metadata"].get("namespace")
        return all(self._is_deleted(reference, namespace) for reference in references)

    def _is_deleted(self, reference: Obj, namespace: str | None) -> bool:
        kind, name = str(reference.get("kind")), str(reference.get("name"))
        return (kind, name) in self._deleted or (kind, f"{namespace or 'default'}/{name}") in self._deleted


def _names(reference: dict[str, Any], owner: Obj) -> bool:
    if (reference.get("kind"), reference.get("name")) != (owner["kind"], owner["metadata"]["name"]):
        return False
    return not reference.get("uid") or not uid_of(owner) or reference["uid"] == uid_of(owner)
