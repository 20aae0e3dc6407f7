"""Services: their number, their node ports and load balancers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from haru.kube.quantity import parse_quantity
from haru.kube.quota.usage import ONE, ZERO, Evaluator, Surroundings, Usage

Obj = dict[str, Any]

_NAMES = ("services", "services.nodeports", "services.loadbalancers")


class Services(Evaluator):
    """The evaluator of Services."""

    updates = True

    def __init__(self) -> None:
        super().__init__("", "services")

    def names(self, hard: Iterable[str], around: Surroundings) -> list[str]:
        """See Evaluator."""
        return [name for name in hard if name == self.count or name in _NAMES]

    def usage(self, obj: Obj, around: Surroundings) -> Usage:
        """See Evaluator."""
        spec = obj.get("spec") or {}
        ports = spec.get("ports") or ()
        nodeports, balancers = 0, 0
        if spec.get("type") == "NodePort":
            nodeports = len(ports)
        elif spec.get("type") == "LoadBalancer":
            balancers = 1
            every = spec.get("allocateLoadBalancerNodePorts") is not False
            nodeports = len(ports) if every else sum(1 for port in ports if port.get("nodePort"))
        return {
            self.count: ONE,
            "services": ONE,
            "services.nodeports": parse_quantity(nodeports) if nodeports else ZERO,
            "services.loadbalancers": ONE if balancers else ZERO,
        }

    def handles(self, operation: str, subresource: str, new: Obj, old: Obj | None) -> bool:
        """A service may become one of another type."""
        return not subresource
