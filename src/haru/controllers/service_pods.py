"""What stands behind a Service: which pods, under which addresses and ports.

Pure functions over Services and pods, for the controllers that write it down.
Source: core/v1 Service, discovery.k8s.io/v1 EndpointSlice (KEP-752, KEP-1672), as behaviour.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from haru.controllers.objects import is_ready, is_terminal
from haru.kube.meta import Obj, get_condition, is_being_deleted, labels_of, name_of, namespace_of, node_of, uid_of

HEADLESS = "service.kubernetes.io/headless"
TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"


class Port(NamedTuple):
    """A port that a Service leads to on some of its pods."""

    name: str
    port: int
    protocol: str
    app_protocol: str

    def told(self) -> Obj:
        """As an EndpointSlice says it."""
        found: Obj = {"name": self.name, "port": self.port, "protocol": self.protocol}
        return {**found, "appProtocol": self.app_protocol} if self.app_protocol else found


def selector_of(service: Obj) -> Mapping[str, str] | None:
    """Which pods a Service selects; None for one whose endpoints somebody else knows."""
    spec = service.get("spec") or {}
    return None if spec.get("type") == "ExternalName" else spec.get("selector") or None


def selects(service: Obj, labels: Mapping[str, str]) -> bool:
    """Whether a Service selects pods with these labels."""
    selector = selector_of(service)
    return selector is not None and all(labels.get(key) == value for key, value in selector.items())


def is_headless(service: Obj) -> bool:
    """Whether a Service has no address of its own."""
    return (service.get("spec") or {}).get("clusterIP") == "None"


def publishes_unready(service: Obj) -> bool:
    """Whether pods count as ready as soon as they have an address."""
    return bool((service.get("spec") or {}).get("publishNotReadyAddresses"))


def may_serve(pod: Obj, *, terminating: bool) -> bool:
    """Whether a pod stands behind a Service at all: it has an address and has not ended (nor is `terminating`)."""
    status = pod.get("status") or {}
    if is_terminal(pod) or not (status.get("podIP") or status.get("podIPs")):
        return False
    return terminating or not is_being_deleted(pod)


def face(pod: Obj) -> tuple[object, ...]:
    """What of a pod matters to Services: while it is the same, nothing changes behind them."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    ready = get_condition(pod, "Ready") or {}
    return (
        *(uid_of(pod), labels_of(pod), is_being_deleted(pod), is_terminal(pod), ready.get("status"), node_of(pod)),
        *(status.get("podIP"), status.get("podIPs"), spec.get("hostname"), spec.get("subdomain")),
    )


def families_of(service: Obj) -> Sequence[str]:
    """`IPv4`, `IPv6` or both: the kinds of addresses that a Service leads to."""
    return (service.get("spec") or {}).get("ipFamilies") or ("IPv4",)


def address_of(pod: Obj, family: str) -> str:
    """A pod's address of one family, or nothing."""
    status = pod.get("status") or {}
    known = [entry.get("ip") or "" for entry in status.get("podIPs") or ()] or [status.get("podIP") or ""]
    return next((address for address in known if family_of(address) == family), "")


def family_of(address: str) -> str:
    """`IPv4` or `IPv6`; nothing for what is no address."""
    try:
        return f"IPv{ipaddress.ip_address(address).version}"
    except ValueError:
        return ""


def ports_of(service: Obj, pod: Obj) -> tuple[Port, ...]:
    """The Service's ports on a pod, in order; one that the pod does not have by its name is left out."""
    found = []
    for port in (service.get("spec") or {}).get("ports") or ():
        protocol = port.get("protocol") or "TCP"
        number = _target(port, pod, protocol)
        if number is not None:
            found.append(Port(port.get("name") or "", number, protocol, port.get("appProtocol") or ""))
    return tuple(sorted(found))


def _target(port: Obj, pod: Obj, protocol: str) -> int | None:
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    for container in _containers(pod):
        for own in container.get("ports") or ():
            if own.get("name") == target and (own.get("protocol") or "TCP") == protocol:
                return int(own["containerPort"])
    return None


def _containers(pod: Obj) -> Iterator[Obj]:
    spec = pod["spec"]
    sidecars = (c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always")
    return chain(spec.get("containers") or (), sidecars)


def hostname_of(service: Obj, pod: Obj) -> str:
    """The pod's own name below the Service's, if it has one there."""
    spec = pod["spec"]
    ours = spec.get("subdomain") == name_of(service) and namespace_of(pod) == namespace_of(service)
    return str(spec.get("hostname") or "") if ours else ""


def reference_to(pod: Obj) -> Obj:
    """An ObjectReference to a pod."""
    return {"kind": "Pod", "name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)}


def conditions_of(service: Obj, pod: Obj) -> Obj:
    """Whether a pod is ready to be sent requests, serves at all, and is on its way out."""
    serving, terminating = is_ready(pod), is_being_deleted(pod)
    ready = publishes_unready(service) or (serving and not terminating)
    return {"ready": ready, "serving": serving, "terminating": terminating}
