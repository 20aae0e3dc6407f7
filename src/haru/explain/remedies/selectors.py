"""Pods whose nodeSelector asks for labels that no node has: what was probably meant, or to ask for less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from haru.engine import Snapshot
from haru.engine.state import Obj
from haru.explain import hypothesis
from haru.explain.changes import listed
from haru.explain.explanation import Remedy
from haru.explain.remedies.node_openings import Openings
from haru.explain.remedies.pod_changes import changed_pods, pod_changes
from haru.kube.decoding import suggest_name

_Values = Mapping[str, set[str]]


def other_selector(openings: Openings) -> Iterator[Remedy]:
    """The pods with the labels that were probably meant; else without the labels that no node has."""
    snapshot, work, options = openings.snapshot, openings.work, openings.options
    asked = {pair for pod in work.pending(snapshot) for pair in (pod.spec.get("nodeSelector") or {}).items()}
    values = _values(snapshot) if asked else {}
    unknown = sorted((key, value) for key, value in asked if value not in values.get(key, ()))
    if not unknown:
        return
    meant = {pair: close for pair in unknown if (close := _meant(pair, values)) is not None}
    if len(meant) == len(unknown):
        pods = changed_pods(snapshot, work, lambda spec: _with_labels(spec, meant))
        changes, costs = pod_changes(pods)
        fits = work.fits(hypothesis.with_pods(snapshot, pods), options)
        texts = [f"{meant[pair][0]}={meant[pair][1]} in place of {pair[0]}={pair[1]}" for pair in unknown]
        text = f"select nodes with {listed(texts)}: did you mean that?"
        yield Remedy("CorrectName", text, changes, 0, fits, costs)
    pods = changed_pods(snapshot, work, lambda spec: _with_labels(spec, dict.fromkeys(unknown)))
    if work.fits(hypothesis.with_pods(snapshot, pods), options):
        changes, costs = pod_changes(pods)
        text = f"leave out the nodeSelector {listed([f'{key}={value}' for key, value in unknown])}: no node has it"
        costs = f"the work runs on nodes that it was not meant for; {costs}"
        yield Remedy("RelaxNodeSelector", text, changes, 12, True, costs)


def _values(snapshot: Snapshot) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name in snapshot.node_names:
        for key, value in snapshot.nodes[name].labels.items():
            found.setdefault(key, set()).add(value)
    return found


def _meant(pair: tuple[str, str], values: _Values) -> tuple[str, str] | None:
    """The label of some node that was probably meant: the same one with a value, or another one with the same value."""
    key, value = pair
    close = suggest_name(value, sorted(values.get(key, ())))
    if close:
        return key, close
    name = (
        suggest_name(key, sorted(other for other, known in values.items() if value in known))
        if key not in values
        else ""
    )
    return (name, value) if name else None


def _with_labels(spec: Obj, instead: Mapping[tuple[str, str], tuple[str, str] | None]) -> Obj:
    selector = spec.get("nodeSelector") or {}
    pairs = [instead.get(pair, pair) for pair in selector.items()]
    if pairs == list(selector.items()):
        return spec
    return {**spec, "nodeSelector": dict(pair for pair in pairs if pair is not None)}
