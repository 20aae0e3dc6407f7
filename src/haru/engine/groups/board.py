"""Which nodes take a pod: asked once per node and kind of pod, and asked again only where something has changed.

Members of a gang are mostly alike, so what one of them learnt about a thousand nodes holds for the next, but for the
node that the first one took. The overlay says which nodes were touched.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from haru.engine.decision import Obj
from haru.engine.devices import Claim, DoesNotFit, GaveUp, NodeView, allocate, decode_claims, prioritized_score
from haru.engine.groups.claims import ClaimUse
from haru.engine.groups.demand import PLUGIN, Demand
from haru.engine.groups.options import Options
from haru.engine.nodeinfo import NodeInfo
from haru.engine.nodes import scores
from haru.engine.nodes.basic import NodeFilter
from haru.engine.nodes.failure import Failure, refuse
from haru.engine.nodes.interpod import inter_pod_rules
from haru.engine.nodes.plan import NodePlan, first_failure, make_plan
from haru.engine.nodes.spread import spread_rules
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo

CANNOT_ALLOCATE = "cannot allocate all claims"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that takes the pod, with the allocation it would give and its scores before they are compared."""

    allocations: Sequence[Obj]
    taints: int
    affinity: int
    devices: int
    room: int


@dataclass(slots=True)
class Board:
    """The answers of all nodes for one kind of pod."""

    plan: NodePlan
    seen: int = 0
    candidates: dict[str, Candidate] = field(default_factory=dict)
    refusals: dict[str, Sequence[Failure]] = field(default_factory=dict)
    undecided: dict[str, str] = field(default_factory=dict)


class Decoder:
    """Claims as the allocator takes them, decoded once for many nodes."""

    def __init__(self, overlay: Overlay, options: Options) -> None:
        self._overlay = overlay
        self._options = options
        self._known: dict[Hashable, tuple[Claim, ...]] = {}

    def claims(self, uses: Sequence[ClaimUse]) -> tuple[Claim, ...]:
        """What these claims ask for."""
        key = tuple((use.path, use.made_for) for use in uses)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = decoded_claims(self._overlay, self._options, uses)
        return found


class Boards:
    """The boards of one attempt over an overlay, limited to some nodes."""

    def __init__(self, overlay: Overlay, options: Options, nodes: Sequence[str]) -> None:
        self._overlay = overlay
        self._options = options
        self._nodes = nodes
        self._allowed = frozenset(nodes)
        self._boards: dict[Hashable, Board] = {}
        self._plans: dict[Hashable, NodePlan] = {}
        self._decoder = Decoder(overlay, options)

    def board(self, pod: PodInfo, demand: Demand) -> Board:
        """The answers for a pod as things stand now. Raises AllocationError if the attempt must be aborted."""
        rules = self._rules(pod)
        ruled = any(rules)
        labels = tuple(sorted(pod.labels.items())) if ruled else ()
        key = (pod.shape, demand.shape, labels)
        board = self._boards.get(key)
        if board is None:
            board = self._boards[key] = Board(self._plan(pod, demand))
            stale: Sequence[str] = self._nodes
        else:
            stale = self._nodes if ruled else self._stale(board)
        board.seen = len(self._overlay.changes)
        if board.plan.rejection is None:
            for name in stale:
                self._ask(board, pod, demand, self._overlay.node(name), rules)
        return board

    def _rules(self, pod: PodInfo) -> tuple[tuple[NodeFilter, ...], ...]:
        """Rules between pods at each moment, as things stand: they hold until something else is placed."""
        return tuple(rules_between_pods(moment, pod) for moment in self._overlay.moments)

    def _plan(self, pod: PodInfo, demand: Demand) -> NodePlan:
        key = (pod.shape, demand.backed)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = lasting_plan(self._overlay, pod, demand)
        return plan

    def _stale(self, board: Board) -> Sequence[str]:
        changed = self._overlay.changes[board.seen :]
        if None in changed:
            return self._nodes
        return sorted({name for name in changed if name is not None and name in self._allowed})

    def _ask(
        self, board: Board, pod: PodInfo, demand: Demand, node: NodeInfo, rules: Sequence[Sequence[NodeFilter]]
    ) -> None:
        name = node.name
        board.candidates.pop(name, None)
        board.refusals.pop(name, None)
        board.undecided.pop(name, None)
        failures = self._refusal(board.plan, name, rules) or demand.tied_elsewhere(node)
        if failures:
            board.refusals[name] = failures
            return
        try:
            allocations = self._allocations(node, demand)
        except GaveUp as error:
            board.undecided[name] = str(error)
            return
        if isinstance(allocations, Failure):
            board.refusals[name] = (allocations,)
        else:
            board.candidates[name] = _candidate(pod, node, demand, allocations)

    def _refusal(self, plan: NodePlan, name: str, rules: Sequence[Sequence[NodeFilter]]) -> Sequence[Failure]:
        for moment, between_pods in zip(self._overlay.moments, rules, strict=True):
            node = moment.node(name)
            failures = plan.check(node) or first_failure(between_pods, node)
            if failures:
                return failures
        return ()

    def _allocations(self, node: NodeInfo, demand: Demand) -> Sequence[Obj] | Failure:
        uses = demand.pending_on(node)
        return allocate_on(self._overlay, self._options, node, self._decoder.claims(uses)) if uses else ()


def rules_between_pods(moment: Overlay, pod: PodInfo) -> tuple[NodeFilter, ...]:
    """The rules between pods that hold for a pod at one moment."""
    spread, company = spread_rules(moment, pod), inter_pod_rules(moment, pod)
    return tuple(rules.check for rules in (spread, company) if rules is not None)


def lasting_plan(overlay: Overlay, pod: PodInfo, demand: Demand) -> NodePlan:
    """What is asked of a node for the pod; what rejects it at any moment rejects it."""
    plans = [make_plan(moment.snapshot, pod, demand.backed) for moment in overlay.moments]
    rejections = [plan.rejection for plan in plans if plan.rejection is not None]
    return replace(plans[0], rejection=rejections[0] if rejections else None)


def decoded_claims(overlay: Overlay, options: Options, uses: Sequence[ClaimUse]) -> tuple[Claim, ...]:
    """Claims as the allocator takes them."""
    return decode_claims([use.claim for use in uses], overlay.snapshot.devices.classes, options.features)


def allocate_on(
    overlay: Overlay, options: Options, node: NodeInfo, claims: Sequence[Claim]
) -> tuple[Obj, ...] | Failure:
    """Devices for claims on a node as things stand. Raises AllocationError and GaveUp."""
    answer = allocate(
        overlay.snapshot.devices,
        overlay.allocated,
        NodeView(node.name, node.labels),
        claims,
        options.features,
        new_share_id=options.new_share_id,
        step_budget=options.step_budget,
    )
    if isinstance(answer, DoesNotFit):
        why = [{"type": r.type, "message": r.message, **r.data} for r in answer.reasons]
        return refuse(PLUGIN, "DevicesUnavailable", CANNOT_ALLOCATE, {"why": why} if why else {})
    return answer.results


def _candidate(pod: PodInfo, node: NodeInfo, demand: Demand, allocations: Sequence[Obj]) -> Candidate:
    return Candidate(
        allocations,
        scores.raw_taints(pod, node) if node.taints else 0,
        scores.raw_affinity(pod, node),
        _preference(demand, node, allocations),
        scores.least_allocated(pod, node) + scores.balanced(pod, node),
    )


def _preference(demand: Demand, node: NodeInfo, allocations: Sequence[Obj]) -> int:
    """How far up their lists of alternatives the claims are served (KEP-4816)."""
    fixed = dict(demand.fixed)
    claims = [use.claim for use in demand.uses if use.path in fixed] + [use.claim for use in demand.pending_on(node)]
    return prioritized_score([*fixed.values(), *allocations], claims)


def totals(candidates: Mapping[str, Candidate]) -> dict[str, int]:
    """Each candidate's score, comparable with the others'."""
    names = list(candidates)
    values = list(candidates.values())
    taints = scores.normalised([c.taints for c in values], reverse=True)
    affinity = scores.normalised([c.affinity for c in values])
    devices = scores.normalised([c.devices for c in values])
    return {
        name: scores.WEIGHT_TAINTS * taints[i]
        + scores.WEIGHT_AFFINITY * affinity[i]
        + scores.WEIGHT_DEVICES * devices[i]
        + values[i].room
        for i, name in enumerate(names)
    }
