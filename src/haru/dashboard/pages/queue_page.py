"""The queue as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from haru.dashboard.pages.explanation import reasons, remedies, verdict, whole_text
from haru.dashboard.views.queue import ShownExplanation, WaitingWorkload
from haru.dashboard.views.workloads import Filter, Workload
from haru.explain.render import counted
from haru.markup import Child, Html, tag

_MOST = 200


def queue_content(
    found: Sequence[WaitingWorkload], explanations: Mapping[Workload, ShownExplanation], chosen: Filter
) -> Child:
    """Make the content of the queue; `explanations` are those that are there so far."""
    if not found:
        return tag(
            "p", "Nothing that matches the filter waits." if chosen.parameters else "Nothing waits.", class_="empty"
        )
    pods = sum(each.pods for each in found)
    left = len(found) - _MOST
    return (
        tag("p", f"{counted(len(found), 'workload')} · {counted(pods, 'pod')} waiting", class_="totals"),
        tag("ol", (_entry(each, explanations.get(each.workload)) for each in found[:_MOST]), class_="queue"),
        tag("p", f"and {left} more: narrow them down with a filter", class_="hint") if left > 0 else None,
    )


def _entry(each: WaitingWorkload, explanation: ShownExplanation | None) -> Html:
    work = each.workload
    return tag(
        "li",
        tag("h2", tag("a", f"{work.namespace}/{work.name}", href=work.path)),
        tag("p", _facts(each), class_="facts"),
        _explained(explanation) if explanation is not None else _condition(each),
        class_="waiting",
        data_key=f"{work.namespace}/{work.name}",
    )


def _facts(each: WaitingWorkload) -> Child:
    since = (" · since ", tag("time", each.since, datetime=each.since)) if each.since else None
    return f"{counted(each.pods, 'pod')} waiting · priority {each.priority}", since


def _explained(shown: ShownExplanation) -> Child:
    answer = shown.explanation
    older = tag("p", f"As of {shown.as_of}; it is being worked out again.", class_="hint") if shown.as_of else None
    return tag("p", verdict(answer), " ", answer.summary), older, reasons(answer), remedies(answer), whole_text(answer)


def _condition(each: WaitingWorkload) -> Child:
    return (
        tag("p", each.said or "Not tried yet.", class_="said"),
        tag("p", "Reasons and remedies are being worked out.", class_="hint"),
    )
