"""StorageObjectInUseProtection, and the protection of PodGroups: new objects get the finalizer of their controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from haru.apiserver.request.call import Call
from haru.kube.meta import Obj


def add_finalizer(finalizer: str) -> Callable[[Call, Obj], Awaitable[None]]:
    """Return a plugin that adds this finalizer to a new object that lacks it."""

    async def add(call: Call, obj: Obj) -> None:
        finalizers = obj["metadata"].get("finalizers") or ()
        if finalizer not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, finalizer]

    return add
