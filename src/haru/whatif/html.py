"""A comparison as HTML, for notebooks: what changes, who starts, who is displaced, who waits, how full it is."""

from __future__ import annotations

from haru.explain.render import answer_lines
from haru.markup import Child, Html, section, table, tag
from haru.whatif.comparison_data import ComparisonData, Displacement, Wait
from haru.whatif.text import amount_text, to_text, verdict_text


def to_html(comparison: ComparisonData) -> Html:
    """A region with tables; the whole text stands at its end, folded."""
    starts = ((s.path, s.workload, s.node, ", ".join(s.devices)) for s in comparison.starts)
    gangs = ((gang.path, str(gang.placed), str(gang.min_count)) for gang in comparison.gangs)
    usage = (
        (name, amount_text(name, before), amount_text(name, after))
        for name, (before, after) in comparison.usage.items()
    )
    return section(
        f"What if: {verdict_text(comparison)}",
        tag("ol", [tag("li", change) for change in comparison.changes]),
        table("Starts", ("pod", "workload", "node", "devices"), starts),
        table("Displaced", ("pod", "from", "because", "outcome"), map(_displaced, comparison.displaced)),
        table("Waits", ("pod", "workload", "because"), map(_wait, comparison.waits)),
        table("Gangs below their quorum", ("PodGroup", "placed", "needed"), gangs),
        table("Usage", ("of", "before", "after"), usage),
        tag("details", tag("summary", "The whole answer"), tag("pre", to_text(comparison))),
    )


def _displaced(entry: Displacement) -> tuple[Child, ...]:
    outcome = f"{entry.outcome} on {entry.new_node}" if entry.new_node else entry.outcome
    return entry.path, entry.node, entry.cause.message, (outcome, _why(entry))


def _wait(entry: Wait) -> tuple[Child, ...]:
    return entry.path, entry.workload, _why(entry)


def _why(entry: Wait | Displacement) -> Html | None:
    if entry.explanation is not None:
        return tag("ul", [tag("li", line) for line in answer_lines(entry.explanation)])
    if not entry.reasons:
        return None
    return tag("ul", [tag("li", tag("code", reason.type), f" {reason.message}") for reason in entry.reasons])
