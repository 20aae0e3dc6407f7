"""What cards cost: a price list by model, given in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

KIND = "CardPrices"
_HEAD = {"apiVersion": "haru.dev/v1alpha1", "kind": KIND}


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a card for one hour, by a shell pattern of the model (`NVIDIA H100*`); the first that matches holds."""

    currency: str
    per_card_hour: tuple[tuple[str, float], ...]

    def of(self, product: str) -> float | None:
        """Return the price of one hour of a card; None if the list has none."""
        return next((price for pattern, price in self.per_card_hour if fnmatchcase(product, pattern)), None)


def prices_of(read: Any, where: str) -> Prices:
    """Check a price list, as read from YAML. ValueError says what is wrong, with the file and a fix."""
    form = "write apiVersion: haru.dev/v1alpha1, kind: CardPrices, currency and perCardHour: {MODEL: PRICE}"
    if not isinstance(read, Mapping) or any(read.get(key) != value for key, value in _HEAD.items()):
        raise ValueError(f"{where}: it is no price list; {form}")
    unknown = sorted(map(str, read.keys() - {*_HEAD, "currency", "perCardHour"}))
    if unknown:
        raise ValueError(f"{where}: unknown field {unknown[0]}; {form}")
    currency, listed = read.get("currency"), read.get("perCardHour")
    if not isinstance(currency, str) or not currency or not isinstance(listed, Mapping):
        raise ValueError(f"{where}: currency or perCardHour is missing; {form}")
    for model, price in listed.items():
        if not isinstance(model, str) or isinstance(price, bool) or not isinstance(price, int | float) or price < 0:
            raise ValueError(f"{where}: perCardHour: {model}: Invalid value: {price!r}: must be a number of 0 or more")
    return Prices(currency, tuple((model, float(price)) for model, price in listed.items()))
