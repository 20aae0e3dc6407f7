"""Templates: Jinja with autoescape always on; what every template may use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Final
from zlib import crc32

from cachetools import LRUCache, cached
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from haru.dashboard.views.device_map import Place
from haru.dashboard.views.looks import look
from haru.dashboard.views.map_layout import boxes, outlines
from haru.kube.names import counted, format_milliseconds
from haru.markup import Html

HERE = Path(__file__).parent
VENDOR = HERE / "static" / "vendor"
_KEPT_TEMPLATES = 200
_TILES: Final[LRUCache[Any, Any]] = LRUCache(8 * 1024 * 1024, len)
"""By their characters: use changes tiles of a busy cluster all the time. With their places they take 20 to 40 MB."""
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def render(template: str, values: Mapping[str, object]) -> str:
    """Render a template, and leave nothing to a garbage collection: macros and their context know each other.

    A template that imports macros with its context has another one, which this does not reach: none does.
    """
    made = environment().get_template(template)
    context = made.new_context(dict(values))
    try:
        return "".join(made.root_render_func(context))
    except Exception:
        made.environment.handle_exception()  # names the template's line
    finally:
        context.vars.clear()
        context.exported_vars.clear()


@cached(_TILES, lock=Lock())
def tile(place: Place, zoom: str, colour: str) -> Any:
    """Render a place of the map. Kept: most are as they were at the last request.

    `data-look` lets the browser pass over what has not changed.
    """
    made = render("map_tile.html", {"place": place, "zoom": zoom, "colour": colour})
    return Markup(made.replace("<li ", f'<li data-look="{crc32(made.encode()):x}" ', 1))


@cache
def environment() -> Environment:
    """Make the environment of all templates, once."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=_KEPT_TEMPLATES,
    )
    made.filters |= {"number": number, "percent": percent, "moment": format_milliseconds, "ours": ours, "aged": aged}
    made.globals |= {"look": look, "boxes": boxes, "outlines": outlines, "tile": tile, "counted": counted}
    made.globals["charts"] = (VENDOR / "uplot.js").is_file()
    return made


def number(value: float) -> str:
    """Format a number of cards or hours: thousands apart, at most two digits after the point, as many as matter."""
    if abs(value) >= 100 or value == int(value):
        return f"{round(value):,}".replace(",", "\u202f")
    return f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) < 10 else f"{value:.1f}".removesuffix(".0")


def percent(value: float | None) -> str:
    """Format a share of 100."""
    return "–" if value is None else f"{round(value)}\u202f%"


def aged(text: object) -> Any:
    """Let times (RFC 3339) in a text be shown as ages, as other times on the page."""
    if not _TIME.search(told := str(text)):
        return told  # escaped by the template, as every text
    return Markup(_TIME.sub(r'<time datetime="\g<0>">\g<0></time>', str(escape(told))))


def ours(html: Html) -> Any:
    """Let HTML that `haru.markup` has built, and escaped, pass; TypeError for other text."""
    if not isinstance(html, Html):
        raise TypeError("only what haru.markup has built passes unescaped")
    return Markup(html)
