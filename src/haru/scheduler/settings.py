"""What a scheduler runs with: whom it serves, how it decides, which gates are on, and its clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from haru.engine import Options
from haru.scheduler.queue.scheduling_queue import INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS


class OptionsOf(Protocol):
    """How to decide, by the number of the decision and the schedulerName of its pods."""

    def __call__(self, number: int, scheduler_name: str = "") -> Options:
        """The engine's options."""


@dataclass(frozen=True, slots=True)
class Fairness:
    """Who has to wait for whom, beyond 1.36. Times are in seconds; 0 switches a protection off.

    `backfill`: places are kept for the head of the queue. `minimum_run_time`: what runs is evicted for nobody before it
    has run so long. `preemption_delay`: nobody is evicted for pods that were created a shorter time ago.
    """

    backfill: bool = False
    minimum_run_time: float = 0.0
    preemption_delay: float = 0.0


COMPATIBLE = Fairness()
"""As 1.36 behaves."""


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """What a scheduler serves and how it decides.

    `options` makes the engine's options for the n-th decision, under the profile of a schedulerName.
    `spreads_by_force`: some profile gives hard spread constraints to pods that have none. `backfill`: places are kept
    for the head of the queue, and others go first only where that does not delay it. `hold_group_members`: pods
    that name a PodGroup wait while a gate of gangs is off.
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
    backfill: bool = False
    hold_group_members: bool = False

    @property
    def gate_off(self) -> str:
        """The gate without which gangs are none, if it is off."""
        if not self.groups:
            return "GenericWorkload"
        return "" if self.gang_scheduling else "GangScheduling"
