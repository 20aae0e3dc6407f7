"""The values that a pod's spec is decoded into: amounts, ports, claims, images.

Amounts are integers, exact and rounded up as the reference counts them: thousandths for cpu, units for everything else.
Source: kube-scheduler's Resource, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from haru.kube.quantity import Quantity, parse_quantity


class HostPort(NamedTuple):
    """A port on the node that a container wants for itself."""

    address: str
    protocol: str
    port: int

    def clashes(self, other: HostPort) -> bool:
        """Return whether one node cannot give both: same protocol and port, and addresses that overlap."""
        if (self.protocol, self.port) != (other.protocol, other.port):
            return False
        return self.address == other.address or "0.0.0.0" in (self.address, other.address)


class RunDeadline(NamedTuple):
    """When a running pod ends, as far as its own object says: at an unknown time (`some_day`), or never.

    None: something may limit it (`run_times.latest_end`). `started` is when it started, or later than any time.
    """

    some_day: bool | None
    started: str


class PodClaim(NamedTuple):
    """An entry of `spec.resourceClaims`: a claim by name, or a template that a claim is made from."""

    name: str
    claim_name: str
    template_name: str


def amount(resource: str, quantity: Quantity) -> int:
    """The integer that a quantity of this resource counts as."""
    return quantity.milli() if resource == "cpu" else quantity.value()


@lru_cache(maxsize=4096)
def amount_of(resource: str, text: str | int | float) -> int:
    """The integer that a written quantity of this resource counts as."""
    return amount(resource, parse_quantity(text))


def normalized_image(name: str) -> str:
    """An image's name as nodes report it: with the tag `latest` if it has neither tag nor digest."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def asks_for_both(container: Mapping[str, Any]) -> bool:
    """Tell whether a container asks for cpu and for memory."""
    asked = (container.get("resources") or {}).get("requests") or ()
    return "cpu" in asked and "memory" in asked


def host_ports_of(spec: Mapping[str, Any]) -> frozenset[HostPort]:
    """Return the ports of the node that the containers and sidecars of a spec want."""
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    return frozenset(
        HostPort(port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for container in [*sidecars, *(spec.get("containers") or ())]
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )
