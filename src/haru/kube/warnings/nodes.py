"""Members and labels of nodes that are on their way out."""

from __future__ import annotations

from collections.abc import Iterator

from haru.kube.meta import Obj
from haru.kube.warnings.networks import cidr_warnings

DEPRECATED_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}


def selector_term_warnings(term: Obj, path: str) -> Iterator[str]:
    """The deprecated labels in a NodeSelectorTerm at `path`."""
    for number, expression in enumerate(term.get("matchExpressions") or ()):
        advice = DEPRECATED_LABELS.get(expression.get("key") or "")
        if advice is not None:
            yield f"{path}.matchExpressions[{number}].key: {expression['key']} is {advice}"


def runtime_class_warnings(obj: Obj) -> Iterator[str]:
    """The deprecated labels by which a RuntimeClass chooses nodes."""
    for key in (obj.get("scheduling") or {}).get("nodeSelector") or ():
        if key in DEPRECATED_LABELS:
            yield f"scheduling.nodeSelector: {DEPRECATED_LABELS[key]}"


def node_warnings(obj: Obj) -> Iterator[str]:
    """What is odd about a Node."""
    spec = obj.get("spec") or {}
    if spec.get("configSource") is not None:
        yield "spec.configSource: the feature is removed"
    if spec.get("externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"
    for number, text in enumerate(spec.get("podCIDRs") or ()):
        yield from cidr_warnings(f"spec.podCIDRs[{number}]", text)


def storage_class_warnings(obj: Obj) -> Iterator[str]:
    """The deprecated labels by which a StorageClass chooses nodes."""
    for number, topology in enumerate(obj.get("allowedTopologies") or ()):
        for place, expression in enumerate(topology.get("matchLabelExpressions") or ()):
            if (advice := DEPRECATED_LABELS.get(expression.get("key") or "")) is not None:
                yield f"allowedTopologies[{number}].matchLabelExpressions[{place}].key: {advice}"


def storage_capacity_warnings(obj: Obj) -> Iterator[str]:
    """The deprecated labels by which a CSIStorageCapacity chooses nodes."""
    selector = obj.get("nodeTopology") or {}
    yield from selector_term_warnings(selector, "nodeTopology")
    for label in selector.get("matchLabels") or ():
        if label in DEPRECATED_LABELS:
            yield f"nodeTopology.matchLabels.{label}: {DEPRECATED_LABELS[label]}"
