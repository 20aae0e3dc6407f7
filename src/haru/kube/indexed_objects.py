"""Objects of one kind that are found by what they say: those of an informer, or of a list. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from haru.kube.meta import Obj, key_of, namespace_of

_BY_NAMESPACE: Final = "namespace"
Values = Callable[[Obj], Iterable[str]]


class IndexedObjects(Protocol):
    """The objects of a kind, by `namespace/name` and by the values of indexes, as informers have them."""

    @property
    def store(self) -> Mapping[str, Obj]:
        """All of them."""

    def add_index(self, name: str, values: Values) -> None:
        """Keep objects findable by these values of theirs; adding the same name again is harmless."""

    def among(self, name: str, value: str) -> Iterable[Obj]:
        """The objects that have a value in an index."""


class ListedObjects:
    """The objects of a kind as they were listed."""

    def __init__(self, objects: Iterable[Obj]) -> None:
        self.store: Mapping[str, Obj] = {key_of(one): one for one in objects}
        self._indexes = dict[str, Values]()

    def add_index(self, name: str, values: Values) -> None:
        """Keep objects findable by these values of theirs."""
        self._indexes[name] = values

    def among(self, name: str, value: str) -> Iterable[Obj]:
        """The objects that have a value in an index."""
        return (one for one in self.store.values() if value in self._indexes[name](one))


def in_namespace(objects: IndexedObjects, namespace: str) -> Iterable[Obj]:
    """The objects of a namespace; they are found by it from the first call on."""
    objects.add_index(_BY_NAMESPACE, lambda obj: (namespace_of(obj),))
    return objects.among(_BY_NAMESPACE, namespace)
