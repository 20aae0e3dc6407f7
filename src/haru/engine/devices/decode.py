"""From ResourceSlice and DeviceClass objects to the allocator's structures, interning what devices have in common.

Nothing is validated here beyond what is needed to compute: the API server has done that, and what it let through
(or what a test invents) must not bring the scheduler down.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import orjson

from haru.engine.devices.amounts import amount
from haru.engine.devices.model import (
    LIST_KINDS,
    PLAIN_KINDS,
    SCALAR_KINDS,
    UNSUPPORTED,
    Attribute,
    Binding,
    Capacity,
    Consumption,
    CounterSet,
    Device,
    DeviceClass,
    Obj,
    Placement,
    PoolKey,
    Range,
    Shape,
    Slice,
    Taint,
)

T = TypeVar("T")
Attributes = tuple[tuple[str, Attribute], ...]
_NAMES, _CAPACITY, _COUNTERS, _ATTRIBUTES, _CONSUMPTION, _SHAPE = range(6)
_MAX_DEVICES = 8192
_TRIAL = 1024


class Interner:
    """One object per value. The owner starts a new one now and then, so that values out of use are let go.

    Equal parts recur in hundreds of thousands of devices: what was made of a part is found again by the part as it was
    published (`_made`), before it is parsed. Nodes of one model often publish devices that are equal down to the name:
    those are found again as a whole, by their text.
    """

    __slots__ = ("_asked", "_by_text", "_devices", "_known", "_made", "_names", "_parts")

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}
        self._made: dict[Hashable, Any] = {}
        self._devices: dict[tuple[str, bool], dict[bytes, Device]] = {}
        self._parts: dict[int, dict[bytes, Any]] = {
            what: {} for what in (_ATTRIBUTES, _CAPACITY, _COUNTERS, _CONSUMPTION)
        }
        self._names: dict[str, str] = {}
        self._asked = 0
        self._by_text = True

    def __len__(self) -> int:
        return len(self._known)

    def value(self, value: T) -> T:
        """The first object that was equal to this one."""
        found: T = self._known.setdefault((type(value), value), value)
        return found

    def name(self, name: str) -> str:
        """The first text that was equal to this one."""
        return self._names.setdefault(name, name)

    def devices(self, raw: Sequence[Mapping[str, Any]], driver: str, per_device: bool) -> tuple[Device, ...]:
        """The devices of a slice."""
        known = self._devices.setdefault((driver, per_device), {})
        self._asked += len(raw)
        if self._asked > _TRIAL and len(known) * 2 > self._asked:
            # Devices with identities of their own do not recur: then their texts are not worth the making.
            self._by_text = False
            known.clear()
        if len(known) > _MAX_DEVICES:
            known.clear()
        if not self._by_text:
            return tuple([_device(entry, driver, per_device, self) for entry in raw])
        found = []
        for entry in raw:
            try:
                text = orjson.dumps(entry)
            except TypeError:  # no JSON: somebody made the object up
                found.append(_device(entry, driver, per_device, self))
                continue
            device = known.get(text)
            if device is None:
                device = known[text] = _device(entry, driver, per_device, self)
            found.append(device)
        return tuple(found)

    def shape(self, driver: str, attributes: Any, capacity: Any, shareable: bool) -> Shape:
        """The shape with these contents, which are interned here: their numbers stand for them."""
        identity = (_SHAPE, driver, id(attributes), id(capacity), shareable)
        shape: Shape | None = self._made.get(identity)
        if shape is None:
            shape = self._made[identity] = Shape(driver, attributes, capacity, shareable)
        return shape

    def part(self, what: int, raw: Any, make: Callable[[Any], T]) -> T:
        """What `make` makes of a part of a device, found again by the part's text."""
        known = self._parts[what]
        try:
            text = orjson.dumps(raw)
        except TypeError:  # no JSON: somebody made the object up
            return make(raw)
        found: T | None = known.get(text)
        if found is None:
            if len(known) > _MAX_DEVICES:
                known.clear()
            found = known[text] = make(raw)
        return found

    def attributes(self, raw: Mapping[str, Any]) -> Attributes:
        """The attributes of a device, by name."""
        made, pairs = self._made, []
        for name in self._sorted(raw):
            value = raw[name] or {}
            try:
                ((kind, content),) = value.items()
                key = (name, kind, content)
                pair = made.get(key)
                if pair is None:
                    pair = made[key] = self._pair(name, value)
            except (TypeError, ValueError):  # a list, or more or less than one value
                pair = self._pair(name, value)
            pairs.append(pair)
        # Interned parts are equal only if they are the same object, and their numbers are quickly hashed.
        identity = (_ATTRIBUTES, *map(id, pairs))
        found: Attributes | None = made.get(identity)
        if found is None:
            found = made[identity] = tuple(pairs)
        return found

    def _pair(self, name: str, value: Mapping[str, Any]) -> tuple[str, Attribute]:
        return self.value((name, _attribute(value)))

    def _sorted(self, raw: Mapping[str, Any]) -> Sequence[str]:
        names = (_NAMES, *raw)
        found: Sequence[str] | None = self._made.get(names)
        if found is None:
            found = self._made[names] = sorted(raw)
        return found

    def consumption(self, raw: Sequence[Mapping[str, Any]]) -> tuple[Consumption, ...]:
        """What a device takes from counter sets."""
        listed = [
            self.value(
                Consumption(entry.get("counterSet") or "", self.part(_COUNTERS, entry.get("counters"), self.counters))
            )
            for entry in raw
        ]
        return self.value(tuple(listed))

    def capacity(self, raw: Mapping[str, Any]) -> tuple[tuple[str, Capacity], ...]:
        """The capacities of a device, by name."""
        return self.value(tuple([self.value((name, self.value(_capacity(raw[name] or {})))) for name in sorted(raw)]))

    def counters(self, raw: Mapping[str, Any] | None) -> tuple[tuple[str, int], ...]:
        """Counters or what is taken of them, by name."""
        return self.value(_counters(raw or {}))

    def counter_set(self, raw: Mapping[str, Any]) -> CounterSet:
        """Counters that devices share."""
        counters = self.part(_COUNTERS, raw.get("counters"), self.counters)
        return self.value(CounterSet(raw.get("name") or "", counters))

    def adopt(self, item: Slice) -> None:
        """Take over what a decoded slice holds, as if it had been decoded here."""
        self.value(item.pool)
        for device in item.devices:
            shape = device.shape
            for pair in (*shape.attributes, *shape.capacity):
                self.value(pair)
            self._made.setdefault((_ATTRIBUTES, *map(id, shape.attributes)), shape.attributes)
            own = (_SHAPE, shape.driver, id(shape.attributes), id(shape.capacity), shape.shareable)
            self._made.setdefault(own, shape)
            self.name(device.name)
            for held in (shape.capacity, device.consumes, device.taints):
                self.value(held)
            for consumption in device.consumes:
                self.value(consumption)
                self.value(consumption.amounts)

    def placement(self, spec: Mapping[str, Any]) -> Placement:
        """The placement that a slice's or device's members describe."""
        name, every, selector = spec.get("nodeName") or "", bool(spec.get("allNodes")), spec.get("nodeSelector")
        key = ("placement", name, every, json.dumps(selector, sort_keys=True) if selector else selector is None)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Placement(name, every, selector)
        placement: Placement = found
        return placement


def _attribute(raw: Mapping[str, Any]) -> Attribute:
    if len(raw) == 1:
        ((kind, value),) = raw.items()
        if kind in PLAIN_KINDS and value is not None:
            return Attribute(kind, value)
    given = [(kind, value) for kind, value in raw.items() if value is not None]
    if len(given) == 1:
        kind, value = given[0]
        if kind in SCALAR_KINDS:
            return Attribute(kind, value)
        if kind in LIST_KINDS:
            return Attribute(kind, tuple(value))
    return Attribute(UNSUPPORTED, json.dumps(raw, sort_keys=True))


def _capacity(raw: Mapping[str, Any]) -> Capacity:
    value, policy = raw.get("value", "0"), raw.get("requestPolicy")
    if not policy:
        return Capacity(amount(value), str(value), policy="" if policy is None else "{}")
    default, limits = policy.get("default"), policy.get("validRange")
    return Capacity(
        value=amount(value),
        text=str(value),
        default=None if default is None else amount(default),
        default_text="" if default is None else str(default),
        valid_range=_range(limits) if limits else None,
        valid_values=tuple((amount(v), str(v)) for v in policy.get("validValues") or ()),
        policy=json.dumps(policy, sort_keys=True),
    )


def _range(raw: Mapping[str, Any]) -> Range:
    def optional(name: str) -> int | None:
        return None if raw.get(name) is None else amount(raw[name])

    return Range(optional("min") or 0, optional("max"), optional("step"))


def _counters(raw: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount(counter.get("value", "0"))) for name, counter in raw.items()))


def decode_taint(raw: Mapping[str, Any]) -> Taint:
    """A DeviceTaint; when it was added plays no part in allocation."""
    return Taint(raw.get("key") or "", raw.get("value") or "", raw.get("effect") or "")


def _device(
    raw: Mapping[str, Any],
    driver: str,
    per_device: bool,
    interner: Interner,
) -> Device:
    given, amounts, consumed = raw.get("attributes"), raw.get("capacity"), raw.get("consumesCounters")
    attributes = interner.part(_ATTRIBUTES, given, interner.attributes) if given else ()
    capacity = interner.part(_CAPACITY, amounts, interner.capacity) if amounts else ()
    consumes = interner.part(_CONSUMPTION, consumed, interner.consumption) if consumed else ()
    conditions = tuple(raw.get("bindingConditions") or ())
    failures = tuple(raw.get("bindingFailureConditions") or ())
    binding = None
    if conditions or failures or raw.get("bindsToNode"):
        binding = interner.value(Binding(conditions, failures, bool(raw.get("bindsToNode"))))
    return Device(
        name=interner.name(raw.get("name") or ""),
        shape=interner.shape(driver, attributes, capacity, bool(raw.get("allowMultipleAllocations"))),
        consumes=consumes,
        taints=interner.value(tuple(interner.value(decode_taint(t)) for t in raw["taints"]))
        if raw.get("taints")
        else (),
        binding=binding,
        placement=interner.placement(raw) if per_device else None,
    )


def decode_slice(obj: Obj, interner: Interner | None = None) -> Slice:
    """A ResourceSlice as the allocator sees it. Slices decoded with one interner share what is equal in them."""
    interner = Interner() if interner is None else interner
    spec: Obj = obj.get("spec") or {}
    pool: Obj = spec.get("pool") or {}
    driver = interner.value(str(spec.get("driver") or ""))
    per_device = bool(spec.get("perDeviceNodeSelection"))
    return Slice(
        name=str((obj.get("metadata") or {}).get("name") or ""),
        pool=interner.value(PoolKey(driver, interner.value(str(pool.get("name") or "")))),
        generation=int(pool.get("generation") or 0),
        slice_count=int(pool.get("resourceSliceCount") or 0),
        placement=interner.placement(spec),
        per_device=per_device,
        devices=interner.devices(spec.get("devices") or (), driver, per_device),
        counter_sets=tuple(
            interner.value(
                CounterSet(s.get("name") or "", interner.part(_COUNTERS, s.get("counters"), interner.counters))
            )
            for s in spec.get("sharedCounters") or ()
        ),
    )


def expressions(selectors: Iterable[Mapping[str, Any]] | None) -> tuple[str | None, ...]:
    """The CEL expressions of a list of selectors; None stands for a selector of another kind."""
    return tuple((selector.get("cel") or {}).get("expression") for selector in selectors or ())


def decode_class(obj: Obj) -> DeviceClass:
    """A DeviceClass as the allocator sees it."""
    spec: Obj = obj.get("spec") or {}
    name = str((obj.get("metadata") or {}).get("name") or "")
    return DeviceClass(name, expressions(spec.get("selectors")), tuple(spec.get("config") or ()))
