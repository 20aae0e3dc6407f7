"""Labels of nodes that are on their way out."""

from __future__ import annotations

from collections.abc import Iterator

from haru.kube.meta import Obj

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
