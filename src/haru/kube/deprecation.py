"""API versions on their way out: what a client is told that uses one.

Beta and alpha versions live for a while: deprecated three releases after they came, gone three releases later.
Source: the API lifecycle of Kubernetes 1.36 and its deprecation warnings, as behaviour.
"""

from __future__ import annotations

from functools import cache

from haru.kube.kinds import Kind

_RELEASE = 36
_RESOURCE_KINDS = ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
# (apiVersion, kind) -> deprecated in 1.x, unavailable in 1.x (0: not foreseen), use instead.
_LIVES: dict[tuple[str, str], tuple[int, int, str]] = {
    ("v1", "ComponentStatus"): (19, 0, ""),
    ("v1", "Endpoints"): (33, 0, "discovery.k8s.io/v1 EndpointSlice"),
    **{("resource.k8s.io/v1beta1", kind): (35, 38, f"resource.k8s.io/v1 {kind}") for kind in _RESOURCE_KINDS},
    **{("resource.k8s.io/v1beta2", kind): (36, 39, f"resource.k8s.io/v1 {kind}") for kind in _RESOURCE_KINDS},
    ("resource.k8s.io/v1beta2", "DeviceTaintRule"): (39, 42, ""),
    ("resource.k8s.io/v1alpha3", "DeviceTaintRule"): (36, 39, ""),
    ("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest"): (39, 42, ""),
}


def deprecation_warning(kind: Kind) -> str:
    """The warning that goes with every answer about the kind in this version; empty when there is none."""
    return kind.custom.warning if kind.custom is not None else _of_built_in(kind)


@cache
def _of_built_in(kind: Kind) -> str:
    deprecated, removed, instead = _LIVES.get((kind.api_version, kind.kind), (0, 0, ""))
    if not deprecated or deprecated > _RELEASE:
        return ""
    text = f"{kind} is deprecated in v1.{deprecated}+"
    if removed:
        text += f", unavailable in v1.{removed}+"
    return text + (f"; use {instead}" if instead else "")
