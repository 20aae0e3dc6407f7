"""Phases of the members of a PodGroup, counted for the quorum.

Only pods that still live count; a member that ran to its end leaves the group, as in 1.36.
Source: KEP-4671, kube-scheduler's pod group state.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from haru.engine.state.cow_map import TextSet
from haru.engine.state.pod_info import PodInfo

_NOBODY = TextSet()


# Not frozen, which would take thrice as long to make; never changed.
@dataclass(slots=True, unsafe_hash=True)
class PodGroupState:
    """Paths of the living pods that name a group, by how far they are."""

    unscheduled: TextSet = _NOBODY
    assumed: TextSet = _NOBODY
    assigned: TextSet = _NOBODY

    @property
    def count(self) -> int:
        """Return how many members have not ended."""
        return len(self.unscheduled) + len(self.assumed) + len(self.assigned)

    @property
    def scheduled_count(self) -> int:
        """Return how many members are bound or assumed."""
        return len(self.assumed) + len(self.assigned)

    @property
    def all(self) -> frozenset[str]:
        """Every living member; a set made anew, as large as the group."""
        return frozenset((*self.unscheduled, *self.assumed, *self.assigned))

    @property
    def scheduled(self) -> frozenset[str]:
        """Members that have a place: bound, or assumed to be; a set made anew."""
        return frozenset((*self.assumed, *self.assigned))

    def has_scheduled_beside(self, path: str) -> bool:
        """Return whether another member is bound or assumed."""
        return self.scheduled_count > (path in self.assumed or path in self.assigned)

    def with_pod(self, pod: PodInfo, *, assumed: bool) -> PodGroupState:
        """The state with a member as it is now: another state, even if only the member has changed."""
        path = pod.key.path
        one = (path,)
        if not pod.node:
            return PodGroupState(
                self.unscheduled.with_text(path), self.assumed.without(one), self.assigned.without(one)
            )
        unscheduled = self.unscheduled.without(one)
        if assumed:
            return PodGroupState(unscheduled, self.assumed.with_text(path), self.assigned.without(one))
        return PodGroupState(unscheduled, self.assumed.without(one), self.assigned.with_text(path))

    def without_pod(self, path: str) -> PodGroupState:
        """The state without a member."""
        return self.without((path,))

    def without(self, paths: Collection[str]) -> PodGroupState:
        """The state without some members."""
        unscheduled, assumed = self.unscheduled.without(paths), self.assumed.without(paths)
        return PodGroupState(unscheduled, assumed, self.assigned.without(paths))
