"""Deallocate claims that a rejected unit cannot use, that a group left behind, or that unfinished writes left.

Until the outcome is known, no decision uses such a claim, and its devices count as taken.
Source: PostFilter of kube-scheduler's DynamicResources plugin; docs/adr/0002.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from typing import Any, Protocol

from haru.engine import Decision, Snapshot
from haru.engine.preemption import is_half_placed
from haru.engine.state import PodInfo, PodKey
from haru.kube.meta import Obj
from haru.scheduler.binding.claim_updates import is_protected_for_nothing
from haru.scheduler.binding.extended_claim_writes import surplus_claims
from haru.scheduler.binding.idle_claims import idle_claims, without_allocations
from haru.scheduler.binding.unreserver import Unreserver
from haru.scheduler.queue.queue_keys import group_object
from haru.scheduler.queue.scheduling_queue import QueuedUnit
from haru.scheduler.shared import SchedulerState
from haru.scheduler.status.status_writer import path_of


def orphan_cleanup(
    snapshot: Snapshot, unreserver: Unreserver, schedulers: Collection[str], is_busy: Callable[[PodKey], bool]
) -> Iterator[Coroutine[Any, Any, None]]:
    """The work to be done: finalizers that protect nothing are taken off, claims that no attempt will use removed.

    Pods of other `schedulers` than these are theirs, and a decision is being carried out for those that are busy.
    """
    surplus = surplus_claims(snapshot, schedulers, is_busy)
    removed = {id(claim) for claim in surplus}
    for claim in surplus:
        yield unreserver.deallocate(claim)
    for claim in snapshot.claims.values():
        if is_protected_for_nothing(claim) and id(claim) not in removed:
            yield unreserver.unprotect(claim)


class DeallocationHost(Protocol):
    """The scheduler as deallocation needs it."""

    def decide(self, snapshot: Snapshot, unit: QueuedUnit, pods: Sequence[Obj]) -> Decision:
        """Decide a unit on a hypothetical snapshot."""

    def devices_freed(self) -> None:
        """Hear that devices are free."""


class Deallocator:
    """Free allocated claims that no pod can use."""

    def __init__(self, state: SchedulerState, unreserver: Unreserver, host: DeallocationHost) -> None:
        self._cluster = state.cluster
        self._unreserver = unreserver
        self._tasks = state.tasks
        self._host = host
        self._workload_claims = state.config.workload_claims
        self._running = 0

    @property
    def busy(self) -> bool:
        """Tell whether claims are being deallocated now."""
        return self._running > 0

    def rejected(self, unit: QueuedUnit, rejected: Sequence[Obj], placed: Sequence[Obj]) -> None:
        """Free what rejected members hold without being able to use it."""
        snapshot = self._cluster.snapshot()
        group = group_object(snapshot, unit)
        idle = idle_claims(snapshot, rejected, placed, group, workload_claims=self._workload_claims)
        if not idle:
            return
        # Where a gang runs in part its missing members keep what they have, unless another place completes it.
        half = is_half_placed(snapshot, PodInfo.of(rejected[0]))
        if half and self._host.decide(without_allocations(snapshot, idle), unit, rejected).status != "scheduled":
            return
        for claim in idle.values():
            self.deallocate(claim, _users(claim, rejected))

    def deallocate(self, claim: Obj, pods: Sequence[Obj] = ()) -> None:
        """Free an allocated claim that nobody uses; `pods` are those that wait with it."""
        busy = dict(claim)
        self._cluster.assume_claim(busy)
        self._running += 1
        self._tasks.spawn(self._deallocate(claim, busy, pods))

    async def _deallocate(self, claim: Obj, busy: Obj, pods: Sequence[Obj]) -> None:
        try:
            await self._unreserver.deallocate(claim, pods)
        finally:
            self._running -= 1
        self._cluster.forget_claim(path_of(claim), busy)
        self._host.devices_freed()


def _users(claim: Obj, pods: Sequence[Obj]) -> list[Obj]:
    """Return the pods that a claim is reserved for; all of them if it is reserved for their group."""
    entries = (claim.get("status") or {}).get("reservedFor") or ()
    named = {entry.get("uid") for entry in entries}
    shared = any(entry.get("resource") != "pods" for entry in entries)
    return [pod for pod in pods if shared or pod["metadata"].get("uid") in named]
