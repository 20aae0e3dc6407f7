"""Warnings about objects of custom resources: names of finalizers."""

from __future__ import annotations

import json
from collections.abc import Iterator

from haru.kube.meta import Obj
from haru.kube.names import is_qualified_name

_STANDARD = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
_PATH = " including a path (/)"


def finalizer_warnings(obj: Obj, old: Obj | None = None) -> Iterator[str]:
    """Finalizers that came, by name: those that are no qualified names, and those that no domain owns."""
    added = _finalizers(obj) - (_finalizers(old) if old is not None else set())
    for name in sorted(added):
        where = f"metadata.finalizers: {json.dumps(name, ensure_ascii=False)}"
        yield from (f"{where}: {message}" for message in is_qualified_name(name))
        if "/" not in name and name not in _STANDARD:
            path = _PATH if "." in name else ""
            yield (
                f"{where}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other "
                "finalizer writers"
            )


def _finalizers(obj: Obj) -> set[str]:
    return set(obj["metadata"].get("finalizers") or ())
