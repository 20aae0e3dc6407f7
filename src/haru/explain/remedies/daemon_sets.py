"""A DaemonSet with pods on nodes that can never run them: a nodeSelector by which it makes none there.

It is tried as the controller acts on it: pods of nodes without the label go, and all others are made again. A label
helps if each of these would have a place where nothing else runs; what waits for running work keeps waiting.
Source: apps/v1 DaemonSet, its controller's rule which nodes get a pod, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from haru.engine import Options, Snapshot
from haru.engine.plugins import named_nodes
from haru.engine.state import PodInfo
from haru.explain import hypothesis
from haru.explain.changes import listed, patch
from haru.explain.diagnosis.verdict import unobstructed
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies.makers import told_by
from haru.kube.names import counted
from haru.kube.node_labels import is_found_out

_MOST_LABELS, _MOST_PODS = 8, 256
_COST = 5
_NAMES = frozenset({"kubernetes.io/hostname"})
"""Labels that say which node it is."""
Label = tuple[str, str]


def narrower_daemon_set(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> Iterator[Remedy]:
    """The label of all nodes that serve a DaemonSet and of no node of the waiting pod, which can never run there."""
    pods = work.pending(snapshot)
    owner = pods[0].controller if len(pods) == 1 and work.group is None else None
    if owner is None or owner["kind"] != "DaemonSet" or _is_told(snapshot, pods[0]):
        return
    own = [pod for pod in snapshot.pods.values() if _is_of(pod, owner["uid"])]
    empty = hypothesis.emptied(snapshot, work.paths)
    if len(own) > _MOST_PODS or work.fits(unobstructed(empty), options):
        return
    for label in _labels(snapshot, own, pods[0])[:_MOST_LABELS]:
        stay = [pod for pod in own if label in snapshot.nodes[_node_of(pod)].labels.items()]
        if _have_places(snapshot, stay, label, options):
            gone = sorted({_node_of(pod) for pod in own if pod not in stay})
            yield _remedy(pods[0].key.namespace, owner["name"], label, gone)
            return


def _is_told(snapshot: Snapshot, pod: PodInfo) -> bool:
    """Whether somebody else writes the DaemonSet and would undo what a person changes, as far as that is known."""
    name = (pod.controller or {}).get("name")
    found = snapshot.objects("DaemonSet").get(f"{pod.key.namespace}/{name}")
    return found is not None and bool(told_by(found, "DaemonSet"))


def _is_of(pod: PodInfo, uid: str) -> bool:
    return (pod.controller or {}).get("uid") == uid and not (pod.terminal or pod.deleting) and bool(_node_of(pod))


def _node_of(pod: PodInfo) -> str:
    """Where a pod of a DaemonSet is, or is to be."""
    names = named_nodes(pod) or ()
    return pod.node or (next(iter(names)) if len(names) == 1 else "")


def _labels(snapshot: Snapshot, own: Sequence[PodInfo], refused: PodInfo) -> list[Label]:
    """Labels that set the nodes with running pods apart: first those that leave out most of what waits.

    Of equal ones first the vendor's whose resource is asked for, then what somebody wrote rather than found out.
    """
    served = [set(snapshot.nodes[pod.node].labels.items()) for pod in own if pod.node in snapshot.nodes]
    waiting = [pod for pod in own if not pod.node]
    if not served or any(_node_of(pod) not in snapshot.nodes for pod in own):
        return []
    common = reduce(set.intersection, served) - set(snapshot.nodes[_node_of(refused)].labels.items())
    vendors = {resource.partition("/")[0] for resource in refused.requests if "/" in resource}

    def rank(label: Label) -> tuple[object, ...]:
        left = sum(label in snapshot.nodes[_node_of(pod)].labels.items() for pod in waiting)
        prefix = label[0].partition("/")[0] if "/" in label[0] else ""
        return left, prefix not in vendors, is_found_out(label[0]), label

    return sorted((label for label in common if label[0] not in _NAMES), key=rank)


def _have_places(snapshot: Snapshot, pods: Sequence[PodInfo], label: Label, options: Options) -> bool:
    """Whether all of these pods, made again with the nodeSelector, have places where nothing else runs."""
    again = [hypothesis.as_pending(pod) for pod in pods]
    selectors = [{**(pod.spec.get("nodeSelector") or {}), label[0]: label[1]} for pod in again]
    made = [
        PodInfo.of({**pod.obj, "spec": {**pod.spec, "nodeSelector": selector}})
        for pod, selector in zip(again, selectors, strict=True)
    ]
    after = hypothesis.with_pods(hypothesis.emptied(snapshot, ()), made)
    decision = WorkloadUnit(tuple(pod.key.path for pod in made)).decide(after, options)
    return sum(member.node is not None for member in decision.placed) == len(made)


def _remedy(namespace: str, name: str, label: Label, gone: Sequence[str]) -> Remedy:
    body = {"spec": {"template": {"spec": {"nodeSelector": {label[0]: label[1]}}}}}
    text = f"leave {listed(gone)} out of daemonset/{name} by the nodeSelector {label[0]}={label[1]}"
    costs = f"it then has no pod on {counted(len(gone), 'node')}, and makes its running pods again"
    return Remedy("AddNodeSelector", text, (patch("apps/v1", "DaemonSet", name, body, namespace),), _COST, True, costs)
