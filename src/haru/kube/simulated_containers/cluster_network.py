"""What simulated containers reach of a network: which names resolve, which ports answer, and since when. Pure.

Nothing listens in a simulated container, so the objects of the API decide: a Service's name resolves from its creation
on; a port of it answers from when a ready endpoint stands behind it, whose pod declares that port or no port at all.
What lies outside the cluster, and the pod itself, are not known.
Source: Kubernetes' DNS specification with the search path of pods, kube-proxy and CoreDNS, as behaviour.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from haru.kube.indexed_objects import IndexedObjects, in_namespace
from haru.kube.meta import Obj, get_condition, labels_of, name_of, namespace_of
from haru.kube.names import parse_time
from haru.kube.pod_containers import containers_of, statuses_of

SERVICE_NAME: Final = "kubernetes.io/service-name"
NETWORK_PROGRAMS: Final = ("nslookup", "getent", "nc", "wget", "curl", "pg_isready", "mysqladmin", "redis-cli")
NETWORK_PROGRAM: Final = re.compile(rf"\b(?:{'|'.join(NETWORK_PROGRAMS)})(?![\w./=-])")
_BY_SERVICE: Final = "service"
_BY_ADDRESS: Final = "address"
_DOMAIN: Final = ".svc.cluster.local"
_ALWAYS_THERE: Final = ("default", "kube-system")
_MOST_STRETCHES: Final = 100
Stretch = tuple[float, float]
"""From when and until when something is so, in seconds since 1970."""


def asks_network(pod: Obj, *more: str) -> bool:
    """Whether the command of some container of a pod, or one of these texts, has a program that asks the network."""
    if any(NETWORK_PROGRAM.search(text) for text in more):
        return True
    return any(map(_asks, containers_of(pod.get("spec") or {})))


def has_asked(pod: Obj) -> bool:
    """Whether only init containers of a pod ask the network, and all of these have succeeded."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    states = {one["name"]: one.get("state") or {} for one in status.get("initContainerStatuses") or ()}
    return all(
        (states.get(one["name"], {}).get("terminated") or {}).get("exitCode") == 0
        for one in filter(_asks, containers_of(spec))
    )


def _asks(container: Obj) -> bool:
    words = (str(word) for member in ("command", "args") for word in container.get(member) or ())
    return any(NETWORK_PROGRAM.search(word) for word in words)


def reachable_namespaces(pod: Obj, namespaces: Iterable[str], *more: str) -> set[str]:
    """The namespaces whose Services the scripts of a pod may name: its own, and those that its spec mentions."""
    text = f"{pod.get('spec')}{more}"
    return {namespace_of(pod), *(name for name in namespaces if name in text)}


class Fact(NamedTuple):
    """When a name resolves or a port answers, and the addresses behind it."""

    stretches: tuple[Stretch, ...]
    addresses: tuple[str, ...] = ()
    name: str = ""

    def holds(self, moment: float) -> bool:
        """Whether it is so at this moment."""
        return any(begin <= moment < end for begin, end in self.stretches)

    def next_change(self, moment: float) -> float:
        """When it changes after this moment, as far as that is known."""
        return min((at for stretch in self.stretches for at in stretch if at > moment), default=math.inf)


@dataclass(slots=True)
class NetworkMemory:
    """What was so of all that the containers of a pod have asked: objects tell only what is so now, and since when."""

    stretches: dict[str, list[Stretch]] = field(default_factory=dict)
    looked: dict[str, float] = field(default_factory=dict)
    asked: Callable[[str], None] = lambda _: None
    """Told each Service, by `namespace/name`, that is asked for."""

    def note(self, question: str, since: float | None, now: float) -> tuple[Stretch, ...]:
        """Take in that something is so since then, or is not (None), as it was found now."""
        known, before = self.stretches.setdefault(question, []), self.looked.get(question, -math.inf)
        is_open = bool(known) and math.isinf(known[-1][1])
        if since is None and is_open:
            known[-1] = known[-1][0], now
        elif since is not None and not is_open:
            known.append((max(since, before), math.inf))
        del known[:-_MOST_STRETCHES]
        self.looked[question] = now
        return tuple(known)


class _Name(NamedTuple):
    """A name in the cluster: of a Service, or of one endpoint of a headless one."""

    service: str
    endpoint: str
    full: str


def service_of(endpoint_slice: Obj) -> tuple[str, ...]:
    """The Service of an EndpointSlice, by `namespace/name`, if it has one."""
    name = labels_of(endpoint_slice).get(SERVICE_NAME)
    return (f"{namespace_of(endpoint_slice)}/{name}",) if name else ()


def _address_of(obj: Obj) -> tuple[str, ...]:
    """The address of a Service or a pod, if it has one."""
    address = (obj.get("spec") or {}).get("clusterIP") or (obj.get("status") or {}).get("podIP")
    return (address,) if address else ()


def _at_address(objects: IndexedObjects, address: str) -> Iterable[Obj]:
    objects.add_index(_BY_ADDRESS, _address_of)
    return objects.among(_BY_ADDRESS, address)


@dataclass(frozen=True, slots=True)
class ClusterNetwork:
    """The objects that decide: Services, pods and EndpointSlices; they are indexed once somebody asks by an index."""

    services: IndexedObjects
    pods: IndexedObjects
    slices: IndexedObjects

    def named(self, host: str, namespace: str) -> _Name | None:
        """What a name stands for as a pod of this namespace resolves it; None for one outside the cluster."""
        host = host.rstrip(".").lower()
        full = host.removesuffix(_DOMAIN)
        if full == host:
            full = host.removesuffix(".svc")
        labels = full.split(".")
        if full != host:
            return _name(labels) if len(labels) in (2, 3) else None
        if len(labels) == 1:
            return _name([host, namespace])
        if len(labels) == 2 and f"{namespace}/{labels[1]}" in self.services.store:
            return _name([*labels, namespace])
        return _name(labels) if len(labels) < 4 and self._is_namespace(labels[-1], namespace) else None

    def _is_namespace(self, name: str, own: str) -> bool:
        if name == own or name in _ALWAYS_THERE:
            return True
        return any(True for objects in (self.services, self.pods) for _ in in_namespace(objects, name))

    def addresses(self, name: _Name) -> Iterator[tuple[str, float]] | None:
        """The addresses of a name, each with the moment since when it is one; None if it leads out of the cluster."""
        service = self.services.store.get(name.service)
        if service is None:
            return iter(())
        spec, created = service.get("spec") or {}, _created(service)
        if spec.get("type") == "ExternalName":
            return None
        if not _is_headless(service):
            return iter(() if name.endpoint else ((spec["clusterIP"], created),))
        found = self._endpoints(name.service)
        return ((address, max(since, created)) for host, address, since, _, _ in found if name.endpoint in ("", host))

    def port(self, name: _Name, number: int) -> float | None:
        """Since when a port behind a name answers; None if it does not."""
        service = self.services.store.get(name.service)
        if service is None:
            return None
        headless, listed = _is_headless(service), (service.get("spec") or {}).get("ports") or ()
        of_number = {one.get("name") or "" for one in listed if one["port"] == number}
        moments = [
            max(since, _created(service))
            for host, _, since, ports, pod in self._endpoints(name.service)
            for target in ([number] if headless else [ports[one] for one in of_number if one in ports])
            if name.endpoint in ("", host) and (pod is None or _listens(pod, target))
        ]
        return min(moments, default=None)

    def owner(self, address: str) -> _Name | Obj | None:
        """The Service or the pod that has an address; None if nobody in the cluster does."""
        for service in _at_address(self.services, address):
            return _name([name_of(service), namespace_of(service)])
        return next(iter(_at_address(self.pods, address)), None)

    def _endpoints(self, service: str) -> Iterator[tuple[str, str, float, Mapping[str, int], Obj | None]]:
        """The ready endpoints of a Service: hostname, address, since when, ports by name, and the pod behind it."""
        self.slices.add_index(_BY_SERVICE, service_of)
        for one in self.slices.among(_BY_SERVICE, service):
            ports = {port.get("name") or "": port.get("port") or 0 for port in one.get("ports") or ()}
            for endpoint in one.get("endpoints") or ():
                if (endpoint.get("conditions") or {}).get("ready") is False or not endpoint.get("addresses"):
                    continue
                behind = (endpoint.get("targetRef") or {}).get("name")
                pod = self.pods.store.get(f"{namespace_of(one)}/{behind}") if behind else None
                since = _ready_since(pod) if pod is not None else _created(one)
                yield endpoint.get("hostname") or "", endpoint["addresses"][0], since, ports, pod


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """The network as the containers of one pod see it, as it is found now.

    `began` tells when each container began that has; one that has not begins now.
    """

    cluster: ClusterNetwork
    pod: Obj
    now: datetime
    began: Mapping[str, datetime]
    memory: NetworkMemory = field(default_factory=NetworkMemory)
    _facts: dict[str, Fact | None] = field(default_factory=dict)

    def began_of(self, container: str) -> float:
        """When a container began, in seconds since 1970."""
        return self.began.get(container, self.now).timestamp()

    def name(self, host: str) -> Fact | None:
        """When a name resolves; None if that is not known."""
        if host not in self._facts:
            self._facts[host] = self._name(host)
        return self._facts[host]

    def port(self, host: str, number: int) -> Fact | None:
        """When a port of a name or an address answers; None if that is not known."""
        question = f"{host} {number}"
        if question not in self._facts:
            self._facts[question] = self._port(host, number)
        return self._facts[question]

    def _name(self, host: str) -> Fact | None:
        if is_address(host):
            return Fact(((-math.inf, math.inf),), (host,), host)
        is_known = not self._is_own(host) and _asks_cluster(self.pod["spec"])
        name = self.cluster.named(host, namespace_of(self.pod)) if is_known else None
        if name is not None:
            self.memory.asked(name.service)
        found = self.cluster.addresses(name) if name is not None else None
        if name is None or found is None:
            return None
        addresses = dict(found)
        since = min(addresses.values(), default=None)
        return Fact(self.memory.note(host, since, self.now.timestamp()), tuple(addresses), name.full)

    def _port(self, host: str, number: int) -> Fact | None:
        if is_address(host):
            owner = None if self._is_own(host) else self.cluster.owner(host)
        else:
            owner = None if self.name(host) is None else self.cluster.named(host, namespace_of(self.pod))
        if owner is None:
            return None
        if isinstance(owner, _Name):
            self.memory.asked(owner.service)
            since = self.cluster.port(owner, number)
        else:
            since = _running_since(owner) if _listens(owner, number) else None
        return Fact(self.memory.note(f"{host} {number}", since, self.now.timestamp()))

    def _is_own(self, host: str) -> bool:
        status = self.pod.get("status") or {}
        aliases = self.pod["spec"].get("hostAliases") or ()
        own = ("localhost", "::1", name_of(self.pod), status.get("podIP"))
        named = any(host in (one.get("hostnames") or ()) for one in aliases)
        return named or host in own or host.startswith(("127.", "0."))


def pod_network(cluster: ClusterNetwork, pod: Obj, now: datetime, memory: NetworkMemory | None = None) -> PodNetwork:
    """The network as the containers of a pod see it that run now, or begin now."""
    every = statuses_of(pod).items()
    began = {name: parse_time(at) for name, one in every if (at := _running(one).get("startedAt"))}
    return PodNetwork(cluster, pod, now, began, memory or NetworkMemory())


def _asks_cluster(spec: Obj) -> bool:
    """Whether names are those of the cluster, and not of the node or of servers that the pod names."""
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    return policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not spec.get("hostNetwork"))


def is_address(host: str) -> bool:
    """Whether this is an address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _name(labels: list[str]) -> _Name:
    return _Name(f"{labels[-1]}/{labels[-2]}", labels[0] if len(labels) == 3 else "", f"{'.'.join(labels)}{_DOMAIN}")


def _is_headless(service: Obj) -> bool:
    return (service.get("spec") or {}).get("clusterIP") in (None, "", "None")


def _created(obj: Obj) -> float:
    text = obj["metadata"].get("creationTimestamp")
    return parse_time(text).timestamp() if text else -math.inf


def _ready_since(pod: Obj) -> float:
    ready = get_condition(pod, "Ready") or {}
    told = ready.get("status") == "True" and ready.get("lastTransitionTime")
    return parse_time(told).timestamp() if told else _created(pod)


def _running(status: Obj) -> Obj:
    return (status.get("state") or {}).get("running") or {}


def _running_since(pod: Obj) -> float | None:
    """Since when all containers of a pod run; None if they do not."""
    began = [_running(one).get("startedAt") or "" for one in (pod.get("status") or {}).get("containerStatuses") or ()]
    return max(parse_time(at).timestamp() for at in began) if began and all(began) else None


def _listens(pod: Obj, port: int) -> bool:
    """Whether a container of the pod declares this port, or none declares any."""
    ports = [one["containerPort"] for each in containers_of(pod["spec"]) for one in each.get("ports") or ()]
    return not ports or port in ports
