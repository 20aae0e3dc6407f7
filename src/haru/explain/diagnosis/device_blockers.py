"""What keeps a device back, by name: the claims that hold it, those that draw on its counters, the values it has."""

from __future__ import annotations

from haru.engine import Features
from haru.engine.dra import PoolUse, PoolView, Shape, names_read


def users(use: PoolUse, device: str) -> tuple[str, ...]:
    """The claims that hold a device or shares of it."""
    if not use.shares:
        whole = use.devices.get(device, ())
        return whole if len(whole) < 2 else tuple(dict.fromkeys(whole))
    return tuple(dict.fromkeys(use.holders(device)))


class Draws:
    """Who draws on the counters of a pool, and what is left of them."""

    def __init__(self, view: PoolView, use: PoolUse) -> None:
        self._view = view
        self._left = view.counters_left(use)
        self._claims: dict[int, dict[str, None]] = {}
        taken = use.names()
        for device, charge in zip(view.devices, view.charges, strict=True):
            for counter, _ in charge if device.name in taken else ():
                self._claims.setdefault(counter, {}).update(dict.fromkeys(use.holders(device.name)))

    def blame(self, index: int) -> tuple[set[str], tuple[str, ...]]:
        """The counters that are too short for a device, by name, and the claims that draw on them."""
        short = {counter for counter, amount in self._view.charges[index] if self._left[counter] < amount}
        if not short:
            # The pool is overdrawn elsewhere: nothing of it is given out.
            short = {counter for counter, value in enumerate(self._left) if value < 0}
        claims = dict.fromkeys(path for counter in sorted(short) for path in self._claims.get(counter, ()))
        return {self._view.counter_names[counter][1] for counter in short}, tuple(claims)


def values_read(expression: str, shape: Shape, features: Features) -> dict[str, object]:
    """What an expression reads of a device, by qualified name; None is an attribute that it does not have."""
    names = names_read(expression, features.ListTypeAttributes, features.ConsumableCapacity)
    found: dict[str, object] = {"driver": shape.driver}
    if names is not None:
        for domain, name in sorted(names.attributes):
            attribute = shape.attribute(f"{domain}/{name}")
            found[f"{domain}/{name}"] = None if attribute is None else attribute.value
        found.update({f"{shape.driver}/{name}": capacity.text for name, capacity in names.of(shape).capacity})
    return found
