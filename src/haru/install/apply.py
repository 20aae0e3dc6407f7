"""Write the manifests by server-side apply, and delete them again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from haru.client.api import ApiClient
from haru.install.checks import MANAGER
from haru.install.manifests import kind_of, reference
from haru.kube.errors import StatusError
from haru.kube.meta import Obj

LABEL, VALUE = "app.kubernetes.io/part-of", "haru"
_LOOK_SECONDS = 0.5


async def apply(client: ApiClient, objects: Sequence[Obj], tell: Callable[[str], None]) -> None:
    """Apply in order; fields that others own are taken over. Raises StatusError, OSError."""
    for obj in objects:
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        await client.patch(kind_of(obj), metadata["name"], obj, namespace, "apply", field_manager=MANAGER, force=True)
        tell(f"{reference(obj)} applied")


async def remove(client: ApiClient, objects: Sequence[Obj], tell: Callable[[str], None]) -> None:
    """Delete what is there and carries Haru's label, the last first. Raises StatusError, OSError."""
    for obj in reversed(objects):
        kind, metadata = kind_of(obj), obj["metadata"]
        namespace = metadata.get("namespace", "")
        try:
            live = await client.get(kind, metadata["name"], namespace)
            if (live["metadata"].get("labels") or {}).get(LABEL) != VALUE:
                tell(f"{reference(obj)} has no label {LABEL}={VALUE}: left alone")
                continue
            await client.delete(kind, metadata["name"], namespace, propagation_policy="Background")
        except StatusError as error:
            if error.code != 404:
                raise
            continue
        tell(f"{reference(obj)} deleted")


async def wait_available(client: ApiClient, objects: Sequence[Obj], seconds: float) -> list[str]:
    """Wait until all Deployments are available; those that are not in time."""
    waiting = [obj for obj in objects if obj["kind"] == "Deployment"]
    deadline = asyncio.get_running_loop().time() + seconds
    while waiting:
        pending = []
        for obj in waiting:
            metadata = obj["metadata"]
            live = await client.get(kind_of(obj), metadata["name"], metadata["namespace"])
            status = live.get("status") or {}
            current = status.get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
            if not current or status.get("availableReplicas", 0) < live["spec"].get("replicas", 1):
                pending.append(obj)
        waiting = pending
        if asyncio.get_running_loop().time() > deadline:
            break
        if waiting:
            await asyncio.sleep(_LOOK_SECONDS)
    return [reference(obj) for obj in waiting]


async def wait_gone(client: ApiClient, objects: Sequence[Obj], seconds: float) -> list[str]:
    """Wait until none of the objects is there; those that are still there."""
    waiting = list(objects)
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        waiting = [obj for obj in waiting if await _exists(client, obj)]
        if not waiting or asyncio.get_running_loop().time() > deadline:
            return [reference(obj) for obj in waiting]
        await asyncio.sleep(_LOOK_SECONDS)


async def _exists(client: ApiClient, obj: Obj) -> bool:
    try:
        live = await client.get(kind_of(obj), obj["metadata"]["name"], obj["metadata"].get("namespace", ""))
    except StatusError as error:
        if error.code == 404:
            return False
        raise
    return (live["metadata"].get("labels") or {}).get(LABEL) == VALUE
