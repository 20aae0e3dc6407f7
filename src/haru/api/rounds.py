"""What one round of decisions comes to: everything that waits, decided once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from haru.api.html import round_html
from haru.engine import Options, Reason, RoundResult, SchedulerCache, run_round
from haru.kube.meta import Obj

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
"""Codes of decisions for types of reasons; every other type is a code itself."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Why a pod waits: `reason` is a code and the scheduler's message, `reasons` are typed, the first one decides."""

    reason: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class SchedulingRound:
    """The decisions of a round. Pods, claims and groups are named by path (`namespace/name`).

    `bindings` and `nominations` are pod to node; `evictions` are pods that have to go for others; `allocations` what
    claims would have as `status.allocation`; `pending` the pods that wait; `groups` the states of groups at the end.
    """

    bindings: Mapping[str, str]
    nominations: Mapping[str, str]
    evictions: tuple[str, ...]
    allocations: Mapping[str, Obj]
    pending: Mapping[str, Pending]
    groups: Mapping[str, str]

    @property
    def complete(self) -> bool:
        """Whether every pod has a place, also one that evictions make room for."""
        return not self.pending

    def as_dict(self) -> Obj:
        """The SchedulingRound object of haru.dev/v1alpha1, as `haru schedule -o json` prints it."""
        pending = {
            path: {"reason": waits.reason, "reasons": [reason.to_json() for reason in waits.reasons]}
            for path, waits in self.pending.items()
        }
        return {
            "apiVersion": "haru.dev/v1alpha1",
            "kind": "SchedulingRound",
            "bindings": dict(self.bindings),
            "nominations": dict(self.nominations),
            "evictions": list(self.evictions),
            "allocations": dict(self.allocations),
            "pending": pending,
            "groups": dict(self.groups),
        }

    def __str__(self) -> str:
        tables = (_table(title, rows) for title, rows in self.tables())
        return "\n".join(line for table in tables for line in table) or "no pod waits"

    def _repr_html_(self) -> str:
        return round_html(len(self.bindings), len(self.nominations), len(self.pending), self.tables())

    def tables(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """A table for each thing that can become of a pod, and the groups: title and rows."""
        return [
            ("bound", sorted(self.bindings.items())),
            ("nominated, once the evicted are gone", sorted(self.nominations.items())),
            ("evicted", [(path,) for path in self.evictions]),
            ("devices", [(path, _devices(allocation)) for path, allocation in self.allocations.items()]),
            ("pending", [(path, waits.reason) for path, waits in self.pending.items()]),
            ("groups", sorted(self.groups.items())),
        ]


def decide_round(cluster: SchedulerCache, options: Options, scheduler_name: str) -> SchedulingRound:
    """Decide all pods of one scheduler that wait in a cluster, and assume in it what was decided."""
    result = run_round(cluster, options, scheduler_name)
    return SchedulingRound(
        result.bindings,
        result.nominations,
        tuple(eviction.pod.path for eviction in result.evictions),
        {path: given.allocation for path, given in sorted(result.allocations.items())},
        {path: Pending(reason_of(result, path), result.pending[path].reasons) for path in sorted(result.pending)},
        result.groups,
    )


def reason_of(result: RoundResult, path: str) -> str:
    """Why a pod waits: a code, and the message."""
    waiting = result.pending[path]
    kind = waiting.reasons[0].type if waiting.reasons else "Quorum"
    return f"{CODES.get(kind, kind)}: {waiting.message}"


def _table(title: str, rows: Sequence[Sequence[str]]) -> Iterable[str]:
    if not rows:
        return []
    width = max(len(row[0]) for row in rows)
    return [f"{title}:", *(f"  {'  '.join([row[0].ljust(width), *row[1:]]).rstrip()}" for row in rows)]


def _devices(allocation: Obj) -> str:
    results = allocation["devices"]["results"]
    return ", ".join(f"{r['request']}: {r['driver']}/{r['pool']}/{r['device']}" for r in results)
