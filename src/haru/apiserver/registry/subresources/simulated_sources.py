"""What the containers of a simulated pod were told, read when somebody asks for their output or runs a command."""

from __future__ import annotations

from collections.abc import Iterable

from haru.apiserver.object_store import ObjectStore
from haru.kube.meta import Obj, namespace_of
from haru.kube.pod_environment.environment import ReferencedObjects
from haru.kube.pod_environment.service_environment import API_SERVER, service_environment
from haru.kube.pod_environment.volume_files import references
from haru.kube.simulated_files import PodSources


async def pod_sources(objects: ObjectStore, pod: Obj) -> PodSources:
    """The objects that a pod names, the Services that it sees, and what its node has; all as they are now."""
    namespace = namespace_of(pod)
    config_maps, secrets = references(pod)
    found = ReferencedObjects(
        (await _each(objects, "configmaps", namespace, config_maps)).get,
        (await _each(objects, "secrets", namespace, secrets)).get,
    )
    node = await objects.peek("", "nodes", "", pod["spec"].get("nodeName") or "") or {}
    services = [*await objects.peek_all("", "services", namespace)]
    if (own := await objects.peek("", "services", *API_SERVER)) is not None:
        services.append(own)
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return PodSources(found, allocatable, tuple(service_environment(pod, services)))


async def _each(objects: ObjectStore, plural: str, namespace: str, names: Iterable[str]) -> dict[str, Obj]:
    read = {name: await objects.peek("", plural, namespace, name) for name in names}
    return {name: one for name, one in read.items() if one is not None}
