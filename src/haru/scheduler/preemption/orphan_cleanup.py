"""What unfinished work left in the API, of this scheduler or of one before it, and how each piece of it ends.

Source: docs/adr/0002; KEP-5004 (the claims behind extended resources).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import Any

from haru.engine import Snapshot
from haru.engine.state import PodKey
from haru.scheduler.binding.binder import Binder
from haru.scheduler.binding.claim_updates import is_protected_for_nothing
from haru.scheduler.binding.extended_claim_writes import surplus_claims


def orphan_cleanup(
    snapshot: Snapshot, binder: Binder, schedulers: Collection[str], is_busy: Callable[[PodKey], bool]
) -> Iterator[Coroutine[Any, Any, None]]:
    """The work to be done: finalizers that protect nothing are taken off, claims that no attempt will use removed.

    Pods of other `schedulers` than these are theirs, and a decision is being carried out for those that are busy.
    """
    surplus = surplus_claims(snapshot, schedulers, is_busy)
    removed = {id(claim) for claim in surplus}
    for claim in surplus:
        yield binder.deallocate(claim)
    for path, claim in snapshot.claims.items():
        if is_protected_for_nothing(claim) and path not in snapshot.in_flight and id(claim) not in removed:
            yield binder.unprotect(claim)
