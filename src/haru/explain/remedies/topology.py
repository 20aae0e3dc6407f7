"""Topology keys that no node has: the one that was probably meant, or to do without; and domains that are too small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.engine import Reason
from haru.explain import hypothesis
from haru.explain.diagnosis.gated import remade_group, risk_of_quotas
from haru.explain.diagnosis.unmet_labels import group_topology_keys, label_values
from haru.explain.explanation import Remedy
from haru.explain.remedies.node_openings import Openings
from haru.explain.remedies.pod_changes import changed_pods, pod_changes
from haru.gangs import is_translated
from haru.kube.decoding import suggest_name
from haru.kube.meta import Obj

_COSTS = "the pods may be further apart than the work wants them"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def other_topology_key(openings: Openings, reasons: Sequence[Reason]) -> Iterator[Remedy]:
    """The work with the topology key that was probably meant; else without the one that no node has."""
    keys = [str(reason.data["topologyKey"]) for reason in reasons if reason.type == "TopologyKeyMissing"]
    for key in dict.fromkeys(keys):
        close = suggest_name(key, label_values(openings.snapshot))
        if close:
            text = f"name the topology key {close} in place of {key}: did you mean that?"
            yield from _changed(openings, key, close, Remedy("CorrectName", text, (), 0, True))
        text = f"leave out the topology key {key}: no node has it"
        yield from _changed(openings, key, "", Remedy("DropConstraint", text, (), 11, True, _COSTS))


def without_domain(openings: Openings, reasons: Sequence[Reason]) -> Iterator[Remedy]:
    """The group without the topology key of which no domain takes all of it."""
    nowhere = {reason.data["topologyKey"] for reason in reasons if reason.type == "TopologyKeyMissing"}
    for reason in reasons:
        if reason.type == "TopologyDomain" and reason.data["topologyKey"] not in nowhere:
            key = str(reason.data["topologyKey"])
            text = f"leave out the topology key {key}, so that the group may be in several domains"
            yield from _changed(openings, key, "", Remedy("DropConstraint", text, (), 16, True, _COSTS))


def _changed(openings: Openings, key: str, close: str, remedy: Remedy) -> Iterator[Remedy]:
    snapshot, work = openings.snapshot, openings.work

    def renamed(spec: Obj) -> Obj:
        return _with_key(spec, key, close)

    pods, group = changed_pods(snapshot, work, renamed), work.pod_group(snapshot)
    after = hypothesis.with_pods(snapshot, pods)
    changes, costs = pod_changes(snapshot, pods, renamed) if pods else ((), "")
    risk = ""
    if group is not None and work.group is not None and key in group_topology_keys(group):
        if pods or is_translated(group):
            return
        spec = _group_with_key(group["spec"], key, close)
        after = hypothesis.with_pod_group(after, work.group.path, {**group, "spec": spec})
        changes, costs = remade_group(snapshot, group, spec), "the PodGroup is made again with its pods"
        risk = risk_of_quotas(snapshot, group)
    fits = work.fits(after, openings.options)
    if fits or close:
        told = "; ".join(part for part in (remedy.costs, costs) if part)
        told += "" if fits else "; it would then wait for something else"
        yield Remedy(remedy.kind, remedy.summary, changes, remedy.cost, fits and not risk, told + risk)


def _group_with_key(spec: Obj, key: str, close: str) -> Obj:
    constraints = spec.get("schedulingConstraints") or {}
    topology = _renamed(constraints.get("topology") or (), "key", key, close)
    rest = {name: value for name, value in constraints.items() if name != "topology"}
    kept = {**rest, **({"topology": topology} if topology else {})}
    without = {name: value for name, value in spec.items() if name != "schedulingConstraints"}
    return {**without, **({"schedulingConstraints": kept} if kept else {})}


def _with_key(spec: Obj, key: str, close: str) -> Obj:
    """A pod's spec with the other key in its spread constraints and its affinity to pods."""
    changed = dict(spec)
    if spec.get("topologySpreadConstraints"):
        changed["topologySpreadConstraints"] = _renamed(spec["topologySpreadConstraints"], "topologyKey", key, close)
    affinity = (spec.get("affinity") or {}).get("podAffinity") or {}
    if affinity.get(_REQUIRED):
        terms = _renamed(affinity[_REQUIRED], "topologyKey", key, close)
        changed["affinity"] = {**spec["affinity"], "podAffinity": {**affinity, _REQUIRED: terms}}
    return changed


def _renamed(terms: Sequence[Obj], field: str, key: str, close: str) -> list[Obj]:
    kept = [term for term in terms if close or term.get(field) != key]
    return [{**term, field: close} if term.get(field) == key else term for term in kept]
