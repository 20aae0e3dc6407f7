"""Nodes that could be opened to the work: cordons, taints, labels; and the pods that could put up with a taint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.engine.decision import Obj
from haru.engine.pods import PodInfo
from haru.explain import hypothesis
from haru.explain.changes import listed, patch
from haru.explain.explanation import Remedy
from haru.explain.openings import Openings
from haru.explain.wording import counted


def uncordon(openings: Openings) -> Iterator[Remedy]:
    """The fewest cordoned nodes that have to be opened."""
    snapshot = openings.snapshot
    cordoned = [n for n in snapshot.node_names if hypothesis.is_cordoned(snapshot.nodes[n].spec.obj)]
    names = openings.fewest(cordoned, lambda some: hypothesis.with_nodes(snapshot, hypothesis.uncordoned, some))
    if names:
        changes = tuple(patch("v1", "Node", name, {"spec": {"unschedulable": None}}) for name in names)
        text, command = f"uncordon {listed(names)}", f"kubectl uncordon {' '.join(names)}"
        costs = "pods are placed on what somebody closed for a reason"
        yield Remedy("Uncordon", text, changes, len(names), True, costs, command if len(names) <= 4 else "")


def untaint_nodes(openings: Openings) -> Iterator[Remedy]:
    """The fewest tainted nodes that have to be opened, or the toleration that does the same for these pods."""
    snapshot, work, options = openings.snapshot, openings.work, openings.options
    tainted = [n for n in snapshot.node_names if any(hypothesis.repels(t) for t in snapshot.nodes[n].taints)]
    names = openings.fewest(tainted, lambda some: hypothesis.with_nodes(snapshot, hypothesis.untainted, some))
    if not names:
        return
    taints: list[Obj] = []
    removal: list[Obj] = []
    for name in names:
        on_node = snapshot.nodes[name].taints
        taints += [u for t in on_node if hypothesis.repels(t) and (u := _untimed(t)) not in taints]
        kept = [t for t in on_node if not hypothesis.repels(t)]
        removal.append(patch("v1", "Node", name, {"spec": {"taints": kept}}))
    texts = listed([f"{t['key']}={t.get('value') or ''}:{t['effect']}" for t in taints])
    costs = "other pods without a toleration may then go there too"
    if any(t["key"].startswith("node.kubernetes.io/") for t in taints):
        costs = "the node controller puts it back unless what is wrong with the node is mended"
    text = f"remove the taint {texts} from {counted(len(names), 'node')} ({listed(names)})"
    yield Remedy("Untaint", text, tuple(removal), 2 * len(names), True, costs)
    tolerated = _with_tolerations(work.pending(snapshot), [_toleration(t) for t in taints])
    if work.fits(hypothesis.with_pods(snapshot, tolerated), options):
        changes = tuple(
            patch("v1", "Pod", p.key.name, {"spec": {"tolerations": p.obj["spec"]["tolerations"]}}, p.key.namespace)
            for p in tolerated
        )
        text = f"tolerate {texts} in the pods"
        yield Remedy("Tolerate", text, changes, 1, True, "the work runs where the taint says it should not")


def _untimed(taint: Obj) -> Obj:
    return {key: value for key, value in taint.items() if key != "timeAdded"}


def _with_tolerations(pods: Sequence[PodInfo], more: Sequence[Obj]) -> list[PodInfo]:
    return [PodInfo.of({**p.obj, "spec": {**p.spec, "tolerations": [*p.tolerations, *more]}}) for p in pods]


def _toleration(taint: Obj) -> Obj:
    return {"key": taint["key"], "operator": "Equal", "value": taint.get("value") or "", "effect": taint["effect"]}


def label_nodes(openings: Openings) -> Iterator[Remedy]:
    """Labels that the pods' nodeSelector asks for, on nodes that lack them."""
    snapshot, work = openings.snapshot, openings.work
    wanted: dict[str, str] = {}
    for pod in work.pending(snapshot):
        wanted.update(pod.spec.get("nodeSelector") or {})

    def labelled(node: Obj) -> Obj:
        meta = node["metadata"]
        return {**node, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **wanted}}}

    lacking = [n for n in snapshot.node_names if wanted.items() - snapshot.nodes[n].labels.items()] if wanted else []
    names = openings.fewest(lacking, lambda some: hypothesis.with_nodes(snapshot, labelled, some))
    if names:
        changes = tuple(patch("v1", "Node", name, {"metadata": {"labels": wanted}}) for name in names)
        texts = listed([f"{key}={value}" for key, value in sorted(wanted.items())])
        text, costs = f"label {listed(names)} with {texts}", "the label has to be true of the nodes"
        yield Remedy("LabelNodes", text, changes, 6 + len(names), True, costs)
