"""Which resources a version of Kubernetes has: those of 1.36, less what came after the version.

The table of kinds is 1.36's. A server that takes the place of an older version offers what that one had of it, no more;
what 1.36 has removed (scheduling.k8s.io/v1alpha1) is not offered by anybody.
Source: the lifecycle markers of the API types (introduced in which release) of Kubernetes 1.36.
"""

from __future__ import annotations

from haru.kube.kinds import Kind

_INTRODUCED: dict[tuple[str, str, str], int] = {
    ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy"): 36,
    ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding"): 36,
    ("resource.k8s.io", "v1alpha3", "ResourcePoolStatusRequest"): 36,
    ("resource.k8s.io", "v1beta2", "DeviceTaintRule"): 36,
    ("scheduling.k8s.io", "v1alpha2", "PodGroup"): 36,
    ("scheduling.k8s.io", "v1alpha2", "Workload"): 36,
}
"""(group, version, kind) to the minor version that brought it, where that was not before 1.36."""


def is_in(kind: Kind, minor: int) -> bool:
    """Whether version 1.`minor` has the resource in this version."""
    return _INTRODUCED.get((kind.group, kind.version, kind.kind), 0) <= minor
