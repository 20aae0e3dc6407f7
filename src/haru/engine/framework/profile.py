"""Declare profiles: the plugins, weights and arguments for the pods of one schedulerName.

Defaults are those of kube-scheduler 1.36's default profile. A plugin that a profile leaves out neither filters nor
scores.
Source: KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1), the scheduling framework's default plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from haru.engine.equivalence.decision_cache import cached_property
from haru.engine.framework.default_plugins import FILTERS, PLACEMENT_WEIGHTS, WEIGHTS
from haru.engine.packing_value.value import CARD, ExpectedRequest, PackingValue
from haru.kube.meta import Obj

SYSTEM_SPREAD: tuple[Obj, ...] = (
    {"topologyKey": "kubernetes.io/hostname", "maxSkew": 3, "whenUnsatisfiable": "ScheduleAnyway"},
    {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 5, "whenUnsatisfiable": "ScheduleAnyway"},
)
Strategy = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]


@dataclass(frozen=True, slots=True)
class FitStrategy:
    """How NodeResourcesFit scores: `resources` by weight; `shape` has points (utilization 0..100, score 0..10)."""

    type: Strategy = "LeastAllocated"
    resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))
    shape: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class IgnoredResources:
    """The extended resources that NodeResourcesFit ignores, by name or by group (the part before the slash)."""

    names: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DefaultSpread:
    """PodTopologySpread's constraints for pods that have none.

    `system` says that they are the built-in ones, which also accept nodes without a zone.
    """

    constraints: tuple[Obj, ...] = SYSTEM_SPREAD
    system: bool = True


@dataclass(frozen=True, slots=True)
class InterPodAffinityArgs:
    """How InterPodAffinity scores terms of existing pods: the weight of required ones, and whether preferred count."""

    hard_weight: int = 1
    ignore_preferred: bool = False


@dataclass(frozen=True, eq=False)
class Profile:
    """Hold one profile. A profile equals only itself, so that caches can be kept per profile.

    `filters` are the plugins that may refuse a node, `weights` those that score, by name. `added_affinity` is a
    NodeAffinity that every pod has besides its own. `preemption` says whether pods may be evicted for others
    (DefaultPreemption). `packing` scores devices: small ones and fragments come before
    whole cards (`haru.engine.dra.scoring`). `expected` is a mix of work, each shape with how often it comes:
    nodes are scored by what they can still take of it (`haru.engine.plugins.haruexpected`), with `expected_weight`.
    `bind_timeout`: how many seconds the volumes of a pod may take until they are bound (VolumeBinding);
    `device_timeout` the conditions of its devices (DynamicResources).
    """

    filters: frozenset[str] = FILTERS
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)
    placement_weights: Mapping[str, int] = field(default_factory=lambda: PLACEMENT_WEIGHTS)
    fit: FitStrategy = field(default_factory=FitStrategy)
    balanced: tuple[str, ...] = ("cpu", "memory")
    ignored: IgnoredResources = field(default_factory=IgnoredResources)
    added_affinity: Obj | None = None
    spread: DefaultSpread = field(default_factory=DefaultSpread)
    affinity: InterPodAffinityArgs = field(default_factory=InterPodAffinityArgs)
    preemption: bool = True
    packing: bool = False
    expected: tuple[tuple[ExpectedRequest, int], ...] = ()
    expected_weight: int = 10
    bind_timeout: float = 600
    device_timeout: float = 600

    def ignores(self, resource: str) -> bool:
        """Return whether NodeResourcesFit ignores a resource; only extended resources can be ignored."""
        if "/" not in resource:
            return False
        return resource in self.ignored.names or resource.split("/", 1)[0] in self.ignored.groups

    @cached_property
    def remaining(self) -> PackingValue | None:
        """Return the measure of what nodes can still take; None if no mix is expected."""
        return PackingValue(dict(self.expected)) if self.expected else None

    def weight(self, plugin: str) -> int:
        """Return the weight of a plugin's score; 0 if it does not score."""
        return self.weights.get(plugin, 0)


DEFAULT_PROFILE = Profile()
PACKING_PROFILE = Profile(
    weights={name: weight for name, weight in WEIGHTS.items() if name != "NodeResourcesBalancedAllocation"},
    fit=FitStrategy("MostAllocated"),
    spread=DefaultSpread((), system=False),
    packing=True,
)
"""`HaruPacking`: what is in use is filled up first; services are not spread unless they ask for it."""

USUAL_MIX: tuple[tuple[ExpectedRequest, int], ...] = (
    (ExpectedRequest(4_000, 1, CARD), 20),
    (ExpectedRequest(8_000, 1, CARD), 20),
    (ExpectedRequest(12_000, 1, CARD), 30),
    (ExpectedRequest(16_000, 1, CARD), 10),
    (ExpectedRequest(32_000, 4, CARD), 2),
    (ExpectedRequest(64_000, 8, CARD), 2),
    (ExpectedRequest(4_000, 1, 500), 20),
    (ExpectedRequest(4_000, 1, 250), 10),
)
"""What work is expected to ask for, where nobody says better: cpu for each card differs, some ask for parts or many."""

EXPECTED_PROFILE = replace(PACKING_PROFILE, expected=USUAL_MIX)
"""`HaruExpected`: as HaruPacking, and nodes by what they can still take of the usual mix afterwards."""

PROFILES: Mapping[str, Profile] = MappingProxyType(
    {"Default": DEFAULT_PROFILE, "HaruPacking": PACKING_PROFILE, "HaruExpected": EXPECTED_PROFILE}
)
"""The profiles that have a name of their own."""
