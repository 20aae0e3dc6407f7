"""What claims ask for: classes, requests, alternatives and constraints, decoded once and free of any node.

A request has one alternative (`exactly`) or several (`firstAvailable`); each is a `SubRequest`: class, selectors, count
or all, tolerations, capacity. What is wrong with it is kept in it as a text, because the reference finds such errors in
a certain order, among those that depend on the node.
Source: KEP-4381, 4816 (alternatives), 5018 (admin access), 5055 (tolerations), 5075 (capacity).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from haru.engine.dra.allocated_state import claim_key
from haru.engine.dra.allocator.consumable_capacity import Wanted
from haru.engine.dra.model.model import DeviceClass, DeviceId, Features, new_tuple
from haru.engine.dra.model.quantities import amount, canonical
from haru.engine.dra.selectors.compiled_selectors import Selection, expressions
from haru.engine.dra.taints import Toleration, decode_toleration
from haru.kube.meta import Obj

EXACT_COUNT = "ExactCount"
ALL = "All"


@dataclass(slots=True)
class SubRequest:
    """One alternative of a request, `request/name` when there are several, else the request itself.

    Immutable by convention: a frozen class is slow to construct, and small claims consist of little else.
    """

    name: str
    result_name: str
    class_name: str
    device_class: DeviceClass | None
    selection: Selection
    mode: str
    count: int
    admin: bool
    tolerations: tuple[Toleration, ...]
    raw_tolerations: tuple[Obj, ...]
    wanted: Wanted
    error: str
    without: frozenset[DeviceId] = frozenset()
    """Devices that it does not take, in a search for other allocations; in mode All it takes them all the same."""


class Request(NamedTuple):
    """A request with its alternatives in order of preference."""

    name: str
    prioritized: bool
    asks: tuple[SubRequest, ...]
    error: str


@dataclass(frozen=True, slots=True)
class Constraint:
    """What devices of a claim must have in common (`match`), or must not."""

    match: bool
    attribute: str
    requests: frozenset[str]

    def applies(self, request: Request, ask: SubRequest) -> bool:
        """Whether devices for this ask are subject to it; no requests named means all."""
        return not self.requests or request.name in self.requests or ask.result_name in self.requests


class Claim(NamedTuple):
    """A claim to allocate. `constraint_error` is reported after its requests have been looked at."""

    name: str
    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...]
    config: tuple[Obj, ...]
    constraint_error: str

    @property
    def takes_any_devices(self) -> bool:
        """Whether it has requests for numbers of whole devices, and nothing else."""
        if self.constraints or self.constraint_error:
            return False
        return all(
            len(request.asks) == 1 and ask.mode == EXACT_COUNT and not (ask.admin or ask.without or ask.wanted)
            for request in self.requests
            for ask in request.asks
        )


def decode_claims(claims: Sequence[Obj], classes: Mapping[str, DeviceClass], features: Features) -> tuple[Claim, ...]:
    """Return what these claims ask for, given the device classes as they are now."""
    return tuple([_ClaimDecoder(claim_key(claim), classes, features).decode(claim) for claim in claims])


class _ClaimDecoder:
    """Decodes one claim; errors name it."""

    def __init__(self, name: str, classes: Mapping[str, DeviceClass], features: Features) -> None:
        self._name = name
        self._classes = classes
        self._features = features

    def decode(self, obj: Obj) -> Claim:
        devices: Obj = (obj.get("spec") or {}).get("devices") or {}
        raw = devices.get("constraints")
        constraints, error = _constraints(self._name, raw) if raw else ((), "")
        requests = tuple([self._request(r) for r in devices.get("requests") or ()])
        return new_tuple(Claim, (self._name, requests, constraints, tuple(devices.get("config") or ()), error))

    def _request(self, raw: Obj) -> Request:
        name, alternatives = raw.get("name") or "", raw.get("firstAvailable") or ()
        where = f"claim {self._name}, request {name}"
        if alternatives:
            error = ""
            if not self._features.PrioritizedList:
                error = f"{where}: has subrequests, but the DRAPrioritizedList feature is disabled"
            asks = tuple(self._subrequest(f"{name}/", a, a.get("name") or "") for a in alternatives)
            return Request(name, True, asks, error)
        exact = raw.get("exactly")
        if exact is None:
            return Request(name, False, (), f"{where}: neither exactly nor firstAvailable is set")
        return new_tuple(Request, (name, False, (self._subrequest("", exact, name),), ""))

    def _subrequest(self, prefix: str, raw: Obj, name: str) -> SubRequest:
        class_name = raw.get("deviceClassName") or ""
        device_class = self._classes.get(class_name)
        own = expressions(raw.get("selectors"))
        lists, consumable = self._features.ListTypeAttributes, self._features.ConsumableCapacity
        tolerations, capacity = tuple(raw.get("tolerations") or ()), raw.get("capacity")
        return SubRequest(
            name=name,
            result_name=prefix + name,
            class_name=class_name,
            device_class=device_class,
            selection=new_tuple(Selection, (device_class.selectors if device_class else (), own, lists, consumable)),
            mode=raw.get("allocationMode") or EXACT_COUNT,
            count=int(raw["count"]) if raw.get("count") is not None else 1,
            admin=bool(raw.get("adminAccess")),
            tolerations=tuple(map(decode_toleration, tolerations)),
            raw_tolerations=tolerations,
            wanted=_wanted(capacity.get("requests") or {}) if capacity else (),
            error=self._error(name, bool(prefix), raw, own),
        )

    def _error(self, name: str, alternative: bool, raw: Obj, own: Sequence[str | None]) -> str:
        """Return the first thing that is wrong with a request whatever the node is, or an empty text."""
        where = f"claim {self._name}, request {name}"
        if None in own:
            return f"{where}, selector #{own.index(None)}: CEL expression empty (unsupported selector type?)"
        if raw.get("adminAccess") is not None and not self._features.AdminAccess:
            return f"{where}: admin access is requested, but the feature is disabled"
        if raw.get("capacity") is not None and not self._features.ConsumableCapacity:
            kind = "subrequest" if alternative else "request"
            off = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
            return f"claim {self._name}, {kind} {name}: {off}"
        class_name = raw.get("deviceClassName") or ""
        if not class_name:
            return f"{where}: missing device class name (unsupported request type?)"
        if class_name not in self._classes:
            missing = f'deviceclass.resource.k8s.io "{class_name}" not found'
            return f"{where}: could not retrieve device class {class_name}: {missing}"
        mode = raw.get("allocationMode") or EXACT_COUNT
        return "" if mode in (EXACT_COUNT, ALL) else f"{where}: unsupported count mode {mode}"


def _constraints(claim: str, raw: Sequence[Obj]) -> tuple[tuple[Constraint, ...], str]:
    found = []
    for index, item in enumerate(raw):
        requests = frozenset(item.get("requests") or ())
        if item.get("matchAttribute") is not None:
            found.append(Constraint(True, item["matchAttribute"], requests))
        elif item.get("distinctAttribute") is not None:
            found.append(Constraint(False, item["distinctAttribute"], requests))
        else:
            return (), f"claim {claim}, constraint #{index}: empty constraint (unsupported constraint type?)"
    return tuple(found), ""


def _wanted(raw: Mapping[str, str]) -> Wanted:
    return tuple((name, amount(value), canonical(value)) for name, value in sorted(raw.items()))


def decode_class(obj: Obj) -> DeviceClass:
    """A DeviceClass as the allocator sees it."""
    spec: Obj = obj.get("spec") or {}
    name = str((obj.get("metadata") or {}).get("name") or "")
    return DeviceClass(name, expressions(spec.get("selectors")), tuple(spec.get("config") or ()))
