"""The usage of cards as HTML: stacked areas over time, and a table of the same numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count, groupby
from math import ceil, floor, log10
from urllib.parse import urlencode

from haru.dashboard.pages.map_page import HUES, hue_number
from haru.dashboard.views.usage import OTHERS, PERIODS, Allocation, Band
from haru.dashboard.views.workloads import Filter
from haru.markup import Child, Html, tag

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 960, 280, 44, 24, 8
_TIMES = 6


def usage_content(found: Allocation, period: str, chosen: Filter) -> Child:
    """Make the content for one period."""
    if not any(found.seen):
        nothing = tag("p", "Nothing was measured in this time.", class_="empty")
        return _periods(period, chosen), nothing
    return _periods(period, chosen), tag("div", _drawing(found, period), class_="wide"), _table(found)


def no_usage(why: str, period: str, chosen: Filter) -> Child:
    """Make the content without a history."""
    return _periods(period, chosen), tag("p", why, class_="empty")


def _periods(period: str, chosen: Filter) -> Html:
    links = [
        tag(
            "li",
            tag(
                "a",
                f"last {each}",
                href=f"/allocation?{urlencode([*chosen.parameters, ('since', each)])}",
                aria_current="true" if each == period else None,
            ),
        )
        for each in PERIODS
    ]
    return tag("nav", tag("ul", links, class_="legend"), aria_label="Period")


# --- the drawing


def _drawing(found: Allocation, period: str) -> Html:
    most = _round_up(max(map(sum, zip(*(band.cards for band in found.bands), strict=True)), default=0.0))
    areas, classes = list[Child](), _classes(found)
    below = [0.0] * len(found.seen)
    for band in found.bands:
        above = [low + cards for low, cards in zip(below, band.cards, strict=True)]
        areas.append(_area(band, classes[band.name], below, above, most))
        below = above
    told = f"Cards by who held them, over the last {period}; the table below has the numbers."
    return tag(
        "svg",
        tag("title", told),
        areas,
        _gaps(found),
        _scale(most),
        _times(found),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=told,
        class_="usage",
    )


def _round_up(number: float) -> float:
    """Round up to the next of 1, 2, 5, 10, 20, …"""
    if number <= 1:
        return 1.0
    power = 10.0 ** floor(log10(number))
    return power * next(step for step in (1, 2, 5, 10) if step * power >= number - 1e-9)


def _x(index: float, slots: int) -> str:
    return f"{_LEFT + (_WIDTH - _LEFT) * index / slots:.1f}"


def _y(cards: float, most: float) -> str:
    return f"{_TOP + (_HEIGHT - _BOTTOM - _TOP) * (1 - cards / most):.1f}"


def _area(band: Band, colour: str, below: Sequence[float], above: Sequence[float], most: float) -> Html:
    """Draw steps along the upper edge and back along the lower one."""
    slots = len(above)
    path = [f"M{_x(0, slots)} {_y(below[0], most)}"]
    path += [f"V{_y(value, most)}H{_x(index + 1, slots)}" for index, value in enumerate(above)]
    path += [f"V{_y(below[index], most)}H{_x(index, slots)}" for index in reversed(range(slots))]
    return tag("path", tag("title", band.name), d="".join(path) + "Z", class_=f"area {colour}")


def _classes(found: Allocation) -> dict[str, str]:
    """Choose the CSS class of each band: the map's colour, or the next that no other band has."""
    classes: dict[str, str] = {}
    for band in found.bands:
        work = band.use.workload
        if work is None:
            classes[band.name] = band.use.kind
        elif work == OTHERS:
            classes[band.name] = "other"
        else:
            first = hue_number(work)
            number = next(n for n in count(first) if f"hue-{n % HUES}" not in classes.values())
            classes[band.name] = f"hue-{number % HUES}"
    return classes


def _gaps(found: Allocation) -> Iterator[Html]:
    """Mark the time that was not observed."""
    slots, index = len(found.seen), 0
    for seen, run in groupby(found.seen, bool):
        length = len(list(run))
        if not seen:
            where = {"x": _x(index, slots), "width": f"{(_WIDTH - _LEFT) * length / slots:.1f}"}
            height = _HEIGHT - _BOTTOM - _TOP
            yield tag("rect", tag("title", "not observed"), y=_TOP, height=height, class_="gap", **where)
        index += length


def _scale(most: float) -> Iterator[Html]:
    for part in (0.0, 0.5, 1.0):
        y = _y(most * part, most)
        yield tag("line", x1=_LEFT, x2=_WIDTH, y1=y, y2=y, class_="rule")
        yield tag("text", f"{most * part:g}", x=_LEFT - 6, y=y, class_="number")


def _times(found: Allocation) -> Iterator[Html]:
    form = "%H:%M" if found.until - found.since <= PERIODS["24h"] else "%d %b"
    for number in range(_TIMES):
        moment = found.since + (found.until - found.since) * number / (_TIMES - 1)
        text = _moment(moment, form)
        place = "start" if number == 0 else "end" if number == _TIMES - 1 else "middle"
        yield tag("text", text, x=_x(number, _TIMES - 1), y=_HEIGHT - 6, text_anchor=place, class_="time")


# --- the numbers


def _table(found: Allocation) -> Child:
    heads = ("used by", "now", "mean", "card-hours")
    classes = _classes(found)
    rows = [
        tag(
            "tr",
            tag("th", tag("span", "", class_=f"swatch {classes[band.name]}"), _named(band), scope="row"),
            [tag("td", _cards(told(band))) for told in (found.now, found.mean, found.hours)],
            data_key=band.name,
        )
        for band in found.bands
    ]
    seen = sum(found.seen) / len(found.seen)
    began, ended = (_moment(at, "%Y-%m-%d %H:%M") for at in (found.since, found.until))
    return (
        tag("p", f"{began} to {ended} UTC, {floor(seen * 100)} % of it observed.", class_="hint"),
        tag(
            "div",
            tag(
                "table",
                tag("caption", "Cards"),
                tag("thead", tag("tr", [tag("th", head, scope="col") for head in heads])),
                tag("tbody", rows),
            ),
            class_="wide",
        ),
    )


def _moment(milliseconds: float, form: str) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime(form)


def _named(band: Band) -> Child:
    work = band.use.workload
    return band.name if work is None or work == OTHERS else tag("a", band.name, href=work.path)


def _cards(number: float) -> str:
    return str(ceil(number)) if number >= 1000 else f"{number:.3g}"
