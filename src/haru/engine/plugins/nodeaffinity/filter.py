"""Refuse nodes outside of the pod's nodeSelector and required node affinity.

Source: kube-scheduler's NodeAffinity plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping

from haru.engine.framework.interfaces import PASS, NodeFilter
from haru.engine.framework.status import FilterFailure, refuse
from haru.engine.state.decision import Obj
from haru.engine.state.pod_info import PodInfo
from haru.kube.selectors import node_selector_matches

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def matches_node_affinity(pod: PodInfo, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a node satisfies the pod's nodeSelector and its required node affinity."""
    selector = pod.spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    required = pod.affinity("nodeAffinity").get(_REQUIRED)
    return required is None or node_selector_matches(required, name, labels)


def node_affinity(pod: PodInfo) -> NodeFilter | None:
    """Refuse nodes outside of `nodeSelector` and required node affinity."""
    required = pod.affinity("nodeAffinity").get(_REQUIRED)
    if not pod.spec.get("nodeSelector") and required is None:
        return None
    failure = (refuse("NodeAffinity", "NodeAffinityMismatch", "node(s) didn't match Pod's node affinity/selector"),)
    return lambda node: PASS if matches_node_affinity(pod, node.name, node.labels) else failure


def added_node_affinity(added: Obj | None) -> NodeFilter | None:
    """Refuse nodes outside of the node affinity that the profile adds to every pod's."""
    required = (added or {}).get(_REQUIRED)
    if required is None:
        return None
    message = "node(s) didn't match scheduler-enforced node affinity"
    failure = (refuse("NodeAffinity", "NodeAffinityMismatch", message),)
    return lambda node: PASS if node_selector_matches(required, node.name, node.labels) else failure


def _names(pod: PodInfo) -> frozenset[str] | None:
    """Return the nodes that a pod's required node affinity names, as a DaemonSet's pods do; None if it names none."""
    required = pod.affinity("nodeAffinity").get(_REQUIRED) or {}
    found: set[str] = set()
    for term in required.get("nodeSelectorTerms") or ():
        fields = [f for f in term.get("matchFields") or () if f.get("key") == "metadata.name" and f["operator"] == "In"]
        if not fields:
            return None
        found |= set[str].intersection(*(set(field.get("values") or ()) for field in fields))
    return frozenset(found) if required.get("nodeSelectorTerms") else None


def named_nodes(pod: PodInfo) -> NodeFilter | None:
    """Refuse the nodes that a pod's required node affinity does not name; None if it names none."""
    names = _names(pod)
    if not names:
        return None
    failure = (refuse("NodeAffinity", "NodeAffinityMismatch", "node(s) didn't satisfy plugin(s) [NodeAffinity]"),)
    return lambda node: PASS if node.name in names else failure


def conflicting_names(pod: PodInfo) -> FilterFailure | None:
    """Reject a pod whose affinity terms name nodes that exclude each other."""
    if _names(pod) != frozenset():
        return None
    return refuse("NodeAffinity", "NodeAffinityMismatch", "pod affinity terms conflict")
