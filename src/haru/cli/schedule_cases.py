"""Scheduling cases: a small cluster in, the decisions of one round out, in the form of the test vectors."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from haru.engine.cluster import Cluster
from haru.engine.devices import Features
from haru.engine.groups import Options
from haru.engine.round import RoundResult, run_round

Obj = dict[str, Any]

CODES = {
    "NodeNameMismatch": "NodeMismatch",
    "NodeAffinityMismatch": "NodeMismatch",
    "NodeTaints": "Taints",
    "PortsTaken": "Ports",
    "PodAffinity": "PodAffinity",
    "PodAntiAffinity": "PodAffinity",
    "ExistingPodAntiAffinity": "PodAffinity",
    "InsufficientResource": "InsufficientResources",
    "TooManyPods": "InsufficientResources",
    "ClaimNotOnNode": "Devices",
    "ClaimInFlight": "Devices",
    "ClaimReservedFull": "Devices",
    "BindingConditions": "Devices",
    "DevicesUnavailable": "Devices",
}
"""Codes of the test vectors for types of reasons; every other type is a code itself."""
_RESULT_FIELDS = ("request", "driver", "pool", "device")


def answer_case(case: Obj, gates: Mapping[str, bool]) -> Obj:
    """The outcome of one case under these gates, but for those that the case itself switches."""
    cluster = Cluster.of(case["objects"])
    enabled = {**gates, **(case.get("gates") or {})}
    return {"name": case["name"], **answer(run_round(cluster, options_of(enabled)))}


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


def answer(result: RoundResult) -> Obj:
    """The result of a round in the form of the test vectors."""
    return {
        "bindings": result.bindings,
        "allocations": {
            path: [{name: entry[name] for name in _RESULT_FIELDS} for entry in given.allocation["devices"]["results"]]
            for path, given in result.allocations.items()
            if given.new_claim is None
        },
        "nominations": result.nominations,
        "evictions": [eviction.pod.path for eviction in result.evictions],
        "pending": {path: {"reason": reason(result, path)} for path in result.pending},
        "groups": result.groups,
    }


def reason(result: RoundResult, path: str) -> str:
    """Why a pod waits: a code, and the message."""
    waiting = result.pending[path]
    kind = waiting.reasons[0].type if waiting.reasons else "Quorum"
    return f"{CODES.get(kind, kind)}: {waiting.message}"
