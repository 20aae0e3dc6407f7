"""What a decision depends on besides the snapshot: with the same options and snapshot it is the same decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from haru.engine.dra.allocator.allocation import DEFAULT_BUDGET
from haru.engine.dra.model.model import Features
from haru.engine.framework.metrics_recorder import MetricsRecorder
from haru.engine.framework.profile import DEFAULT_PROFILE, Profile


def _no_share_id() -> str:
    raise ValueError("a device that several claims may share was chosen, but Options.new_share_id is not set")


@dataclass(frozen=True, slots=True)
class SchedulerGates:
    """What the scheduler's feature gates switch on, beside the `Features` of the allocator."""

    groups: bool = True
    """GenericWorkload."""
    gang_scheduling: bool = True
    workload_claims: bool = True
    """DRAWorkloadResourceClaims."""
    topology: bool = True
    """TopologyAwareWorkloadScheduling."""
    extended_resources: bool = True
    """DRAExtendedResource."""
    node_allocatable: bool = False
    """DRANodeAllocatableResources."""
    declared_features: bool = True
    """NodeDeclaredFeatures."""

    @classmethod
    def from_gates(cls, enabled: Mapping[str, bool]) -> SchedulerGates:
        """Read the gates by their names in Kubernetes."""
        return cls(
            groups=enabled["GenericWorkload"],
            gang_scheduling=enabled["GangScheduling"],
            workload_claims=enabled["DRAWorkloadResourceClaims"],
            topology=enabled["TopologyAwareWorkloadScheduling"],
            extended_resources=enabled["DRAExtendedResource"],
            node_allocatable=enabled["DRANodeAllocatableResources"],
            declared_features=enabled["NodeDeclaredFeatures"],
        )


@dataclass(frozen=True, slots=True)
class SearchBudgets:
    """Bound each search. Beyond its budget the answer is "gave up", an error, never "does not fit"."""

    step_budget: int = DEFAULT_BUDGET
    """Steps of the device search of one node."""
    placement_budget: int = 20_000
    """Node checks of the search for a group's places."""
    extras_budget: int = 500
    """Node checks for members beyond the quorum."""
    preemption_budget: int = 2_000
    """Feasibility checks of one preemption."""


@dataclass(frozen=True, slots=True)
class PreemptionOptions:
    """For whom pods may be evicted, and who is protected. Times are in seconds; 0 protects nobody."""

    preempt_for_pods: bool = False
    preempt_for_groups: bool = False
    """WorkloadAwarePreemption."""
    minimum_run_time: float = 0.0
    """Pods that started later than that are not evicted."""
    preemption_delay: float = 0.0
    """How long a preemptor waits, since its pods were created, before it evicts a pod."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to decide.

    `seed` breaks ties. `now` is the time, in seconds since the epoch: run-time limits and the times of `preemption` are
    measured against it. `profile` has the filters and scores. `new_share_id` makes the identifier of a device share; it
    is called only for devices that several claims may share. `recorder` collects what the decision costs.
    """

    seed: int = 0
    now: float = 0.0
    profile: Profile = DEFAULT_PROFILE
    features: Features = field(default_factory=Features)
    gates: SchedulerGates = field(default_factory=SchedulerGates)
    budgets: SearchBudgets = field(default_factory=SearchBudgets)
    preemption: PreemptionOptions = field(default_factory=PreemptionOptions)
    new_share_id: Callable[[], str] = _no_share_id
    recorder: MetricsRecorder | None = field(default=None, compare=False, repr=False)

    def with_share_ids(self, new_share_id: Callable[[], str]) -> Options:
        """Return the same options with other identifiers of shares."""
        return Options(
            self.seed,
            self.now,
            self.profile,
            self.features,
            self.gates,
            self.budgets,
            self.preemption,
            new_share_id,
            self.recorder,
        )
