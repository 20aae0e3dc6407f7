"""The difference that changes make: two courses of events, without the changes and with them, side by side.

What would happen anyway is not the changes' doing: it is counted, not told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from haru.engine import Options, Reason, Snapshot
from haru.engine.podgroup import has_quorum, min_count
from haru.engine.state import GroupKey, PodInfo, ReasonType, workload_of
from haru.explain import PendingRow
from haru.explain.results import Explanation
from haru.kube.meta import Obj, controller_of
from haru.whatif.changes import Apply, Change, apply_change, describe
from haru.whatif.comparison_data import ComparisonData, Displacement, Gang, Outcome, Start, Wait
from haru.whatif.course import Displaced, End, run_course
from haru.whatif.html import to_html
from haru.whatif.left_pending import Inquiry, left_pending
from haru.whatif.objects import Objects
from haru.whatif.output import to_json
from haru.whatif.text import to_text
from haru.whatif.usage import Amount, usage_of


@dataclass(frozen=True, slots=True)
class Comparison(ComparisonData):
    """What changes come to; `ComparisonData` explains the fields."""

    def as_dict(self) -> Obj:
        """The WhatIf object of haru.dev/v1alpha1, as `haru whatif -o json` prints it."""
        return to_json(self)

    def __str__(self) -> str:
        return to_text(self)

    def _repr_html_(self) -> str:
        return to_html(self)


def try_out(
    original: Objects,
    changes: Sequence[Change],
    options: Options,
    scheduler_name: str,
    now: datetime,
    inquiry: Inquiry | None = None,
) -> Comparison:
    """Make changes to a copy of a cluster and compare what comes of it; ChangeError if one cannot be made.

    Objects of kinds with namespaces must name theirs. `now` is when taints that come with the changes are added;
    `inquiry` says how to explain what waits.
    """
    changed = original.copy()
    for change in changes:
        apply_change(changed, change, now)
    changed.regroup()
    before = run_course(original, original, options, scheduler_name, now)
    after = run_course(changed, original, options, scheduler_name, now)
    told = tuple(describe(change) for change in changes if not (isinstance(change, Apply) and change.follows))
    pending = left_pending(after.snapshot, after.at, inquiry or Inquiry())
    return _Difference(original, before, after, scheduler_name, pending).compare(told)


class _Difference:
    def __init__(
        self, original: Objects, before: End, after: End, scheduler_name: str, pending: tuple[PendingRow, ...]
    ) -> None:
        self._ran = {p: o for p, o in original.of_kind("Pod").items() if (o.get("spec") or {}).get("nodeName")}
        self._known = original.of_kind("Pod").keys()
        self._before = before
        self._after = after
        self._scheduler_name = scheduler_name
        self._pending = pending
        pods = after.snapshot.pods
        ours = ((path, row) for row in pending for path in row.paths if pods[path].scheduler_name == scheduler_name)
        self._explained = {path: row.explanation for path, row in ours}

    def compare(self, changes: tuple[str, ...]) -> Comparison:
        before, after = self._before.snapshot, self._after.snapshot
        placed_before, placed_after = _placed(before), _placed(after)
        started = [p for p in placed_after if p not in self._ran]
        # Who got a place only to lose it for good is told, too; who waits again waits as before.
        lost = {p: d for p, d in self._after.displaced.items() if p in self._ran or p not in after.pods}
        anyway = {p for p in self._before.displaced if p in lost and (p in placed_after or p not in placed_before)}
        none = Amount()
        usages = usage_of(before), usage_of(after)
        waiting = {p for p, pod in after.pods.items() if not pod.node and not pod.terminal and not pod.deleting}
        new = {p: self._wait(p, placed_before) for p in sorted(waiting) if p not in self._ran}
        waits = tuple(wait for wait in new.values() if wait is not None)
        return Comparison(
            changes=changes,
            starts=tuple(self._start(p, placed_after) for p in sorted(started) if p not in placed_before),
            displaced=tuple(self._displacement(p, d, placed_after) for p, d in sorted(lost.items()) if p not in anyway),
            waits=waits,
            gangs=tuple(_gangs(before, after)),
            usage={name: (usages[0].get(name, none), usages[1].get(name, none)) for name in {**usages[0], **usages[1]}},
            still_waiting=len(new) - len(waits),
            anyway=(sum(p in placed_before for p in started), len(anyway)),
            errors=tuple(dict.fromkeys(self._after.errors)),
            pending=self._pending,
            settled=self._before.settled and self._after.settled,
        )

    def _start(self, path: str, placed: Mapping[str, PodInfo]) -> Start:
        return Start(path, workload_of(placed[path]), placed[path].node, _devices(self._after.snapshot, path))

    def _wait(self, path: str, placed_before: Mapping[str, PodInfo]) -> Wait | None:
        new = path not in self._known
        if not new and path not in placed_before:
            return None
        workload = workload_of(self._after.snapshot.pods[path])
        return Wait(path, workload, new, self._reasons(path), self._explained.get(path))

    def _displacement(self, path: str, gone: Displaced, placed: Mapping[str, PodInfo]) -> Displacement:
        pod, now = gone.pod, placed.get(path)
        outcome: Outcome = "Restarts"
        reasons: tuple[Reason, ...] = ()
        explanation: Explanation | None = None
        if gone.cause.type == "Deleted" and not gone.remade:
            outcome = "Deleted"
        elif gone.cause.type == "NodeGone" and (controller_of(pod.obj) or {}).get("kind") in ("DaemonSet", "Node"):
            outcome = "GoesWithNode"
        elif not gone.remade:
            outcome = "Lost"
        elif now is None or path in self._after.circling:
            outcome, reasons, explanation = "Waits", self._reasons(path), self._explained.get(path)
        node = now.node if now is not None and outcome == "Restarts" else ""
        cause, seconds = gone.cause, gone.after_seconds
        return Displacement(path, workload_of(pod), pod.node, cause, outcome, seconds, node, reasons, explanation)

    def _reasons(self, path: str) -> tuple[Reason, ...]:
        circling = self._after.circling.get(path)
        if circling is not None:
            kind: ReasonType = "NodeTaints" if circling.type == "NodeTaint" else "DeviceTainted"
            return (Reason(kind, f"{circling.message}: it is evicted again wherever it comes back to", circling.data),)
        told = self._explained.get(path)
        if told is not None:
            return told.reasons
        pod = self._after.snapshot.pods.get(path)
        if pod is not None and pod.scheduler_name != self._scheduler_name:
            text = f"it is scheduled by {pod.scheduler_name}, whose decisions are not foreseen here"
            return (Reason("SchedulerNameMismatch", text, {"schedulerName": pod.scheduler_name}),)
        return (Reason("Waiting", "it waits"),)


def _placed(snapshot: Snapshot) -> dict[str, PodInfo]:
    return {path: pod for path, pod in snapshot.pods.items() if pod.node and not pod.terminal}


def _devices(snapshot: Snapshot, path: str) -> tuple[str, ...]:
    pod = snapshot.pods[path]
    claims = snapshot.claim_index.by_consumer.get(f"pods/{path}") or frozenset()
    if pod.group is not None:
        claims |= snapshot.claim_index.by_consumer.get(f"podgroups/{pod.group.path}") or frozenset()
    results = [
        result
        for claim in sorted(claims)
        for result in snapshot.claims[claim]["status"]["allocation"].get("devices", {}).get("results") or ()
    ]
    return tuple(f"{result['pool']}/{result['device']}" for result in results)


def _gangs(before: Snapshot, after: Snapshot) -> list[Gang]:
    """Gangs that fall below their quorum."""
    found = []
    for path, group in sorted(after.pod_groups.items()):
        minimum = min_count(group)
        namespace, _, name = path.partition("/")
        key = GroupKey(namespace, name)
        if minimum is not None and has_quorum(before, key, group) and not has_quorum(after, key, group):
            found.append(Gang(path, after.group_state(key).scheduled_count, minimum))
    return found
