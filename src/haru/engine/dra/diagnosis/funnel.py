"""Count for each request how many of a node's devices are left after each of the allocator's conditions, and why.

It answers "why not here" without a search: the conditions (`allocator.conditions`) are counted one after the other,
each over the devices that met all before it. Constraints, which only several devices together can break, are counted
as the most devices that can be had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, product
from typing import Any

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.allocator.allocation import decoded
from haru.engine.dra.allocator.conditions import (
    BINDING_GATE,
    CAPACITY,
    CONDITIONS,
    Condition,
    SelectorCondition,
    SingleCondition,
)
from haru.engine.dra.allocator.constraints import attribute_values
from haru.engine.dra.allocator.node_devices import AllocatedNodeDevices
from haru.engine.dra.diagnosis.blockers import CounterUse, claims_holding, refused_values, values_read
from haru.engine.dra.diagnosis.reasons import NodeFunnel, RequestFunnel, Stage, StageName
from haru.engine.dra.diagnosis.refusals import node_refusals, outside_refusal, refusal_of
from haru.engine.dra.model.claims import ALL, Claim, Request, SubRequest
from haru.engine.dra.model.model import Features, NodeView
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.dra.selectors.compiled_selectors import evaluate
from haru.engine.dra.taints import untolerated
from haru.kube.meta import Obj


def explain_requests(
    snapshot: DeviceSnapshot,
    allocated: AllocatedState,
    node: NodeView,
    claims: Sequence[Obj] | Sequence[Claim],
    features: Features,
) -> NodeFunnel:
    """The funnel of every request of the claims on one node; nodes with equal devices have equal ones.

    Raises AllocationError only where the pools themselves cannot be read (a node selector that makes no sense).
    """
    wanted = decoded(claims, snapshot, features)
    views = snapshot.views(node, features.PartitionableDevices)
    devices = AllocatedNodeDevices(views, allocated, node, features)
    requests = tuple(
        _Funnel(devices, claim, request, ask).result()
        for claim in wanted
        for request in claim.requests
        for ask in request.asks
    )
    incomplete = tuple(str(v.key) for v in views if v.status == "incomplete")
    invalid = {str(v.key): v.problem for v in views if v.status == "invalid"}
    outside = snapshot.views_outside(node, features.PartitionableDevices) if not snapshot.partition.is_whole else ()
    refusals = node_refusals(wanted, requests, incomplete, invalid)
    if refusals and outside:
        refusals += (outside_refusal(outside, snapshot.partition),)
    return NodeFunnel(node.name, len(devices.devices), incomplete, invalid, requests, refusals)


class _Funnel:
    """One request on its way through the conditions."""

    def __init__(self, devices: AllocatedNodeDevices, claim: Claim, request: Request, ask: SubRequest) -> None:
        self._devices = devices
        self._claim = claim
        self._request = request
        self._ask = ask
        self._left: list[int] = list(range(len(devices.devices)))
        self._stages: list[Stage] = [Stage("devices", len(self._left))]

    def result(self) -> RequestFunnel:
        """Count the devices that are left after each condition."""
        ask, needed = self._ask, None if self._ask.mode == ALL else self._ask.count
        if not ask.error:
            for stage, conditions in groupby(CONDITIONS, lambda condition: condition.stage):
                self._count(stage, list(conditions))
            self._constraints()
        stages = tuple(self._stages)
        refusal = refusal_of(ask, needed, stages)
        kept = () if ask.error else tuple(self._left)
        together = min(self._at_once(kept), stages[-1].left) if kept else 0
        return RequestFunnel(self._claim.name, ask.result_name, ask.class_name, needed, stages, refusal, kept, together)

    def _count(self, stage: StageName, conditions: Sequence[Condition]) -> None:
        """Drop the devices that break one of the conditions of a stage; each selector is a stage of its own."""
        kept = self._left
        for condition in conditions:
            if isinstance(condition, SelectorCondition):
                for expression in condition.expressions(self._ask):
                    self._selector(stage, expression)
                return
            kept = self._meeting(condition, kept)
        if len(kept) < len(self._left):
            dropped = self._dropped(kept)
            self._stages.append(Stage(stage, len(kept), _DATA[stage](self._devices, self._ask, dropped), dropped))
            self._left = kept

    def _meeting(self, condition: SingleCondition, positions: list[int]) -> list[int]:
        devices, ask = self._devices, self._ask
        views = {number for number in range(len(devices.views)) if condition.can_fail_in(devices, number, ask)}
        if not views:
            return positions
        return [p for p in positions if devices.view_of[p] not in views or condition.holds(devices, p, ask)]

    def _dropped(self, kept: Sequence[int]) -> tuple[int, ...]:
        stays = frozenset(kept)
        return tuple(position for position in self._left if position not in stays)

    def _selector(self, stage: StageName, expression: str | None) -> None:
        devices, features = self._devices.devices, self._devices.features
        verdicts = {position: self._verdict(expression, position) for position in self._left}
        failed = [position for position, verdict in verdicts.items() if verdict is False]
        errors = [verdict for verdict in verdicts.values() if isinstance(verdict, str)]
        sample: dict[str, object] = {}
        if failed and expression:
            values = values_read(expression, devices[failed[0]].shape, features)
            sample = {"device": str(self._devices.device_id(failed[0])), **values}
        data = {
            "expression": expression or "",
            "failed": len(failed),
            "errors": len(errors),
            "error": errors[0] if errors else "",
            "sample": sample,
            "values": refused_values(expression, (devices[p].shape for p in failed), features) if expression else [],
        }
        kept = [position for position, verdict in verdicts.items() if verdict is True]
        self._stages.append(Stage(stage, len(kept), data, self._dropped(kept)))
        self._left = kept

    def _verdict(self, expression: str | None, position: int) -> bool | str:
        devices, features = self._devices, self._devices.features
        cache = devices.views[devices.view_of[position]].table.tables.cache
        shape = devices.devices[position].shape
        return evaluate(expression, shape, features.ListTypeAttributes, features.ConsumableCapacity, cache)

    def _at_once(self, positions: Sequence[int]) -> int:
        """How many of the devices the counters serve at once, if they are taken in this order."""
        devices, left, served = self._devices, [list(view) for view in self._devices.counters_left], 0
        for position in positions:
            counters = left[devices.view_of[position]]
            free = devices.shareable(position) and position in devices.consumed
            charge = () if free else devices.charge(position)
            if all(counters[counter] >= amount for counter, amount in charge):
                served += 1
                for counter, amount in charge:
                    counters[counter] -= amount
        return served

    def _constraints(self) -> None:
        applying = [c for c in self._claim.constraints if c.applies(self._request, self._ask)]
        if not applying:
            return
        matched = [c.attribute for c in applying if c.match]
        groups: Counter[tuple[object, ...]] = Counter()
        for position in self._left:
            groups.update(product(*((self._values(position, attribute) or ()) for attribute in matched)))
        most = max(groups.values(), default=0) if matched else len(self._left)
        for constraint in applying:
            if not constraint.match:
                values = {v for p in self._left for v in self._values(p, constraint.attribute) or ()}
                most = min(most, len(values))
        lacking = {
            c.attribute: missing
            for c in applying
            if (missing := sum(1 for p in self._left if self._values(p, c.attribute) is None))
        }
        data = {
            "match": matched,
            "distinct": [c.attribute for c in applying if not c.match],
            "groups": {", ".join(str(v) for v in key): count for key, count in sorted(groups.items(), key=str)},
            "lacking": lacking,
        }
        self._stages.append(Stage("constraints", most, data))

    def _values(self, position: int, attribute: str) -> Iterable[object] | None:
        """Return the values that count for a constraint; None where the device cannot satisfy it."""
        devices = self._devices
        values = attribute_values(devices.devices[position].shape, attribute, devices.features.ListTypeAttributes)
        return values[1] if values is not None else None


Data = Mapping[str, Any]


def _offered_data(devices: AllocatedNodeDevices, ask: SubRequest, dropped: Sequence[int]) -> Data:
    gate = devices.features.DeviceBindingAndStatus
    return {"binding": 0 if gate else sum(not BINDING_GATE.holds(devices, position, ask) for position in dropped)}


def _node_data(devices: AllocatedNodeDevices, ask: SubRequest, dropped: Sequence[int]) -> Data:
    return {}


def _capacity_data(devices: AllocatedNodeDevices, ask: SubRequest, dropped: Sequence[int]) -> Data:
    never = sum(not CAPACITY.holds(devices, position, ask) for position in dropped)
    return {"requested": {name: text for name, _, text in ask.wanted}, "never": never}


def _taints_data(devices: AllocatedNodeDevices, ask: SubRequest, dropped: Sequence[int]) -> Data:
    repelling = (untolerated(devices.devices[position].taints, ask.tolerations) for position in dropped)
    return {"taints": dict(Counter(str(taint) for taints in repelling for taint in taints))}


def _free_data(devices: AllocatedNodeDevices, ask: SubRequest, dropped: Sequence[int]) -> Data:
    holders: Counter[str] = Counter()
    for position in dropped:
        use = devices.uses[devices.view_of[position]]
        holders.update(claims_holding(use, devices.devices[position].name))
    return {"holders": dict(holders)}


def _counters_data(devices: AllocatedNodeDevices, ask: SubRequest, dropped: Sequence[int]) -> Data:
    exhausted: Counter[str] = Counter()
    holders: Counter[str] = Counter()
    known: dict[int, CounterUse] = {}
    for position in dropped:
        number = devices.view_of[position]
        if number not in known:
            known[number] = CounterUse(devices.views[number], devices.uses[number])
        counters, claims = known[number].shortage(devices.index_of[position])
        exhausted.update(counters)
        holders.update(claims)
    return {"exhausted": dict(exhausted), "holders": dict(holders)}


_DATA: Mapping[StageName, Callable[[AllocatedNodeDevices, SubRequest, Sequence[int]], Data]] = {
    "offered": _offered_data,
    "node": _node_data,
    "capacity": _capacity_data,
    "taints": _taints_data,
    "free": _free_data,
    "counters": _counters_data,
}
"""What is told of the devices that a stage drops."""
