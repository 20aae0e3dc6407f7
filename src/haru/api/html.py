"""Answers as HTML, for notebooks: tables with captions and header cells, nothing told by colour alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from haru.api.allocation_data import AllocationData, RefusedOn
from haru.api.allocation_text import MOST_NODES, device_text, request_text
from haru.kube.names import counted, names_text
from haru.markup import Child, Html, section, table, tag

_COLUMNS = {
    "bound": ("pod", "node"),
    "nominated, once the evicted are gone": ("pod", "node"),
    "evicted": ("pod",),
    "devices": ("claim", "devices"),
    "pending": ("pod", "because"),
    "groups": ("PodGroup", "state"),
}


def round_html(
    bound: int, nominated: int, pending: int, tables: Sequence[tuple[str, Sequence[tuple[str, ...]]]]
) -> Html:
    """A table for each thing that can become of a pod, and the groups."""
    summary = f"{bound} bound, {nominated} nominated, {pending} pending"
    return section(f"Scheduling round: {summary}", [table(title, _COLUMNS[title], rows) for title, rows in tables])


def allocation_html(answer: AllocationData) -> Html:
    """Render the allocations as HTML, and why other nodes do not fit."""
    title = f"fits on {len(answer.nodes)} of {answer.asked} nodes" if answer.fits else "does not fit on any node"
    given = (
        (f"{claim.namespace}/{claim.name}", result["request"], device_text(result))
        for claim in answer.claims
        for result in claim.allocation["devices"]["results"]
    )
    return section(
        f"Device allocation: {title}",
        table(f"On {answer.node}", ("claim", "request", "device"), given),
        table("Not on", ("nodes", "because", "how devices narrow down"), map(_refused, answer.refusals)),
    )


def snapshot_html(size: int, counts: Mapping[str, int], refused_kinds: Sequence[str]) -> Html:
    """How many objects there are of each kind."""
    rows = [(kind, str(count)) for kind, count in counts.items()]
    refused = f"without {', '.join(refused_kinds)}, which may not be read" if refused_kinds else None
    return section(f"Snapshot of {counted(size, 'object')}", table("Objects", ("kind", "count"), rows), refused)


def _refused(refused: RefusedOn) -> tuple[Child, ...]:
    because = [refused.error] if refused.error else []
    because += [str(reason["message"]) for reason in refused.reasons]
    funnels = [f"{request['claim']} {request['request']}: {request_text(request)}" for request in refused.requests]
    return names_text(refused.nodes, MOST_NODES), _items(because), _items(funnels)


def _items(texts: list[str]) -> Html:
    return tag("ul", [tag("li", text) for text in texts])
