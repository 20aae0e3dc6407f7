"""One object per value, for what hundreds of thousands of published devices have in common.

Nodes of one model often publish devices that are equal down to the name: those are found again by the text of their
slice. Else the devices of a slice are made column by column, for they mostly have the same members: what was made of an
attribute's value, or of another part's text, is found again before it is parsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, TypeVar

import orjson

from haru.engine.devices import parts
from haru.engine.devices.model import (
    PLAIN_KINDS,
    SCALAR_KINDS,
    Attribute,
    Binding,
    Capacity,
    Consumption,
    CounterSet,
    Device,
    Placement,
    Shape,
    Slice,
    Taint,
)

T = TypeVar("T")
Raw = Mapping[str, Any]
Attributes = tuple[tuple[str, Attribute], ...]
_MAX_TEXTS = 8192
_TRIAL = 1024
_BINDING = ("bindingConditions", "bindingFailureConditions", "bindsToNode")


class _Values(dict[Any, tuple[str, Attribute]]):
    """The values that an attribute has under one JSON member, each with the attribute's name."""

    __slots__ = ("_kind", "_name", "plain")

    def __init__(self, name: str, kind: str) -> None:
        self._name = name
        self._kind = kind
        self.plain = kind in PLAIN_KINDS
        """Whether no value may fail any expression."""

    def __missing__(self, value: Any) -> tuple[str, Attribute]:
        attribute = parts.attribute({self._kind: value})
        self.plain = self.plain and attribute.kind in PLAIN_KINDS
        pair = self[value] = (self._name, attribute)
        return pair


class Interner:
    """Makes devices and what they consist of.

    The owner starts a new one now and then, so that values out of use are let go.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}
        self._values: dict[tuple[str, str], _Values] = {}
        self._shapes: dict[tuple[str, Attributes, int, bool], Shape] = {}
        self._texts: dict[str, dict[bytes, Any]] = {}
        self._lists: dict[tuple[str, bool], dict[bytes, tuple[Device, ...]]] = {}
        self._asked = self._made = 0
        self._by_list = True

    def __len__(self) -> int:
        return len(self._known) + len(self._shapes)

    def value(self, value: T) -> T:
        """The first object that was equal to this one."""
        found: T = self._known.setdefault((type(value), value), value)
        return found

    def devices(self, raw: Sequence[Raw], driver: str, per_device: bool) -> tuple[Device, ...]:
        """The devices of a slice; those of equal slices are the same."""
        if not raw or not self._by_list:
            return self._devices(raw, driver, per_device)
        try:
            text = orjson.dumps(raw)
        except TypeError:  # no JSON: somebody made the object up
            return self._devices(raw, driver, per_device)
        known = self._lists.setdefault((driver, per_device), {})
        self._asked += len(raw)
        found = known.get(text)
        if found is None:
            found = known[text] = self._devices(raw, driver, per_device)
            self._made += len(raw)
            if self._asked > _TRIAL and self._made * 2 > self._asked:
                # Devices with identities of their own do not recur: then their texts are not worth the making.
                self._by_list = False
                self._lists.clear()
            elif self._made > _MAX_TEXTS:
                self._lists.clear()
                self._asked = self._made = 0
        return found

    def _devices(self, raw: Sequence[Raw], driver: str, per_device: bool) -> tuple[Device, ...]:
        members = set().union(*raw)

        def column(member: str) -> list[Any]:
            return [entry.get(member) for entry in raw]

        names = [entry.get("name") or "" for entry in raw]
        consumes: Iterable[tuple[Consumption, ...]] = repeat(())
        taints: Iterable[tuple[Taint, ...]] = repeat(())
        if "consumesCounters" in members:
            consumes = self._consumption(column("consumesCounters"))
        if "taints" in members:
            taints = self._each("taints", column("taints"), self._taints)
        return tuple(
            map(
                Device,
                map(self._known.setdefault, names, names),
                self._shapes_of(raw, driver, column),
                consumes,
                taints,
                map(self._binding, raw) if members.intersection(_BINDING) else repeat(None),
                map(self.placement, raw) if per_device else repeat(None),
            )
        )

    def _shapes_of(self, raw: Sequence[Raw], driver: str, column: Callable[[str], list[Any]]) -> list[Shape]:
        attributes, plain = self._attributes([given or {} for given in column("attributes")])
        capacities = self._each("capacity", column("capacity"), self._capacity)
        shapes, found = self._shapes, []
        for own, capacity, many in zip(attributes, capacities, column("allowMultipleAllocations"), strict=True):
            key = (driver, own, id(capacity), bool(many))
            shape = shapes.get(key)
            if shape is None:
                shape = shapes[key] = Shape(driver, own, capacity, bool(many), plain)
            found.append(shape)
        return found

    def _each(self, what: str, given: Sequence[Any], make: Callable[[Any], T]) -> list[T]:
        """What `make` makes of a part of each device, found again by the part's text."""
        known: dict[bytes, T] = self._texts.setdefault(what, {})
        try:
            texts = list(map(orjson.dumps, given))
        except TypeError:  # no JSON: somebody made the object up
            return list(map(make, given))
        if len(known) > _MAX_TEXTS:
            known.clear()
        for text, raw in dict(zip(texts, given, strict=True)).items():
            if text not in known:
                known[text] = make(raw)
        return list(map(known.__getitem__, texts))

    def _attributes(self, given: Sequence[Raw]) -> tuple[list[Attributes], bool]:
        """The attributes of each device by name, and whether all of them are plain."""
        sorts: dict[tuple[str, ...], list[int]] = {}
        for index, names in enumerate(map(tuple, given)):
            sorts.setdefault(names, []).append(index)
        found: list[Attributes] = [()] * len(given)
        all_plain = True
        for names, indices in sorts.items():
            alike = given if len(sorts) == 1 else [given[index] for index in indices]
            columns = []
            for name in sorted(names):
                values, plain = self._column(name, [entry[name] for entry in alike])
                columns.append(values)
                all_plain = all_plain and plain
            for index, own in zip(indices, zip(*columns, strict=True), strict=False):
                found[index] = own
        return found, all_plain

    def _column(self, name: str, given: Sequence[Raw | None]) -> tuple[list[tuple[str, Attribute]], bool]:
        """The values of one attribute of several devices, with its name, and whether all of them are plain."""
        try:
            (kind,) = given[0]  # type: ignore[misc]
            values = self._values_of(name, kind)
            if max(map(len, given)) == 1:  # type: ignore[arg-type]
                return [values[value[kind]] for value in given], values.plain  # type: ignore[index]
        except (KeyError, TypeError, ValueError):
            pass
        # Not all of them have just one value of one kind; or it is a list.
        return [self.value((name, parts.attribute(value or {}))) for value in given], False

    def _values_of(self, name: str, kind: str) -> _Values:
        found = self._values.get((name, kind))
        if found is None:
            found = self._values[(name, kind)] = _Values(name, kind)
        return found

    def _capacity(self, raw: Raw | None) -> tuple[tuple[str, Capacity], ...]:
        return self.value(tuple([(name, self.value(parts.capacity(raw[name] or {}))) for name in sorted(raw or {})]))  # type: ignore[index]

    def _consumption(self, given: Sequence[Sequence[Raw] | None]) -> list[tuple[Consumption, ...]]:
        """What devices take from counter sets."""
        entries = [entry for one in given for entry in one or ()]
        amounts = self._each("counters", [entry.get("counters") for entry in entries], self._counters)
        made = [Consumption(entry.get("counterSet") or "", own) for entry, own in zip(entries, amounts, strict=True)]
        if len(made) == len(given) and all(given):
            return [self.value((one,)) for one in made]
        rest = iter(made)
        return [self.value(tuple(islice(rest, len(one or ())))) for one in given]

    def _counters(self, raw: Raw | None) -> tuple[tuple[str, int], ...]:
        return self.value(parts.counters(raw or {}))

    def counter_sets(self, raw: Sequence[Raw]) -> tuple[CounterSet, ...]:
        """Counters that devices share."""
        counters = self._each("counters", [entry.get("counters") for entry in raw], self._counters)
        return tuple([self.value(CounterSet(e.get("name") or "", own)) for e, own in zip(raw, counters, strict=True)])

    def _taints(self, raw: Sequence[Raw] | None) -> tuple[Taint, ...]:
        return self.value(tuple([self.value(parts.taint(taint)) for taint in raw or ()]))

    def _binding(self, raw: Raw) -> Binding | None:
        conditions, failures, to_node = (raw.get(member) for member in _BINDING)
        if conditions or failures or to_node:
            return self.value(Binding(tuple(conditions or ()), tuple(failures or ()), bool(to_node)))
        return None

    def placement(self, spec: Raw) -> Placement:
        """The placement that a slice's or device's members describe."""
        name, every, selector = spec.get("nodeName") or "", bool(spec.get("allNodes")), spec.get("nodeSelector")
        key = ("placement", name, every, json.dumps(selector, sort_keys=True) if selector else selector is None)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Placement(name, every, selector)
        placement: Placement = found
        return placement

    def adopt(self, item: Slice) -> None:
        """Take over what a decoded slice holds, as if it had been decoded here."""
        self.value(item.pool)
        for device in item.devices:
            shape = device.shape
            for name, attribute in shape.attributes:
                if attribute.kind in SCALAR_KINDS:
                    self._values_of(name, attribute.kind).setdefault(attribute.value, (name, attribute))
            capacity = self.value(shape.capacity)
            self._shapes.setdefault((shape.driver, shape.attributes, id(capacity), shape.shareable), shape)
            self._known.setdefault(device.name, device.name)
            for held in (device.consumes, device.taints):
                self.value(held)
            for consumption in device.consumes:
                self.value(consumption.amounts)
