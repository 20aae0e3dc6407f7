"""Hold the difference that changes make, as values that know nothing of their texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from haru.engine import Reason
from haru.explain import PendingRow
from haru.explain.results import Explanation
from haru.whatif.departures import Cause
from haru.whatif.usage import Amount

Outcome = Literal["Restarts", "Waits", "Lost", "GoesWithNode", "Deleted"]


@dataclass(frozen=True, slots=True)
class Start:
    """A pod that gets a place because of the changes, and the devices it gets, as `POOL/DEVICE`."""

    path: str
    workload: str
    node: str
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Displacement:
    """A running pod that loses its place: where, why, after how many seconds, and what becomes of it.

    `Restarts`: made again, it has a place on `new_node`. `Waits`: made again, it has none, for `reasons`. `Lost`:
    nobody makes it again. `GoesWithNode`: it was there for its node only. `Deleted`: the changes delete it.
    `explanation` is that of the unit with which it waits.
    """

    path: str
    workload: str
    node: str
    cause: Cause
    outcome: Outcome
    after_seconds: int = 0
    new_node: str = ""
    reasons: tuple[Reason, ...] = ()
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """A pod that waits because of the changes: it would have started without them (or `new`: came with them)."""

    path: str
    workload: str
    new: bool
    reasons: tuple[Reason, ...]
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang that had as many members placed as it needs, and has fewer now."""

    path: str
    placed: int
    min_count: int


@dataclass(frozen=True, slots=True)
class ComparisonData:
    """What changes come to. `usage` has the amounts without the changes and with them.

    `anyway` counts what happens without the changes too; `still_waiting` the pods that wait in either case. `pending`
    explains all that waits with the changes.
    """

    changes: tuple[str, ...]
    starts: tuple[Start, ...]
    displaced: tuple[Displacement, ...]
    waits: tuple[Wait, ...]
    gangs: tuple[Gang, ...]
    usage: Mapping[str, tuple[Amount, Amount]]
    still_waiting: int
    anyway: tuple[int, int]
    """Pods that start, and pods that are displaced, with and without the changes."""
    errors: tuple[str, ...] = ()
    pending: tuple[PendingRow, ...] = ()
    settled: bool = True

    @property
    def harmless(self) -> bool:
        """Whether everybody who had a place, or came with the changes, has one in the end."""
        return not self.waits and not any(d.outcome in ("Waits", "Lost") for d in self.displaced)
