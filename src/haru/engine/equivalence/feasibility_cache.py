"""What decisions leave for the decisions after them: answers of nodes that hold until the nodes change.

It changes no answer: what may be out of date is asked again. Only boards of pods without volumes and allocated claims
are kept, because their answers depend on the nodes, the pods on them and the devices alone.
Source: our own; kube-scheduler's opportunistic batching (KEP-5598) has the same purpose.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from haru.engine.dra.model.model import Features
from haru.engine.equivalence.device_feasibility_cache import DeviceFeasibilityCache
from haru.engine.equivalence.node_feasibility import NodeFeasibility
from haru.engine.equivalence.prefilter_state import SharedPreFilterState
from haru.engine.framework.profile import Profile

_MOST_ANSWERS = 1_000_000
"""Of all boards together; one answer of one node takes some 130 bytes."""


class FeasibilityCache:
    """The boards of one profile, the most recently used ones. `asked` counts the questions to nodes so far."""

    def __init__(self, profile: Profile, most_answers: int = _MOST_ANSWERS) -> None:
        self.profile = profile
        self.shared = SharedPreFilterState(profile)
        self.asked = 0
        self._most = most_answers
        self._boards: OrderedDict[Hashable, NodeFeasibility] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}
        self._answers = 0
        self._supplies: dict[tuple[Features, int], DeviceFeasibilityCache] = {}

    def supply(self, features: Features, step_budget: int) -> DeviceFeasibilityCache:
        """The devices of the nodes and their answers."""
        key = (features, step_budget)
        found = self._supplies.get(key)
        if found is None:
            found = self._supplies[key] = DeviceFeasibilityCache(*key, scoring=self.profile.packing)
        return found

    def find(self, key: Hashable) -> NodeFeasibility | None:
        """The board of a kind of pod, if it is kept."""
        return self._boards.get(key)

    def forget(self, key: Hashable) -> None:
        """Drop a board whose answers did not come about."""
        self._boards.pop(key, None)
        self._answers -= self._sizes.pop(key, 0)

    def keep(self, key: Hashable, board: NodeFeasibility) -> None:
        """Keep a board as the last one used; those that were not used for longest go if there are too many."""
        self._answers += board.size - self._sizes.get(key, 0)
        self._sizes[key] = board.size
        self._boards[key] = board
        self._boards.move_to_end(key)
        while self._answers > self._most and len(self._boards) > 1:
            oldest, _ = self._boards.popitem(last=False)
            self._answers -= self._sizes.pop(oldest)
