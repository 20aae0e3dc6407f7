"""Which nodes take a pod: asked once per node and kind of pod, and asked again only where something has changed.

Members of a gang are mostly alike, so what one of them learnt about a thousand nodes holds for the next, but for the
node that the first one took. The overlay says which nodes were touched. A `Memory` makes what was learnt in one
decision hold in the next, too, as far as it depends on nothing but the nodes and their devices. Nodes that are alike
are asked once (`Snapshot.lots`), where all of them have to be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from haru.engine.decision import Obj, Reason
from haru.engine.devices import (
    AllocationError,
    Claim,
    DoesNotFit,
    GaveUp,
    Question,
)
from haru.engine.devices.allocate import Solution
from haru.engine.devices.scoring import chosen_score
from haru.engine.following import Follower, present_node
from haru.engine.groups.asking import Decoder, allocate_on, lasting_plan, preference, unavailable
from haru.engine.groups.claimed import claimed_on, too_much
from haru.engine.groups.claims import ClaimUse
from haru.engine.groups.demand import Demand
from haru.engine.groups.memory import Memory
from haru.engine.groups.options import Options
from haru.engine.groups.ranking import Ranking
from haru.engine.groups.setting import Kind, Neighbourhood, Setting
from haru.engine.nodeinfo import NodeInfo
from haru.engine.nodes.failure import Failure
from haru.engine.nodes.plan import NodePlan
from haru.engine.nodes.remaining import wanted_of
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo
from haru.engine.snapshot import Lot


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that takes the pod, with the allocations that it would give, or the supply's answer that stands for them.

    Nodes with the same answer have devices that look alike to the claims.
    """

    allocations: Sequence[Obj] = ()
    answer: Solution | None = None


_NOTHING_TO_ALLOCATE = Candidate()


class Summary(NamedTuple):
    """What all refusals come to: one message, its reasons, and who refused."""

    message: str
    reasons: tuple[Reason, ...]
    plugins: tuple[str, ...]


@dataclass(slots=True)
class Board:
    """The answers of all nodes for one kind of pod. `devices_seen` is the place up to which it knows the supply."""

    plan: NodePlan
    setting: Setting
    ranking: Ranking
    follower: Follower = field(default_factory=Follower)
    later: tuple[Setting, ...] = ()
    differing: frozenset[str] = frozenset()
    devices_seen: int = -1
    summary: Summary | None = None
    candidates: dict[str, Candidate] = field(default_factory=dict)
    refusals: dict[str, Sequence[Failure]] = field(default_factory=dict)
    undecided: dict[str, str] = field(default_factory=dict)

    def forget(self, name: str) -> None:
        """Drop what a node answered."""
        if self.candidates.pop(name, None) is not None:
            self.ranking.drop(name)
        self.refusals.pop(name, None)
        self.undecided.pop(name, None)

    def told(self, overlay: Overlay) -> dict[str, Sequence[Failure]]:
        """What each node says that refuses the pod, by name."""
        if not self.setting.gated:
            return {name: self.refusals[name] for name in sorted(self.refusals)}
        found = {name: self.setting.told(overlay.node(name), failures) for name, failures in self.refusals.items()}
        closed = (name for name in self.candidates if not self.ranking.takes(name))
        found |= {name: self.setting.told(overlay.node(name), ()) for name in closed}
        return dict(sorted(found.items()))

    @property
    def size(self) -> int:
        """How many nodes have answered."""
        return len(self.candidates) + len(self.refusals) + len(self.undecided)


class Boards:
    """The boards of one attempt over an overlay, limited to some nodes."""

    def __init__(self, overlay: Overlay, options: Options, nodes: Sequence[str]) -> None:
        self._overlay = overlay
        self._options = options
        self._nodes = nodes
        self._everywhere = nodes is overlay.snapshot.node_names
        self._allowed = frozenset[str]() if self._everywhere else frozenset(nodes)
        self._memory = Memory.of(overlay.snapshot, options)
        # Two moments at once are nobody else's question.
        self._supply = self._memory.supply(options) if overlay.after is None else None
        self._boards: dict[Hashable, Board] = {}
        self._plans: dict[Hashable, NodePlan] = {}
        self._decoder = Decoder(overlay, options)
        self._shared_later: list[Neighbourhood] = []
        self._asking: tuple[Demand, Sequence[ClaimUse], Question] | None = None
        self._said: tuple[DoesNotFit, Sequence[Failure]] | None = None

    def board(self, pod: PodInfo, demand: Demand) -> Board:
        """The answers for a pod as things stand now. Raises AllocationError if the attempt must be aborted."""
        self._memory.shared.catch_up(self._overlay)
        kind = self._memory.shared.kind(self._overlay, pod)
        key = (pod.shape, demand.shape, kind.signature)
        later = self._later(pod)
        lasting = self._everywhere and not (pod.volume_claims or later) and self._forgettable(demand)
        board = self._memory.find(key) if lasting else self._boards.get(key)
        if board is None:
            board = self._made(kind, demand)
            board.later = later
        if board.plan.rejection is None:
            try:
                self._refresh(board, pod, demand)
            except AllocationError:
                self._memory.forget(key)
                raise
        if lasting:
            self._memory.keep(key, board)
        else:
            self._boards[key] = board
        return board

    def allocations(self, demand: Demand, name: str, candidate: Candidate) -> Sequence[Obj]:
        """The allocations that a candidate of the board that was asked for last would give. Raises AllocationError."""
        if candidate.answer is None:
            return candidate.allocations
        assert self._supply is not None
        uses = demand.pending_on(self._overlay.node(name))
        return self._supply.results(name, *self._question(demand, uses), self._options.new_share_id)

    def steady(self, board: Board, pod: PodInfo, demand: Demand) -> bool:
        """Whether a node's answer and score for such pods change with what is on that node and nothing else."""
        single = self._overlay.after is None and board.setting.alone and not (pod.volume_claims or pod.disks)
        return single and not (demand.fixed or demand.extended or demand.counts_devices)

    def signature(self, pod: PodInfo) -> Hashable:
        """What tells a pod from others of its shape, as far as rules between pods and scores go."""
        return self._memory.shared.kind(self._overlay, pod).signature

    def ask_again(self, board: Board, pod: PodInfo, demand: Demand, name: str) -> None:
        """Ask one node as things stand now. Raises AllocationError."""
        if demand.uses and self._supply is not None:
            self._supply.catch_up(self._overlay)
        board.forget(name)
        self._memory.asked += 1
        self._ask(board, pod, demand, self._overlay.node(name))

    def _forgettable(self, demand: Demand) -> bool:
        """Whether other decisions may ask the same: not where claims of this one have been allocated."""
        if not (demand.uses or demand.extended):
            return True
        tied = demand.fixed or (demand.extended is not None and demand.extended.existing is not None)
        return self._by_supply(demand) and not tied

    def _by_supply(self, demand: Demand) -> bool:
        return self._supply is not None and not demand.counts_devices

    def _question(self, demand: Demand, uses: Sequence[ClaimUse]) -> tuple[Hashable, Callable[[], Sequence[Claim]]]:
        """What is asked of the supply, and by which name."""
        special = [json.dumps(use.claim.get("spec"), sort_keys=True) for use in uses[len(demand.pending) :]]
        return (demand.asked, *special), lambda: self._decoder.claims(uses)

    def _later(self, pod: PodInfo) -> tuple[Setting, ...]:
        """The rules between pods that hold for a pod once room was made for others, by moment; nothing without any."""
        moments = self._overlay.moments[1:]
        if not self._shared_later:
            self._shared_later = [Neighbourhood(self._options.profile) for _ in moments]
        kinds = []
        for shared, moment in zip(self._shared_later, moments, strict=True):
            shared.catch_up(moment)
            kinds.append(shared.kind(moment, pod))
        if not any(kind.hard or kind.company for kind in kinds):
            return ()
        return tuple(Setting(shared, kind) for shared, kind in zip(self._shared_later, kinds, strict=True))

    def _made(self, kind: Kind, demand: Demand) -> Board:
        shared = self._memory.shared
        # Where devices are allocated, nodes that rules refuse are not worth a question.
        asks_devices = bool(demand.uses or demand.extended)
        wide = frozenset[str]() if asks_devices else shared.wide(self._overlay, (c.key for c in kind.hard))
        wanted = wanted_of(use.claim for use in demand.pending_anywhere()) if shared.profile.remaining else ()
        setting = Setting(shared, kind, wide, wanted)
        ranking = Ranking(setting.scorers, setting.is_closed if setting.gated else None)
        return Board(self._plan(kind.pod, demand, setting), setting, ranking)

    def _plan(self, pod: PodInfo, demand: Demand, setting: Setting) -> NodePlan:
        key = (pod.shape, demand.backed)
        plan = self._plans.get(key)
        if plan is None or setting.sole_use is not None:
            plan = self._plans[key] = lasting_plan(self._overlay, pod, demand, self._options, setting.sole_use)
        return plan

    def _refresh(self, board: Board, pod: PodInfo, demand: Demand) -> None:
        """Ask again where the answer may have changed: at nodes that did, and where rules between pods say so."""
        changed = board.follower.catch_up(self._overlay)
        if demand.uses or demand.extended:
            changed = self._with_devices(board, demand, changed)
        moved = board.setting.catch_up(self._overlay)
        for setting, moment in zip(board.later, self._overlay.moments[1:], strict=False):
            moved_later = setting.catch_up(moment)
            moved = None if moved is None or moved_later is None else moved | moved_later
        differing = self._overlay.differing
        stale: Sequence[str] = self._nodes
        if changed is None or moved is None:
            for name in [*board.candidates, *board.refusals, *board.undecided]:
                board.forget(name)
        else:
            names = changed | moved | differing | board.differing
            stale = sorted(names if self._everywhere else names & self._allowed)
        board.differing = differing
        if stale or board.setting.gated:
            board.summary = None
        known = board.size
        everybody = stale is self._overlay.snapshot.node_names
        if everybody and self._supply is not None:
            self._supply.look_at_all(self._overlay)
        if everybody and not known and self._in_lots(board, demand) and self._ask_lots(board, pod, demand):
            return
        some = ((name, present_node(self._overlay, name)) for name in stale)
        for name, node in self._overlay.present_nodes() if everybody else some:
            if known:
                board.forget(name)
            if node is not None:
                self._memory.asked += 1
                self._ask(board, pod, demand, node)

    def _with_devices(self, board: Board, demand: Demand, changed: set[str] | None) -> set[str] | None:
        """The nodes that changed, those included of which the devices did."""
        if self._supply is None or demand.counts_devices:
            return None if board.follower.devices_changed else changed
        self._supply.catch_up(self._overlay)
        moved, board.devices_seen = self._supply.since(board.devices_seen), self._supply.now
        return None if changed is None or moved is None else changed | moved

    def _in_lots(self, board: Board, demand: Demand) -> bool:
        """Whether the nodes of a lot answer alike (but for their devices, where these are not known to be alike)."""
        simple = not (demand.fixed or demand.extended or demand.counts_devices)
        by_supply = not demand.pending or self._by_supply(demand)
        return simple and by_supply and self._overlay.after is None and board.plan.general and board.setting.general

    def _ask_lots(self, board: Board, pod: PodInfo, demand: Demand) -> bool:
        """Ask one node of each lot, and nodes that were touched by themselves; False if that has to be done otherwise.

        An error is told by the first node that makes it, so all have to be asked in their order.
        """
        touched = self._overlay.touched
        try:
            for lot in self._overlay.snapshot.lots:
                names = [name for name in lot.names if name not in touched] if touched else lot.names
                if names:
                    self._ask_lot(board, demand, lot, names)
        except AllocationError:
            for name in [*board.candidates, *board.refusals, *board.undecided]:
                board.forget(name)
            return False
        for name in sorted(touched):
            self._memory.asked += 1
            self._ask(board, pod, demand, self._overlay.node(name))
        return True

    def _ask_lot(self, board: Board, demand: Demand, lot: Lot, names: Sequence[str]) -> None:
        self._memory.asked += 1
        failures = board.plan.check(lot.first)
        if not failures and demand.pending:
            self._ask_lot_for_devices(board, demand, lot, names)
        elif failures:
            board.refusals.update(dict.fromkeys(names, failures))
        else:
            self._offer_lot(board, names, _NOTHING_TO_ALLOCATE, 0)

    def _ask_lot_for_devices(self, board: Board, demand: Demand, lot: Lot, names: Sequence[str]) -> None:
        assert self._supply is not None
        node = self._overlay.node(names[0])
        question = self._question_of(demand, demand.pending)
        answer = self._supply.answer(node, question)
        if not self._supply.speaks_for_all(names, lot.outfit, question):
            for name in names:
                self._memory.asked += 1
                self._ask_supply(board, demand, self._overlay.node(name), demand.pending)
        elif isinstance(answer, DoesNotFit):
            board.refusals.update(dict.fromkeys(names, self._refused(answer)))
        elif isinstance(answer, Solution):
            self._offer_lot(board, names, Candidate(answer=answer), chosen_score(answer.claims, answer.asks))

    def _offer_lot(self, board: Board, names: Sequence[str], candidate: Candidate, preference: int) -> None:
        if not board.setting.same_keys:
            for name in names:
                self._offer(board, self._overlay.node(name), candidate, preference)
            return
        board.candidates.update(dict.fromkeys(names, candidate))
        board.ranking.put_all(names, board.setting.key(self._overlay.node(names[0]), preference))

    def _ask(self, board: Board, pod: PodInfo, demand: Demand, node: NodeInfo) -> None:
        name = node.name
        failures = (
            board.plan.check(node)
            or board.setting.check(node)
            or (self._overlay.after is not None and self._refused_later(board, name))
            or demand.tied_elsewhere(node)
        )
        if failures:
            board.refusals[name] = failures
            return
        uses = demand.pending_on(node)
        if demand.counts_devices or (uses and not self._by_supply(demand)):
            self._ask_allocator(board, pod, demand, node, uses)
        elif uses:
            self._ask_supply(board, demand, node, uses)
        else:
            self._offer(board, node, _NOTHING_TO_ALLOCATE, preference(demand, node, ()) if demand.fixed else 0)

    def _offer(self, board: Board, node: NodeInfo, candidate: Candidate, preference: int) -> None:
        board.candidates[node.name] = candidate
        board.ranking.put(node.name, board.setting.key(node, preference))

    def _ask_supply(self, board: Board, demand: Demand, node: NodeInfo, uses: Sequence[ClaimUse]) -> None:
        assert self._supply is not None
        answer = self._supply.answer(node, self._question_of(demand, uses))
        if isinstance(answer, DoesNotFit):
            board.refusals[node.name] = self._refused(answer)
        elif isinstance(answer, GaveUp):
            board.undecided[node.name] = str(answer)
        elif isinstance(answer, AllocationError):
            # Asked for these claims, the error names them.
            allocate_on(self._overlay, self._options, node, self._decoder.claims(uses))
            raise answer
        else:
            fixed = preference(replace(demand, pending=(), extended=None), node, ()) if demand.fixed else 0
            self._offer(board, node, Candidate(answer=answer), fixed + chosen_score(answer.claims, answer.asks))

    def _question_of(self, demand: Demand, uses: Sequence[ClaimUse]) -> Question:
        assert self._supply is not None
        last = self._asking
        if last is None or last[0] is not demand or last[1] is not uses:
            last = self._asking = demand, uses, self._supply.question(*self._question(demand, uses))
        return last[2]

    def _refused(self, answer: DoesNotFit) -> Sequence[Failure]:
        """How a node says that it has not the devices; those with the same answer say the same."""
        last = self._said
        if last is None or last[0] is not answer:
            last = self._said = answer, (unavailable(answer),)
        return last[1]

    def _ask_allocator(
        self, board: Board, pod: PodInfo, demand: Demand, node: NodeInfo, uses: Sequence[ClaimUse]
    ) -> None:
        name = node.name
        try:
            found = allocate_on(self._overlay, self._options, node, self._decoder.claims(uses)) if uses else ()
        except GaveUp as error:
            board.undecided[name] = str(error)
            return
        if isinstance(found, Failure):
            board.refusals[name] = (found,)
        elif demand.counts_devices and (failures := self._no_room(pod, demand, node, uses, found)):
            board.refusals[name] = failures
        else:
            self._offer(board, node, Candidate(found), preference(demand, node, found))

    def _no_room(
        self, pod: PodInfo, demand: Demand, node: NodeInfo, uses: Sequence[ClaimUse], found: Sequence[Obj]
    ) -> Sequence[Failure]:
        """What a node lacks for what the devices take of it themselves, at any moment."""
        claimed = claimed_on(self._overlay, pod, demand, node, list(zip(uses, found, strict=True)))
        for moment in self._overlay.moments if claimed else ():
            if failures := too_much(pod, moment.node(node.name), claimed):
                return failures
        return ()

    def _refused_later(self, board: Board, name: str) -> Sequence[Failure]:
        """What speaks against a node once room was made for others."""
        failures: Sequence[Failure] = ()
        for moment in self._overlay.moments[1:] if name in board.differing else ():
            failures = failures or board.plan.check(moment.node(name))
        for setting, moment in zip(board.later, self._overlay.moments[1:], strict=False):
            failures = failures or setting.check(moment.node(name))
        return failures
