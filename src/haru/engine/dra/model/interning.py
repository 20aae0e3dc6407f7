"""One object per value, for what hundreds of thousands of published devices have in common.

Nodes of one model often publish devices that are equal down to the name: those are found again by the text of their
slice. Else the devices of a slice are made column by column, for they mostly have the same members: what was made of an
attribute's value, or of another part's text, is found again before it is parsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice, repeat
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import orjson

from haru.engine.dra.model import decode_fields
from haru.engine.dra.model.model import (
    NO_MAPPINGS,
    PLAIN_KINDS,
    SCALAR_KINDS,
    Attribute,
    Binding,
    Capacity,
    Consumption,
    CounterSet,
    Device,
    Mappings,
    Placement,
    PlainDevices,
    PoolKey,
    Shape,
    Slice,
    Taint,
    new_tuple,
)
from haru.kube.meta import Obj

T = TypeVar("T")
Raw = Mapping[str, Any]
Attributes = tuple[tuple[str, Attribute], ...]
_MAX_TEXTS = 8192
_POLICIES = attrgetter("policies")
_BINDING = ("bindingConditions", "bindingFailureConditions", "bindsToNode")
_BESIDE = frozenset(("allowMultipleAllocations", "consumesCounters", "taints", *_BINDING))
"""What devices may have besides attributes and capacities, if not a place of their own."""


class _Values(dict[Any, tuple[str, Attribute]]):
    """The values that an attribute has under one JSON member, each with the attribute's name."""

    __slots__ = ("_kind", "_name", "plain")

    def __init__(self, name: str, kind: str) -> None:
        self._name = name
        self._kind = kind
        self.plain = kind in SCALAR_KINDS
        """Whether no value, of all that there were, may fail any expression."""

    def __missing__(self, value: Any) -> tuple[str, Attribute]:
        if value is not None and self._kind in PLAIN_KINDS:
            attribute = new_tuple(Attribute, (self._kind, value))
        else:
            attribute = decode_fields.attribute({self._kind: value})
            self.plain = self.plain and not attribute.may_fail
        pair = self[value] = (self._name, attribute)
        return pair


class _Known:
    """One object per value."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: dict[Hashable, Any] = {}

    def value(self, value: T) -> T:
        """The first object that was equal to this one."""
        found: T = self.values.setdefault((type(value), value), value)
        return found


class _Parts(dict[bytes, T]):
    """What parts of devices mean, by their text."""

    __slots__ = ("_known", "_make")

    def __init__(self, known: _Known, make: Callable[[_Known, Any], T]) -> None:
        self._known = known
        self._make = make

    def __missing__(self, text: bytes) -> T:
        if len(self) > _MAX_TEXTS:
            self.clear()
        found = self[text] = self._make(self._known, orjson.loads(text))
        return found

    def of(self, given: Sequence[Any]) -> list[T]:
        """What each of these parts means."""
        try:
            if given and given[0] == given[-1] and given.count(given[0]) == len(given):
                return [self[orjson.dumps(given[0])]] * len(given)
            return list(map(self.__getitem__, map(orjson.dumps, given)))
        except orjson.JSONEncodeError:  # no JSON: somebody made the object up
            return [self._make(self._known, raw) for raw in given]


def _capacity(known: _Known, raw: Raw | None) -> tuple[tuple[str, Capacity], ...]:
    given = raw or {}
    return known.value(
        tuple([(name, known.value(decode_fields.capacity(given[name] or {}))) for name in sorted(given)])
    )


def _counters(known: _Known, raw: Raw | None) -> tuple[tuple[str, int], ...]:
    return known.value(decode_fields.counters(raw or {}))


def _taints(known: _Known, raw: Sequence[Raw] | None) -> tuple[Taint, ...]:
    return known.value(tuple([known.value(decode_fields.taint(taint)) for taint in raw or ()]))


class Interner:
    """Makes devices and what they consist of.

    The owner starts a new one now and then, so that values out of use are let go.
    """

    def __init__(self) -> None:
        self._known = _Known()
        self._values: dict[tuple[str, str], _Values] = {}
        self._shapes: dict[tuple[str, tuple[int, ...], int, bool], Shape] = {}
        self._consumptions: dict[tuple[str, int], tuple[Consumption, ...]] = {}
        self._capacities = _Parts(self._known, _capacity)
        self._amounts = _Parts(self._known, _counters)
        self._taints = _Parts(self._known, _taints)
        self._lists: dict[tuple[str, bool, int, bytes], dict[bytes, tuple[tuple[Device, ...], Mappings]]] = {}
        self._listed = 0

    def __len__(self) -> int:
        return len(self._known.values) + len(self._shapes)

    def value(self, value: T) -> T:
        """The first object that was equal to this one."""
        return self._known.value(value)

    def text(self, value: str) -> str:
        """The first text that was equal to this one."""
        found: str = self._known.values.setdefault(value, value)
        return found

    def pool_key(self, driver: str, pool: str) -> PoolKey:
        """The one key of a pool."""
        key = new_tuple(PoolKey, (driver, pool))
        found: PoolKey = self._known.values.setdefault(key, key)
        return found

    def devices(self, raw: Sequence[Raw], driver: str, per_device: bool) -> tuple[tuple[Device, ...], Mappings]:
        """The devices of a slice, and how they count against their node; those of equal slices are the same."""
        if not raw:
            return (), NO_MAPPINGS
        try:
            # Devices with identities of their own do not recur: the whole text is only made where the first one did.
            kind = (driver, per_device, len(raw), orjson.dumps(raw[0]))
            known = self._lists.get(kind)
            if known is None:
                if len(self._lists) > _MAX_TEXTS:
                    self._lists.clear()
                self._lists[kind] = {}
                return self._devices(raw, driver, per_device)
            text = orjson.dumps(raw)
        except orjson.JSONEncodeError:  # no JSON: somebody made the object up
            return self._devices(raw, driver, per_device)
        found = known.get(text)
        if found is None:
            self._listed += len(raw)
            if self._listed > _MAX_TEXTS:
                self._lists.clear()
                self._listed = 0
            found = known[text] = self._devices(raw, driver, per_device)
        return found

    def _devices(self, raw: Sequence[Raw], driver: str, per_device: bool) -> tuple[tuple[Device, ...], Mappings]:
        members = set().union(*raw)
        mapped = "nodeAllocatableResourceMappings" in members
        names = [entry.get("name") or "" for entry in raw]
        shareable: Iterable[bool] = repeat(False)
        consumes: Iterable[tuple[Consumption, ...]] = repeat(())
        taints: Iterable[tuple[Taint, ...]] = repeat(())
        if "allowMultipleAllocations" in members:
            shareable = [bool(entry.get("allowMultipleAllocations")) for entry in raw]
        if "consumesCounters" in members:
            consumes = self._consumption([entry.get("consumesCounters") for entry in raw])
        if "taints" in members:
            taints = self._taints.of([entry.get("taints") for entry in raw])
        shapes, plain = self._shapes_of(raw, driver, shareable)
        plain = plain and not per_device and members.isdisjoint(_BESIDE)
        made = (PlainDevices if plain else tuple)(
            map(
                Device,
                map(self._known.values.setdefault, names, names),
                shapes,
                consumes,
                taints,
                map(self._binding, raw) if members.intersection(_BINDING) else repeat(None),
                map(self.placement, raw) if per_device else repeat(None),
            )
        )
        return made, decode_fields.node_mappings(raw) if mapped else NO_MAPPINGS

    def _shapes_of(self, raw: Sequence[Raw], driver: str, shareable: Iterable[bool]) -> tuple[list[Shape], bool]:
        """The shapes, and whether no attribute may fail an expression and all capacities are taken whole."""
        attributes, plain = self._attributes([entry.get("attributes") or {} for entry in raw])
        capacities = self._capacities.of([entry.get("capacity") for entry in raw])
        shapes, found = self._shapes, []
        alike: dict[int, Shape] = {}
        for own, capacity, many in zip(attributes, capacities, shareable, strict=False):
            key = (driver, tuple(map(id, own)), id(capacity), many)
            shape = shapes.get(key)
            if shape is None:
                shape = shapes[key] = Shape(driver, own, capacity, many, plain, alike.get(id(capacity)))
                alike[id(capacity)] = shape
            found.append(shape)
        return found, plain and not any(map(_POLICIES, found))

    def _attributes(self, given: Sequence[Raw]) -> tuple[Sequence[Attributes], bool]:
        """The attributes of each device by name, and whether all of them are plain."""
        names = list(map(tuple, given))
        if names.count(names[0]) == len(names):
            return self._alike(names[0], given)
        sorts: dict[tuple[str, ...], list[int]] = {}
        for index, own in enumerate(names):
            sorts.setdefault(own, []).append(index)
        found: list[Attributes] = [()] * len(given)
        all_plain = True
        for sort, indices in sorts.items():
            made, plain = self._alike(sort, [given[index] for index in indices])
            all_plain = all_plain and plain
            for index, attributes in zip(indices, made, strict=True):
                found[index] = attributes
        return found, all_plain

    def _alike(self, names: tuple[str, ...], given: Sequence[Raw]) -> tuple[list[Attributes], bool]:
        """The same for devices that have these attributes all."""
        if not names:
            return [()] * len(given), True
        columns = [self._column(name, list(map(itemgetter(name), given))) for name in sorted(names)]
        return list(zip(*[values for values, _ in columns], strict=True)), all(plain for _, plain in columns)

    def _column(self, name: str, given: Sequence[Raw | None]) -> tuple[list[tuple[str, Attribute]], bool]:
        """The values of one attribute of several devices, with its name, and whether all of them are plain."""
        try:
            (kind,) = given[0]  # type: ignore[misc]
            values = self._values_of(name, kind)
            if set(map(len, given)) == {1}:  # type: ignore[arg-type]
                found = list(map(values.__getitem__, map(itemgetter(kind), given)))  # type: ignore[arg-type]
                return found, values.plain or not any(attribute.may_fail for _, attribute in found)
        except (KeyError, TypeError, ValueError):
            pass
        # Not all of them have just one value of one kind; or it is a list.
        return [self.value((name, decode_fields.attribute(value or {}))) for value in given], False

    def _values_of(self, name: str, kind: str) -> _Values:
        found = self._values.get((name, kind))
        if found is None:
            found = self._values[(name, kind)] = _Values(name, kind)
        return found

    def _consumption(self, given: Sequence[Sequence[Raw] | None]) -> list[tuple[Consumption, ...]]:
        """What devices take from counter sets."""
        entries = [entry for one in given for entry in one or ()]
        amounts = self._amounts.of([entry.get("counters") for entry in entries])
        known = self._consumptions
        made: list[tuple[Consumption, ...]] = []
        for entry, own in zip(entries, amounts, strict=True):
            key = (entry.get("counterSet") or "", id(own))
            one = known.get(key)
            if one is None:
                one = known[key] = (new_tuple(Consumption, (key[0], own)),)
            made.append(one)
        if len(made) == len(given) and all(given):
            return made
        rest = iter(made)
        return [self.value(tuple([c for (c,) in islice(rest, len(one or ()))])) for one in given]

    def counter_sets(self, raw: Sequence[Raw]) -> tuple[CounterSet, ...]:
        """Counters that devices share."""
        if not raw:
            return ()
        counters = self._amounts.of([entry.get("counters") for entry in raw])
        return tuple([self.value(CounterSet(e.get("name") or "", own)) for e, own in zip(raw, counters, strict=True)])

    def _binding(self, raw: Raw) -> Binding | None:
        conditions, failures, to_node = (raw.get(member) for member in _BINDING)
        if conditions or failures or to_node:
            return self.value(Binding(tuple(conditions or ()), tuple(failures or ()), bool(to_node)))
        return None

    def placement(self, spec: Raw) -> Placement:
        """The placement that a slice's or device's members describe."""
        name, every, selector = spec.get("nodeName") or "", bool(spec.get("allNodes")), spec.get("nodeSelector")
        key = ("placement", name, every, json.dumps(selector, sort_keys=True) if selector else selector is None)
        found = self._known.values.get(key)
        if found is None:
            found = self._known.values[key] = Placement(name, every, selector)
        placement: Placement = found
        return placement

    def adopt(self, item: Slice) -> None:
        """Take over what a decoded slice holds, as if it had been decoded here."""
        self._known.values.setdefault(item.pool, item.pool)
        for device in item.devices:
            shape = device.shape
            for pair in shape.attributes:
                name, attribute = pair
                if attribute.kind in SCALAR_KINDS:
                    self._values_of(name, attribute.kind).setdefault(attribute.value, pair)
            capacity = self.value(shape.capacity)
            own = tuple(map(id, shape.attributes))
            self._shapes.setdefault((shape.driver, own, id(capacity), shape.shareable), shape)
            self._known.values.setdefault(device.name, device.name)
            for held in (device.consumes, device.taints):
                self.value(held)
            for consumption in device.consumes:
                self.value(consumption.amounts)


def decode_slice(obj: Obj, interner: Interner | None = None) -> Slice:
    """A ResourceSlice as the allocator sees it. Slices decoded with one interner share what is equal in them."""
    interner = Interner() if interner is None else interner
    spec: Obj = obj.get("spec") or {}
    pool: Obj = spec.get("pool") or {}
    driver = interner.text(str(spec.get("driver") or ""))
    per_device = bool(spec.get("perDeviceNodeSelection"))
    devices, mappings = interner.devices(spec.get("devices") or (), driver, per_device)
    counters = spec.get("sharedCounters")
    return Slice(
        str((obj.get("metadata") or {}).get("name") or ""),
        interner.pool_key(driver, interner.text(str(pool.get("name") or ""))),
        int(pool.get("generation") or 0),
        int(pool.get("resourceSliceCount") or 0),
        interner.placement(spec),
        per_device,
        devices,
        interner.counter_sets(counters) if counters else (),
        mappings,
    )
