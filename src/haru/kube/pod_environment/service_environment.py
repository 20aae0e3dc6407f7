"""The environment variables of Services: `NAME_SERVICE_HOST`, `NAME_SERVICE_PORT`, and those of Docker links.

The Service `default/kubernetes` is always among them; those of the pod's namespace are, unless it has
`enableServiceLinks: false`.
Source: the kubelet's service environment, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from haru.kube.indexed_objects import IndexedObjects, in_namespace
from haru.kube.meta import Obj, name_of

API_SERVER = "default", "kubernetes"


def service_environment(pod: Obj, services: IndexedObjects) -> list[tuple[str, str]]:
    """The variables of a pod's containers, ordered by Service."""
    named = {API_SERVER[1]: services.store.get("/".join(API_SERVER))}
    if pod["spec"].get("enableServiceLinks", True):
        own = in_namespace(services, pod["metadata"]["namespace"])
        # A Service of the API server's name in the pod's own namespace goes before it.
        named |= {name_of(service): service for service in own if _has_address(service)}
    seen = {name: service for name, service in named.items() if service is not None and _has_address(service)}
    return [variable for name in sorted(seen) for variable in _variables(name, seen[name]["spec"])]


def _has_address(service: Obj) -> bool:
    return service.get("spec", {}).get("clusterIP", "") not in ("", "None")


def _variables(name: str, spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    prefix, address = _variable_name(name), spec["clusterIP"]
    ports = spec.get("ports") or ()
    yield f"{prefix}_SERVICE_HOST", address
    if not ports:
        return
    yield f"{prefix}_SERVICE_PORT", str(ports[0]["port"])
    for port in ports:
        if port.get("name"):
            yield f"{prefix}_SERVICE_PORT_{_variable_name(port['name'])}", str(port["port"])
    host = f"[{address}]" if ":" in address else address
    for number, port in enumerate(ports):
        protocol = port.get("protocol") or "TCP"
        url = f"{protocol.lower()}://{host}:{port['port']}"
        if number == 0:
            yield f"{prefix}_PORT", url
        of_port = f"{prefix}_PORT_{port['port']}_{protocol}"
        yield of_port, url
        yield f"{of_port}_PROTO", protocol.lower()
        yield f"{of_port}_PORT", str(port["port"])
        yield f"{of_port}_ADDR", address


def _variable_name(name: str) -> str:
    return name.upper().replace("-", "_")
