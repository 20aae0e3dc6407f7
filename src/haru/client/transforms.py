"""What informers keep of objects.

Neither an object nor what is kept of it is changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from haru.kube.kinds import Kind
from haru.kube.meta import Obj

_STRIPPED_AT_LEAST: Final = 256


class _Stripped:
    """What was stripped last: the informers of a process hear of one object soon after another, and share it."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[Obj, Obj]] = {}
        self._before: dict[int, tuple[Obj, Obj]] = {}

    def of(self, obj: Obj) -> Obj:
        """The object without its managed fields."""
        known = self._last.get(id(obj)) or self._before.get(id(obj))
        if known is not None and known[0] is obj:
            return known[1]
        metadata = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
        stripped = {**obj, "metadata": metadata}
        if len(self._last) >= _STRIPPED_AT_LEAST:
            self._before, self._last = self._last, {}
        self._last[id(obj)] = obj, stripped
        return stripped


_stripped = _Stripped()


def strip_managed_fields(obj: Obj) -> Obj:
    """The object without `metadata.managedFields`, which is most of its size and of no use to a reconciler.

    Who asks for the same object soon after another gets the same.
    """
    return _stripped.of(obj) if "managedFields" in obj["metadata"] else obj


def only_metadata(kind: Kind) -> Callable[[Obj], Obj]:
    """The transform that keeps what says who an object is and who owns it, and nothing else."""
    dropped = ("managedFields", "labels", "annotations")

    def transform(obj: Obj) -> Obj:
        metadata = {key: value for key, value in obj["metadata"].items() if key not in dropped}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}

    return transform
