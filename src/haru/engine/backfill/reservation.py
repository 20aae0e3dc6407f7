"""The places that are kept for the head of the queue until the work in its way has ended.

Nobody is evicted for a reservation. Others may go first where they fit beside the head and beside what runs now, or
where they have ended before the head can start: that is backfill.
Source: EASY backfilling of batch schedulers, carried over to nodes and devices; our own (docs/adr/0007).
"""

from __future__ import annotations

from dataclasses import dataclass

from haru.engine.state.decision import GroupKey, Obj, PodKey
from haru.engine.state.nominations import Nomination

CONDITION = "haru.dev/Reserved"
"""On the PodGroup or the pod that places are kept for."""


def is_reserved(obj: Obj) -> bool:
    """Whether the pod or group says that places are kept for it."""
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
        """Whether a place is kept for this pod."""
        return any(place.pod == pod for place in self.places)
