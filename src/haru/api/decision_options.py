"""How the engine decides for whoever asks: reproducibly, under feature gates."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from haru.engine import Features, Options


def options_of(enabled: Mapping[str, bool]) -> Options:
    """How a round decides under feature gates: reproducibly, shares being numbered."""
    numbers = itertools.count(1)
    return Options(
        features=Features.from_gates(enabled),
        new_share_id=lambda: f"00000000-0000-0000-0000-{next(numbers):012x}",
        groups=enabled["GenericWorkload"],
        gang_scheduling=enabled["GangScheduling"],
        workload_claims=enabled["DRAWorkloadResourceClaims"],
        topology=enabled["TopologyAwareWorkloadScheduling"],
        extended_resources=enabled["DRAExtendedResource"],
        node_allocatable=enabled["DRANodeAllocatableResources"],
        declared_features=enabled["NodeDeclaredFeatures"],
        preempt_for_pods=True,
        preempt_for_groups=enabled["WorkloadAwarePreemption"],
    )
