"""What a run found: broken promises and percentiles, as text, JSON and HTML, and two runs side by side. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from haru.kube.meta import Obj
from haru.markup import Html, joined, table, tag
from haru.stress.history import PROMISES, Broken, History
from haru.stress.plan import Plan

KIND: Final = "StressReport"
API_VERSION: Final = "haru.dev/v1alpha1"
_SHARES: Final = (50, 90, 99)
_SPANS: Final = {
    "creationToScheduled": "pod created → scheduled",
    "scheduledToRunning": "pod scheduled → Running",
    "creationToRunning": "pod created → Running",
    "gangCreationToScheduled": "gang created → scheduled",
}


class ReportError(ValueError):
    """A file that is no report of `haru stress`."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a run beside its history."""

    scheduler: str
    server: str
    nodes: int
    seconds: float
    scheduled_works: int = 0
    preempted_works: int = 0
    unscheduled_works: tuple[str, ...] = ()
    gaps: int = 0
    """How often a watch had to list anew: states in between were not seen."""
    notes: tuple[str, ...] = ()
    faults: tuple[Obj, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a run."""

    plan: Plan
    facts: Facts
    broken: tuple[Broken, ...]
    latencies: dict[str, Obj]
    pods: int
    revisions: int
    bindings_per_second: float = 0.0

    def as_dict(self) -> Obj:
        """The report as JSON."""
        plan, facts = self.plan.as_dict(), self.facts
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "seed": self.plan.seed,
            "limits": plan["limits"],
            "scheduler": facts.scheduler,
            "server": facts.server,
            "nodes": facts.nodes,
            "seconds": round(facts.seconds, 3),
            "works": {
                "planned": len(self.plan.units),
                "scheduled": facts.scheduled_works,
                "preempted": facts.preempted_works,
                "notScheduled": list(facts.unscheduled_works),
            },
            "pods": self.pods,
            "revisions": self.revisions,
            "gaps": facts.gaps,
            "bindingsPerSecond": round(self.bindings_per_second, 2),
            "latencySeconds": self.latencies,
            "faults": list(facts.faults),
            "notes": list(facts.notes),
            "broken": [one.as_dict() for one in self.broken],
        }

    def text(self) -> str:
        """The report for a terminal."""
        return text_of(self.as_dict())


def make_report(plan: Plan, facts: Facts, history: History) -> Report:
    """Make the report of a finished run."""
    pods = list(history.pods.values())
    created: dict[str, float] = {}
    for record in pods:
        created[record.unit] = min(created.get(record.unit, math.inf), record.created)
    gangs = [
        at - created[key.partition("/")[2]]
        for key, at in history.gangs_scheduled.items()
        if key.partition("/")[2] in created
    ]
    scheduled = [record.scheduled for record in pods if record.scheduled is not None]
    span = max(scheduled) - min(scheduled) if len(scheduled) > 1 else 0.0
    latencies = {
        "creationToScheduled": percentiles(p.scheduled - p.created for p in pods if p.scheduled is not None),
        "scheduledToRunning": percentiles(
            p.running - p.scheduled for p in pods if p.running is not None and p.scheduled is not None
        ),
        "creationToRunning": percentiles(p.running - p.created for p in pods if p.running is not None),
        "gangCreationToScheduled": percentiles(gangs),
    }
    rate = len(scheduled) / span if span else 0.0
    return Report(plan, facts, tuple(history.broken), latencies, len(pods), history.revisions, rate)


def percentiles(seconds: Iterable[float]) -> Obj:
    """Count, p50, p90, p99 and maximum by nearest rank; only the count where there is nothing."""
    ordered = sorted(seconds)
    if not ordered:
        return {"count": 0}
    found = {f"p{share}": round(ordered[math.ceil(share / 100 * len(ordered)) - 1], 3) for share in _SHARES}
    return {"count": len(ordered), **found, "max": round(ordered[-1], 3)}


def checked(document: Any, where: str) -> Obj:
    """The report in a decoded file; raises ReportError."""
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ReportError(f"{where}: this is no report of haru stress: write one with -o json")
    return document


# -- text -------------------------------------------------------------------------------------------------------------


def text_of(report: Obj) -> str:
    """A report for a terminal."""
    broken = report["broken"]
    lines = [_verdict(broken), "", *_facts_of(report), ""]
    lines += _rows([("seconds", "count", "p50", "p90", "p99", "max"), *_latency_rows(report)])
    if report["faults"]:
        lines += ["", f"faults: {_counted(fault['kind'] for fault in report['faults'])}"]
    lines += [f"note: {note}" for note in report["notes"]]
    if broken:
        lines += ["", *(f"{one['at']:8.3f} s  {one['promise']}: {one['message']}{_at(one)}" for one in broken)]
    return "\n".join(lines)


def _verdict(broken: Sequence[Obj]) -> str:
    if not broken:
        return "No promise was broken."
    return f"{len(broken)} broken promises: {_counted(one['promise'] for one in broken)}"


def _facts_of(report: Obj) -> list[str]:
    works = report["works"]
    left = f", {len(works['notScheduled'])} never" if works["notScheduled"] else ""
    preempted = f", {works['preempted']} preempted" if works["preempted"] else ""
    return [
        f"seed {report['seed']}, scheduler {report['scheduler']}, {report['server']}, {report['nodes']} nodes",
        f"{works['scheduled']} of {works['planned']} works scheduled{preempted}{left}; {report['pods']} pods, "
        f"{report['bindingsPerSecond']:g} bindings/s, {report['seconds']:.0f} s",
        f"{report['revisions']} revisions checked, {report['gaps']} gaps in the watches",
    ]


def _latency_rows(report: Obj) -> list[tuple[str, ...]]:
    return [
        (
            told,
            *(
                _number(report["latencySeconds"].get(name, {}).get(field))
                for field in ("count", "p50", "p90", "p99", "max")
            ),
        )
        for name, told in _SPANS.items()
    ]


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:g}"


def _rows(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]


def _at(one: Obj) -> str:
    return f" (revision {one['revision']})" if one["revision"] else ""


def _counted(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(Counter(names).items()))


# -- HTML -------------------------------------------------------------------------------------------------------------


def html_of(report: Obj) -> str:
    """A report as a page that needs nothing else."""
    broken = [(f"{one['at']:.3f}", one["promise"], one["revision"], one["message"]) for one in report["broken"]]
    faults = [(f"{one['at']:.3f}", one["kind"], one.get("message", "")) for one in report["faults"]]
    body = [
        tag("h1", "haru stress"),
        tag("p", tag("strong", _verdict(report["broken"]))),
        [tag("p", line) for line in _facts_of(report)],
        table("Latency in seconds", ("", "count", "p50", "p90", "p99", "max"), _latency_rows(report)),
        table("Broken promises", ("at (s)", "promise", "revision", "what was seen"), broken),
        table("Faults", ("at (s)", "fault", ""), faults),
        [tag("p", f"Note: {note}") for note in report["notes"]],
    ]
    style = "body{font:15px/1.5 sans-serif;margin:2rem}td,th{padding:.2rem 1rem .2rem 0}table{margin:1rem 0}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("title", f"haru stress, seed {report['seed']}"),
        tag("style", Html(style)),
    )
    return "<!doctype html>\n" + joined(tag("html", head, tag("body", body), lang="en")) + "\n"


# -- two reports ------------------------------------------------------------------------------------------------------


def compare(before: Obj, after: Obj) -> Obj:
    """Two reports side by side: broken promises and percentiles, and whether the second broke more."""
    promises = {name: [_count(report, name) for report in (before, after)] for name in PROMISES}
    latencies = {
        f"{name}.{field}": [_field(report, name, field) for report in (before, after)]
        for name in _SPANS
        for field in ("p50", "p90", "p99")
    }
    worse = any(second > first for first, second in promises.values())
    rates = [report["bindingsPerSecond"] for report in (before, after)]
    same = before["seed"] == after["seed"] and before["limits"] == after["limits"]
    return {
        "apiVersion": API_VERSION,
        "kind": "StressComparison",
        "samePlan": same,
        "worse": worse,
        "broken": promises,
        "latencySeconds": latencies,
        "bindingsPerSecond": rates,
    }


def compare_text(found: Obj, names: tuple[str, str]) -> str:
    """A comparison for a terminal."""
    rows: list[tuple[str, ...]] = [("", *names, "change")]
    rows += [
        (name, str(first), str(second), _change(first, second)) for name, (first, second) in found["broken"].items()
    ]
    for name, (first, second) in {"bindings/s": found["bindingsPerSecond"], **found["latencySeconds"]}.items():
        rows.append((name, _number(first), _number(second), _change(first, second)))
    warning = [] if found["samePlan"] else ["The plans differ: compare runs of one seed and the same limits.", ""]
    return "\n".join([*warning, *_rows(rows)])


def _change(first: float | None, second: float | None) -> str:
    if first is None or second is None or first == second:
        return ""
    return f"{(second - first) / first:+.0%}" if first else f"{second - first:+g}"


def _count(report: Obj, promise: str) -> int:
    return sum(1 for one in report["broken"] if one["promise"] == promise)


def _field(report: Mapping[str, Any], name: str, field: str) -> float | None:
    value = report["latencySeconds"].get(name, {}).get(field)
    return None if value is None else float(value)
