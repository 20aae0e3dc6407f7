"""How much accelerator work a node can still take, in cards: what its cards are worth, as far as its cpu goes.

Three things are counted.

- **Cards.** A whole card is worth one; a hole in a card what the prices of the expected mix of pieces say
  (`room_prices`), blended with what random pieces would make of it. Whole cards of one node are worth a little more
  together, by how much of the work asks for several at once.
- **Cpu.** Work differs in the cpu that it needs for each card's worth. With cpu for `r` cores a card, work that needs
  `k` uses a part of `min(1, r/k)`; the mean over the mix, times the cards, is the worth of the node. It is concave, so
  the least is lost where what is left of the node is most like what the work asks for: little of both, or much.
- **Models.** What work that accepts one model only will ask for in any case is worth more to it.

The best place for work is the one where the worth falls least. Work without cards loses nothing where none are left.
Source: our own; after Fragmentation Gradient Descent (USENIX ATC'23), which counts instead what a mix cannot use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_ENOUGH = 1e-7
_ROUNDS = 500


def room_prices(sizes: Mapping[int, int], card: int) -> list[float]:
    """The worth of 0, 1, … `card` units of room, in cards, where pieces of `sizes` (units) are asked for so often.

    A whole card is worth 1, even if nothing is asked for. Raises ValueError for a size that no card has.
    """
    wrong = [size for size in sizes if not 0 < size <= card]
    if wrong:
        raise ValueError(f"size {wrong[0]}: a piece has 1 to {card} units")
    asked = sorted(size for size, count in sizes.items() if count > 0)
    if not asked:
        return [0.0] * card + [1.0]
    basis = _Basis(asked, [float(sizes[size]) for size in asked], card)
    for _ in range(_ROUNDS):
        prices = basis.prices()
        worth, filling = _best_filling(asked, prices, card)
        if worth[card] <= 1.0 + _ENOUGH:
            break
        basis.enter(filling)
    top = max(worth[card], 1.0)
    return [value / top for value in worth[:card]] + [1.0]


class _Basis:
    """The ways to fill a card that are in use, as the inverse of their matrix: at first, each size by itself."""

    def __init__(self, sizes: Sequence[int], demand: Sequence[float], card: int) -> None:
        count = len(sizes)
        each = [card // size for size in sizes]
        self._inverse = [[1.0 / each[row] if row == column else 0.0 for column in range(count)] for row in range(count)]
        self._cards = [amount / number for amount, number in zip(demand, each, strict=True)]

    def prices(self) -> list[float]:
        """What one more piece of each size costs, in cards."""
        return [sum(column) for column in zip(*self._inverse, strict=True)]

    def enter(self, filling: Sequence[int]) -> None:
        """Use another way to fill a card, in place of the one that runs out first."""
        used = [sum(part * number for part, number in zip(row, filling, strict=True)) for row in self._inverse]
        limits = [
            (cards / use, row) for row, (cards, use) in enumerate(zip(self._cards, used, strict=True)) if use > 1e-9
        ]
        amount, leaving = min(limits)
        pivot = [value / used[leaving] for value in self._inverse[leaving]]
        for row, use in enumerate(used):
            if row != leaving and use:
                self._inverse[row] = [value - use * of for value, of in zip(self._inverse[row], pivot, strict=True)]
                self._cards[row] -= use * amount
        self._inverse[leaving], self._cards[leaving] = pivot, amount


def _best_filling(sizes: Sequence[int], prices: Sequence[float], card: int) -> tuple[list[float], list[int]]:
    """The best worth of 0, 1, … `card` units at these prices, and how many pieces of each size fill a card so."""
    worth, last = [0.0] * (card + 1), [-1] * (card + 1)
    for room in range(1, card + 1):
        best, piece = worth[room - 1], -1
        for index, size in enumerate(sizes):
            if size <= room and worth[room - size] + prices[index] > best + 1e-12:
                best, piece = worth[room - size] + prices[index], index
        worth[room], last[room] = best, piece
    filling, room = [0] * len(sizes), card
    while room > 0:
        piece = last[room]
        if piece >= 0:
            filling[piece] += 1
        room -= sizes[piece] if piece >= 0 else 1
    return worth, filling


CARD = 1000
"""Thousandths of a card."""
_UNITS = 100
_PER_UNIT = CARD // _UNITS


class ExpectedRequest(NamedTuple):
    """A shape of work: cpu in thousandths of a core, cards, thousandths of each (1000: whole), the models it accepts.

    No models means any. Parts of cards are asked for one at a time.
    """

    cpu: int
    cards: int
    part: int
    models: frozenset[str] = frozenset()

    @property
    def amount(self) -> float:
        """What it takes, in cards."""
        return self.cards * self.part / CARD


@dataclass(frozen=True, slots=True)
class Tuning:
    """How much each consideration counts. The defaults are those that are measured in docs/performance-packing.md.

    `smoothing` is the part of random pieces in what holes are worth; `together` what the last whole card of a node
    costs more, and `together_by_share` the same times the share of work that asks for several; `scarcity` what a card
    of a model costs more that is asked for by name as much as there is of it, to the power of `scarcity_power`.
    """

    smoothing: float = 0.07
    together: float = 0.03
    together_by_share: float = 0.02
    scarcity: float = 0.8
    scarcity_power: float = 3.0


class PackingValue:
    """The measure for one expected mix of work: how often each shape comes. `supply`: how many cards of each model."""

    def __init__(
        self,
        demand: Mapping[ExpectedRequest, int],
        supply: Mapping[str, int] | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        tuning = tuning or Tuning()
        wanted = {ask: count for ask, count in demand.items() if ask.cards and ask.part and count > 0}
        self._rooms = _rooms(wanted, tuning.smoothing)
        self._together = _together(wanted, tuning)
        self._needs, self._below, self._above = _cpu_curve(wanted, self._rooms)
        self._scarcity = _scarcity(wanted, supply or {}, tuning)
        self._cards: dict[tuple[int, ...], float] = {}

    def room(self, part: int) -> float:
        """What a hole of so many thousandths of a card is worth, in cards."""
        return self._rooms[part // _PER_UNIT]

    def cards(self, rooms: tuple[int, ...]) -> float:
        """What cards are worth with so many thousandths left on each, cpu not minded; full cards may be left out."""
        found = self._cards.get(rooms)
        if found is None:
            found = sum(self._rooms[room // _PER_UNIT] for room in rooms)
            whole = rooms.count(CARD)
            for count, bonus in self._together:
                found += bonus * (whole // count * count)
            self._cards[rooms] = found
        return found

    def worth(self, cards: float, cpu: int) -> float:
        """What cards worth so much are worth with so much cpu (thousandths of a core) beside them."""
        if cards <= 1e-9:
            return 0.0
        index = bisect_right(self._needs, cpu / cards)
        return cards * self._below[index] + cpu * self._above[index]

    def scarcity(self, model: str) -> float:
        """What a card of a model costs more than others, because work that accepts no other will want it."""
        return self._scarcity.get(model, 0.0)

    def taken(self, rooms: Sequence[int], part: int) -> int | None:
        """The index of the card on which so many thousandths cost least; of equals the first. None: no room."""
        best: int | None = None
        least = 0.0
        for index, room in enumerate(rooms):
            if room >= part:
                cost = self._rooms[room // _PER_UNIT] - self._rooms[(room - part) // _PER_UNIT]
                if best is None or cost < least - 1e-12:
                    best, least = index, cost
        return best


def _rooms(demand: Mapping[ExpectedRequest, int], smoothing: float) -> list[float]:
    """The worth of each number of hundredths of a card."""
    pieces: Counter[int] = Counter()
    whole = 0
    for ask, count in demand.items():
        if ask.part < CARD:
            pieces[-(-ask.part // _PER_UNIT)] += count * ask.cards
        else:
            whole += count * ask.cards
    prices = room_prices(pieces, _UNITS)
    total = whole + sum(size * count for size, count in pieces.items()) / _UNITS
    if not total:
        return prices
    random = [_at_random(pieces, room) + (whole if room == _UNITS else 0) for room in range(_UNITS + 1)]
    return [
        (1 - smoothing) * price + smoothing * other / random[-1] for price, other in zip(prices, random, strict=True)
    ]


def _at_random(pieces: Mapping[int, int], room: int) -> float:
    """How much of some room is used if it is filled with pieces of one size, by how much of each size is asked for."""
    return sum(room // size * size * count * size for size, count in pieces.items()) / _UNITS / _UNITS


def _together(demand: Mapping[ExpectedRequest, int], tuning: Tuning) -> tuple[tuple[int, float], ...]:
    """For each number of whole cards that is asked for at once, what a card costs more that is one of so many."""
    total = sum(ask.amount * count for ask, count in demand.items())
    shares: Counter[int] = Counter()
    for ask, count in demand.items():
        if ask.cards > 1 and ask.part >= CARD:
            shares[ask.cards] += ask.cards * count
    several = sum(shares.values())
    if not several:
        return ()
    bonus = tuning.together / several + tuning.together_by_share / total
    return tuple((cards, amount * bonus) for cards, amount in sorted(shares.items()))


def _cpu_curve(
    demand: Mapping[ExpectedRequest, int], rooms: Sequence[float]
) -> tuple[list[float], list[float], list[float]]:
    """The needs of cpu a card's worth, rising; the share of work below each; and the sum of share over need above."""
    found = []
    for ask, count in sorted(demand.items(), key=lambda item: item[0][:3]):
        worth = float(ask.cards) if ask.part >= CARD else rooms[-(-ask.part // _PER_UNIT)] * ask.cards
        if worth > 0:
            found.append((ask.cpu / worth, count * worth))
    found.sort()
    total = sum(share for _, share in found) or 1.0
    below, above = [0.0], [0.0] * (len(found) + 1)
    for _, share in found:
        below.append(below[-1] + share / total)
    for index in range(len(found) - 1, -1, -1):
        need, share = found[index]
        above[index] = above[index + 1] + share / total / max(need, 1.0)
    return [need for need, _ in found], below if found else [1.0], above


def _scarcity(demand: Mapping[ExpectedRequest, int], supply: Mapping[str, int], tuning: Tuning) -> dict[str, float]:
    """Work that names models presses on each of them by how much there is of it."""
    press: Counter[str] = Counter()
    for ask, count in demand.items():
        cards = sum(supply.get(model, 0) for model in ask.models)
        for model in ask.models:
            if supply.get(model):
                press[model] += ask.amount * count * supply[model] / cards  # type: ignore[assignment]
    return {
        model: tuning.scarcity * min(1.0, pressed / supply[model]) ** tuning.scarcity_power
        for model, pressed in sorted(press.items())
    }
