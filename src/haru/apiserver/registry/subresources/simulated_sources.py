"""What the containers of a simulated pod were told, read when somebody asks for their output or runs a command."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from cachetools import LRUCache

from haru.apiserver.auth.tokens.claims import Reference
from haru.apiserver.auth.tokens.issuer import AccountTokens, Issued
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.registry.loopback import Loopback
from haru.kube.errors import StatusError, not_found_error
from haru.kube.indexed_objects import ListedObjects
from haru.kube.meta import Obj, name_of, namespace_of, phase_of, uid_of
from haru.kube.pod_containers import containers_of
from haru.kube.pod_environment.environment import ReferencedObjects
from haru.kube.pod_environment.service_environment import API_SERVER, service_environment
from haru.kube.pod_environment.volume_files import (
    DEFAULT_TOKEN_SECONDS,
    Token,
    asks_for_tokens,
    references,
    renewal_time,
    token_key,
    token_requests,
)
from haru.kube.simulated_containers.cluster_network import (
    ClusterNetwork,
    PodNetwork,
    asks_network,
    pod_network,
    reachable_namespaces,
)
from haru.kube.simulated_containers.executed import (
    Executed,
    concerns_node,
    executed_in,
    names_files,
    outlives_pod,
    place_of,
    with_executed,
)
from haru.kube.simulated_containers.files import PodSources, VolumeContents
from haru.kube.simulated_containers.found_files import begins_empty, found_in
from haru.kube.simulated_containers.kubelet_files import node_memory
from haru.kube.simulated_containers.standard_input import Given, with_input

_MOST_PODS: Final = 1024
"""Of so many pods it is kept what commands have written in them, and their tokens."""
_MOST_COMMANDS: Final = 256
_ENDED: Final = ("Succeeded", "Failed")


class SimulatedPods:
    """What the pods of simulated nodes are told and hold, beyond their objects. One for a server."""

    def __init__(self, loopback: Loopback, tokens: AccountTokens) -> None:
        self._loopback, self._objects, self._tokens = loopback, loopback.objects, tokens
        self._issued: LRUCache[tuple[str, str], Issued] = LRUCache(_MOST_PODS)
        self._executed: LRUCache[str, tuple[Executed, ...]] = LRUCache(_MOST_PODS)

    async def wrote(self, pod: Obj, executed: Executed) -> None:
        """Keep what a command has changed in the files of a container.

        What it has written over is kept where a script may have seen it. Its kubelet is told where a script, a probe or
        a later pod may look.
        """
        every = list(containers_of(pod["spec"]))
        earlier = [
            one
            for one in self._executed_in(pod)
            if any(names_files(of, one.changes) for of in every) or not executed.replaces(one)
        ]
        self._executed[uid_of(pod)] = (*earlier, executed)[-_MOST_COMMANDS:]
        if concerns_node(pod, executed.changes):
            with contextlib.suppress(StatusError):  # the pod has gone
                await self._annotate(pod, lambda live: with_executed(live, executed))

    def _executed_in(self, pod: Obj) -> tuple[Executed, ...]:
        """What commands have changed; after a restart of the server, what the pod tells."""
        return self._executed.get(uid_of(pod)) or executed_in(pod)

    async def give(self, pod: Obj, container: str, given: Given) -> Obj:
        """Give a container input, so that its kubelet knows, too: the pod with it. Raises ValueError, StatusError."""
        await self._annotate(pod, lambda live: with_input(live, container, given))
        return await self._objects.read("", "pods", namespace_of(pod), name_of(pod)) or pod

    async def _annotate(self, pod: Obj, annotated: Callable[[Obj], Obj]) -> None:
        """Write an annotation of this very pod. Raises StatusError."""

        async def make(live: Obj) -> Obj:
            if uid_of(live) != uid_of(pod):
                raise not_found_error("", "pods", name_of(pod))
            return annotated(live)

        named = {"namespace": namespace_of(pod), "name": name_of(pod)}
        await self._loopback.update({"apiVersion": "v1", "kind": "Pod", "metadata": named}, make)

    async def sources(self, pod: Obj, command: Sequence[str] = ()) -> PodSources:
        """The objects that a pod names, the Services that it sees, and what its node has; all as they are now.

        And what its containers reach, and their tokens, if they ask or this command does.
        """
        objects, namespace = self._objects, namespace_of(pod)
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
        token = await self._token(pod, node) if asks_for_tokens(pod, *command) else None
        executed = self._executed_in(pod)
        variables = tuple(service_environment(pod, ListedObjects(services)))
        volumes = {**await self._empty_volumes(pod), **found_in(pod)}
        return PodSources(found, allocatable, variables, token, network, executed, volumes, node_memory(node))

    async def _empty_volumes(self, pod: Obj) -> dict[str, VolumeContents]:
        """What is in the volumes that outlive the pod, if it has found nothing in them: what is known to be nothing.

        Nothing is known of one that another pod has at the same time.
        """
        lasting = [*filter(outlives_pod, pod["spec"].get("volumes") or ())]
        namespace, found = namespace_of(pod), dict[str, VolumeContents]()
        others = await self._objects.peek_all("", "pods", namespace) if lasting else ()
        shared = {place_of(volume) for one in others if uid_of(one) != uid_of(pod) for volume in _volumes_of(one)}
        for volume in lasting:
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            claim = await self._objects.peek("", "persistentvolumeclaims", namespace, name) if name else None
            if begins_empty(volume, claim) and place_of(volume) not in shared:
                found[volume["name"]] = VolumeContents({}, is_whole=True)
        return found

    async def _token(self, pod: Obj, node: Obj) -> Token | None:
        """The tokens of a pod's volumes; None if it can have none."""
        name = pod["spec"].get("serviceAccountName") or "default"
        account = await self._objects.peek("", "serviceaccounts", namespace_of(pod), name)
        if account is None or not self._tokens.can_sign:
            return None
        bound = {"pod": Reference(name_of(pod), uid_of(pod))}
        if node:
            bound["node"] = Reference(name_of(node), uid_of(node))
        found: dict[str, str] = {}
        for request in token_requests(pod):
            key = token_key(request)
            seconds = request.get("expirationSeconds") or DEFAULT_TOKEN_SECONDS
            issued = self._issued.get((uid_of(pod), key))
            if issued is None or self._objects.clock().timestamp() >= renewal_time(issued.expires, seconds):
                audience = request.get("audience")
                audiences = [audience] if audience else self._tokens.audiences
                issued = await self._tokens.issue(account, audiences, seconds, bound)
                self._issued[uid_of(pod), key] = issued
            found[key] = issued.token
        return lambda request: found[token_key(request)]


async def _network(objects: ObjectStore, pod: Obj, command: Sequence[str]) -> PodNetwork:
    """The network as the pod's containers see it, as far as the objects of namespaces say that they can name."""
    every = map(name_of, await objects.peek_all("", "namespaces"))
    namespaces = sorted(reachable_namespaces(pod, every, *command))

    async def listed(group: str, plural: str) -> ListedObjects:
        return ListedObjects([one for name in namespaces for one in await objects.peek_all(group, plural, name)])

    services, pods = await listed("", "services"), await listed("", "pods")
    slices = await listed("discovery.k8s.io", "endpointslices")
    return pod_network(ClusterNetwork(services, pods, slices), pod, objects.clock())


def _volumes_of(pod: Obj) -> Sequence[Obj]:
    """The volumes of a pod that may write there."""
    return () if phase_of(pod) in _ENDED else (pod.get("spec") or {}).get("volumes") or ()


async def _each(objects: ObjectStore, plural: str, namespace: str, names: Iterable[str]) -> dict[str, Obj]:
    read = {name: await objects.peek("", plural, namespace, name) for name in names}
    return {name: one for name, one in read.items() if one is not None}
