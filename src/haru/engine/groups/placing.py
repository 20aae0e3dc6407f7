"""Placing one pod on an overlay: filter, allocate devices per feasible node, score, choose.

Source: kube-scheduler's scheduling cycle (PreFilter to Reserve), as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from haru.engine.decision import Obj, Reason
from haru.engine.devices import AllocationError
from haru.engine.groups.alike import Alike
from haru.engine.groups.board import Board, Boards, Summary
from haru.engine.groups.claimed import claimed_on
from haru.engine.groups.claims import ClaimUse
from haru.engine.groups.demand import PLUGIN, Demand, demand_of
from haru.engine.groups.options import Options
from haru.engine.nodes.failure import (
    NO_NODES,
    Failure,
    rejected_message,
    rejecting_plugins,
    summed_reasons,
    unavailable_message,
    weighed,
)
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod's tentative place: the node, the claims allocated for it, and those it joins.

    `special` is the claim for its extended resources on that node, allocated now or before; `claimed` what its devices
    take of the node (KEP-5517).
    """

    pod: PodInfo
    demand: Demand
    node: str
    allocations: tuple[tuple[ClaimUse, Obj], ...]
    joined: tuple[ClaimUse, ...]
    special: ClaimUse | None = None
    claimed: tuple[Obj, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod without a place, and why. `failed`: the attempt itself went wrong, so this is not an answer."""

    pod: PodInfo
    message: str
    reasons: tuple[Reason, ...]
    plugins: tuple[str, ...] = ()
    failed: bool = False


class Placer:
    """Places pods one after the other on one overlay, among some nodes."""

    def __init__(self, overlay: Overlay, group: Obj | None, options: Options, nodes: Sequence[str]) -> None:
        self._overlay = overlay
        self._group = group
        self._options = options
        self._nodes = nodes
        self._boards = Boards(overlay, options, nodes)
        self._alike: Alike | None = None

    def place(self, pod: PodInfo) -> Placed | Refused:
        """Find the best place for a pod and take it in the overlay: the one it is nominated to, if that still does."""
        if not self._nodes:
            return Refused(pod, NO_NODES, (Reason("NoNodes", NO_NODES),))
        demand = demand_of(self._overlay, pod, self._group, self._options)
        if isinstance(demand, Reason):
            return Refused(pod, rejected_message(len(self._nodes), demand.message), (demand,), (PLUGIN,))
        try:
            return self._place(pod, demand)
        except AllocationError as error:
            return Refused(pod, str(error), (Reason("SelectorError", str(error)),), (PLUGIN,), failed=True)

    def _place(self, pod: PodInfo, demand: Demand) -> Placed | Refused:
        if self._alike is None or not self._alike.takes(pod, demand):
            board = self._boards.board(pod, demand)
            steady = self._boards.steady(board, pod, demand)
            self._alike = Alike(self._overlay, self._options, self._boards, board, pod) if steady else None
            if self._alike is None or not self._alike.takes(pod, demand):
                return self._place_apart(board, pod, demand)
        return self._place_alike(self._alike, pod, demand)

    def _place_apart(self, board: Board, pod: PodInfo, demand: Demand) -> Placed | Refused:
        if not board.ranking:
            return self._refused(pod, board)
        kept = self._overlay.snapshot.nominations.get(pod.key.path)
        name = kept.node if kept is not None else pod.nominated_node
        if not board.ranking.takes(name):
            name = board.ranking.choose(self._options.seed, pod.key.path)
        given = self._boards.allocations(demand, name, board.candidates[name])
        pending = demand.pending_on(self._overlay.node(name))
        return occupy(self._overlay, pod, demand, name, tuple(zip(pending, given, strict=True)))

    def _place_alike(self, alike: Alike, pod: PodInfo, demand: Demand) -> Placed | Refused:
        """Place a pod like the one before."""
        alike.settle(demand)
        if not alike.board.ranking:
            return self._refused(pod, alike.board)
        name, candidate = alike.choose(pod)
        node = self._overlay.node(name)
        given, local = alike.allocations(node, candidate)
        sort = alike.sort_of(node, candidate)
        allocations = tuple(zip(demand.pending, given, strict=True))
        outcome = occupy(self._overlay, pod, demand, name, allocations, local=local)
        alike.taken(name, sort)
        return outcome

    def refusals(self, pod: PodInfo) -> Mapping[str, Sequence[Failure]]:
        """What each node that refuses a pod says to it, as things stand; empty if the pod was rejected outright."""
        demand = demand_of(self._overlay, pod, self._group, self._options)
        if isinstance(demand, Reason):
            return {}
        return self._boards.board(pod, demand).told(self._overlay)

    def scores(self, pod: PodInfo) -> Mapping[str, int]:
        """The score of each node that would take a pod, as things stand; they compare among each other.

        Empty if the pod was rejected outright. Raises AllocationError.
        """
        demand = demand_of(self._overlay, pod, self._group, self._options)
        return {} if isinstance(demand, Reason) else self._boards.board(pod, demand).ranking.totals()

    def _refused(self, pod: PodInfo, board: Board) -> Refused:
        if board.plan.rejection is not None:
            failure = board.plan.rejection
            message = rejected_message(len(self._nodes), failure.reason.message)
            return Refused(pod, message, (failure.reason,), (failure.plugin,))
        if board.undecided:
            text = board.undecided[min(board.undecided)]
            reason = Reason("GaveUp", text, {"nodes": len(board.undecided), "budget": self._options.step_budget})
            return Refused(pod, text, (reason,), (PLUGIN,), failed=True)
        if board.summary is None:
            refusals = weighed(board.told(self._overlay).values())
            message = unavailable_message(len(self._nodes), refusals)
            board.summary = Summary(message, summed_reasons(refusals), rejecting_plugins(refusals))
        return Refused(pod, *board.summary)


def occupy(
    overlay: Overlay,
    pod: PodInfo,
    demand: Demand,
    node: str,
    allocations: tuple[tuple[ClaimUse, Obj], ...],
    *,
    local: bool = False,
) -> Placed:
    """Take a place in the overlay: room, devices (`local`: the node alone sees them), and the claims' users."""
    info = overlay.node(node)
    special = demand.special_on(info)
    uses = demand.uses if special is None else (*demand.uses, special)
    claimed = claimed_on(overlay, pod, demand, info, allocations)
    overlay.place(pod, node, claimed)
    fresh = {use.path for use, _ in allocations}
    for use, allocation in allocations:
        overlay.allocate(use.path, allocation, node if local else None)
    for use in uses:
        if not use.is_reserved or demand.counts_devices:
            overlay.reserve(use.path)
    joined = tuple(use for use in uses if use.path not in fresh and not use.is_reserved)
    return Placed(pod, demand, node, allocations, joined, special, claimed)
