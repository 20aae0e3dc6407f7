"""From feature gates and a configuration file to what a scheduler runs with."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal

from haru.clock import utc_now
from haru.engine import Features, Options, Profile
from haru.engine.framework import DEFAULT_PROFILE, PreemptionOptions, SchedulerGates
from haru.engine.state import parse_limit
from haru.gangs import ADAPTERS
from haru.kube.gates import FeatureGates
from haru.scheduler.configuration.file import Configuration
from haru.scheduler.settings import COMPATIBLE, Fairness, PublishedNames, SchedulerConfig


def scheduler_config(
    gates: FeatureGates,
    scheduler_names: Iterable[str],
    *,
    profile: Profile = DEFAULT_PROFILE,
    configuration: Configuration | None = None,
    seed: int = 0,
    fairness: Fairness = COMPATIBLE,
    hold_group_members: bool = False,
    confirm_allocations: Literal["auto", "always", "never"] = "auto",
    gang_adapters: frozenset[str] = frozenset(ADAPTERS),
    publish_explanations: PublishedNames = "off",
    explain_inline: bool = False,
    clock: Callable[[], datetime] = utc_now,
    monotonic: Callable[[], float] = time.monotonic,
) -> SchedulerConfig:
    """A scheduler for these names, all under one profile; or for the profiles of a configuration file.

    The n-th decision breaks ties with `seed` + n. `fairness` is what 1.36 has not: nothing of it unless asked for.
    `hold_group_members`: pods that name a PodGroup wait while a gate of gangs is off.
    `gang_adapters`: the projects whose labels and objects name gangs, too (`haru.gangs`).
    `publish_explanations`: `counts` or `names` has conditions and events say why work waits; `explain_inline`: without
    a thread, for a loop whose time stands still while it computes.
    """
    given = configuration or Configuration(dict.fromkeys(scheduler_names, profile))
    features, switches = Features.from_gates(gates.all()), SchedulerGates.from_gates(gates.all())

    def options(number: int, scheduler_name: str = "") -> Options:
        chosen = given.profiles.get(scheduler_name) or next(iter(given.profiles.values()))
        return Options(
            seed=seed + number,
            features=features,
            new_share_id=lambda: str(uuid.uuid4()),
            gates=switches,
            preemption=PreemptionOptions(
                preempt_for_pods=chosen.preemption,
                preempt_for_groups=chosen.preemption and gates.enabled("WorkloadAwarePreemption"),
                minimum_run_time=fairness.minimum_run_time,
                preemption_delay=fairness.preemption_delay,
            ),
            profile=chosen,
            now=clock().timestamp(),
        )

    return SchedulerConfig(
        scheduler_names=frozenset(given.profiles),
        options=options,
        clock=clock,
        groups=gates.enabled("GenericWorkload"),
        gang_scheduling=gates.enabled("GangScheduling"),
        workload_claims=gates.enabled("DRAWorkloadResourceClaims"),
        claim_timestamps=gates.enabled("DRADeviceBindingConditions"),
        report_holds=gates.enabled("SchedulerPreEnqueuePodStatus"),
        monotonic=monotonic,
        initial_backoff=given.initial_backoff,
        max_backoff=given.max_backoff,
        backfill=fairness.backfill,
        hold_group_members=hold_group_members,
        partition=given.partition,
        confirm_allocations=confirm_allocations,
        gang_adapters=gang_adapters,
        publish_explanations=publish_explanations,
        explain_inline=explain_inline,
        pop_from_backoff=gates.enabled("SchedulerPopFromBackoffQ"),
        spreads_by_force=any(
            constraint["whenUnsatisfiable"] == "DoNotSchedule"
            for chosen in given.profiles.values()
            for constraint in chosen.spread.constraints
        ),
    )


def parse_fairness(backfill: bool, minimum_run_time: str | None, preemption_delay: str | None) -> Fairness:
    """What flags ask for, beyond 1.36. Raises ValueError, which names the flag."""
    given = {"--minimum-run-time": minimum_run_time, "--preemption-delay": preemption_delay}
    return Fairness(backfill, *(_duration(flag, text) for flag, text in given.items()))


def _duration(flag: str, text: str | None) -> float:
    try:
        return 0.0 if text in (None, "0", "0s") else parse_limit(text or "")
    except ValueError as error:
        raise ValueError(f"{flag}: {error}") from None
