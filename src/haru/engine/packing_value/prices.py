"""What room on a card is worth: the prices of the covering problem, in cards.

Parts of cards are asked for in some sizes, each so often. How many cards are needed at least is a linear program over
the ways to fill a card; its dual prices say what part of a card a piece of each size really costs, and so what a hole
is worth that still takes some. A hole that nothing asked for goes into is worth nothing; a piece that leaves such a
hole costs the whole card.
Source: the cutting-stock problem with columns made as needed (Gilmore and Gomory, 1961).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
