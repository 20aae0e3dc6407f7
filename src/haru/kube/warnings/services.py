"""Members of Services and EndpointSlices that say nothing, or will not for long."""

from __future__ import annotations

from collections.abc import Iterator

from haru.kube.meta import Obj
from haru.kube.warnings.networks import address_warnings, cidr_warnings

_HINTS = "service.kubernetes.io/topology-aware-hints"
_MODE = "service.kubernetes.io/topology-mode"


def service_warnings(service: Obj) -> Iterator[str]:
    """What is odd about a Service."""
    spec = service.get("spec") or {}
    kind, external, name = spec.get("type"), spec.get("externalIPs"), spec.get("externalName")
    if _HINTS in ((service.get("metadata") or {}).get("annotations") or {}):
        yield f"annotation {_HINTS} is deprecated, please use {_MODE} instead"
    for number, address in enumerate(spec.get("clusterIPs") or ()):
        yield from address_warnings(f"spec.clusterIPs[{number}]", address)
    headless = kind != "ExternalName" and spec.get("clusterIP") == "None"
    if headless:
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if external:
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    for number, address in enumerate(external or ()):
        yield from address_warnings(f"spec.externalIPs[{number}]", address)
    if external and kind == "ExternalName":
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    elif external and not headless:
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if balancer := spec.get("loadBalancerIP"):
        yield from address_warnings("spec.loadBalancerIP", balancer)
    for number, text in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        yield from cidr_warnings(f"spec.loadBalancerSourceRanges[{number}]", text)
    if name and kind != "ExternalName":
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def slice_warnings(endpoint_slice: Obj) -> Iterator[str]:
    """What is odd about a new EndpointSlice."""
    if endpoint_slice.get("addressType") == "FQDN":
        yield "spec.addressType: FQDN endpoints are deprecated"
