"""What decisions leave for the decisions after them: answers of nodes that hold until the nodes change.

It changes no answer: what may be out of date is asked again. Only boards of pods without volumes and allocated claims
are kept, because their answers depend on the nodes, the pods on them and the devices alone.
Source: our own; kube-scheduler's opportunistic batching (KEP-5598) has the same purpose.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING

from haru.engine.cluster import Snapshot
from haru.engine.devices import Features
from haru.engine.groups.setting import Neighbourhood
from haru.engine.groups.supply import Supply
from haru.engine.profile import Profile

if TYPE_CHECKING:
    from haru.engine.groups.board import Board
    from haru.engine.groups.options import Options

_MOST_ANSWERS = 1_000_000
"""Of all boards together; one answer of one node takes some 130 bytes."""


class Memory:
    """The boards of one profile, the most recently used ones. `asked` counts the questions to nodes so far."""

    def __init__(self, profile: Profile, most_answers: int = _MOST_ANSWERS) -> None:
        self.profile = profile
        self.shared = Neighbourhood(profile)
        self.asked = 0
        self._most = most_answers
        self._boards: OrderedDict[Hashable, Board] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}
        self._answers = 0
        self._supplies: dict[tuple[Features, int], Supply] = {}

    @staticmethod
    def of(snapshot: Snapshot, options: Options) -> Memory:
        """The memory that the options bring, or the one that the cluster has for decisions with such options."""
        given = options.memory
        if given is not None and given.profile is options.profile:
            return given
        key = (options.profile, options.features, options.step_budget, options.declared_features)
        return snapshot.notes.entry("boards", key, lambda: Memory(options.profile), limit=4)

    def supply(self, options: Options) -> Supply:
        """The devices of the nodes and their answers."""
        key = (options.features, options.step_budget)
        found = self._supplies.get(key)
        if found is None:
            found = self._supplies[key] = Supply(*key, scoring=self.profile.packing)
        return found

    def find(self, key: Hashable) -> Board | None:
        """The board of a kind of pod, if it is kept."""
        return self._boards.get(key)

    def forget(self, key: Hashable) -> None:
        """Drop a board whose answers did not come about."""
        self._boards.pop(key, None)
        self._answers -= self._sizes.pop(key, 0)

    def keep(self, key: Hashable, board: Board) -> None:
        """Keep a board as the last one used; those that were not used for longest go if there are too many."""
        self._answers += board.size - self._sizes.get(key, 0)
        self._sizes[key] = board.size
        self._boards[key] = board
        self._boards.move_to_end(key)
        while self._answers > self._most and len(self._boards) > 1:
            oldest, _ = self._boards.popitem(last=False)
            self._answers -= self._sizes.pop(oldest)
