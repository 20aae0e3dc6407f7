"""Asking for less in particular: without a selector, without a constraint, or with a second choice.

What no device was kept back by is no obstacle, so only selectors that refuse devices are left out one by one. Who needs
several whole cards is not offered parts of cards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from haru.engine import Decision, Options, Snapshot
from haru.engine.dra import Device, DeviceSnapshot, Pool, PoolKey, Selection, compiled_selector_of, names_read
from haru.engine.podgroup import required_members
from haru.explain import hypothesis
from haru.explain.cards import is_part
from haru.explain.changes import listed
from haru.explain.diagnosis.diagnosis import Diagnosis
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies.claim_changes import changed_claims, changed_specs, claim_changes
from haru.explain.remedies.node_openings import Openings, smallest
from haru.explain.render.wording import brief
from haru.kube.meta import Obj


def needs_whole_cards(snapshot: Snapshot, work: WorkloadUnit, found: Diagnosis) -> bool:
    """Whether the work asks for several devices that work together, and not for parts of cards."""
    gang = work.group is not None and required_members(work.pod_group(snapshot)) > 1
    for kind, _ in found.members:
        asks = [ask for claim in kind.claims for request in claim.requests for ask in request.asks[:1]]
        several = sum(ask.count for ask in asks) > 1
        if (gang or several) and asks and not any(_selects_parts(snapshot, ask.selection) for ask in asks):
            return True
    return False


def _selects_parts(snapshot: Snapshot, selection: Selection) -> bool:
    """Whether what is selected is parts of cards, by the first device of it; no if nothing is."""
    judge = compiled_selector_of(selection, snapshot.devices.cache)
    for pool in snapshot.devices.pools.values():
        for item in pool.slices:
            for device in item.devices:
                if judge.verdict(device.shape) is True:
                    return is_part(pool, device)
    return False


def gives_parts(snapshot: Snapshot, decision: Decision) -> bool:
    """Whether anybody would get a part of a card."""
    results = (
        result
        for member in decision.placed
        for given in member.allocations
        for result in (given.allocation.get("devices") or {}).get("results") or ()
    )
    return any(_is_part(snapshot, result["driver"], result["pool"], result["device"]) for result in results)


def _is_part(snapshot: Snapshot, driver: str, pool: str, name: str) -> bool:
    found: Pool | None = snapshot.devices.pools.get(str(PoolKey(driver, pool)))
    device: Device | None = (
        next((d for s in found.slices for d in s.devices if d.name == name), None) if found else None
    )
    return found is not None and device is not None and is_part(found, device)


def guarded_selectors(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> Iterator[Remedy]:
    """The requests with every selector guarded."""
    features = options.features

    def guarded(expression: str) -> str:
        names = names_read(expression, features.ListTypeAttributes, features.ConsumableCapacity)
        if names is None:
            return expression
        tests = [f'"{name}" in device.attributes["{domain}"]' for domain, name in sorted(names.attributes)]
        tests += [f'"{name}" in device.capacity["{domain}"]' for domain, name in sorted(names.capacity)]
        return " && ".join([*tests, f"({expression})"]) if tests else expression

    def changed(ask: Obj) -> Obj:
        selectors = [
            {**s, "cel": {**s["cel"], "expression": guarded(s["cel"]["expression"])}} if s.get("cel") else s
            for s in ask.get("selectors") or ()
        ]
        return {**ask, "selectors": selectors} if selectors else ask

    claims = changed_claims(snapshot, work, changed)
    if claims and work.fits(hypothesis.with_claims(snapshot, claims), options):
        text = "let the selectors ask first whether a device has what they read"
        costs = "the claims (or their template) are made again; devices without it are passed over"
        yield Remedy("GuardSelectors", text, claim_changes(snapshot, claims), 4, True, costs)


_MOST_CLASSES = 3
_MADE_AGAIN = "the claims (or their template) are made again"
_Place = tuple[str, str]
"""A selector: the name of its request (or alternative), and its expression."""


def without_selectors(openings: Openings, found: Diagnosis) -> Iterator[Remedy]:
    """The fewest selectors of requests without which it fits."""
    snapshot = openings.snapshot
    places = [
        (funnel.asked.request.rpartition("/")[2], stage.expression)
        for funnel in found.requests
        for stage in funnel.stages
        if stage.stage == "selector" and stage.dropped
    ]

    def changed(gone: Sequence[_Place]) -> dict[str, Obj]:
        def relaxed(name: str, ask: Obj) -> Obj:
            kept = [s for s in ask.get("selectors") or () if (name, _expression(s)) not in gone]
            return {**ask, "selectors": kept} if len(kept) < len(ask.get("selectors") or ()) else ask

        return changed_specs(snapshot, openings.work, lambda spec: _with_asks(spec, relaxed))

    gone = _fewest(openings, found, list(dict.fromkeys(places)), changed)
    if gone:
        texts = listed([f"{brief(expression)} of request {name}" for name, expression in gone])
        costs = f"the work may get devices that the selector refuses; {_MADE_AGAIN}"
        changes = claim_changes(snapshot, changed(gone))
        yield Remedy("RelaxSelector", f"leave out the selector {texts}", changes, 12 + len(gone), True, costs)


def without_constraints(openings: Openings, found: Diagnosis) -> Iterator[Remedy]:
    """The fewest constraints of claims without which it fits."""
    snapshot = openings.snapshot
    constraints = list(
        dict.fromkeys(
            ("matchAttribute" if constraint.match else "distinctAttribute", constraint.attribute)
            for kind, _ in found.members
            for claim in kind.claims
            for constraint in claim.constraints
        )
    )

    def changed(gone: Sequence[tuple[str, str]]) -> dict[str, Obj]:
        def relaxed(spec: Obj) -> Obj:
            devices = spec.get("devices") or {}
            kept = [c for c in devices.get("constraints") or () if _constraint(c) not in gone]
            return {**spec, "devices": {**devices, "constraints": kept}}

        return changed_specs(snapshot, openings.work, relaxed)

    gone = _fewest(openings, found, constraints, changed)
    if gone:
        texts = listed([f"{kind} {attribute}" for kind, attribute in gone])
        costs = f"the devices may be further apart than the work wants them; {_MADE_AGAIN}"
        changes = claim_changes(snapshot, changed(gone))
        yield Remedy("DropConstraint", f"leave out the constraint {texts}", changes, 11 + len(gone), True, costs)


def other_class(openings: Openings, found: Diagnosis) -> Iterator[Remedy]:
    """A second choice: devices of another class, as many, with which it fits."""
    snapshot, work, options = openings.snapshot, openings.work, openings.options
    own = {ask.class_name for kind, _ in found.members for c in kind.claims for r in c.requests for ask in r.asks}
    others = sorted(snapshot.devices.classes.keys() - own) if own else []
    accepted = (name for name in others if _share_driver(snapshot, own, name) and _has_devices(snapshot, name, options))
    for name in islice(accepted, _MOST_CLASSES):

        def accepting(request: Obj, name: str = name) -> Obj:
            exactly = request.get("exactly")
            if not exactly or exactly.get("adminAccess"):
                return request
            first = {"name": "first-choice", **exactly}
            kept = {key: exactly[key] for key in ("count", "allocationMode", "tolerations") if key in exactly}
            second = {"name": "second-choice", "deviceClassName": name, **kept}
            rest = {key: value for key, value in request.items() if key != "exactly"}
            return {**rest, "firstAvailable": [first, second]}

        changed = changed_specs(snapshot, work, lambda spec, accept=accepting: _with_requests(spec, accept))  # type: ignore[misc]
        if changed and _fits(openings, found, changed):
            text = f"accept devices of class {name} where there are none of the first choice"
            costs = f"the work must be able to use either; {_MADE_AGAIN}"
            yield Remedy("AcceptAlternative", text, claim_changes(snapshot, changed), 13, True, costs)
            return


_DRIVER = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")


def _share_driver(snapshot: Snapshot, own: Iterable[str], name: str) -> bool:
    """Whether devices of a class are of a driver of the classes asked for, as far as those name one."""
    mine = {driver for each in own for driver in _drivers(snapshot, each)}
    others = _drivers(snapshot, name)
    return not mine or not others or not mine.isdisjoint(others)


def _drivers(snapshot: Snapshot, name: str) -> set[str]:
    found = snapshot.devices.classes.get(name)
    return (
        {driver for text in found.selectors for driver in _DRIVER.findall(text or "")} if found is not None else set()
    )


def _fewest(
    openings: Openings, found: Diagnosis, items: Sequence[_Place], changed: Callable[[Sequence[_Place]], dict[str, Obj]]
) -> list[_Place]:
    def fits(some: Sequence[_Place]) -> bool:
        claims = changed(some)
        return bool(claims) and _fits(openings, found, claims)

    return smallest(list(items), fits)


def _fits(openings: Openings, found: Diagnosis, claims: Mapping[str, Obj]) -> bool:
    """Whether the work would be placed with these claims, on whole cards where it needs such."""
    snapshot, work = hypothesis.with_claims(openings.snapshot, claims), openings.work
    decision = work.decision(snapshot, openings.options)
    if decision is None or decision.status != "scheduled":
        return False
    return not gives_parts(snapshot, decision) or not needs_whole_cards(openings.snapshot, work, found)


def _expression(selector: Mapping[str, Obj]) -> str:
    return str((selector.get("cel") or {}).get("expression") or "")


def _constraint(raw: Mapping[str, str]) -> _Place:
    kind = "matchAttribute" if raw.get("matchAttribute") else "distinctAttribute"
    return kind, str(raw.get(kind) or "")


def _with_requests(spec: Obj, change: Callable[[Obj], Obj]) -> Obj:
    devices = spec.get("devices") or {}
    return {**spec, "devices": {**devices, "requests": [change(r) for r in devices.get("requests") or ()]}}


def _with_asks(spec: Obj, change: Callable[[str, Obj], Obj]) -> Obj:
    """Every alternative of every request changed, each with its name."""

    def changed(request: Obj) -> Obj:
        if request.get("exactly") is not None:
            return {**request, "exactly": change(request["name"], request["exactly"])}
        return {**request, "firstAvailable": [change(a["name"], a) for a in request.get("firstAvailable") or ()]}

    return _with_requests(spec, changed)


class _Served:
    """Which classes have devices, as long as inventory and classes are the same; kept with the cluster."""

    def __init__(self) -> None:
        self._devices: DeviceSnapshot | None = None
        self._known: dict[Selection, bool] = {}

    def has(self, devices: DeviceSnapshot, selection: Selection) -> bool:
        """Whether any published device is selected, as far as the selectors can be evaluated."""
        if devices is not self._devices:
            self._devices, self._known = devices, {}
        found = self._known.get(selection)
        if found is None:
            judge, pools = compiled_selector_of(selection, devices.cache), devices.pools.values()
            tables = (devices.tables.of(item.devices) for pool in pools for item in pool.slices if item.devices)
            found = self._known[selection] = any(True in judge.verdicts(table) for table in tables)
        return found


def _has_devices(snapshot: Snapshot, name: str, options: Options) -> bool:
    """Whether any published device is of a class."""
    features, expressions = options.features, snapshot.devices.classes[name].selectors
    selection = Selection(expressions, (), features.ListTypeAttributes, features.ConsumableCapacity)
    return snapshot.decision_cache.get_or_compute("served", None, _Served).has(snapshot.devices, selection)
