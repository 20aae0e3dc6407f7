"""What a scheduler runs with: whom it serves, how it decides, which gates are on, and its clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from haru.engine.groups import Options
from haru.scheduler.queue import INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS


class OptionsOf(Protocol):
    """How to decide, by the number of the decision and the schedulerName of its pods."""

    def __call__(self, number: int, scheduler_name: str = "") -> Options:
        """The engine's options."""


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """What a scheduler serves and how it decides.

    `options` makes the engine's options for the n-th decision, under the profile of a schedulerName.
    `spreads_by_force`: some profile gives hard spread constraints to pods that have none.
    """

    scheduler_names: frozenset[str]
    options: OptionsOf
    clock: Callable[[], datetime]
    groups: bool = True
    gang_scheduling: bool = True
    workload_claims: bool = True
    claim_timestamps: bool = True
    report_holds: bool = True
    monotonic: Callable[[], float] = time.monotonic
    initial_backoff: float = INITIAL_BACKOFF_SECONDS
    max_backoff: float = MAX_BACKOFF_SECONDS
    spreads_by_force: bool = False
    pop_from_backoff: bool = True
