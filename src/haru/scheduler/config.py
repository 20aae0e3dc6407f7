"""From feature gates to a scheduler's configuration."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from haru.engine.devices import Features
from haru.engine.groups import Options
from haru.engine.profile import DEFAULT_PROFILE, Profile
from haru.kube.gates import FeatureGates
from haru.scheduler.loop import SchedulerConfig


def scheduler_config(
    gates: FeatureGates,
    scheduler_names: Iterable[str],
    *,
    profile: Profile = DEFAULT_PROFILE,
    seed: int = 0,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    monotonic: Callable[[], float] = time.monotonic,
) -> SchedulerConfig:
    """A scheduler for these names, all under one profile. The n-th decision breaks ties with `seed` + n."""
    features = Features.from_gates(gates.all())

    def options(number: int) -> Options:
        return Options(
            seed=seed + number,
            features=features,
            new_share_id=lambda: str(uuid.uuid4()),
            groups=gates.enabled("GenericWorkload"),
            gang_scheduling=gates.enabled("GangScheduling"),
            topology=gates.enabled("TopologyAwareWorkloadScheduling"),
            preempt_for_pods=True,
            preempt_for_groups=gates.enabled("WorkloadAwarePreemption"),
            workload_claims=gates.enabled("DRAWorkloadResourceClaims"),
            extended_resources=gates.enabled("DRAExtendedResource"),
            node_allocatable=gates.enabled("DRANodeAllocatableResources"),
            profile=profile,
        )

    return SchedulerConfig(
        scheduler_names=frozenset(scheduler_names),
        options=options,
        clock=clock,
        groups=gates.enabled("GenericWorkload"),
        gang_scheduling=gates.enabled("GangScheduling"),
        workload_claims=gates.enabled("DRAWorkloadResourceClaims"),
        claim_timestamps=gates.enabled("DRADeviceBindingConditions"),
        report_holds=gates.enabled("SchedulerPreEnqueuePodStatus"),
        monotonic=monotonic,
    )
