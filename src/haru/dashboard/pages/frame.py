"""The frame of all pages: head, navigation, filters, the element with live content; and pages of a message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from haru.dashboard.views.workloads import Filter
from haru.markup import Child, Html, joined, tag

_PAGES = (("/", "Map"), ("/queue", "Queue"), ("/allocation", "Allocation"))


def address(path: str, chosen: Filter) -> str:
    """Return the address of a page with a filter."""
    query = urlencode(chosen.parameters)
    return f"{path}?{query}" if query else path


@dataclass(frozen=True, slots=True)
class Heading:
    """Around a page's content: title, path, filter, the version of the cluster that is shown, warnings."""

    title: str
    path: str
    chosen: Filter
    version: int
    notes: Sequence[str] = ()


def page(heading: Heading, content: Child) -> Html:
    """Make a whole page. The script exchanges `content` when the cluster changes."""
    title, path, chosen = heading.title, heading.path, heading.chosen
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} · Haru"),
        tag("link", rel="icon", href="/static/icon.svg"),
        tag("link", rel="stylesheet", href="/static/dashboard.css"),
        tag("script", src="/static/dashboard.js"),
    )
    warnings = [tag("p", note, class_="note") for note in heading.notes]
    main = tag(
        "main",
        tag("h1", title),
        _filters(path, chosen) if path in dict(_PAGES) else None,
        warnings,
        tag("div", content, id="content", data_version=heading.version),
        id="main",
        tabindex="-1",
    )
    body = tag("body", tag("a", "Skip to the content", href="#main", class_="skip"), _header(path, chosen), main)
    return joined((Html("<!doctype html>\n"), tag("html", head, body, lang="en")))


def _header(path: str, chosen: Filter) -> Html:
    links = [
        tag("li", tag("a", text, href=address(where, chosen), aria_current="page" if where == path else None))
        for where, text in _PAGES
    ]
    return tag(
        "header",
        tag("span", "Haru", class_="brand"),
        tag("nav", tag("ul", links), aria_label="Pages"),
        tag("span", "", id="live", role="status"),
        tag("button", "Theme: system", type="button", id="theme", hidden=True),
    )


def _filters(path: str, chosen: Filter) -> Html:
    fields = [
        tag(
            "label",
            name.capitalize(),
            " ",
            tag("input", name=name, value=value, placeholder=example, autocomplete="off"),
        )
        for name, value, example in (
            ("namespace", chosen.namespace, "default"),
            ("workload", chosen.workload, "job/*"),
            ("node", chosen.node, "dgx-*"),
        )
        if name != "node" or path == "/"  # waiting work is on no node
    ]
    clear = tag("a", "Clear", href=path) if chosen.parameters else None
    return tag(
        "form", fields, tag("button", "Filter", type="submit"), clear, method="get", action=path, role="search",
        aria_label="Filter",
    )  # fmt: skip


def message_page(title: str, text: Child) -> Html:
    """Make a page with a message only: a refusal, or nothing found."""
    head = tag("head", tag("meta", charset="utf-8"), tag("title", f"{title} · Haru"))
    body = tag("body", tag("main", tag("h1", title), tag("p", text)))
    return joined((Html("<!doctype html>\n"), tag("html", head, body, lang="en")))
