"""Defaults of networking.k8s.io and discovery.k8s.io."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from haru.kube.defaulting.filling import fill, fill_unset, items, part, section

if TYPE_CHECKING:
    from haru.kube.gates import FeatureGates

Obj = dict[str, Any]


def _network_policy(policy: Obj, gates: FeatureGates) -> None:
    spec = section(policy, "spec")
    for rule in (*items(spec, "ingress"), *items(spec, "egress")):
        for port in items(rule, "ports"):
            fill(port, protocol="TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _ingress_class(ingress_class: Obj, gates: FeatureGates) -> None:
    parameters = part(ingress_class, "spec", "parameters")
    if parameters is not None:
        fill_unset(parameters, scope="Cluster")


def _endpoint_slice(endpoint_slice: Obj, gates: FeatureGates) -> None:
    for port in items(endpoint_slice, "ports"):
        fill_unset(port, name="", protocol="TCP")


FILLERS: Mapping[tuple[str, str], Callable[[Obj, FeatureGates], None]] = {
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    ("networking.k8s.io", "IngressClass"): _ingress_class,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
}
