"""What a scheduler runs with: whom it serves, how it decides, which gates are on, and its clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Protocol

from haru.engine import Options
from haru.engine.state import WHOLE, Partition
from haru.scheduler.queue.scheduling_queue import INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS

PublishedNames = Literal["off", "counts", "names"]
"""Nothing is published, names of the object's own namespace only and counts of others, or names of all."""


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
    that name a PodGroup wait while a gate of gangs is off. `partition`: where work is placed. `confirm_allocations`:
    whether an allocation is confirmed before pods are bound; `auto`: while other schedulers allocate devices, too.
    `gang_adapters`: whose labels and objects name gangs, too. `publish_explanations`: whether conditions and events say
    why work waits, and of whose work they show names. `explain_inline`: on the event loop instead of a thread.
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
    partition: Partition = WHOLE
    confirm_allocations: Literal["auto", "always", "never"] = "auto"
    gang_adapters: frozenset[str] = frozenset()
    publish_explanations: PublishedNames = "off"
    explain_inline: bool = False

    @property
    def gate_off(self) -> str:
        """The gate without which gangs are none, if it is off."""
        if not self.groups:
            return "GenericWorkload"
        return "" if self.gang_scheduling else "GangScheduling"

    @property
    def native_groups(self) -> bool:
        """Whether members of PodGroups of Kubernetes are seen as such: to be decided together, or to be held."""
        return self.groups or self.hold_group_members

    def with_foreign_groups(self) -> SchedulerConfig:
        """Return the settings for a queue that has groups of other projects whatever Kubernetes' gates say."""
        if self.groups or not self.gang_adapters:
            return self
        given = self.options

        def options(number: int, scheduler_name: str = "") -> Options:
            found = given(number, scheduler_name)
            return replace(found, gates=replace(found.gates, groups=True))

        return replace(self, groups=True, options=options)
