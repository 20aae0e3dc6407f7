"""The usage of cards over a time: from the history to bands of cards, slot by slot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from haru.dashboard.views.workloads import EVERYTHING, Filter, Workload

Kind = Literal["held", "inUse", "idle", "unmeasured", "reserved", "missed", "free", "unavailable"]
"""The words of docs/glossary.md; `missed` is free while compatible work waited, `held` all that is held together."""
HELD: tuple[Kind, ...] = ("held", "inUse", "idle", "unmeasured")

SLOTS = 96
_MOST_WORKLOADS = 10
PERIODS: Mapping[str, int] = {"1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000, "7d": 604_800_000}
"""The periods of the page, in milliseconds."""
USUAL = "24h"


class Use(NamedTuple):
    """What an amount counts; with the workload that held the cards, if any."""

    kind: Kind
    workload: Workload | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Amounts from `began` to `ended` (ms since 1970), in cards times ms; `observed` ms were observed."""

    began: int
    ended: int
    observed: int
    amounts: Mapping[Use, float]


@dataclass(frozen=True, slots=True)
class Band:
    """One use, as the mean number of cards in each slot, and as the number when something was last observed."""

    use: Use
    name: str
    cards: tuple[float, ...]
    now: float


@dataclass(frozen=True, slots=True)
class Allocation:
    """The bands of a time, to be drawn one above the other; `seen` is the share of each slot that was observed."""

    since: int
    until: int
    bands: tuple[Band, ...]
    seen: tuple[float, ...]

    @property
    def slot(self) -> float:
        """Milliseconds of one slot."""
        return (self.until - self.since) / len(self.seen)

    def hours(self, band: Band) -> float:
        """Card-hours of a band, of the time that was observed."""
        seen = sum(cards * part for cards, part in zip(band.cards, self.seen, strict=True))
        return seen * self.slot / 3_600_000

    def mean(self, band: Band) -> float:
        """Cards of a band while it was observed."""
        return self.hours(band) * 3_600_000 / (sum(self.seen) * self.slot or 1)


OTHERS = Workload("", "other work")
_NAMES = {"missed": "free while work waited", "inUse": "in use"}


def allocation(
    spans: Sequence[Span], since: int, until: int, chosen: Filter = EVERYTHING, slots: int = SLOTS
) -> Allocation:
    """The largest workloads by name, the others together, and what was free."""
    per_slot, observed = _slots(spans, since, until, slots)
    named = _largest(spans, chosen)
    rest = (Use("missed"), Use("reserved"), Use("free"), Use("unavailable"))
    order = [*(Use("held", work) for work in named), Use("held", OTHERS), *rest]

    def band(use: Use) -> Use:
        held = use if use.kind not in HELD else Use("held", use.workload)
        return held if held in order else Use("held", OTHERS)

    return _banded(since, until, order, band, [*per_slot, _latest(spans)], observed)


def states(spans: Sequence[Span], since: int, until: int, slots: int = SLOTS) -> Allocation:
    """The cards by state, from the lowest band to the highest, whoever holds them."""
    per_slot, observed = _slots(spans, since, until, slots)
    kinds: tuple[Kind, ...] = ("inUse", "held", "unmeasured", "idle", "reserved", "missed", "free", "unavailable")
    order = [Use(kind) for kind in kinds]
    return _banded(since, until, order, lambda use: Use(use.kind), [*per_slot, _latest(spans)], observed)


def begin_of(spans: Sequence[Span], since: int) -> int:
    """Where a chart begins: with the history, so that a short one is not a sliver."""
    return max(since, min((span.began for span in spans if span.observed), default=since))


def _latest(spans: Sequence[Span]) -> Mapping[Use, float]:
    """Cards of each use when something was last observed."""
    last = max((span for span in spans if span.observed), key=lambda span: span.ended, default=None)
    return {use: amount / last.observed for use, amount in last.amounts.items()} if last is not None else {}


def _banded(
    since: int,
    until: int,
    order: Sequence[Use],
    band: Callable[[Use], Use],
    per_slot: Sequence[Mapping[Use, float]],
    observed: Sequence[float],
) -> Allocation:
    """Bands from the cards in each slot and, last, now."""
    cards: dict[Use, list[float]] = {use: [0.0] * len(per_slot) for use in order}
    for index, mean in enumerate(per_slot):
        for use, amount in mean.items():
            cards[band(use)][index] += amount
    bands = [Band(use, _name(use), tuple(values[:-1]), values[-1]) for use, values in cards.items() if any(values)]
    length = (until - since) / len(observed)
    return Allocation(since, until, tuple(bands), tuple(min(1.0, part / length) for part in observed))


def _slots(
    spans: Sequence[Span], since: int, until: int, slots: int
) -> tuple[list[Mapping[Use, float]], Sequence[float]]:
    """The mean cards of each use in each slot, and for how long it was observed."""
    length = (until - since) / slots
    amounts: list[dict[Use, float]] = [defaultdict(float) for _ in range(slots)]
    observed = [0.0] * slots
    for span in spans:
        _spread(span, since, length, amounts, observed)
    # In a slot that was seen in part the mean is of that part.
    return [
        {use: amount / seen for use, amount in slot.items()} if seen else {}
        for slot, seen in zip(amounts, observed, strict=True)
    ], observed


def _spread(span: Span, since: int, length: float, per_slot: Sequence[dict[Use, float]], observed: list[float]) -> None:
    """Share a span out among the slots that it touches, in proportion."""
    whole = span.ended - span.began
    if whole <= 0:
        return
    first = max(0, int((span.began - since) / length))
    for index in range(first, len(per_slot)):
        began, ended = since + index * length, since + (index + 1) * length
        part = (min(span.ended, ended) - max(span.began, began)) / whole
        if part <= 0:
            break
        observed[index] += span.observed * part
        for use, amount in span.amounts.items():
            per_slot[index][use] += amount * part


def _largest(spans: Iterable[Span], chosen: Filter) -> list[Workload]:
    totals: dict[Workload, float] = defaultdict(float)
    for span in spans:
        for use, amount in span.amounts.items():
            if use.workload is not None and chosen.takes(use.workload):
                totals[use.workload] += amount
    largest = sorted(totals, key=lambda work: (-totals[work], work))
    return largest[:_MOST_WORKLOADS]


def _name(use: Use) -> str:
    if use.workload is not None:
        return f"{use.workload.namespace}/{use.workload.name}" if use.workload.namespace else use.workload.name
    return _NAMES.get(use.kind, use.kind)
