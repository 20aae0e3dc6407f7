"""Who held which device from when to when, and how busy it was: states of cards turned into spans. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from haru.accounting.device_states import HELD, CardState


class HoldingKey(NamedTuple):
    """A device and its holder. `card` is the card that the device is, or is a part of."""

    node: str
    driver: str
    pool: str
    card: str
    device: str
    namespace: str
    owner: str


class Holding(NamedTuple):
    """A device that was held from `began` to `ended` (ms since 1970; 0: it still is), at so many percent if known."""

    key: HoldingKey
    began: int
    ended: int
    percent: float | None


@dataclass(slots=True)
class _Open:
    began: int
    seen: int
    percent: float | None
    amount: float = 0.0
    measured: int = 0

    def advance(self, now: int, percent: float | None) -> None:
        """Count until now what was measured last."""
        if self.percent is not None and now > self.seen:
            self.amount += self.percent * (now - self.seen)
            self.measured += now - self.seen
        self.seen, self.percent = max(self.seen, now), percent


class HoldingMeter:
    """Turns moments into holdings."""

    def __init__(self) -> None:
        self._open: dict[HoldingKey, _Open] = {}

    def change(self, before: Iterable[CardState], after: Iterable[CardState], now: int) -> list[Holding]:
        """Take cards that are other from now on; return the holdings that have begun (`ended` 0) or ended."""
        held = dict(_held(after))
        told = [self._end(key, now) for key, _ in _held(before) if key not in held and key in self._open]
        for key, percent in held.items():
            if key in self._open:
                self._open[key].advance(now, percent)
            else:
                self._open[key] = _Open(now, now, percent)
                told.append(Holding(key, now, 0, percent))
        return told

    def stop(self, now: int) -> list[Holding]:
        """End all: what follows is not observed."""
        return [self._end(key, now) for key in list(self._open)]

    def _end(self, key: HoldingKey, now: int) -> Holding:
        known = self._open.pop(key)
        known.advance(now, None)
        return Holding(key, known.began, max(now, known.began + 1), _mean(known))


def _mean(known: _Open) -> float | None:
    return round(known.amount / known.measured, 1) if known.measured else known.percent


def _held(cards: Iterable[CardState]) -> Iterable[tuple[HoldingKey, float | None]]:
    for card in cards:
        for part in card.parts:
            if part.state in HELD:
                key = HoldingKey(card.node, card.driver, card.pool, card.card, part.device, part.namespace, part.owner)
                yield key, part.utilization
