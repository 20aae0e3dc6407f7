"""An explanation as HTML: the verdict, its typed reasons, what helps, what nodes say, and the whole text."""

from __future__ import annotations

from haru.explain.explanation import NodeGroup, Remedy
from haru.explain.render import counted, to_text
from haru.explain.results import Explanation
from haru.markup import Child, Html, tag

_MEANING = {
    "Runs": "it has its place",
    "Starting": "only time is missing",
    "FitsLater": "waits for what comes by itself",
    "FitsIf": "waits for somebody to change something",
    "NeverFits": "what exists cannot serve it",
}


def verdict(explanation: Explanation) -> Html:
    """Show the verdict with its meaning."""
    return tag(
        "span", explanation.verdict, class_=f"verdict {explanation.verdict}", title=_MEANING[explanation.verdict]
    )


def reasons(explanation: Explanation) -> Html | None:
    """List the reasons with their types (docs/reasons.md)."""
    if not explanation.reasons:
        return None
    items = [tag("li", tag("code", reason.type), " ", reason.message) for reason in explanation.reasons]
    return tag("ul", items, class_="reasons")


def remedies(explanation: Explanation) -> Child:
    """List the remedies, each with its cost and its command, if there is one."""
    if not explanation.remedies:
        return None
    return tag("h3", "What would help"), tag("ul", map(_remedy, explanation.remedies), class_="remedies")


def _remedy(remedy: Remedy) -> Html:
    return tag(
        "li",
        tag("code", remedy.kind),
        " ",
        remedy.summary,
        "" if remedy.confirmed else " (not confirmed)",
        tag("pre", remedy.command, tabindex="0") if remedy.command else None,
        tag("small", f"cost: {remedy.costs}") if remedy.costs else None,
    )


def nodes(explanation: Explanation) -> Child:
    """List the verdicts of nodes, equal ones in one group."""
    return tag("ul", map(_node_group, explanation.nodes), class_="nodes") if explanation.nodes else None


def _node_group(group: NodeGroup) -> Html:
    names = ", ".join(group.examples) + (", …" if group.count > len(group.examples) else "")
    return tag("li", tag("strong", counted(group.count, "node")), f" ({names}): {group.text}")


def whole_text(explanation: Explanation) -> Html:
    """Show the text that `haru explain` prints."""
    key = f"text {explanation.kind} {explanation.name}"
    return tag(
        "details", tag("summary", "The whole answer"), tag("pre", to_text(explanation), tabindex="0"), data_key=key
    )
