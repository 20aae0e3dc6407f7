"""What keeps a device back, by name: claims that hold it, counters that are short, values that a selector refuses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from haru.engine.dra.allocated_state import PoolUse
from haru.engine.dra.model.model import Features, Shape
from haru.engine.dra.pools.pools import PoolView
from haru.engine.dra.selectors.selector_fields import names_read


def claims_holding(use: PoolUse, device: str) -> tuple[str, ...]:
    """Return the claims that hold a device or shares of it, each once."""
    if not use.shares:
        whole = use.devices.get(device, ())
        return whole if len(whole) < 2 else tuple(dict.fromkeys(whole))
    return tuple(dict.fromkeys(use.holders(device)))


class CounterUse:
    """The counters of a pool: what is left of them, and which claims draw on them."""

    def __init__(self, view: PoolView, use: PoolUse) -> None:
        self._view = view
        self._left = view.counters_left(use)
        self._claims: dict[int, dict[str, None]] = {}
        taken = use.names()
        for device, charge in zip(view.devices, view.charges, strict=True):
            for counter, _ in charge if device.name in taken else ():
                self._claims.setdefault(counter, {}).update(dict.fromkeys(use.holders(device.name)))

    def shortage(self, index: int) -> tuple[set[str], tuple[str, ...]]:
        """Return the counters of which too little is left for a device, and the claims that draw on them."""
        short = {counter for counter, amount in self._view.charges[index] if self._left[counter] < amount}
        if not short:
            # Nothing of an overdrawn pool is given out.
            short = {counter for counter, value in enumerate(self._left) if value < 0}
        claims = dict.fromkeys(path for counter in sorted(short) for path in self._claims.get(counter, ()))
        return {self._view.counter_names[counter][1] for counter in short}, tuple(claims)


def values_read(expression: str, shape: Shape, features: Features) -> dict[str, object]:
    """Return what an expression reads of a device, by qualified name; None for an attribute that it lacks."""
    names = names_read(expression, features.ListTypeAttributes, features.ConsumableCapacity)
    found: dict[str, object] = {"driver": shape.driver}
    if names is not None:
        for domain, name in sorted(names.attributes):
            attribute = shape.attribute(f"{domain}/{name}")
            found[f"{domain}/{name}"] = None if attribute is None else attribute.value
        found.update({f"{shape.driver}/{name}": capacity.text for name, capacity in names.of(shape).capacity})
    return found


def refused_values(expression: str, shapes: Iterable[Shape], features: Features) -> list[dict[str, Any]]:
    """Return each combination of values for which an expression refuses devices, with the number of devices."""
    found: dict[str, tuple[dict[str, object], int]] = {}
    for shape in shapes:
        values = values_read(expression, shape, features)
        key = repr(values)
        found[key] = values, found[key][1] + 1 if key in found else 1
    return [{"values": values, "devices": count} for values, count in found.values()]
