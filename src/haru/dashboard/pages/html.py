"""HTML as text that cannot be forgotten to be escaped: `tag` escapes every child that is not itself HTML."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_VOID = frozenset({"input", "link", "meta"})


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | None | Iterable["Child"]


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Html:
    """An element.

    `class_` is `class`, `aria_label` is `aria-label`; True is an attribute without value, None no attribute.
    """
    text = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{text}>")
    return Html(f"<{name}{text}>{joined(children)}</{name}>")


def joined(children: Child) -> Html:
    """Children one after the other, escaped where they are plain text."""
    if children is None:
        return Html("")
    if isinstance(children, str):
        return children if isinstance(children, Html) else Html(escape(children))
    return Html("".join(map(joined, children)))


def _attribute(key: str, value: str | int | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
