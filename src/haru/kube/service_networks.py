"""Networks of Services (ServiceCIDR), and who has an address (IPAddress): what server and controller agree on. Pure.

Source: KEP 1880; the bands of a network: KEP 3070.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from haru.kube.meta import Obj, get_condition, is_being_deleted

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

DEFAULT: Final = "kubernetes"
"""The ServiceCIDR that every cluster has."""
ALLOCATOR: Final = "ipallocator.k8s.io"
_FAMILY, _MANAGED_BY = "ipaddress.kubernetes.io/ip-family", "ipaddress.kubernetes.io/managed-by"
_LEAST_NAMED, _MOST_NAMED, _STEP = 16, 256, 16


@lru_cache(maxsize=1024)
def network(text: str) -> Network | None:
    """A network; None for what is none."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def address(text: str) -> Address | None:
    """An address; None for what is none, as `None` of a headless Service."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def networks_of(cidr: Mapping[str, Any]) -> list[Network]:
    """The networks of a ServiceCIDR."""
    return [found for text in (cidr.get("spec") or {}).get("cidrs") or () if (found := network(text)) is not None]


def gives_out(cidr: Mapping[str, Any]) -> bool:
    """Whether Services get addresses of a ServiceCIDR: not while it is being deleted, or said not to be ready."""
    ready = get_condition(cidr, "Ready")
    return not is_being_deleted(cidr) and (ready is None or ready.get("status") == "True")


def holds(within: Network, found: Address) -> bool:
    """Whether a Service may have this address in a network: not the first one, nor the last one of IPv4."""
    last = within.broadcast_address if within.version == 4 else None
    return found.version == within.version and found in within and found not in (within.network_address, last)


def bands(within: Network) -> tuple[range, range]:
    """The addresses of a network as numbers; while there are others, the second are for who asks for one by name."""
    first, last = int(within.network_address) + 1, int(within.broadcast_address)
    size = within.num_addresses
    named = 0 if size <= _LEAST_NAMED else min(max(size // _STEP, _LEAST_NAMED), _MOST_NAMED)
    return range(first + named, last), range(first, min(first + named, last))


def addresses_of(service: Mapping[str, Any] | None) -> set[str]:
    """The addresses that a Service has in the cluster."""
    spec = (service or {}).get("spec") or {}
    if spec.get("type") == "ExternalName":
        return set()
    return {text for text in spec.get("clusterIPs") or () if address(text) is not None}


def ip_address_of(text: str, service: Mapping[str, Any]) -> Obj:
    """The IPAddress that says that a Service has an address."""
    metadata = service["metadata"]
    parent = {"resource": "services", "namespace": metadata["namespace"], "name": metadata["name"]}
    family = "IPv6" if ":" in text else "IPv4"
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {"name": text, "labels": {_FAMILY: family, _MANAGED_BY: ALLOCATOR}},
        "spec": {"parentRef": parent},
    }


def is_managed(ip_address: Mapping[str, Any]) -> bool:
    """Whether the server has made an IPAddress for a Service, and takes it away again."""
    return bool((ip_address["metadata"].get("labels") or {}).get(_MANAGED_BY) == ALLOCATOR)


def service_of(ip_address: Mapping[str, Any]) -> tuple[str, str] | None:
    """The namespace and name of the Service that has an address; None for what is no Service."""
    parent = (ip_address.get("spec") or {}).get("parentRef") or {}
    if parent.get("group") or parent.get("resource") != "services":
        return None
    return parent.get("namespace", ""), parent.get("name", "")
