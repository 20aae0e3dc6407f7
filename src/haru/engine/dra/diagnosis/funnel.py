"""The funnel: for each request, how many of a node's devices are left after each condition, and what held the rest.

It answers "why not here" without a search: the conditions are counted one after the other, each over the devices that
met all before it. Conditions that only several devices together can break (constraints, rival requests) are counted as
the most that can be had.
Source: the conditions are those of KEP-4381 and its successors, in the allocator's order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.allocator.allocation import decoded
from haru.engine.dra.allocator.allocation_problem import AllocationProblem
from haru.engine.dra.diagnosis.reasons import NodeFunnel, RequestFunnel, Stage, StageName
from haru.engine.dra.diagnosis.refusals import node_refusals, refusal_of
from haru.engine.dra.model.claims import ALL, Claim, Request, SubRequest
from haru.engine.dra.model.model import Features, NodeView, Obj
from haru.engine.dra.placement import matches_node
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.dra.selectors.compiled_selectors import evaluate
from haru.engine.dra.selectors.selector_fields import names_read
from haru.engine.dra.taints import untolerated


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
    board = AllocationProblem(views, allocated, node, (), features)
    requests = tuple(
        _Funnel(board, claim, request, ask).result()
        for claim in wanted
        for request in claim.requests
        for ask in request.asks
    )
    incomplete = tuple(str(v.key) for v in views if v.status == "incomplete")
    invalid = {str(v.key): v.problem for v in views if v.status == "invalid"}
    refusals = node_refusals(wanted, requests, incomplete, invalid)
    return NodeFunnel(node.name, len(board.devices), incomplete, invalid, requests, refusals)


class _Funnel:
    """One ask on its way through the conditions."""

    def __init__(self, board: AllocationProblem, claim: Claim, request: Request, ask: SubRequest) -> None:
        self._board = board
        self._claim = claim
        self._request = request
        self._ask = ask
        self._left: list[int] = list(range(len(board.devices)))
        self._stages: list[Stage] = [Stage("devices", len(self._left))]

    def result(self) -> RequestFunnel:
        """Count all conditions."""
        ask, needed = self._ask, None if self._ask.mode == ALL else self._ask.count
        if not ask.error:
            self._offered()
            for name, expressions in (
                ("class", ask.selection.class_expressions),
                ("selector", ask.selection.request_expressions),
            ):
                for expression in expressions:
                    self._selector("class" if name == "class" else "selector", expression)
            self._on_node()
            self._capacity()
            self._taints()
            self._free()
            self._counters()
            self._constraints()
        stages = tuple(self._stages)
        refusal = refusal_of(ask, needed, stages)
        kept = () if ask.error else tuple(self._left)
        together = min(self._at_once(kept), stages[-1].left) if kept else 0
        return RequestFunnel(self._claim.name, ask.result_name, ask.class_name, needed, stages, refusal, kept, together)

    def _at_once(self, positions: Sequence[int]) -> int:
        """How many of the devices the counters serve at once, if they are taken in this order."""
        board, left, served = self._board, [list(view) for view in self._board.counters_left], 0
        for position in positions:
            counters = left[board.view_of[position]]
            free = board.shareable(position) and position in board.consumed
            charge = () if free else board.charge(position)
            if all(counters[counter] >= amount for counter, amount in charge):
                served += 1
                for counter, amount in charge:
                    counters[counter] -= amount
        return served

    def _narrow(self, name: StageName, kept: list[int], always: bool = False, **data: object) -> None:
        if always or len(kept) < len(self._left):
            stays = frozenset(kept)
            dropped = tuple(position for position in self._left if position not in stays)
            self._stages.append(Stage(name, len(kept), data, dropped))
        self._left = kept

    def _offered(self) -> None:
        board = self._board
        kept = [p for p in self._left if board.offered(p)]
        binding = len(self._left) - len(kept)
        if not board.features.PartitionableDevices:
            kept = [p for p in kept if not board.devices[p].consumes]
        self._narrow("offered", kept, binding=binding)

    def _selector(self, name: StageName, expression: str | None) -> None:
        features = self._board.features
        kept: list[int] = []
        errors: list[str] = []
        failed: list[int] = []
        for position in self._left:
            shape = self._board.devices[position].shape
            cache = self._board.views[self._board.view_of[position]].table.tables.cache
            verdict = evaluate(expression, shape, features.ListTypeAttributes, features.ConsumableCapacity, cache)
            if verdict is True:
                kept.append(position)
            elif verdict is False:
                failed.append(position)
            else:
                errors.append(verdict)
        self._narrow(
            name,
            kept,
            always=True,
            expression=expression or "",
            failed=len(failed),
            errors=len(errors),
            error=errors[0] if errors else "",
            sample=self._sample(expression, failed[0]) if failed and expression else {},
            values=self._values_read(expression, failed) if expression else [],
        )

    def _values_read(self, expression: str, positions: Sequence[int]) -> list[dict[str, object]]:
        """What the expression read of the devices that it refuses: each combination, with the number of devices."""
        found: dict[str, tuple[dict[str, object], int]] = {}
        for position in positions:
            seen = self._sample(expression, position)
            del seen["device"]
            known = found.get(repr(seen))
            found[repr(seen)] = (seen, known[1] + 1 if known else 1)
        return [{"values": seen, "devices": count} for seen, count in found.values()]

    def _sample(self, expression: str, position: int) -> dict[str, object]:
        """A device that an expression refuses, with what the expression read of it."""
        features, shape = self._board.features, self._board.devices[position].shape
        names = names_read(expression, features.ListTypeAttributes, features.ConsumableCapacity)
        sample: dict[str, object] = {"device": str(self._board.device_id(position)), "driver": shape.driver}
        if names is not None:
            for domain, name in sorted(names.attributes):
                found = shape.attribute(f"{domain}/{name}")
                sample[f"{domain}/{name}"] = None if found is None else found.value
            seen = names.of(shape)
            sample.update({f"{shape.driver}/{name}": capacity.text for name, capacity in seen.capacity})
        return sample

    def _on_node(self) -> None:
        def here(position: int) -> bool:
            placement = self._board.devices[position].placement
            return placement is None or matches_node(placement, self._board.node)

        self._narrow("node", [p for p in self._left if here(p)])

    def _capacity(self) -> None:
        if not self._board.features.ConsumableCapacity:
            return
        kept = [p for p in self._left if self._board.fits_capacity(p, self._ask)]
        never = sum(1 for p in self._left if not self._board.could_fit(p, self._ask))
        requested = {name: text for name, _, text in self._ask.wanted}
        self._narrow("capacity", kept, requested=requested, never=never)

    def _taints(self) -> None:
        if not self._board.features.DeviceTaints:
            return
        kept: list[int] = []
        repelled: Counter[str] = Counter()
        for position in self._left:
            taints = untolerated(self._board.devices[position].taints, self._ask.tolerations)
            if taints:
                repelled.update(str(t) for t in taints)
            else:
                kept.append(position)
        self._narrow("taints", kept, taints=dict(repelled))

    def _free(self) -> None:
        if self._ask.admin:
            return
        board = self._board
        kept: list[int] = []
        holders: Counter[str] = Counter()
        for position in self._left:
            if position in board.allocated:
                holders.update(set(board.holders(position)))
            else:
                kept.append(position)
        self._narrow("free", kept, holders=dict(holders))

    def _counters(self) -> None:
        board = self._board
        kept: list[int] = []
        exhausted: Counter[str] = Counter()
        holders: Counter[str] = Counter()
        for position in self._left:
            if board.draws_no_more(position):
                kept.append(position)
                continue
            view = board.view_of[position]
            left = board.counters_left[view]
            short = [c for c, amount in board.charge(position) if left[c] < amount]
            if board.charge(position) and view in board.overdrawn:
                short = short or [c for c, value in enumerate(left) if value < 0]
            if short:
                exhausted.update({board.views[view].counter_names[c][1] for c in short})
                holders.update(set().union(*(board.counter_holders.get((view, c), ()) for c in short)))
            else:
                kept.append(position)
        self._narrow("counters", kept, exhausted=dict(exhausted), holders=dict(holders))

    def _constraints(self) -> None:
        applying = [c for c in self._claim.constraints if c.applies(self._request, self._ask)]
        if not applying:
            return
        board, matched = self._board, [c.attribute for c in applying if c.match]
        groups: Counter[tuple[object, ...]] = Counter()
        for position in self._left:
            groups.update(product(*(self._values(position, attribute) for attribute in matched)))
        most = max(groups.values(), default=0) if matched else len(self._left)
        for constraint in applying:
            if not constraint.match:
                values = {v for p in self._left for v in self._values(p, constraint.attribute)}
                most = min(most, len(values))
        lacking = {
            c.attribute: missing
            for c in applying
            if (missing := sum(1 for p in self._left if board.constraint_values(p, c.attribute) is None))
        }
        data = {
            "match": matched,
            "distinct": [c.attribute for c in applying if not c.match],
            "groups": {", ".join(str(v) for v in key): count for key, count in sorted(groups.items(), key=str)},
            "lacking": lacking,
        }
        self._stages.append(Stage("constraints", most, data))

    def _values(self, position: int, attribute: str) -> Iterable[object]:
        values = self._board.constraint_values(position, attribute)
        return values[1] if values is not None else ()
