"""Labels of nodes that are not for people to set: what the kubelet, the cloud or a component knows of a node.

Source: the well-known labels of 1.36 and the labels that a kubelet may set itself (NodeRestriction), as behaviour.
"""

from __future__ import annotations

KUBELET_LABELS = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.kubernetes.io/region",
        "failure-domain.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
"""Labels that every kubelet may set of its own node, beside those of its own prefixes."""
KUBELET_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")

_FOUND_PREFIXES = (
    *KUBELET_PREFIXES,
    "topology.kubernetes.io",
    "failure-domain.beta.kubernetes.io",
    "feature.node.kubernetes.io",  # node feature discovery
    "cloud.google.com",
    "eks.amazonaws.com",
    "k8s.amazonaws.com",
    "kubernetes.azure.com",
    "karpenter.sh",
)
_FOUND_BY_NVIDIA = ("nvidia.com/gpu.", "nvidia.com/cuda.")  # GPU feature discovery


def is_found_out(label: str) -> bool:
    """Whether a label says what a component found out about a node, or which node it is: nobody sets it by hand."""
    prefix = label.rpartition("/")[0]
    return label in KUBELET_LABELS or prefix in _FOUND_PREFIXES or label.startswith(_FOUND_BY_NVIDIA)
