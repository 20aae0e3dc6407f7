"""Pods whose nodeSelector asks for labels that no node has: what was probably meant, or to ask for less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from haru.explain import hypothesis
from haru.explain.changes import listed
from haru.explain.diagnosis.unmet_labels import LabelValues, Pair, label_values, node_selector
from haru.explain.explanation import Remedy
from haru.explain.remedies.node_openings import Openings, smallest
from haru.explain.remedies.pod_changes import Change, changed_pods, pod_changes
from haru.kube.decoding import suggest_name
from haru.kube.meta import Obj
from haru.kube.node_labels import is_found_out


def other_selector(openings: Openings) -> Iterator[Remedy]:
    """The pods with the labels that were probably meant; else without labels that keep them from nodes."""
    snapshot, work, options = openings.snapshot, openings.work, openings.options
    asked = sorted({pair for pod in work.pending(snapshot) for pair in node_selector(pod)})
    values = label_values(snapshot) if asked else {}
    unknown = [(key, value) for key, value in asked if value not in values.get(key, ())]
    meant = {pair: close for pair in unknown if (close := _meant(pair, values)) is not None}
    if unknown and len(meant) == len(unknown):
        pods = changed_pods(snapshot, work, lambda spec: _with_labels(spec, meant))
        changes, costs = pod_changes(snapshot, pods, lambda spec: _with_labels(spec, meant))
        fits = work.fits(hypothesis.with_pods(snapshot, pods), options) and not _runtime_classes(openings)
        texts = [_in_place(meant[pair], pair) for pair in unknown]
        text = f"select nodes with {listed(texts)}: did you mean that?"
        yield Remedy("CorrectName", text, changes, 0, fits, costs)
    yield from _without_labels(openings, unknown or asked, unknown=bool(unknown))


def _without_labels(openings: Openings, pairs: Sequence[Pair], *, unknown: bool) -> Iterator[Remedy]:
    """The fewest labels without which it fits."""
    snapshot, work, options = openings.snapshot, openings.work, openings.options

    def change(gone: Sequence[Pair]) -> Change:
        return lambda spec: _with_labels(spec, dict.fromkeys(gone))

    def fits(gone: Sequence[Pair]) -> bool:
        return work.fits(hypothesis.with_pods(snapshot, changed_pods(snapshot, work, change(gone))), options)

    gone = smallest(pairs, fits)
    if not gone:
        return
    changes, costs = pod_changes(snapshot, changed_pods(snapshot, work, change(gone)), change(gone))
    text = f"leave out the nodeSelector {listed([words_of(pair) for pair in gone])}"
    text += ": no node has it" if unknown else ", so that other nodes can take the work"
    costs = f"the work runs on nodes that it was not meant for; {costs}"
    classes = _runtime_classes(openings)
    if classes:
        costs += f"; what RuntimeClass {listed(classes)} selects comes back when the pod is made"
    yield Remedy("RelaxNodeSelector", text, changes, 12 if unknown else 13, not classes, costs)


def _runtime_classes(openings: Openings) -> list[str]:
    """The RuntimeClasses of the work: admission may have written their selectors into the pods' own."""
    found = (pod.spec.get("runtimeClassName") for pod in openings.work.pending(openings.snapshot))
    return sorted({name for name in found if name})


def words_of(pair: Pair) -> str:
    """A label in words: of those that components set what they are about (`zone eu-west-1c`)."""
    key, value = pair
    return f"{key.rpartition('/')[2]} {value}" if is_found_out(key) else f"{key}={value}"


def _in_place(meant: Pair, pair: Pair) -> str:
    if meant[0] == pair[0] and is_found_out(pair[0]):
        return f"{words_of(meant)} in place of {pair[1]}"
    return f"{words_of(meant)} in place of {words_of(pair)}"


def _meant(pair: tuple[str, str], values: LabelValues) -> tuple[str, str] | None:
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
