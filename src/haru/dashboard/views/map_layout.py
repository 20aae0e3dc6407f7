"""Cards as drawings: rectangles true to scale, as numbers that a template turns into SVG.

A card is a box of 100 by 100. Its held parts lie where their memory slices are, else side by side; the lower part of
each is filled as far as it is utilized.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from haru.dashboard.views.cards import Card, Part
from haru.dashboard.views.device_map import Place
from haru.dashboard.views.looks import look
from haru.dashboard.views.workloads import OTHER, Workload

Zoom = Literal["cluster", "nodes", "cards"]
ZOOMS: tuple[Zoom, ...] = ("cluster", "nodes", "cards")
_MOST_FOR: dict[Zoom, int] = {"cards": 24, "nodes": 640}
SIDE = 100.0
PITCH = 112
"""From one card to the next, where several are drawn together."""
_ON_TOP = {"idle-frame": 1, "fault": 2}


@dataclass(frozen=True, slots=True)
class Mark:
    """A rectangle in a card of 100 by 100: what it is, and its classes. `pattern` is that of a workload's look."""

    x: float
    y: float
    width: float
    height: float
    classes: str
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A card: its marks, the words for it, and what is wrong with it (`fault`)."""

    name: str
    state: str
    marks: tuple[Mark, ...]
    owners: tuple[tuple[Workload, float | None, float], ...]
    fault: str
    title: str


def zoom_for(cards: int, asked: str) -> Zoom:
    """Choose how closely the map is seen: as asked, else by how many cards there are to draw."""
    known = next((zoom for zoom in ZOOMS if zoom == asked), None)
    if known is not None:
        return known
    return "cards" if cards <= _MOST_FOR["cards"] else "nodes" if cards <= _MOST_FOR["nodes"] else "cluster"


def boxes(place: Place, by_state: bool) -> tuple[Box, ...]:
    """Draw the cards of a place."""
    return tuple(_box(card, place, by_state) for card in place.cards)


def outlines(drawn: Sequence[Box], columns: int) -> tuple[tuple[str, str], ...]:
    """Draw many cards at once: one path for each class, cards in rows of `columns`."""
    paths: dict[str, list[str]] = {}
    for number, box in enumerate(drawn):
        x, y = number % columns * PITCH, number // columns * PITCH
        for mark in box.marks:
            if mark.classes != "none":
                width, left = round(mark.width), round(x + mark.x)
                piece = f"M{left} {round(y + mark.y)}h{width}v{round(mark.height)}h-{width}z"
                paths.setdefault(mark.classes, []).append(piece)
        if box.fault:
            paths.setdefault("fault", []).append(f"M{x + 50} {y}h50v50z")
    order = sorted(paths, key=lambda classes: ("ground" not in classes, "level" in classes, _ON_TOP.get(classes, 0)))
    return tuple((classes, "".join(paths[classes])) for classes in order)


def _box(card: Card, place: Place, by_state: bool) -> Box:
    marks = [Mark(0, 0, SIDE, SIDE, f"ground {_rest(card, place)}")]
    fault = ", ".join(card.taints) or place.state
    owners: list[tuple[Workload, float | None, float]] = []
    at = 0.0
    for part in card.parts:
        start = part.start * SIDE if part.start is not None else at
        width = max(2.0, part.share * SIDE)
        marks += _part_marks(part, start, width, by_state)
        owners += [(owner, part.percent, part.share) for owner in part.owners[:1]]
        at = start + width
    return Box(card.name, _state(card, place), tuple(marks), tuple(owners), fault, _title(card, place))


def _part_marks(part: Part, start: float, width: float, by_state: bool) -> Iterator[Mark]:
    word = "in-use" if part.word == "inUse" else part.word
    classes, pattern = f"state {word}", ""
    if not by_state:
        colour, pattern = (look(part.owners[0]) if part.owners else "cx p0").split(" ")
        classes = f"look {colour}"
    yield Mark(start, 0, width, SIDE, f"{classes} held {word}")
    if part.percent is not None:
        level = max(0.0, min(SIDE, part.percent))
        yield Mark(start, SIDE - level, width, level, f"{classes} level", "" if pattern == "p0" else pattern)
    elif pattern and pattern != "p0":
        yield Mark(start, 0, width, SIDE, "none", pattern)
    if part.word == "idle":
        yield Mark(start, 0, width, SIDE, "idle-frame")


def _rest(card: Card, place: Place) -> str:
    """The word for what nobody holds of a card."""
    words = card.counts.words()
    if place.state or words["unavailable"]:
        return "unavailable"
    return "reserved" if words["reserved"] else "free" if words["free"] else "taken"


def _state(card: Card, place: Place) -> str:
    if not card.parts:
        return place.state or _rest(card, place)
    if len(card.parts) > 1 or card.parts[0].share < 1:
        return f"{sum(part.share for part in card.parts) * 100:.0f} %"
    word = card.parts[0].word
    return "in use" if word == "inUse" else word


def _title(card: Card, place: Place) -> str:
    told = [f"{place.names[0]} {card.name}: {_state(card, place)}"]
    for part in card.parts:
        owner = part.owners[0] if part.owners else OTHER
        name = owner.name if owner == OTHER else f"{owner.namespace}/{owner.name}"
        used = "unmeasured" if part.percent is None else f"{part.percent:.0f} %"
        told.append(f"{part.device}: {name}, {used}")
    told += [card.product] if card.product else []
    told += [f"tainted {taint}" for taint in card.taints]
    return "\n".join(told)
