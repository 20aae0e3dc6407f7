"""Nodes that could be opened to the work: cordons, taints, labels; and the pods that could put up with a taint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.engine.state import PodInfo
from haru.explain import hypothesis
from haru.explain.changes import listed, patch
from haru.explain.explanation import Remedy
from haru.explain.remedies.node_openings import Openings
from haru.kube.meta import Obj
from haru.kube.names import counted
from haru.kube.node_labels import is_found_out
from haru.kube.node_taints import taint_text

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_LASTING = 14
"""What it costs more to use nodes that are kept for something else: as much as to ask for less."""


def uncordon(openings: Openings) -> Iterator[Remedy]:
    """The fewest cordoned nodes that have to be opened."""
    snapshot = openings.snapshot
    cordoned = [n for n in snapshot.node_names if hypothesis.is_cordoned(snapshot.nodes[n].spec.obj)]
    names = openings.fewest(cordoned, lambda some: hypothesis.with_nodes(snapshot, hypothesis.uncordoned, some))
    if names:
        changes = tuple(patch("v1", "Node", name, {"spec": {"unschedulable": None}}) for name in names)
        costs = "pods are placed on what somebody closed for a reason"
        yield Remedy("Uncordon", f"uncordon {listed(names)}", changes, len(names), True, costs)


def untaint_nodes(openings: Openings) -> Iterator[Remedy]:
    """The fewest tainted nodes that have to be opened, or the toleration that does the same for these pods.

    Nodes that somebody tainted for a while come first, then those for the control plane and those that are not well.
    """
    snapshot = openings.snapshot
    tainted = [n for n in snapshot.node_names if any(hypothesis.repels(t) for t in snapshot.nodes[n].taints)]
    plain = [name for name in tainted if not any(_is_lasting(taint) for taint in snapshot.nodes[name].taints)]
    for some in (plain, tainted):
        names = openings.fewest(some, lambda chosen: hypothesis.with_nodes(snapshot, hypothesis.untainted, chosen))
        if names:
            yield from _opened(openings, names)
            return


def _opened(openings: Openings, names: Sequence[str]) -> Iterator[Remedy]:
    snapshot, work, options = openings.snapshot, openings.work, openings.options
    taints: list[Obj] = []
    removal: list[Obj] = []
    for name in names:
        on_node = snapshot.nodes[name].taints
        taints += [u for t in on_node if hypothesis.repels(t) and (u := _untimed(t)) not in taints]
        kept = [t for t in on_node if not hypothesis.repels(t)]
        removal.append(patch("v1", "Node", name, {"spec": {"taints": kept}}))
    texts = _texts(taints)
    if trouble := [taint for taint in taints if _tells_trouble(taint)]:
        # To tolerate it, or to take it off by hand, leads to pods that do not start.
        text = f"mend what is wrong with {listed(names)}, so that the taint {_texts(trouble)} goes"
        others = [taint for taint in taints if taint not in trouble]
        if others and not work.fits(hypothesis.with_nodes(snapshot, _mended, names), options):
            text += f", and remove the taint {_texts(others)}"
        yield Remedy("Untaint", text, (), 2 * len(names), True, "a controller takes it off by itself")
        return
    lasting = _LASTING if any(_is_lasting(taint) for taint in taints) else 0
    costs = "other pods without a toleration may then go there too"
    text = f"remove the taint {texts} from {counted(len(names), 'node')} ({listed(names)})"
    yield Remedy("Untaint", text, tuple(removal), 2 * len(names) + lasting, True, costs)
    tolerated = _with_tolerations(work.pending(snapshot), [_toleration(t) for t in taints])
    if work.fits(hypothesis.with_pods(snapshot, tolerated), options):
        changes = tuple(
            patch("v1", "Pod", p.key.name, {"spec": {"tolerations": p.obj["spec"]["tolerations"]}}, p.key.namespace)
            for p in tolerated
        )
        text = f"tolerate {texts} in the pods"
        yield Remedy("Tolerate", text, changes, 1 + lasting, True, "the work runs where the taint says it should not")


def _texts(taints: Sequence[Obj]) -> str:
    return listed([taint_text(taint) for taint in taints])


def _mended(node: Obj) -> Obj:
    """The node once what is wrong with it is mended: what somebody else tainted it with stays."""
    taints = [taint for taint in node["spec"].get("taints") or () if not _tells_trouble(taint)]
    return {**node, "spec": {**node["spec"], "taints": taints}}


def _tells_trouble(taint: Obj) -> bool:
    """Whether a controller put a taint there, because the node is not ready, not reachable, or short of something."""
    return str(taint["key"]).startswith(("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"))


def _is_lasting(taint: Obj) -> bool:
    return _tells_trouble(taint) or taint["key"] in _CONTROL_PLANE


def _untimed(taint: Obj) -> Obj:
    return {key: value for key, value in taint.items() if key != "timeAdded"}


def _with_tolerations(pods: Sequence[PodInfo], more: Sequence[Obj]) -> list[PodInfo]:
    return [PodInfo.of({**p.obj, "spec": {**p.spec, "tolerations": [*p.tolerations, *more]}}) for p in pods]


def _toleration(taint: Obj) -> Obj:
    return {"key": taint["key"], "operator": "Equal", "value": taint.get("value") or "", "effect": taint["effect"]}


def label_nodes(openings: Openings) -> Iterator[Remedy]:
    """Labels that the pods' nodeSelector asks for, on nodes that lack them, as far as people set such labels."""
    snapshot, work = openings.snapshot, openings.work
    wanted: dict[str, str] = {}
    for pod in work.pending(snapshot):
        wanted.update(pod.spec.get("nodeSelector") or {})

    def labelled(node: Obj) -> Obj:
        meta = node["metadata"]
        return {**node, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **wanted}}}

    lacking = {name: wanted.items() - snapshot.nodes[name].labels.items() for name in snapshot.node_names}

    def is_settable(name: str, key: str) -> bool:
        """Not where a component sets it, nor where the node has another value, which says something else of it."""
        return not is_found_out(key) and key not in snapshot.nodes[name].labels

    open_ = [name for name, labels in lacking.items() if labels and all(is_settable(name, key) for key, _ in labels)]
    names = openings.fewest(open_, lambda some: hypothesis.with_nodes(snapshot, labelled, some))
    if names:
        changes = tuple(
            patch("v1", "Node", name, {"metadata": {"labels": dict(sorted(lacking[name]))}}) for name in names
        )
        texts = listed(sorted({f"{key}={value}" for name in names for key, value in lacking[name]}))
        text, costs = f"label {listed(names)} with {texts}", "the label has to be true of the nodes"
        yield Remedy("LabelNodes", text, changes, 6 + len(names), True, costs)
