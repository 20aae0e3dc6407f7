"""In which releases an API version is served, and from when on clients are warned that it is deprecated.

The table of kinds is 1.36's. A server that takes the place of an older version offers what that one had of it, no more;
what 1.36 has removed (scheduling.k8s.io/v1alpha1) is not offered by anybody. Beta and alpha versions are deprecated
three releases after they came and removed three releases later.
Source: the lifecycle markers of the API types of Kubernetes 1.36; its deprecation warnings, as behaviour.
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


_INTRODUCED: dict[tuple[str, str, str], int] = {
    ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy"): 36,
    ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding"): 36,
    ("admissionregistration.k8s.io", "v1beta1", "MutatingAdmissionPolicy"): 34,
    ("admissionregistration.k8s.io", "v1beta1", "MutatingAdmissionPolicyBinding"): 34,
    ("certificates.k8s.io", "v1beta1", "ClusterTrustBundle"): 33,
    ("certificates.k8s.io", "v1beta1", "PodCertificateRequest"): 35,
    ("coordination.k8s.io", "v1beta1", "LeaseCandidate"): 33,
    ("networking.k8s.io", "v1", "IPAddress"): 33,
    ("networking.k8s.io", "v1", "ServiceCIDR"): 33,
    ("resource.k8s.io", "v1", "DeviceClass"): 34,
    ("resource.k8s.io", "v1", "ResourceClaim"): 34,
    ("resource.k8s.io", "v1", "ResourceClaimTemplate"): 34,
    ("resource.k8s.io", "v1", "ResourceSlice"): 34,
    ("resource.k8s.io", "v1alpha3", "DeviceTaintRule"): 33,
    ("resource.k8s.io", "v1alpha3", "ResourcePoolStatusRequest"): 36,
    ("resource.k8s.io", "v1beta2", "DeviceClass"): 33,
    ("resource.k8s.io", "v1beta2", "DeviceTaintRule"): 36,
    ("resource.k8s.io", "v1beta2", "ResourceClaim"): 33,
    ("resource.k8s.io", "v1beta2", "ResourceClaimTemplate"): 33,
    ("resource.k8s.io", "v1beta2", "ResourceSlice"): 33,
    ("scheduling.k8s.io", "v1alpha2", "PodGroup"): 36,
    ("scheduling.k8s.io", "v1alpha2", "Workload"): 36,
    ("storage.k8s.io", "v1", "VolumeAttributesClass"): 34,
}
"""(group, version, kind) to the minor version that brought it, where that was not before 1.33."""


def is_in(kind: Kind, minor: int) -> bool:
    """Whether version 1.`minor` has the resource in this version."""
    return _INTRODUCED.get((kind.group, kind.version, kind.kind), 0) <= minor
