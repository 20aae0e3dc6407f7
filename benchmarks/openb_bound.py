"""What no policy can exceed on the openb trace, if it moves nothing and refuses no pod that fits: a proof by prices.

    python -m benchmarks.openb_bound --data DIR [--workloads NAMES] [--seeds 42-51]
    python -m benchmarks.openb_bound --data DIR --document docs/performance-packing.md

The proof looks at one frequent shape that goes to one card of any model, the *gauge* (on `default`: 0.81 of a card,
3.152 cores, 5,600 MiB; few pods need less), and at the moment when a pod of this shape is dropped for the first time.

- Before it, every pod of the gauge was placed, since a pod that fits may not be refused.
- From then on no node has the gauge's cpu, memory and room together, because nothing ends. A pod that needs at least
  the gauge's cpu and memory (a *heavy* one) so gets only room on a card that is filled by more than one less the gauge.

What the other pods do is left to the policy: any of them may be placed, or not, at any time, on any card. So each card
ends with a *filling*: pieces that add up to one card at most, and heavy pieces from after the moment only beside others
that leave less room than the gauge. The best set of fillings is a linear program; prices of a card and of pieces bound
it from above if no filling is worth more than its card and its pieces cost. Any prices will do: the card's is computed
from those of the pieces, in whole numbers, by a knapsack over all fillings, so that the bound holds whatever found the
prices. It is taken for each moment at which the first gauge may be dropped, and the highest counts.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.tables import markdown, plain, write_section
from haru.cli.simulate_trace import read_workload
from haru.simulate.draws import Draws
from haru.simulate.openb import FULL, TABULATED, Workload, arrivals
from haru.simulate.packing import CARD, Shape

UNITS = 100
"""The parts of a card in which pieces are counted; no piece of the trace has a finer size."""
_WORTH = 1_000_000
"""What one hundredth of a card is worth in the whole numbers of prices."""
MOMENTS = (0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
"""The parts of the arrivals for which prices are sought; they bound the moments between as well."""
_PIVOTS = 600

EARLY, LATE, LIGHT, GAUGE = "early", "late", "light", "gauge"
Piece = tuple[str, int]
"""A kind and a size. Early and late pieces are those of heavy pods, before and after the first drop of the gauge."""
Filling = Counter[Piece]
CARDS: Piece = ("cards", 0)
HEAVY = "heavy"
"""The row of all heavy pods of a size, whenever they are placed."""


class Counts(NamedTuple):
    """How many pieces of each size have come: heavy ones before the moment and in the end, gauges before it, light."""

    cards: float
    early: Counter[int]
    heavy: Counter[int]
    light: Counter[int]
    gauges: float


class Prices(NamedTuple):
    """What a card and a piece cost, by size. A heavy piece costs `heavy`, before the moment `early` in addition."""

    early: dict[int, int]
    heavy: dict[int, int]
    light: dict[int, int]
    gauge: int
    card: int


def gauge_of(pods: Iterable[Shape]) -> Shape:
    """The most frequent shape that takes a part of one card of any model. Raises ValueError where there is none."""
    shapes = Counter(pod for pod in pods if pod.cards == 1 and pod.part < CARD and not pod.models)
    if not shapes:
        raise ValueError("no pod takes a part of a card of any model")
    return max(shapes, key=lambda shape: (shapes[shape], shape.part, -shape.cpu, -shape.memory))


def size_of(pod: Shape) -> int:
    """The size of each of a pod's pieces. Raises ValueError for one that is finer than hundredths."""
    size, rest = divmod(pod.part * UNITS, CARD)
    if rest:
        raise ValueError(f"{pod.part} thousandths of a card: sizes are counted in hundredths")
    return size


def is_heavy(pod: Shape, gauge: Shape) -> bool:
    """Whether a pod fits only on nodes that have the gauge's cpu and memory."""
    return pod.cpu >= gauge.cpu and pod.memory >= gauge.memory


def expected_counts(workload: Workload, gauge: Shape, moment: float) -> Counts:
    """The counts of a run in the mean, if the first gauge is dropped after this part of the arrivals."""
    times = FULL * workload.cards * CARD / sum(pod.amount for pod in workload.pods)
    counts = _counted(workload.pods, gauge, workload.cards)
    heavy = Counter({size: count * times for size, count in counts.heavy.items()})
    return Counts(
        cards=workload.cards,
        early=Counter({size: count * moment for size, count in heavy.items()}),
        heavy=heavy,
        light=Counter({size: count * times for size, count in counts.light.items()}),
        gauges=counts.gauges * times * moment,
    )


def _counted(pods: Iterable[Shape], gauge: Shape, cards: int) -> Counts:
    heavy: Counter[int] = Counter()
    light: Counter[int] = Counter()
    gauges = 0
    for pod in pods:
        if pod == gauge:
            gauges += 1
        elif pod.cards:
            (heavy if is_heavy(pod, gauge) else light)[size_of(pod)] += pod.cards
    return Counts(cards, Counter(), heavy, light, gauges)


class _Values(NamedTuple):
    """What each piece adds to a filling, less its price."""

    beside: list[tuple[Piece, float]]
    late: list[tuple[Piece, float]]


def best_filling(values: _Values, gauge: int) -> tuple[float, Filling]:
    """The filling that is worth most, by a knapsack over all of them. `gauge`: the size of the gauge."""
    exact: list[float | None] = [0, *[None] * UNITS]
    last: list[Piece | None] = [None] * (UNITS + 1)
    for content in range(1, UNITS + 1):
        for piece, value in values.beside:
            before = exact[content - piece[1]] if piece[1] <= content else None
            found = exact[content]
            if before is not None and (found is None or before + value > found):
                exact[content], last[content] = before + value, piece
    late: list[float] = [0] * (UNITS + 1)
    late_last: list[Piece | None] = [None] * (UNITS + 1)
    for room in range(1, UNITS + 1):
        late[room] = late[room - 1]
        for piece, value in values.late:
            if piece[1] <= room and late[room - piece[1]] + value > late[room]:
                late[room], late_last[room] = late[room - piece[1]] + value, piece
    best, content, room = 0.0, 0, 0
    for filled, worth in enumerate(exact):
        left = UNITS - filled if filled > UNITS - gauge else 0
        if worth is not None and worth + late[left] > best:
            best, content, room = worth + late[left], filled, left
    return best, _traced(last, content) + _traced(late_last, room)


def _traced(last: Sequence[Piece | None], content: int) -> Filling:
    """The pieces of a knapsack, from the last piece at each content (None: there is none, go one down)."""
    found: Filling = Counter()
    while content > 0:
        piece = last[content]
        if piece is not None:
            found[piece] += 1
        content -= 1 if piece is None else piece[1]
    return found


def _values(prices: dict[Piece, float], gauge: int, worth: float) -> _Values:
    """What pieces add at these prices, which are by row: `early`, `heavy` and `light` of each size, and the gauge."""
    beside: list[tuple[Piece, float]] = [((GAUGE, gauge), gauge * worth - prices[GAUGE, gauge])]
    late: list[tuple[Piece, float]] = []
    for (kind, size), price in prices.items():
        if kind == HEAVY:
            beside.append(((EARLY, size), size * worth - price - prices[EARLY, size]))
            if size < gauge:
                late.append(((LATE, size), size * worth - price))
        elif kind == LIGHT:
            beside.append(((LIGHT, size), size * worth - price))
    return _Values(beside, late)


def priced(early: dict[int, int], heavy: dict[int, int], light: dict[int, int], gauge: int, size: int) -> Prices:
    """The prices with the least price of a card at which no filling is worth more than it costs."""
    rows: dict[Piece, float] = {(GAUGE, size): gauge}
    for kind, of_kind in ((EARLY, early), (HEAVY, heavy), (LIGHT, light)):
        rows |= {(kind, other): price for other, price in of_kind.items()}
    worth, _ = best_filling(_values(rows, size, _WORTH), size)
    return Prices(early, heavy, light, gauge, int(worth))


class _Program:
    """The linear program over fillings, solved by the simplex method with the inverse of the basis."""

    def __init__(self, counts: Counts, gauge: int) -> None:
        self._gauge = gauge
        heavy, light = sorted(counts.heavy), sorted(counts.light)
        self._rows: list[Piece] = [CARDS, (GAUGE, gauge)]
        self._rows += [(kind, size) for kind in (EARLY, HEAVY) for size in heavy] + [(LIGHT, size) for size in light]
        amounts = {CARDS: counts.cards - counts.gauges, (GAUGE, gauge): counts.gauges}
        for kind, of_kind in ((EARLY, counts.early), (HEAVY, counts.heavy), (LIGHT, counts.light)):
            amounts |= {(kind, size): float(of_kind[size]) for size in (light if kind == LIGHT else heavy)}
        self._amounts = [amounts[row] for row in self._rows]
        size = len(self._rows)
        self._inverse = [[float(row == column) for column in range(size)] for row in range(size)]
        self._inverse[0][1] = -1.0  # the gauges begin on cards of their own
        self._gains = [0.0, gauge / UNITS, *[0.0] * (size - 2)]

    def prices(self) -> dict[Piece, float]:
        """The prices of the rows, in cards, after the pivots that it takes."""
        found: dict[Piece, float] = {}
        for _ in range(_PIVOTS):
            found = self._duals()
            worth, filling = best_filling(_values(found, self._gauge, 1 / UNITS), self._gauge)
            slack = min((row for row in self._rows if row[0] != GAUGE), key=found.__getitem__)
            if max(worth - found[CARDS], -found[slack]) < 1e-8:
                break
            if worth - found[CARDS] >= -found[slack]:
                self._pivot(self._column(filling), sum(size * count for (_, size), count in filling.items()) / UNITS)
            else:
                self._pivot(Counter({slack: 1}), 0.0)
        return found

    def _duals(self) -> dict[Piece, float]:
        costly = [(gain, row) for gain, row in zip(self._gains, self._inverse, strict=True) if gain]
        return {name: sum(gain * row[column] for gain, row in costly) for column, name in enumerate(self._rows)}

    @staticmethod
    def _column(filling: Filling) -> Counter[Piece]:
        """What a filling uses of each row."""
        found: Counter[Piece] = Counter({CARDS: 1})
        for (kind, size), count in filling.items():
            if kind in (EARLY, LATE):
                found[HEAVY, size] += count
            if kind != LATE:
                found[kind, size] += count
        return found

    def _pivot(self, column: Counter[Piece], gain: float) -> None:
        places = [(self._rows.index(row), count) for row, count in column.items()]
        used = [sum(row[place] * count for place, count in places) for row in self._inverse]
        limits = [
            (max(amount, 0.0) / use, row)
            for row, (amount, use) in enumerate(zip(self._amounts, used, strict=True))
            if use > 1e-9
        ]
        amount, leaving = min(limits)
        pivot = [value / used[leaving] for value in self._inverse[leaving]]
        for row, use in enumerate(used):
            if row != leaving and abs(use) > 1e-12:
                self._inverse[row] = [value - use * of for value, of in zip(self._inverse[row], pivot, strict=True)]
                self._amounts[row] -= use * amount
        self._inverse[leaving], self._amounts[leaving], self._gains[leaving] = pivot, amount, gain


def good_prices(counts: Counts, size: int) -> Prices:
    """Prices whose bound for these counts is as low as can be. `size`: that of the gauge."""
    rows = _Program(counts, size).prices()
    cost = {row: round(price * UNITS * _WORTH) for row, price in rows.items()}
    early, heavy, light = (
        {of: max(price, 0) for (row, of), price in cost.items() if row == kind} for kind in (EARLY, HEAVY, LIGHT)
    )
    return priced(early, heavy, light, cost[GAUGE, size], size)


def bound(pods: Sequence[Shape], cards: int, gauge: Shape, prices: Sequence[Prices]) -> float:
    """The percentage of the cards that no policy exceeds on these arrivals: the highest over the moments."""
    counts = _counted(pods, gauge, cards)
    costs = [
        cards * of.card
        + sum(of.heavy[size] * count for size, count in counts.heavy.items())
        + sum(of.light[size] * count for size, count in counts.light.items())
        for of in prices
    ]
    highest = min(costs)
    for pod in pods:
        if pod == gauge:
            costs = [cost + of.gauge for cost, of in zip(costs, prices, strict=True)]
        elif pod.cards and is_heavy(pod, gauge):
            size = size_of(pod)
            costs = [cost + of.early[size] * pod.cards for cost, of in zip(costs, prices, strict=True)]
        highest = max(highest, min(costs))
    return 100 * highest / (cards * UNITS * _WORTH)


def bounds(workload: Workload, seeds: Iterable[int]) -> list[float]:
    """The bound of each seed."""
    gauge = gauge_of(workload.pods)
    prices = [good_prices(expected_counts(workload, gauge, moment), size_of(gauge)) for moment in MOMENTS]
    return [bound(arrivals(workload, Draws(seed)), workload.cards, gauge, prices) for seed in seeds]


def main() -> int:
    """Prints the bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workloads", default=",".join(TABULATED))
    parser.add_argument("--seeds", default="42-51")
    parser.add_argument("--document", type=Path, help="write the table into this document")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    heads, rows = ["workload", "gauge", "bound", "highest"], []
    for name in options.workloads.split(","):
        workload = read_workload(options.data, name)
        found = bounds(workload, seeds)
        gauge = f"{gauge_of(workload.pods).part / CARD:.2f}"
        rows.append([name, gauge, f"{sum(found) / len(found):.2f}", f"{max(found):.2f}"])
    print(plain(heads, rows))
    if options.document is not None:
        write_section(options.document, "bounds", markdown(heads, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
