"""Who wrote which allocation, and at which revision it was first shown.

An allocation is this scheduler's own if its write was announced (`announce`) before it was shown, or if it was there at
the start and its consumers are pods that this scheduler serves. All others are foreign. Each event costs the devices of
its claim.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from haru.engine.dra import DeviceId, allocated_devices
from haru.engine.state import namespaced_name
from haru.kube.meta import Obj, allocation_of
from haru.scheduler.binding.claim_updates import same_allocation


@dataclass(frozen=True, slots=True)
class ShownAllocation:
    """One allocation. `revision` is 0 where a list showed it after a gap: it may be older than anything written since.

    `listed`: it was there at the start. `is_foreign`: others wrote it, and it has a device inside the partition.
    """

    uid: str
    allocation: Obj
    revision: int
    own: bool
    listed: bool = False
    is_foreign: bool = False

    def precedes(self, other: ShownAllocation) -> bool:
        """Tell whether it was first shown before another one."""
        if self.listed != other.listed:
            return self.listed
        return self.revision < other.revision


class AllocationLedger:
    """Record allocations as claims are shown. `foreign` is how many inside the partition others have written."""

    def __init__(self, is_served: Callable[[Obj], bool], is_inside: Callable[[DeviceId], bool]) -> None:
        """`is_served` tells of a claim at the start whether its consumers are served by this scheduler.

        `is_inside` tells whether a device is in the partition.
        """
        self._is_served = is_served
        self._is_inside = is_inside
        self._announced: dict[str, tuple[str, Obj]] = {}
        self._shown: dict[str, ShownAllocation] = {}
        self.foreign = 0

    def get(self, path: str) -> ShownAllocation | None:
        """Return the allocation of a claim, if it was shown."""
        return self._shown.get(path)

    def announce(self, path: str, uid: str, allocation: Obj) -> None:
        """Hear that this scheduler is about to write an allocation."""
        self._announced[path] = uid, allocation

    def start(self, claims: list[Obj]) -> None:
        """Take in the claims that are there at the start."""
        for claim in claims:
            if namespaced_name(claim) not in self._shown:
                self._take(claim, self._is_served(claim), _revision(claim), listed=True)

    def shown(self, claim: Obj, *, listed: bool) -> None:
        """Hear of a claim as it is now; `listed`: a list that follows a gap in the watch showed it."""
        path, allocation = namespaced_name(claim), allocation_of(claim)
        known = self._shown.get(path)
        if allocation is None:
            self._drop(path)
            return
        uid = claim["metadata"].get("uid", "")
        if known is not None and known.uid == uid and same_allocation(known.allocation, allocation):
            return
        announced = self._announced.get(path)
        own = announced is not None and announced[0] == uid and same_allocation(announced[1], allocation)
        if own:
            self._announced[path] = uid, allocation  # the informer has it as well: what was announced may go
        self._take(claim, own, 0 if listed and not own else _revision(claim), listed=False)

    def gone(self, claim: Obj) -> None:
        """Hear that a claim is deleted."""
        path = namespaced_name(claim)
        self._drop(path)
        announced = self._announced.get(path)
        if announced is not None and announced[0] == claim["metadata"].get("uid", ""):
            del self._announced[path]

    def _drop(self, path: str) -> None:
        before = self._shown.pop(path, None)
        if before is not None:
            self.foreign -= before.is_foreign

    def _take(self, claim: Obj, own: bool, revision: int, *, listed: bool) -> None:
        path, allocation = namespaced_name(claim), allocation_of(claim)
        self._drop(path)
        if allocation is None:
            return
        is_foreign = not own and any(map(self._is_inside, allocated_devices(allocation)))
        uid = claim["metadata"].get("uid", "")
        self._shown[path] = ShownAllocation(uid, allocation, revision, own, listed, is_foreign)
        self.foreign += is_foreign


def _revision(claim: Obj) -> int:
    text = str(claim["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdigit() else 0
