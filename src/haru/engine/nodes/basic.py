"""Filters that look at one node at a time: cordon, name, taints, affinity, declared features, ports, resources.

Each builder takes the pod once and answers with a function of the node, or with None if the pod can never be refused
by it. Messages are kube-scheduler 1.36's. Source: its in-tree plugins of the same names, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from haru.engine.decision import Obj
from haru.engine.nodeinfo import NodeInfo
from haru.engine.nodes.failure import Failure, refuse
from haru.engine.pods import PodInfo
from haru.engine.profile import DEFAULT_PROFILE, Profile
from haru.kube.meta import tolerates
from haru.kube.selectors import node_selector_matches

NodeFilter = Callable[[NodeInfo], Sequence[Failure]]

PASS: tuple[Failure, ...] = ()
_UNSCHEDULABLE_TAINT: Obj = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_HARD_EFFECTS = ("NoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node_unschedulable(pod: PodInfo) -> NodeFilter | None:
    """Cordoned nodes, unless the pod tolerates the taint that stands for it."""
    if tolerates(pod.tolerations, _UNSCHEDULABLE_TAINT):
        return None
    failure = (refuse("NodeUnschedulable", "NodeUnschedulable", "node(s) were unschedulable"),)
    return lambda node: failure if node.spec.unschedulable else PASS


def node_name(pod: PodInfo) -> NodeFilter | None:
    """A pod that names its node can go nowhere else."""
    wanted = pod.spec.get("nodeName")
    if not wanted:
        return None
    failure = (refuse("NodeName", "NodeNameMismatch", "node(s) didn't match the requested node name"),)
    return lambda node: PASS if node.name == wanted else failure


def untolerated_taint(pod: PodInfo, taints: Sequence[Obj]) -> Obj | None:
    """The first taint that keeps the pod away."""
    for taint in taints:
        if taint.get("effect") in _HARD_EFFECTS and not tolerates(pod.tolerations, taint):
            return taint
    return None


def taint_toleration(pod: PodInfo) -> NodeFilter:
    """Taints with effect NoSchedule or NoExecute that the pod does not tolerate."""
    message = "node(s) had untolerated taint(s)"

    def check(node: NodeInfo) -> Sequence[Failure]:
        taint = untolerated_taint(pod, node.taints) if node.taints else None
        if taint is None:
            return PASS
        named = {"taint": f"{taint['key']}={taint.get('value') or ''}:{taint['effect']}"}
        return (refuse("TaintToleration", "NodeTaints", message, named),)

    return check


def matches_node_affinity(pod: PodInfo, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node satisfies the pod's nodeSelector and its required node affinity."""
    selector = pod.spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    required = pod.affinity("nodeAffinity").get(_REQUIRED)
    return required is None or node_selector_matches(required, name, labels)


def node_affinity(pod: PodInfo) -> NodeFilter | None:
    """`nodeSelector` and required node affinity."""
    required = pod.affinity("nodeAffinity").get(_REQUIRED)
    if not pod.spec.get("nodeSelector") and required is None:
        return None
    failure = (refuse("NodeAffinity", "NodeAffinityMismatch", "node(s) didn't match Pod's node affinity/selector"),)
    return lambda node: PASS if matches_node_affinity(pod, node.name, node.labels) else failure


def added_node_affinity(added: Obj | None) -> NodeFilter | None:
    """The required node affinity that a profile adds to every pod's."""
    required = (added or {}).get(_REQUIRED)
    if required is None:
        return None
    message = "node(s) didn't match scheduler-enforced node affinity"
    failure = (refuse("NodeAffinity", "NodeAffinityMismatch", message),)
    return lambda node: PASS if node_selector_matches(required, node.name, node.labels) else failure


def _names(pod: PodInfo) -> frozenset[str] | None:
    """The nodes that a pod's required node affinity names, as a DaemonSet's pods do; None if it names none."""
    required = pod.affinity("nodeAffinity").get(_REQUIRED) or {}
    found: set[str] = set()
    for term in required.get("nodeSelectorTerms") or ():
        fields = [f for f in term.get("matchFields") or () if f.get("key") == "metadata.name" and f["operator"] == "In"]
        if not fields:
            return None
        found |= set[str].intersection(*(set(field.get("values") or ()) for field in fields))
    return frozenset(found) if required.get("nodeSelectorTerms") else None


def named_nodes(pod: PodInfo) -> NodeFilter | None:
    """Where a pod names its nodes the others are not looked at, and say so."""
    names = _names(pod)
    if not names:
        return None
    failure = (refuse("NodeAffinity", "NodeAffinityMismatch", "node(s) didn't satisfy plugin(s) [NodeAffinity]"),)
    return lambda node: PASS if node.name in names else failure


def conflicting_names(pod: PodInfo) -> Failure | None:
    """A pod whose affinity names nodes that exclude each other can go nowhere."""
    if _names(pod) != frozenset():
        return None
    return refuse("NodeAffinity", "NodeAffinityMismatch", "pod affinity terms conflict")


def declared_features(pod: PodInfo) -> NodeFilter | None:
    """Features that a node must declare because the pod uses them (KEP-5328)."""
    needed = frozenset(pod.needed_features)
    if not needed:
        return None
    message = "node(s) didn't match Pod's required features"

    def check(node: NodeInfo) -> Sequence[Failure]:
        missing = sorted(needed - node.spec.features)
        if not missing:
            return PASS
        return (refuse("NodeDeclaredFeatures", "FeaturesMissing", message, {"features": missing}),)

    return check


def node_ports(pod: PodInfo) -> NodeFilter | None:
    """Ports of the host that a pod on the node already has."""
    wanted = pod.host_ports
    if not wanted:
        return None
    message = "node(s) didn't have free ports for the requested pod ports"

    def check(node: NodeInfo) -> Sequence[Failure]:
        taken = sorted({port.port for port in wanted for used in node.host_ports if port.clashes(used)})
        return (refuse("NodePorts", "PortsTaken", message, {"ports": taken}, resolvable=True),) if taken else PASS

    return check


def node_resources_fit(pod: PodInfo, backed: Collection[str] = (), profile: Profile = DEFAULT_PROFILE) -> NodeFilter:
    """Room for the pod's requests, resource by resource; a zero request never fails.

    `backed` are extended resources with a DeviceClass behind them: where the node does not advertise one itself,
    devices are allocated for it, and this is not the filter to say whether there are any (KEP-5004).
    """
    requests = sorted((name, amount) for name, amount in pod.requests.items() if not profile.ignores(name))

    def check(node: NodeInfo) -> Sequence[Failure]:
        failures: list[Failure] = []
        offered, requested = node.spec.allocatable, node.requested
        room = offered.get("pods")
        if room is not None and len(node.pods) + 1 > room:
            failures.append(_too_many_pods(len(node.pods), room))
        for name, amount in requests:
            allocatable = offered.get(name, 0)
            if name in backed and not allocatable:
                continue
            used = requested.get(name, 0)
            if amount > allocatable - used:
                data: dict[str, Any] = {
                    "resource": name,
                    "requested": amount,
                    "used": used,
                    "allocatable": allocatable,
                }
                possible = amount <= allocatable
                failures.append(
                    refuse(
                        "NodeResourcesFit", "InsufficientResource", f"Insufficient {name}", data, resolvable=possible
                    )
                )
        return failures

    return check


def _too_many_pods(used: int, room: int) -> Failure:
    data = {"resource": "pods", "requested": 1, "used": used, "allocatable": room}
    return refuse("NodeResourcesFit", "TooManyPods", "Too many pods", data, resolvable=room > 0)
