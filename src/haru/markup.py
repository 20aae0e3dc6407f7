"""Build HTML that is always escaped: `tag` escapes every child that is not `Html` itself (ADR 20)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_VOID = frozenset({"input", "link", "meta"})


class Html(str):
    """Text that is HTML and needs no escaping."""

    __slots__ = ()


Child = str | None | Iterable["Child"]


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Html:
    """Make an element.

    `class_` is `class`, `aria_label` is `aria-label`; True is an attribute without value, None no attribute.
    """
    text = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{text}>")
    return Html(f"<{name}{text}>{joined(children)}</{name}>")


def joined(children: Child) -> Html:
    """Join children; plain text is escaped."""
    if children is None:
        return Html("")
    if isinstance(children, str):
        return children if isinstance(children, Html) else Html(escape(children))
    return Html("".join(map(joined, children)))


def _attribute(key: str, value: str | int | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


_MOST_ROWS = 200
_LEFT = "text-align: left; vertical-align: top"


def table(caption: Child, columns: Sequence[str], rows: Iterable[Sequence[Child]]) -> Html | None:
    """Make a table for notebooks; the first cell of a row is its header. None without rows.

    After 200 rows it says how many more there are.
    """
    found = list(rows)
    if not found:
        return None
    body: list[Child] = [_row(row) for row in found[:_MOST_ROWS]]
    if len(found) > _MOST_ROWS:
        body.append(tag("tr", tag("td", f"and {len(found) - _MOST_ROWS} more", colspan=len(columns), style=_LEFT)))
    head = tag("tr", [tag("th", column, scope="col", style=_LEFT) for column in columns])
    return tag("table", tag("caption", caption, style=_LEFT), tag("thead", head), tag("tbody", body))


def section(title: str, *children: Child) -> Html:
    """Make the region of one answer in a notebook, with a name for screen readers."""
    return tag("section", tag("p", tag("strong", title)), children, aria_label=title, class_="haru")


def page(title: str, body: Html) -> Html:
    """Make a whole document of one answer."""
    head = tag("head", tag("meta", charset="utf-8"), tag("title", title))
    return joined((Html("<!doctype html>\n"), tag("html", head, tag("body", tag("main", body)), lang="en")))


def _row(cells: Sequence[Child]) -> Html:
    first, *rest = cells
    return tag("tr", tag("th", first, scope="row", style=_LEFT), [tag("td", cell, style=_LEFT) for cell in rest])
