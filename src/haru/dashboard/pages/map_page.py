"""The map as HTML: a list of places with their cards; colour, hatching and text say the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from zlib import crc32

from haru.dashboard.pages.frame import address
from haru.dashboard.views.cards import Card, Part
from haru.dashboard.views.device_map import DeviceMap, Place, Totals
from haru.dashboard.views.workloads import OTHER, Filter, Workload
from haru.explain.render import counted
from haru.markup import Child, Html, tag

HUES = 12
_WIDTHS = 16
_MOST_HOLDERS = 60
_MOST_PARTS = 16
_EXAMPLES = 3


def hue_number(work: Workload) -> int:
    """Return the number of a workload's colour, equal in every process and on every page."""
    return crc32("/".join(work).encode()) % HUES


def hue(work: Workload) -> str:
    """Return the CSS class of a workload's colour."""
    return f"hue-{hue_number(work)}"


def map_content(found: DeviceMap, chosen: Filter) -> Child:
    """Make the content of the map."""
    if not found.places:
        return tag("p", "No node matches the filter." if chosen.parameters else "There are no nodes.", class_="empty")
    return (
        _totals(found.totals),
        _legend(found, chosen),
        tag("h2", "Nodes", id="nodes"),
        tag("p", "Arrow keys move between cards.", class_="hint"),
        tag("ul", (_place(place, chosen) for place in found.places), class_="places", aria_labelledby="nodes"),
    )


def _totals(totals: Totals) -> Html:
    texts = [
        counted(totals.nodes, "node"),
        counted(totals.cards, "card"),
        str(totals.counts),
    ]
    texts += [f"{totals.tainted} tainted"] if totals.tainted else []
    return tag("p", " · ".join(texts), class_="totals")


def _legend(found: DeviceMap, chosen: Filter) -> Html:
    items = [
        tag(
            "li",
            tag("span", "", class_=f"swatch {hue(work)}"),
            tag("a", _title(work), href=work.path),
            f" {count} ",
            tag("a", "only", href=_only(work, chosen), aria_label=f"Show only {_title(work)} on the map"),
        )
        for work, count in found.holders[:_MOST_HOLDERS]
    ]
    more = len(found.holders) - _MOST_HOLDERS
    items += [tag("li", f"and {more} more")] if more > 0 else []
    marks = [
        tag("li", tag("span", "", class_=f"swatch {name}"), text)
        for name, text in (("idle", "free"), ("unknown", "unavailable"), ("tainted", "tainted"))
    ]
    return tag("section", tag("h2", "Who has what", id="legend"), tag("ul", items, marks, class_="legend"))


def _only(work: Workload, chosen: Filter) -> str:
    return address("/", Filter(work.namespace, work.name, chosen.node))


def _title(work: Workload) -> str:
    return f"{work.namespace}/{work.name}" if work.namespace else work.name


@lru_cache(maxsize=4096)
def _place(place: Place, chosen: Filter) -> Html:
    """Make a row. Cached: most rows are unchanged since the last request."""
    count, first = len(place.names), place.names[0]
    title: Child = tag("a", first, href=address("/", Filter(node=first))) if place.is_node else first
    alike = f" and {counted(count - 1, 'node')} like it" if count > 1 else ""
    states = [place.state, "cordoned" if place.cordoned else "", *place.taints]
    said = [tag("span", text, class_="state") for text in states if text]
    cards: Child = (
        tag(
            "ul",
            (_card(card, place, count > 1) for card in place.cards),
            class_="cards",
            aria_label=f"Cards of {first}",
        )
        if place.cards
        else tag("p", "no devices", class_="hint")
    )
    return tag("li", tag("h3", title, alike), said, _names(place, chosen), cards, class_="place", data_key=first)


def _names(place: Place, chosen: Filter) -> Html | None:
    """List all nodes of a row, each with a link to its own map."""
    if len(place.names) == 1:
        return None
    links = [
        tag("li", tag("a", name, href=address("/", Filter(chosen.namespace, chosen.workload, name))))
        for name in place.names
    ]
    return tag("details", tag("summary", "names"), tag("ul", links, class_="names"), data_key=f"names {place.names[0]}")


def _card(card: Card, place: Place, many: bool) -> Html:
    classes = ["card"]
    classes += ["tainted"] if card.taints or place.taints or place.cordoned else []
    classes += ["unknown"] if place.state else ["idle"] if not card.parts else []
    taints = tag("small", "tainted ", ", ".join(card.taints), class_="taint") if card.taints else None
    name = None if many else tag("small", card.name, class_="device")
    return tag(
        "li",
        name,
        tag("span", _parts(card, place), class_="parts"),
        taints,
        class_=" ".join(classes),
        title=card.product,
    )


def _parts(card: Card, place: Place) -> Iterator[Html]:
    if not card.parts:
        yield tag("span", "unavailable" if place.state else "free", class_=f"part w-{_WIDTHS}")
        return
    for part in card.parts[:_MOST_PARTS]:
        yield _part(part)
    if len(card.parts) > _MOST_PARTS:
        yield tag("span", f"+{len(card.parts) - _MOST_PARTS}", class_="part w-1")
    if card.free:
        yield tag("span", "free", class_=f"part rest w-{_width(card.free)}")


def _part(part: Part) -> Html:
    first = part.owners[0]
    classes = f"part w-{_width(part.share)}"
    text = first.short + (f" +{len(part.owners) - 1}" if len(part.owners) > 1 else "")
    if first == OTHER:
        return tag("span", "other", class_=f"{classes} other")
    title = f"{part.device}: {', '.join(map(_title, part.owners))}"
    return tag("a", text, href=first.path, class_=f"{classes} {hue(first)}", title=title)


def _width(share: float) -> int:
    return max(1, min(_WIDTHS, round(share * _WIDTHS)))
