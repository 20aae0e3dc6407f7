"""What informers keep of objects.

Neither an object nor what is kept of it is changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from haru.kube.kinds import Kind
from haru.kube.meta import Obj

T = TypeVar("T")
_MANAGED_FIELDS: Final = b',"managedFields":['
_BEFORE_SPEC: Final = b']},"spec":'
_STRIPPED_AT_LEAST: Final = 256


class SharedObjects:
    """What the components of a process have in common that are given the same objects, and change none of them."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[Obj, Obj]] = {}
        self._before: dict[int, tuple[Obj, Obj]] = {}
        self._made: dict[type[Any], Any] = {}

    def common(self, kind: type[T]) -> T:
        """The one object of a class that all of them use, such as an index of what they are given."""
        if kind not in self._made:
            self._made[kind] = kind()
        return cast("T", self._made[kind])

    def strip(self, obj: Obj) -> Obj:
        """The object without its managed fields: who asks soon after another gets the same."""
        if "managedFields" not in obj["metadata"]:
            return obj
        known = self._last.get(id(obj)) or self._before.get(id(obj))
        if known is not None and known[0] is obj:
            return known[1]
        stripped = strip_managed_fields(obj)
        if len(self._last) >= _STRIPPED_AT_LEAST:
            self._before, self._last = self._last, {}
        self._last[id(obj)] = obj, stripped
        return stripped


def without_managed_fields(line: bytes) -> bytes:
    """The JSON of a watch event without `metadata.managedFields`, which need not be decoded to be dropped.

    As kube-apiserver writes it: they are the last in the metadata, before the spec, and have no list of their own.
    Anything else is returned as it is.
    """
    start = line.find(_MANAGED_FIELDS)
    end = line.find(_BEFORE_SPEC, start)
    if start < 0 or end < 0 or line.find(b"]", start) != end:
        return line
    return line[:start] + line[end + 1 :]


def strip_managed_fields(obj: Obj) -> Obj:
    """The object without `metadata.managedFields`, which is most of its size and of no use to a reconciler."""
    if "managedFields" not in obj["metadata"]:
        return obj
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


def only_metadata(kind: Kind) -> Callable[[Obj], Obj]:
    """The transform that keeps what says who an object is and who owns it, and nothing else."""
    dropped = ("managedFields", "labels", "annotations")

    def transform(obj: Obj) -> Obj:
        metadata = {key: value for key, value in obj["metadata"].items() if key not in dropped}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}

    return transform
