"""What the containers of a pod are told: the ConfigMaps and Secrets that it names, read as a kubelet does.

A pod's objects are read when it starts. What is missing is read again, until it is there.
Source: kubelet's `configmap` and `secret` managers, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from haru.client.api import ApiClient
from haru.client.pod_tokens import PodTokens
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj, namespace_of, uid_of
from haru.kube.names import parse_time
from haru.kube.pod_environment.environment import Lookup, ReferencedObjects
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.pod_environment.service_environment import service_environment
from haru.kube.pod_environment.volume_files import Token, asks_for_tokens, references
from haru.kube.simulated_containers.executed import executed_in
from haru.kube.simulated_containers.files import NO_SOURCES, PodSources
from haru.kube.simulated_containers.kubelet_files import node_memory
from haru.simulated_nodes.network import NodeNetwork
from haru.simulated_nodes.nodes import SimulatedNode
from haru.simulated_nodes.shared_volumes import SharedVolumes

CONFIG_MAPS: Final = known_kind("v1", "ConfigMap")
SECRETS: Final = known_kind("v1", "Secret")
_ROOT_CA: Final = "kube-root-ca.crt"
_ROOT_CA_OBJECT: Final[Obj] = {"data": {"ca.crt": ""}}
"""Every pod has it, so that it is not read for each."""
_ABSENT: Final = (403, 404)
_LEAST_PAUSE, _LONGEST_PAUSE = 1.0, 10.0


class SourceReader:
    """Read the objects of pods, once for each pod."""

    def __init__(self, as_node: Callable[[str], ApiClient], network: NodeNetwork, now: Callable[[], datetime]) -> None:
        self._as_node, self._network = as_node, network
        self._tokens, self._volumes = PodTokens(now), SharedVolumes(as_node, now)
        self._read: dict[str, ReferencedObjects] = {}

    def ended(self, pod: Obj) -> None:
        """The pod has ended."""
        uid = uid_of(pod)
        objects = self._read.pop(uid, None)
        sources = NO_SOURCES if objects is None else PodSources(objects)
        self._volumes.ended(pod, replace(sources, executed=executed_in(pod)))
        self._tokens.forget(uid)
        self._network.forget(uid)

    async def of(self, pod: Obj, node: SimulatedNode) -> PodSources:
        """What the pod's containers are told on this node."""
        objects = self._read.get(uid_of(pod))
        if objects is None:
            spec = {key: value for key, value in pod["spec"].items() if key != "imagePullSecrets"}
            config_maps, secrets = references({**pod, "spec": spec})
            client, namespace = self._as_node(node.name), namespace_of(pod)
            found, unreadable = await _each(client, CONFIG_MAPS, config_maps - {_ROOT_CA}, namespace)
            hidden, locked = await _each(client, SECRETS, secrets, namespace)
            objects = ReferencedObjects(
                _lookup({_ROOT_CA: _ROOT_CA_OBJECT, **found}, unreadable), _lookup(hidden, locked)
            )
            if len(found) == len(config_maps - {_ROOT_CA}) and len(hidden) == len(secrets):
                self._read[uid_of(pod)] = objects
        allocatable = (node.stored.get("status") or {}).get("allocatable") or {}
        network = await self._network.of(pod)
        token = await self._token(pod, node) if asks_for_tokens(pod) else None
        services = () if network is None else tuple(service_environment(pod, network.cluster.services))
        volumes = await self._volumes.found_by(pod, node)
        memory = node_memory(node.stored)
        return PodSources(objects, allocatable, services, token, network, executed_in(pod), volumes, memory)

    async def _token(self, pod: Obj, node: SimulatedNode) -> Token | None:
        """The tokens of a pod whose containers ask for them; none where nodes may not have any."""
        try:
            return await self._tokens.of(self._as_node(node.name), pod)
        except StatusError as error:
            if error.code not in _ABSENT:
                raise
            return None


def mount_pause(pod: Obj, now: datetime) -> float:
    """After how many seconds a pod whose volumes can not be made is tried again: the longer the older it is."""
    created = (pod.get("metadata") or {}).get("creationTimestamp")
    age = (now - parse_time(created)).total_seconds() if created else 0.0
    return min(max(age / 2, _LEAST_PAUSE), _LONGEST_PAUSE)


async def _each(
    client: ApiClient, kind: Kind, names: Iterable[str], namespace: str
) -> tuple[dict[str, Obj], dict[str, StatusError]]:
    """The objects that are there, and the refusals of those that the node may not read."""
    found: dict[str, Obj] = {}
    refused: dict[str, StatusError] = {}
    for name in names:
        try:
            found[name] = await client.get(kind, name, namespace)
        except StatusError as error:
            if error.code not in _ABSENT:
                raise
            if error.code == 403:
                refused[name] = error
    return found, refused


def _lookup(found: Mapping[str, Obj], refused: Mapping[str, StatusError]) -> Lookup:
    """Look objects up by name; one that may not be read is an error, also where it is optional, as for a kubelet."""

    def lookup(name: str) -> Obj | None:
        if name in refused:
            raise ConfigError(str(refused[name]))
        return found.get(name)

    return lookup
