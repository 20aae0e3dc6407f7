"""A workload's page as HTML."""

from __future__ import annotations

from haru.dashboard.pages.explanation import nodes, reasons, remedies, verdict, whole_text
from haru.dashboard.pages.frame import address
from haru.dashboard.views.story import PodRow, Story
from haru.dashboard.views.timeline import Entry
from haru.dashboard.views.workloads import Filter
from haru.explain.explanation import HeldClaim
from haru.explain.results import Explanation
from haru.markup import Child, Html, tag

_MOST_DEVICES = 8


def workload_content(found: Story) -> Child:
    """Make the content of a workload's page."""
    explanation = found.explanation
    return (
        tag("p", verdict(explanation), " ", explanation.summary, class_="summary"),
        _waits(explanation) if explanation.verdict not in ("Runs", "Starting") or explanation.remedies else None,
        _here(found.here) if found.here is not None else None,
        _pods(found),
        tag(
            "p",
            tag("a", "Show it on the map", href=address("/", Filter(found.workload.namespace, found.workload.name))),
        ),
        tag("h2", "What happened", id="timeline"),
        tag("ol", map(_entry, found.entries), class_="timeline", aria_labelledby="timeline"),
    )


def _waits(explanation: Explanation) -> Html:
    said = (tag("h3", "What the nodes say"), nodes(explanation)) if explanation.nodes else None
    return tag(
        "section", tag("h2", "Why not yet"), reasons(explanation), remedies(explanation), said, whole_text(explanation)
    )


def _here(here: Explanation) -> Html:
    """Explain a scheduled pod: its devices, and the verdicts of other nodes."""
    elsewhere = (
        (tag("p", "What the nodes would say to it now, had it no place yet:"), nodes(here)) if here.nodes else None
    )
    return tag(
        "section",
        tag("h2", "Why here"),
        tag("p", f"Pod {here.name}: {here.summary}"),
        elsewhere,
        whole_text(here),
    )


def _pods(found: Story) -> Child:
    if not found.pods:
        return tag("p", "It has no pods.", class_="empty")
    head = tag("tr", (tag("th", text, scope="col") for text in ("Pod", "Phase", "Node", "Since", "Devices")))
    rows = [_pod(row, found.workload.namespace) for row in found.pods]
    table = tag("table", tag("caption", "Pods"), tag("thead", head), tag("tbody", rows))
    more = tag("p", f"and {found.more_pods} more", class_="hint") if found.more_pods else None
    return tag("div", table, class_="wide", tabindex="0", role="region", aria_label="Pods"), more


def _pod(row: PodRow, namespace: str) -> Html:
    node: Child = tag("a", row.node, href=address("/", Filter(node=row.node))) if row.node else "none yet"
    return tag(
        "tr",
        tag("th", tag("a", row.name, href=f"/workload/{namespace}/pod/{row.name}"), scope="row"),
        tag("td", row.phase),
        tag("td", node),
        tag("td", tag("time", row.since, datetime=row.since) if row.since else ""),
        tag("td", (_held(claim) for claim in row.holds)),
    )


def _held(claim: HeldClaim) -> Html:
    names = [f"{device.device} ({device.product})" if device.product else device.device for device in claim.devices]
    more = f" and {len(names) - _MOST_DEVICES} more" if len(names) > _MOST_DEVICES else ""
    return tag("div", ", ".join(names[:_MOST_DEVICES]) + more, title=f"claim {claim.claim}")


def _entry(entry: Entry) -> Html:
    who = f"{entry.kind} {entry.name}" + (f" and {entry.count - 1} more" if entry.count > 1 else "")
    return tag(
        "li",
        tag("time", entry.time, datetime=entry.time),
        " ",
        tag("strong", entry.reason),
        tag("span", " warning", class_="warning") if entry.warning else None,
        f" {who}",
        tag("div", entry.message) if entry.message else None,
    )
