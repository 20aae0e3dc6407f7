"""Members that are alike, one after the other: what a node answers once it has taken one more is found out once.

Nodes that are in use alike, and whose devices gave one and the same answer, answer alike again when each has taken the
same kind of member. So only the first of them is asked; for the others it is known. A gang of thousands then costs a
choice, a node and the devices per member, whatever the number of nodes.
Source: our own; kube-scheduler's opportunistic batching (KEP-5598) has the same purpose.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from haru.engine.decision import Obj
from haru.engine.devices import NodeView
from haru.engine.devices.allocate import Solution, gather
from haru.engine.devices.site import Site
from haru.engine.groups.board import Board, Boards, Candidate
from haru.engine.groups.demand import Demand
from haru.engine.groups.options import Options
from haru.engine.groups.ranking import Key
from haru.engine.nodeinfo import NodeInfo
from haru.engine.nodes.failure import Failure
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo


@dataclass(frozen=True, slots=True)
class _Next:
    """What a node of some sort answers after it has taken one more member."""

    candidate: Candidate | None
    key: Key = ()
    refusal: Sequence[Failure] = ()


_NOTHING = Demand()


class Alike:
    """A board, kept up to date for members of one kind without looking at the whole cluster for each."""

    def __init__(self, overlay: Overlay, options: Options, boards: Boards, board: Board, pod: PodInfo) -> None:
        self._overlay = overlay
        self._options = options
        self._boards = boards
        self.board = board
        self._first = pod
        self._signature = boards.signature(pod)
        self._specs: list[object] | None = None
        self._asked = _NOTHING
        self._chose = False
        self._known: dict[Hashable, _Next] = {}
        self._answers: dict[int, Solution] = {}
        self._sites: dict[str, tuple[Site, bool]] = {}
        self._touched: tuple[str, Hashable] | None = None
        self._seen = len(overlay.changes)

    def takes(self, pod: PodInfo, demand: Demand) -> bool:
        """Whether a pod is one of the kind, and nothing but such pods was placed since the first."""
        first, snapshot = self._first, self._overlay.snapshot
        if len(self._overlay.changes) != self._seen or pod.shape != first.shape:
            return False
        if pod.nominated_node or pod.key.path in snapshot.nominations or demand.fixed or demand.extended:
            return False
        specs = [use.claim.get("spec") for use in demand.pending]
        if self._specs is None:
            self._specs, self._asked = specs, demand
        if specs != self._specs:
            return False
        demand.read_as(self._asked)
        same = pod.labels == first.labels and pod.images == first.images and _owners(pod) == _owners(first)
        return same or self._boards.signature(pod) == self._signature

    def settle(self, demand: Demand) -> None:
        """Take in that the last member has its place. Raises AllocationError."""
        if self._touched is None:
            return
        name, sort = self._touched
        self._touched = None
        board, known = self.board, self._known.get(sort)
        board.summary = None
        if known is None:
            self._boards.ask_again(board, self._first, demand, name)
            if name not in board.undecided:
                candidate = board.candidates.get(name)
                key = board.ranking.key_of(name)
                self._known[sort] = _Next(candidate, key or (), board.refusals.get(name, ()))
        elif known.candidate is not None:
            board.candidates[name] = known.candidate
            board.ranking.put(name, known.key)
        else:
            board.forget(name)
            board.refusals[name] = known.refusal

    def choose(self, pod: PodInfo) -> tuple[str, Candidate]:
        """The node that is best for a pod by now; there must be one."""
        name = self.board.ranking.choose(self._options.seed, pod.key.path, steady=self._chose)
        self._chose = True
        return name, self.board.candidates[name]

    def allocations(self, node: NodeInfo, candidate: Candidate) -> tuple[Sequence[Obj], bool]:
        """The allocations of a candidate, and whether nobody but the node sees the devices. Raises AllocationError."""
        if candidate.answer is None:
            return candidate.allocations, False
        known = self._sites.get(node.name)
        if known is None:
            features, view = self._options.features, NodeView(node.name, node.labels)
            views = gather(self._overlay.snapshot.devices, view, features)
            known = self._sites[node.name] = Site(views, view, features), all(view.confined for view in views)
        site, local = known
        return candidate.answer.results(site, self._options.new_share_id), local

    def sort_of(self, node: NodeInfo, candidate: Candidate) -> Hashable:
        """Equal for nodes that are alike as far as members of this kind can tell."""
        devices = 0
        if candidate.answer is not None:
            devices = id(candidate.answer)
            self._answers[devices] = candidate.answer  # as long as it is kept, no other answer has this number
        return devices, self.board.ranking.key_of(node.name), node.spec.kind, node.load

    def taken(self, name: str, sort: Hashable) -> None:
        """A member has taken its place on a node that was of a sort before."""
        new = self._overlay.changes[self._seen :]
        self._seen = len(self._overlay.changes) if None not in new else -1
        self._touched = (name, sort)


def _owners(pod: PodInfo) -> object:
    return pod.obj["metadata"].get("ownerReferences")
