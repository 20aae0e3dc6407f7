"""From the nodes' funnels to the cluster's: how all devices narrow down for one request, each device counted once.

Devices of a node's own pools count once per node. A device that several nodes see counts where it gets furthest.
After the conditions that devices meet by themselves come three that only the cluster has: devices on nodes that the pod
cannot use (`nodes`), devices that a claim's constraints keep apart (`constraints`), and devices that are left over
because a claim needs several in one place (`scattered`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from haru.engine import Snapshot
from haru.engine.dra import (
    CounterUse,
    PoolView,
    Request,
    RequestFunnel,
    Shape,
    Stage,
    StageName,
    SubRequest,
    claims_holding,
    evaluate,
    refused_values,
)
from haru.engine.equivalence import classified_nodes_of
from haru.explain.diagnosis.device_classes import DeviceClassSurvey, NodeKind
from haru.explain.diagnosis.holders import HolderCount, holders_of
from haru.explain.diagnosis.requests import MemberKind, asked
from haru.explain.explanation import Funnel, FunnelStage

_ORDER: Mapping[str, int] = {name: number for number, name in enumerate(get_args(StageName))}
_NODES, _CONSTRAINTS, _SCATTERED, _LEFT = (100, 0), (101, 0), (102, 0), (103, 0)
_TOGETHER = (_CONSTRAINTS, _SCATTERED)
_MOST_EXAMPLES = 4
_Rank = tuple[int, int]


_SELECTING = ("devices", "offered", "class", "selector", "node")


def _matching(request: RequestFunnel) -> int:
    """How many devices of a node match the request, whoever holds them."""
    return next((stage.left for stage in reversed(request.stages) if stage.name in _SELECTING), 0)


@dataclass(slots=True)
class _Tally:
    """One condition while the devices are counted."""

    stage: Stage | None = None
    dropped: int = 0
    errors: int = 0
    values: Counter[str] = field(default_factory=Counter)
    texts: dict[str, Mapping[str, object]] = field(default_factory=dict)
    taints: Counter[str] = field(default_factory=Counter)
    where: list[str] = field(default_factory=list)
    held: dict[tuple[str, ...], int] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    nodes: Counter[str] = field(default_factory=Counter)


def funnels(survey: DeviceClassSurvey, kind: MemberKind, refused: Mapping[str, str]) -> tuple[Funnel, ...]:
    """The funnel of every request of a kind of pods; `refused` are nodes that they cannot use, and why."""
    wide = survey.wide_pools()
    return tuple(
        _Count(survey, number, wide, refused).funnel(kind, claim.name, request, ask)
        for number, (claim, request, ask) in enumerate(survey.asks())
    )


class _Count:
    """The devices of the cluster on their way through the conditions of one ask."""

    def __init__(
        self, survey: DeviceClassSurvey, number: int, wide: frozenset[str], refused: Mapping[str, str]
    ) -> None:
        self._survey = survey
        self._number = number
        self._wide = wide
        self._refused = refused
        self._tallies: dict[_Rank, _Tally] = {}
        self._total = 0
        self._most: int | None = None
        self._best: dict[str, tuple[_Rank, Callable[[], None]]] = {}
        self._shareable = False
        self._counters: dict[PoolView, CounterUse] = {}

    def funnel(self, kind: MemberKind, claim: str, request: Request, ask: SubRequest) -> Funnel:
        """Count, and put the conditions in order."""
        wants = asked(kind, claim, request, ask)
        problem = request.error or ask.error
        for node_kind in () if problem else self._survey.kinds:
            self._count(node_kind, wants.count)
        for _, record in self._best.values():
            record()
        left, stages = self._total, [FunnelStage("devices", self._total, 0)]
        needed = wants.devices
        for rank in sorted(self._tallies):
            tally = self._tallies[rank]
            if rank in _TOGETHER and needed is not None and left < needed:
                # Too few anyway: where they are does not matter.
                continue
            left -= tally.dropped
            count = self._survey.holder_counts.setdefault((self._number, rank), HolderCount())
            stages.append(_stage(self._survey.snapshot, rank, left, tally, count))
        countable = needed is not None and not self._shareable and not problem
        short = max(0, (needed or 0) - left) if countable else None
        return Funnel(wants, needed, self._total, tuple(stages), left, short, problem, claim, self._most)

    def _count(self, kind: NodeKind, each: int | None) -> None:
        request, names = kind.funnel.requests[self._number], kind.names
        self._most = max(self._most or 0, _matching(request))
        one = list(kind.devices(names[0]))
        wide = {p for p, (v, _, _) in enumerate(one) if str(v.key) in self._wide} if self._wide else set()
        if wide:
            for name in names:
                self._walk(kind, name, request, wide)
        else:
            self._total += len(names) * kind.funnel.devices
            seen: Counter[str] = Counter()
            for stage in request.stages[1:]:
                if stage.name != "constraints":
                    rank = (_ORDER[stage.name], seen[stage.name])
                    seen[stage.name] += 1
                    self._add(rank, stage, kind, names, stage.dropped)
        self._shareable |= any(one[p][2].shape.shareable for p in request.kept)
        local = [p for p in request.kept if p not in wide]
        constraints = self._constraints(request) if local and not wide else ""
        for name in names if request.kept else ():
            why = self._refused.get(name)
            if why is not None:
                self._tally(_NODES).nodes[why] += len(local)
                self._tally(_NODES).dropped += len(local)
            elif local and not wide and each is not None:
                self._apart(len(local), request.together, max(1, each), constraints)

    def _apart(self, local: int, together: int, each: int, constraints: str) -> None:
        """Devices of one node that are left over: fewer than a claim needs, or kept apart by its constraints."""
        whole, had = local // each * each, together // each * each
        lost = max(0, whole - had) if constraints else 0
        if lost:
            tally = self._tally(_CONSTRAINTS)
            tally.dropped += lost
            tally.nodes[constraints] += lost
        if local - had - lost:
            self._tally(_SCATTERED).dropped += local - had - lost

    def _constraints(self, request: RequestFunnel) -> str:
        """The constraints of a claim that a request is subject to, as they are written."""
        claim, of, ask = list(self._survey.asks())[self._number]
        own = [c for c in claim.constraints if c.applies(of, ask)]
        return ", ".join(f"{'matchAttribute' if c.match else 'distinctAttribute'} {c.attribute}" for c in own)

    def _tally(self, rank: _Rank) -> _Tally:
        found = self._tallies.get(rank)
        if found is None:
            found = self._tallies[rank] = _Tally()
        return found

    def _walk(self, kind: NodeKind, name: str, request: RequestFunnel, wide: set[int]) -> None:
        """Devices one by one: those that other nodes see too count where they get furthest."""
        fates: dict[int, tuple[_Rank, Stage]] = {}
        seen: Counter[str] = Counter()
        for stage in request.stages[1:]:
            if stage.name != "constraints":
                rank = (_ORDER[stage.name], seen[stage.name])
                seen[stage.name] += 1
                self._tally(rank).stage = self._tally(rank).stage or stage
                fates.update((position, (rank, stage)) for position in stage.dropped)
        for position, (view, _, device) in enumerate(kind.devices(name)):
            fate = fates.get(position)
            if fate is None:
                rank = _NODES if name in self._refused else _LEFT
            else:
                rank = fate[0]
            record = self._recorder(rank, fate[1] if fate else None, kind, name, position)
            if position not in wide:
                self._total += 1
                if rank < _NODES:
                    record()
                continue
            key = f"{view.key}/{device.name}"
            if key not in self._best:
                self._total += 1
            if key not in self._best or self._best[key][0] < rank:
                self._best[key] = (rank, record)

    def _recorder(
        self, rank: _Rank, stage: Stage | None, kind: NodeKind, name: str, position: int
    ) -> Callable[[], None]:
        def record() -> None:
            if stage is not None:
                self._add(rank, stage, kind, [name], (position,))
            elif rank == _NODES:
                self._tally(_NODES).dropped += 1
                self._tally(_NODES).nodes[self._refused[name]] += 1

        return record

    def _add(self, rank: _Rank, stage: Stage, kind: NodeKind, names: Sequence[str], positions: Sequence[int]) -> None:
        """Some devices break a condition on some nodes that are alike."""
        tally = self._tally(rank)
        tally.stage = tally.stage or stage
        tally.dropped += len(names) * len(positions)
        if not positions:
            return
        if stage.name in ("class", "selector"):
            self._read(tally, stage, kind, names, positions)
        elif stage.name == "taints":
            self._taints(tally, kind, names, positions)
        elif stage.name in ("free", "capacity", "counters"):
            self._held(tally, stage, kind, names, positions)

    def _read(
        self, tally: _Tally, stage: Stage, kind: NodeKind, names: Sequence[str], positions: Sequence[int]
    ) -> None:
        """What a selector read of the devices that it refuses; equal on nodes that are alike."""
        if len(positions) < len(stage.dropped):
            stage = self._of_one(
                stage, next(d.shape for p, (_, _, d) in enumerate(kind.devices(names[0])) if p == positions[0])
            )
        tally.errors += len(names) * stage.data["errors"]
        if stage.data["error"] and tally.stage is not None and not tally.stage.data["error"]:
            tally.stage = stage
        for entry in stage.data["values"]:
            text = repr(entry["values"])
            tally.texts[text] = entry["values"]
            tally.values[text] += len(names) * entry["devices"]

    def _of_one(self, stage: Stage, shape: Shape) -> Stage:
        """The same stage for a single device."""
        features, expression = self._survey.options.features, str(stage.data["expression"])
        lists, consumable = features.ListTypeAttributes, features.ConsumableCapacity
        verdict = evaluate(expression or None, shape, lists, consumable, self._survey.snapshot.devices.cache)
        error = verdict if isinstance(verdict, str) else ""
        values = refused_values(expression, [shape], features) if verdict is False else []
        return Stage(stage.name, 0, {**stage.data, "errors": int(bool(error)), "error": error, "values": values})

    def _taints(self, tally: _Tally, kind: NodeKind, names: Sequence[str], positions: Sequence[int]) -> None:
        """Which taints repel; equal on nodes that are alike."""
        devices = list(kind.devices(names[0]))
        for position in positions:
            for text in {str(t) for t in devices[position][2].taints if t.repels}:
                tally.taints[text] += len(names)
        for name in names:
            if len(tally.where) >= _MOST_EXAMPLES:
                return
            here = list(kind.devices(name))
            tally.where += [f"{here[p][2].name} on {name}" for p in positions[: _MOST_EXAMPLES - len(tally.where)]]

    def _held(
        self, tally: _Tally, stage: Stage, kind: NodeKind, names: Sequence[str], positions: Sequence[int]
    ) -> None:
        """By whom devices are held, whole or in part: their holders' claims, together for each device."""
        if len(names) < len(kind.nodes):
            held, short = self._holdings(stage, kind, names, positions)
        else:
            key = (self._number, stage.name, positions)
            if key not in kind.holdings:
                kind.holdings[key] = self._holdings(stage, kind, names, positions)
            held, short = kind.holdings[key]
        tally.counters.update(short)
        for paths, count in held.items():
            tally.held[paths] = tally.held.get(paths, 0) + count

    def _holdings(
        self, stage: Stage, kind: NodeKind, names: Sequence[str], positions: Sequence[int]
    ) -> tuple[dict[tuple[str, ...], int], Counter[str]]:
        state, by_counters = self._survey.snapshot.allocated, stage.name == "counters"
        held: dict[tuple[str, ...], int] = {}
        short: Counter[str] = Counter()
        one = list(kind.devices(names[0]))
        first = kind.views(names[0])
        places = [(first.index(one[position][0]), one[position][1]) for position in positions]
        pools = {number for number, _ in places}
        known = self._survey.snapshot.all_classified_nodes if len(pools) == 1 and not by_counters else None
        (sole,) = pools if known is not None else (0,)
        many: list[tuple[str, ...]] = []
        for name in names:
            classified = classified_nodes_of(known, name)
            if classified is not None and len(classified.uses[sole].devices) == len(places):
                # All that is taken there, by whomever: no device need be looked up.
                many += classified.uses[sole].devices.values()
                continue
            views = kind.views(name)
            uses = [state.use(view.key) for view in views]
            for number, index in places:
                view, use = views[number], uses[number]
                if by_counters:
                    counters = self._counters.get(view)
                    if counters is None:
                        counters = self._counters[view] = CounterUse(view, use)
                    lacking, holding = counters.shortage(index)
                    short.update(lacking)
                else:
                    holding = use.devices.get(view.devices[index].name, ())
                    if use.shares or len(holding) > 1:  # mostly a device is held as a whole, by one claim
                        holding = claims_holding(use, view.devices[index].name)
                held[holding] = held.get(holding, 0) + 1
        for holding, count in Counter(many).items():
            claims = holding if len(holding) < 2 else tuple(dict.fromkeys(holding))
            held[claims] = held.get(claims, 0) + count
        return held, short


def _stage(snapshot: Snapshot, rank: _Rank, left: int, tally: _Tally, count: HolderCount) -> FunnelStage:
    if tally.stage is None:
        stage = {_NODES: "nodes", _CONSTRAINTS: "constraints", _SCATTERED: "scattered"}[rank]
        nodes = dict(tally.nodes.most_common())
        if rank == _CONSTRAINTS:
            return FunnelStage(stage, left, tally.dropped, expression=next(iter(nodes), ""))
        return FunnelStage(stage, left, tally.dropped, nodes=nodes)
    data = tally.stage.data
    holders, unnamed = holders_of(snapshot, tally.held, count)
    return FunnelStage(
        tally.stage.name,
        left,
        tally.dropped,
        expression=str(data.get("expression") or ""),
        values=tuple((tally.texts[text], count) for text, count in tally.values.most_common()),
        errors=tally.errors,
        error=str(data.get("error") or ""),
        taints=dict(sorted(tally.taints.items())),
        where=tuple(tally.where),
        holders=holders,
        unnamed=unnamed,
        counters=dict(sorted(tally.counters.items())),
    )
