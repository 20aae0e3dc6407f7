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


def verdict(told: Explanation) -> Html:
    """The verdict and what it means."""
    return tag("span", told.verdict, class_=f"verdict {told.verdict}", title=_MEANING[told.verdict])


def reasons(told: Explanation) -> Html | None:
    """Each reason with its type; docs/reasons.md explains the types."""
    if not told.reasons:
        return None
    items = [tag("li", tag("code", reason.type), " ", reason.message) for reason in told.reasons]
    return tag("ul", items, class_="reasons")


def remedies(told: Explanation) -> Child:
    """What would help, each with its cost and, where there is one, the command."""
    if not told.remedies:
        return None
    return tag("h3", "What would help"), tag("ul", map(_remedy, told.remedies), class_="remedies")


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


def nodes(told: Explanation) -> Child:
    """What each group of alike nodes says."""
    return tag("ul", map(_node_group, told.nodes), class_="nodes") if told.nodes else None


def _node_group(group: NodeGroup) -> Html:
    names = ", ".join(group.examples) + (", …" if group.count > len(group.examples) else "")
    return tag("li", tag("strong", counted(group.count, "node")), f" ({names}): {group.text}")


def whole_text(told: Explanation) -> Html:
    """All of it, as `haru explain` prints it."""
    key = f"text {told.kind} {told.name}"
    return tag("details", tag("summary", "The whole answer"), tag("pre", to_text(told), tabindex="0"), data_key=key)
