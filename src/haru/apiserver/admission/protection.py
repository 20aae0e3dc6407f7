"""StorageObjectInUseProtection, and the protection of PodGroups: new objects get the finalizer of their controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from haru.apiserver.request.call import Call
from haru.kube.meta import Obj


def add_finalizer(finalizer: str, *, always: bool = False) -> Callable[[Call, Obj], Awaitable[None]]:
    """Return a plugin that adds this finalizer to a new object that lacks it.

    Unless `always` it does so only where controllers run, which alone take the finalizer away again.
    """

    async def add(call: Call, obj: Obj) -> None:
        if not always and not await call.objects.has_controllers():
            return
        finalizers = obj["metadata"].get("finalizers") or ()
        if finalizer not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, finalizer]

    return add
