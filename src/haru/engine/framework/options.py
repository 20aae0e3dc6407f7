"""What a decision depends on besides the snapshot: with the same options and snapshot it is the same decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from haru.engine.dra.allocator.allocation import DEFAULT_BUDGET
from haru.engine.dra.model.model import Features
from haru.engine.framework.profile import DEFAULT_PROFILE, Profile

if TYPE_CHECKING:
    from haru.engine.equivalence.feasibility_cache import FeasibilityCache


def _no_share_id() -> str:
    raise ValueError("a device that several claims may share was chosen, but Options.new_share_id is not set")


@dataclass(frozen=True, slots=True)
class Options:
    """How to decide.

    `seed` breaks ties. `step_budget` bounds the device search of one node, `placement_budget` the questions to nodes
    that the search for a group's places may ask: beyond them the answer is "gave up", an error, never "does not fit".
    `extras_budget` is what a group that has its quorum may spend on places for more members, `preemption_budget` the
    number of times that preemption may ask whether all fits. `new_share_id` makes identifiers of shares, and is asked
    only for devices that several claims may share. The switches are the gates GenericWorkload, GangScheduling,
    DRAWorkloadResourceClaims, TopologyAwareWorkloadScheduling, DRAExtendedResource,
    DRANodeAllocatableResources and NodeDeclaredFeatures;
    `preempt_for_pods` and `preempt_for_groups` (WorkloadAwarePreemption) say for whom others may be evicted;
    `minimum_run_time` (seconds) protects what started later than that, and `preemption_delay` (seconds since the pods
    were created) is how long a preemptor waits before it evicts anybody. `now` is the time, in seconds since the epoch:
    these two and run-time limits are measured against it. `profile`
    has the filters and scores; `memory` keeps what earlier decisions under the same options have learnt: with it
    decisions are faster and no different.
    """

    seed: int = 0
    step_budget: int = DEFAULT_BUDGET
    placement_budget: int = 20_000
    extras_budget: int = 500
    preemption_budget: int = 2_000
    features: Features = field(default_factory=Features)
    new_share_id: Callable[[], str] = _no_share_id
    groups: bool = True
    gang_scheduling: bool = True
    workload_claims: bool = True
    topology: bool = True
    extended_resources: bool = True
    node_allocatable: bool = False
    declared_features: bool = True
    preempt_for_pods: bool = False
    preempt_for_groups: bool = False
    minimum_run_time: float = 0.0
    preemption_delay: float = 0.0
    now: float = 0.0
    profile: Profile = DEFAULT_PROFILE
    memory: FeasibilityCache | None = None
