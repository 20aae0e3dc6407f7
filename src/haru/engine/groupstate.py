"""How far the members of a PodGroup are: the counters that quorum is decided by.

Only pods that still live count; a member that ran to its end leaves the group, as in 1.36.
Source: KEP-4671, kube-scheduler's pod group state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from haru.engine.pods import PodInfo


@dataclass(frozen=True, slots=True)
class GroupState:
    """Paths of the living pods that name a group, by how far they are."""

    unscheduled: frozenset[str] = frozenset()
    assumed: frozenset[str] = frozenset()
    assigned: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        """Every living member."""
        return self.unscheduled | self.assumed | self.assigned

    @property
    def scheduled(self) -> frozenset[str]:
        """Members that have a place: bound, or assumed to be."""
        return self.assumed | self.assigned

    def with_pod(self, pod: PodInfo, *, assumed: bool) -> GroupState:
        """The state with a member as it is now."""
        path = frozenset((pod.key.path,))
        rest = self.without_pod(pod.key.path)
        if not pod.node:
            return GroupState(rest.unscheduled | path, rest.assumed, rest.assigned)
        if assumed:
            return GroupState(rest.unscheduled, rest.assumed | path, rest.assigned)
        return GroupState(rest.unscheduled, rest.assumed, rest.assigned | path)

    def without_pod(self, path: str) -> GroupState:
        """The state without a member."""
        return self.without((path,))

    def without(self, paths: Iterable[str]) -> GroupState:
        """The state without some members."""
        gone = frozenset(paths)
        return GroupState(self.unscheduled - gone, self.assumed - gone, self.assigned - gone)
