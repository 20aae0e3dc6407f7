"""What the containers of a simulated pod were told, read when somebody asks for their output or runs a command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from haru.apiserver.object_store import ObjectStore
from haru.kube.indexed_objects import ListedObjects
from haru.kube.meta import Obj, name_of, namespace_of
from haru.kube.pod_environment.environment import ReferencedObjects
from haru.kube.pod_environment.service_environment import API_SERVER, service_environment
from haru.kube.pod_environment.volume_files import references
from haru.kube.simulated_containers.cluster_network import (
    ClusterNetwork,
    PodNetwork,
    asks_network,
    pod_network,
    reachable_namespaces,
)
from haru.kube.simulated_containers.files import PodSources


async def pod_sources(objects: ObjectStore, pod: Obj, command: Sequence[str] = ()) -> PodSources:
    """The objects that a pod names, the Services that it sees, and what its node has; all as they are now.

    And what its containers reach, if they ask or this command does.
    """
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
    network = await _network(objects, pod, command) if asks_network(pod, *command) else None
    return PodSources(found, allocatable, tuple(service_environment(pod, ListedObjects(services))), network=network)


async def _network(objects: ObjectStore, pod: Obj, command: Sequence[str]) -> PodNetwork:
    """The network as the pod's containers see it, as far as the objects of namespaces say that they can name."""
    every = map(name_of, await objects.peek_all("", "namespaces"))
    namespaces = sorted(reachable_namespaces(pod, every, *command))

    async def listed(group: str, plural: str) -> ListedObjects:
        return ListedObjects([one for name in namespaces for one in await objects.peek_all(group, plural, name)])

    services, pods = await listed("", "services"), await listed("", "pods")
    slices = await listed("discovery.k8s.io", "endpointslices")
    return pod_network(ClusterNetwork(services, pods, slices), pod, objects.clock())


async def _each(objects: ObjectStore, plural: str, namespace: str, names: Iterable[str]) -> dict[str, Obj]:
    read = {name: await objects.peek("", plural, namespace, name) for name in names}
    return {name: one for name, one in read.items() if one is not None}
