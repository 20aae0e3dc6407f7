"""Hold the places reserved for the head of the queue until the pods in its way have ended.

No pod is evicted for a reservation. Other pods may start first where they fit beside the head and the running pods, or
where they end before the head can start: that is backfill.
Source: EASY backfilling of batch schedulers, carried over to nodes and devices; our own (docs/adr/0007).
"""

from __future__ import annotations

from dataclasses import dataclass

from haru.engine.state.decision import GroupKey, PodKey
from haru.engine.state.pending_reservations import Nomination
from haru.kube.meta import Obj

CONDITION = "haru.dev/Reserved"
"""The condition of the PodGroup or pod that places are reserved for."""


def is_reserved(obj: Obj) -> bool:
    """Tell whether the condition of a pod or group says that places are reserved for it."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == CONDITION and c.get("status") == "True" for c in conditions)


@dataclass(frozen=True, slots=True)
class BackfillReservation:
    """Places for the pods of a group or for a single pod (`group` is None), kept from all no more important.

    `waits_for` are the pods on nodes that have to end first. `until` is when the last of them will have ended (seconds
    since the epoch): the head starts then at the latest. None if some of them may run for any time.
    """

    group: GroupKey | None
    priority: int
    places: tuple[Nomination, ...]
    waits_for: frozenset[PodKey]
    until: float | None = None

    def concerns(self, pod: PodKey) -> bool:
        """Tell whether a place is reserved for this pod."""
        return any(place.pod == pod for place in self.places)
