"""What would help: one change at a time, tried on a snapshot that has it, and offered only with what came of it.

Cheapest kinds come first: a name that was probably meant; a cordon or taint to lift, a toleration; then others' work to
end; then less for this work; then more nodes. How often the scheduler may be asked is bounded by what one question
costs.
Where no single kind of change helps, each cordon, taint and piece of running work is a switch; switches are thrown off
one by one as long as it still fits (`combined`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain

from haru.engine import Options, Reason, Snapshot
from haru.engine.state import PodInfo
from haru.explain import hypothesis
from haru.explain.changes import listed, patch
from haru.explain.diagnosis.diagnosis import Diagnosis, diagnose
from haru.explain.diagnosis.requests import Capacity
from haru.explain.diagnosis.verdict import own_pods, victims
from haru.explain.diagnosis.workload_unit import Questions, WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies import near_names
from haru.explain.remedies.add_nodes import add_nodes, different_nodes, other_nodes
from haru.explain.remedies.affinity_terms import without_missing_targets
from haru.explain.remedies.attribute_names import meant_selectors
from haru.explain.remedies.daemon_sets import narrower_daemon_set
from haru.explain.remedies.device_taints import by_driver, device_taints, repelling_taints, taint_removal
from haru.explain.remedies.evictions import ending, evict
from haru.explain.remedies.extended_resources import providing_classes
from haru.explain.remedies.makers import is_of_same_maker
from haru.explain.remedies.node_changes import label_nodes, uncordon, untaint_nodes
from haru.explain.remedies.node_openings import Openings
from haru.explain.remedies.relaxed_requests import (
    guarded_selectors,
    other_class,
    without_constraints,
    without_selectors,
)
from haru.explain.remedies.selectors import other_selector
from haru.explain.remedies.smaller_amounts import smaller_amounts
from haru.explain.remedies.smaller_work import smaller_capacity, smaller_gang, smaller_request
from haru.explain.remedies.topology import other_topology_key, without_domain
from haru.explain.remedies.volumes import volume_remedies
from haru.kube.meta import Obj

_MOST_SWITCHES = 64
_COSTS = "all of it at once: no single one of these is enough"


@dataclass(frozen=True, slots=True)
class _Switch:
    """Something that may be lifted. How the pods that one ends are ended is said for all such switches together."""

    summary: str
    apply: Callable[[Snapshot], Snapshot]
    changes: tuple[Obj, ...]
    cost: int
    ended: tuple[PodInfo, ...] = ()


def combined(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> Iterator[Remedy]:
    """One remedy that lifts obstacles of several kinds, if lifting all of them helps."""
    switches = sorted(_switches(snapshot, work), key=lambda s: -s.cost)

    def fits(thrown: Sequence[_Switch]) -> bool:
        return work.fits(reduce(lambda s, switch: switch.apply(s), thrown, snapshot), options)

    kept = list(switches)
    if not kept or len(kept) > _MOST_SWITCHES or not fits(kept):
        return
    for switch in switches:
        fewer = [other for other in kept if other is not switch]
        if fits(fewer):
            kept = fewer
    if not kept:
        return
    doors = [switch for switch in kept if not switch.ended]
    ended = [pod for switch in kept for pod in switch.ended]
    opened = reduce(lambda s, switch: switch.apply(s), doors, snapshot)
    ways: list[_Switch | Remedy] = list(doors)
    if ended:
        end = ending(opened, work, options, ended)
        if end is None:
            return
        ways.insert(0, end)
    text = listed([way.summary for way in ways])
    changes = tuple(change for way in ways for change in way.changes)
    yield Remedy("Combination", text, changes, sum(switch.cost for switch in kept), True, _COSTS)


def _switches(snapshot: Snapshot, work: WorkloadUnit) -> Iterator[_Switch]:
    for name in snapshot.node_names:
        yield from _node_switches(snapshot, name)
    for text in repelling_taints(snapshot):
        changes, left = taint_removal(snapshot, text)
        note = f" ({by_driver(left)})" if left else ""
        yield _Switch(f"remove device taint {text}{note}", _without_device_taint(text), tuple(changes), 3)
    own = is_of_same_maker(snapshot, work)
    for unit in (unit for unit in victims(snapshot, work) if not any(map(own, unit.pods))):
        paths = [pod.key.path for pod in unit.pods]
        yield _Switch("", _without(paths), (), 10 + len(paths), unit.pods)


def _node_switches(snapshot: Snapshot, name: str) -> Iterator[_Switch]:
    spec = snapshot.nodes[name].spec
    if hypothesis.is_cordoned(spec.obj):
        body: Obj = {"spec": {"unschedulable": None}}
        yield _Switch(f"uncordon {name}", _changed(hypothesis.uncordoned, name), (patch("v1", "Node", name, body),), 1)
    if any(hypothesis.repels(taint) for taint in spec.taints):
        body = {"spec": {"taints": [t for t in spec.taints if not hypothesis.repels(t)]}}
        change = patch("v1", "Node", name, body)
        yield _Switch(f"remove the taints of {name}", _changed(hypothesis.untainted, name), (change,), 2)


def _changed(change: Callable[[Obj], Obj], name: str) -> Callable[[Snapshot], Snapshot]:
    return lambda snapshot: hypothesis.with_nodes(snapshot, change, [name])


def _without(paths: Sequence[str]) -> Callable[[Snapshot], Snapshot]:
    return lambda snapshot: hypothesis.without_pods(snapshot, paths)


def _without_device_taint(text: str) -> Callable[[Snapshot], Snapshot]:
    return lambda snapshot: hypothesis.without_device_taints(snapshot, lambda pool, device, taint: str(taint) == text)


MOST = 6
_FEWEST_QUESTIONS, _MOST_QUESTIONS = 20, 600
_PAIRS = 600_000
MENDING = frozenset({"CorrectName", "CreateVolume", "LabelNodes", "ProvideResource"})
_OF_THE_CLUSTER = frozenset(
    {
        "Uncordon",
        "Untaint",
        "Tolerate",
        "TolerateDevices",
        "RemoveDeviceTaint",
        "DeleteDeviceTaintRule",
        "LabelNodes",
        "Evict",
        "MoveWork",
        "AddNodes",
    }
)


@dataclass(frozen=True, slots=True)
class RefusedWork:
    """Work that the scheduler refuses, for these reasons; `fit` of its members have a place now."""

    snapshot: Snapshot
    work: WorkloadUnit
    options: Options
    diagnosis: Diagnosis
    reasons: Sequence[Reason]
    fit: int


def remedies(refused: RefusedWork) -> tuple[Remedy, ...]:
    """Return confirmed remedies for refused work, the cheapest first."""
    snapshot, work, options, found = refused.snapshot, refused.work, refused.options, refused.diagnosis
    pairs = len(snapshot.node_names) * max(1, len(work.pending(snapshot)))
    left = max(_FEWEST_QUESTIONS, min(_MOST_QUESTIONS, _PAIRS // max(1, pairs)))
    asking = replace(work, questions=Questions(left))
    every = [*refused.reasons, *found.reasons()]
    ways = [*_names(snapshot, asking, options, every), *_missing_class(every)]
    ways += volume_remedies(snapshot, asking, options, every)
    ways += _ways(refused, asking, every)
    if not any(remedy.kind in _OF_THE_CLUSTER and remedy.confirmed for remedy in ways):
        ways.extend(combined(snapshot, asking, options))
    if not any(remedy.confirmed for remedy in ways):
        openings = replace(_openings(refused), work=asking)
        ways += [*different_nodes(openings, every)] or [*other_nodes(found)]
    return tuple(sorted(ways, key=lambda r: (r.cost, r.kind))[:MOST])


def freed(refused: RefusedWork) -> RefusedWork:
    """Return the same work where nothing else runs."""
    work = replace(refused.work, questions=Questions(_FEWEST_QUESTIONS))
    empty = hypothesis.emptied(refused.snapshot, own_pods(refused.snapshot, work))
    return apart(replace(refused, snapshot=empty, work=work, fit=0))


def apart(refused: RefusedWork) -> RefusedWork:
    """Return the same with a diagnosis of its own: another one goes on to be asked of the cluster that it is of."""
    snapshot = replace(refused.snapshot, decision_cache=type(refused.snapshot.decision_cache)())
    return replace(refused, snapshot=snapshot, diagnosis=diagnose(snapshot, refused.work, refused.options))


def once_free(free: RefusedWork) -> Iterator[Remedy]:
    """Return remedies after which freed work waits for what runs in truth; without them it would wait in vain."""
    openings, found = _openings(free), free.diagnosis
    ways = chain(
        without_domain(openings, free.reasons),
        other_selector(openings),
        label_nodes(openings),
        without_constraints(openings, found),
        without_selectors(openings, found),
    )
    yield from (remedy.not_enough("running work has ended or is preempted") for remedy in ways if remedy.confirmed)


def _openings(refused: RefusedWork) -> Openings:
    capacity = Capacity(refused.snapshot, refused.diagnosis.members)
    return Openings(refused.snapshot, refused.work, refused.options, capacity, refused.fit)


def mends(refused: RefusedWork) -> Iterator[Remedy]:
    """Return remedies after which the same nodes serve the same work: names that were meant, and labels."""
    snapshot, work, options = refused.snapshot, refused.work, refused.options
    openings = _openings(refused)
    reasons = [*refused.reasons, *refused.diagnosis.reasons()]
    volumes = volume_remedies(snapshot, work, options, reasons)
    names = _names(snapshot, work, options, refused.reasons)
    classes = providing_classes(snapshot, work, options, reasons)
    keys, meant = other_topology_key(openings, reasons), meant_selectors(openings, refused.diagnosis)
    every = chain(names, keys, meant, classes, volumes, other_selector(openings), label_nodes(openings))
    yield from (remedy for remedy in every if remedy.kind in MENDING and remedy.confirmed)


def _names(snapshot: Snapshot, work: WorkloadUnit, options: Options, reasons: Sequence[Reason]) -> Iterator[Remedy]:
    for correction in near_names.of_reasons(snapshot, work, reasons):
        yield correction.remedy(correction.work.fits(correction.snapshot, options))


def _missing_class(reasons: Sequence[Reason]) -> Iterator[Remedy]:
    """A class that does not exist: what it should select is for its author to say."""
    names = {reason.data["deviceClass"] for reason in reasons if reason.type == "DeviceClassMissing"}
    for name in sorted(name for name in names if name):
        costs = "its selectors are for its author to say, so this could not be tried"
        yield Remedy("CreateDeviceClass", f"create DeviceClass {name}", (), 1, False, costs)


def _ways(refused: RefusedWork, work: WorkloadUnit, reasons: Sequence[Reason]) -> Iterator[Remedy]:
    snapshot, options, found, fit = refused.snapshot, refused.options, refused.diagnosis, refused.fit
    openings = replace(_openings(refused), work=work)
    yield from other_topology_key(openings, reasons)
    yield from without_domain(openings, reasons)
    yield from without_missing_targets(openings, reasons)
    yield from meant_selectors(openings, found)
    yield from providing_classes(snapshot, work, options, reasons)
    yield from uncordon(openings)
    yield from untaint_nodes(openings)
    yield from device_taints(snapshot, work, options)
    if any(stage.errors for funnel in found.requests for stage in funnel.stages):
        yield from guarded_selectors(snapshot, work, options)
    yield from other_selector(openings)
    yield from label_nodes(openings)
    yield from narrower_daemon_set(snapshot, work, options)
    yield from smaller_gang(snapshot, work, options, fit or found.in_domain or 0)
    yield from smaller_request(openings, found)
    yield from smaller_capacity(openings, found)
    yield from smaller_amounts(openings, found)
    yield from without_constraints(openings, found)
    yield from without_selectors(openings, found)
    yield from other_class(openings, found)
    yield from add_nodes(openings)
    yield from evict(snapshot, work, options, found)
