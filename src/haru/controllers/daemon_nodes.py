"""Where the pods of a DaemonSet belong, and how each names its node (pure).

Source: apps/v1 DaemonSet: the tolerations that its pods get, and the node that they ask for.
"""

from __future__ import annotations

from typing import Any

from haru.controllers.objects import DAEMON_SETS
from haru.controllers.revisions import POD_LABEL
from haru.kube.defaulting.workloads import TEMPLATE_GENERATION
from haru.kube.meta import Obj, annotations_of, labels_of, name_of, tolerates
from haru.kube.pod_templates import pod_from_template
from haru.kube.selectors import node_selector_matches

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")


def _tolerations(spec: Obj) -> list[Obj]:
    """The template's tolerations, and those of every daemon: it also runs where nothing else may."""
    added = [*_TOLERATED, *((_NETWORK,) if spec.get("hostNetwork") else ())]
    own = list(spec.get("tolerations") or ())
    made = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in added]
    return own + [toleration for toleration in made if toleration not in own]


def _fits(daemon_set: Obj, node: Obj, effects: tuple[str, ...]) -> bool:
    spec = daemon_set["spec"]["template"].get("spec") or {}
    if spec.get("nodeName") and spec["nodeName"] != name_of(node):
        return False
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if required is not None and not node_selector_matches(required, name_of(node), labels):
        return False
    tolerations = _tolerations(spec)
    taints = [taint for taint in (node.get("spec") or {}).get("taints") or () if taint.get("effect") in effects]
    return all(tolerates(tolerations, taint) for taint in taints)


def should_run(daemon_set: Obj, node: Obj) -> bool:
    """Whether a node gets a pod."""
    return _fits(daemon_set, node, ("NoSchedule", "NoExecute"))


def may_stay(daemon_set: Obj, node: Obj) -> bool:
    """Whether a pod that runs on a node may go on there."""
    return _fits(daemon_set, node, ("NoExecute",))


def daemon_pod(daemon_set: Obj, node: str, digest: str) -> Obj:
    """The pod for a node: the scheduler binds it there and nowhere else."""
    pod = pod_from_template(daemon_set, DAEMON_SETS, daemon_set["spec"]["template"])
    labels = pod["metadata"].setdefault("labels", {})
    labels[POD_LABEL] = digest
    if generation := annotations_of(daemon_set).get(TEMPLATE_GENERATION):
        labels["pod-template-generation"] = generation
    spec = pod["spec"]
    spec["tolerations"] = _tolerations(spec)
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    here = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    required = affinity.setdefault(_REQUIRED, {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [{**term, "matchFields": here} for term in terms]
    return pod


def node_of_daemon(pod: Obj) -> str:
    """The node that a daemon's pod is on, or waits for."""
    spec: Any = pod.get("spec") or {}
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and len(field.get("values") or ()) == 1:
                return str(field["values"][0])
    return ""
