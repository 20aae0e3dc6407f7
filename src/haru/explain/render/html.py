"""An explanation as HTML, for notebooks: the verdict, why, where devices stop, what nodes say, and what would help."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine import Reason
from haru.explain.explanation import ExplanationData, Funnel, HeldClaim, NodeGroup, Remedy
from haru.explain.render.text import score_table, to_text
from haru.explain.render.wording import dropped_text, funnel_text
from haru.explain.stories.values import Wanting
from haru.kube.names import counted
from haru.markup import Child, Html, section, table, tag


def to_html(explanation: ExplanationData) -> Html:
    """A region with tables; the whole text stands at its end, folded."""
    name = f"{explanation.kind} {explanation.namespace}/{explanation.name}"
    title = f"{name}: {explanation.verdict}" + (f": {explanation.summary}" if explanation.summary else "")
    return section(
        title,
        table("Why", ("reason", "message"), ((tag("code", r.type), r.message) for r in explanation.reasons)),
        [_funnel(funnel) for funnel in explanation.requests],
        table("Nodes that answer alike", ("nodes", "examples", "answer"), map(_nodes, explanation.nodes)),
        [table("Scores", [name.lower() for name in head], rows) for head, rows in score_table(explanation.scores)],
        table("What would help", ("remedy", "change", "cost", "confirmed"), map(_remedy, explanation.remedies)),
        table("Held", ("claim", "node", "devices"), map(_held, explanation.holds)),
        tag("details", tag("summary", "The whole answer"), tag("pre", to_text(explanation))),
    )


def _funnel(funnel: Funnel) -> Child:
    title = f"Devices for {funnel.asked.title}"
    if funnel.error:
        return tag("p", f"{title}: {funnel.error}")
    rows: list[tuple[Child, ...]] = [("in the cluster", str(funnel.devices), "")]
    rows += [
        (stage.stage, str(stage.left), dropped_text(funnel, stage, sums=True))
        for stage in funnel.stages
        if stage.dropped
    ]
    total = funnel_text(funnel)
    return table(f"{title}: {total}", ("stage", "devices left", "kept back"), rows)


def _nodes(group: NodeGroup) -> tuple[Child, ...]:
    more = ", …" if group.count > len(group.examples) else ""
    return counted(group.count, "node"), ", ".join(group.examples) + more, group.text


def _remedy(remedy: Remedy) -> tuple[Child, ...]:
    command = tag("pre", remedy.command) if remedy.command else None
    return tag("code", remedy.kind), (remedy.summary, command), remedy.costs, "yes" if remedy.confirmed else "no"


def _held(held: HeldClaim) -> tuple[Child, ...]:
    devices = [f"{d.driver}/{d.pool}/{d.device}" + (f" ({d.product})" if d.product else "") for d in held.devices]
    return held.claim, held.node, ", ".join(devices)


def story_html(title: str, reasons: Sequence[Reason], waiting: Sequence[Wanting], text: str) -> Html:
    """What is told of a node or a device: why it is so, who waits for it, and the whole text, folded."""
    rows = [
        (unit.title, str(unit.pods), "yes" if unit.takes else "no", "; ".join(r.message for r in unit.reasons))
        for unit in waiting
    ]
    return section(
        title,
        table("Why", ("reason", "message"), ((tag("code", r.type), r.message) for r in reasons)),
        table("Who waits", ("work", "pods", "would fit", "because"), rows),
        tag("details", tag("summary", "The whole answer"), tag("pre", text)),
    )
