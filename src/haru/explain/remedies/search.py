"""What would help: one change at a time, tried on a snapshot that has it, and offered only with what came of it.

Cheapest kinds come first: a name that was probably meant; a cordon or taint to lift, a toleration; then others' work to
end; then less for this work; then more nodes. How often the scheduler may be asked is bounded by what one question
costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from haru.engine import Options, Reason, Snapshot
from haru.explain.diagnosis.capacity import Capacity
from haru.explain.diagnosis.diagnosis import Diagnosis
from haru.explain.diagnosis.workload_unit import Questions, WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies import near_names
from haru.explain.remedies.add_nodes import add_nodes
from haru.explain.remedies.combined_changes import combined
from haru.explain.remedies.device_taints import device_taints
from haru.explain.remedies.evictions import evict
from haru.explain.remedies.node_changes import label_nodes, uncordon, untaint_nodes
from haru.explain.remedies.node_openings import Openings
from haru.explain.remedies.relaxed_requests import (
    guarded_selectors,
    other_class,
    without_constraints,
    without_selectors,
)
from haru.explain.remedies.selectors import other_selector
from haru.explain.remedies.smaller_work import smaller_gang, smaller_request

MOST = 6
_FEWEST_QUESTIONS, _MOST_QUESTIONS = 20, 600
_PAIRS = 600_000
MENDING = frozenset({"CorrectName", "LabelNodes"})
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
    ways += _ways(snapshot, asking, options, found, refused.fit)
    if not any(remedy.kind in _OF_THE_CLUSTER for remedy in ways):
        ways.extend(combined(snapshot, asking, options))
    return tuple(sorted(ways, key=lambda r: (r.cost, r.kind))[:MOST])


def mends(refused: RefusedWork) -> Iterator[Remedy]:
    """Return remedies after which the same nodes serve the same work: names that were meant, and labels."""
    snapshot, work, options = refused.snapshot, refused.work, refused.options
    openings = Openings(snapshot, work, options, Capacity(snapshot, refused.diagnosis.members), 0)
    every = (*_names(snapshot, work, options, refused.reasons), *other_selector(openings), *label_nodes(openings))
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


def _ways(snapshot: Snapshot, work: WorkloadUnit, options: Options, found: Diagnosis, fit: int) -> Iterator[Remedy]:
    openings = Openings(snapshot, work, options, Capacity(snapshot, found.members), fit)
    yield from uncordon(openings)
    yield from untaint_nodes(openings)
    yield from device_taints(snapshot, work, options)
    if any(stage.errors for funnel in found.requests for stage in funnel.stages):
        yield from guarded_selectors(snapshot, work, options)
    yield from other_selector(openings)
    yield from label_nodes(openings)
    yield from smaller_gang(snapshot, work, options, fit)
    yield from smaller_request(openings, found)
    yield from without_constraints(openings, found)
    yield from without_selectors(openings, found)
    yield from other_class(openings, found)
    yield from add_nodes(openings)
    yield from evict(snapshot, work, options, found)
