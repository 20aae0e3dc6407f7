"""How nodes are filtered and scored for the pods of one schedulerName: plugins, weights and their arguments.

Names, defaults and weights are those of kube-scheduler 1.36's default profile. What a profile leaves out is not asked.
Source: KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1), the scheduling framework's default plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from haru.engine.cached import cached_property
from haru.engine.decision import Obj
from haru.engine.potential import CARD, Ask, Potential

FILTERS = frozenset(
    {
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodeDeclaredFeatures",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
    }
)
WEIGHTS: Mapping[str, int] = MappingProxyType(
    {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesFit": 1,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
)
PLACEMENT_WEIGHTS: Mapping[str, int] = MappingProxyType({"NodeResourcesFit": 1, "PodGroupPodsCount": 1})
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


@dataclass(frozen=True, eq=False)
class Profile:
    """One profile. Equal only to itself, so that what was learnt under it can be kept under it.

    `filters` are the plugins that may refuse a node, `weights` those that score, by name. `default_spread` holds for
    pods without constraints of their own; `system_spread` says that it is the built-in one, which does not mind nodes
    without a zone. `added_affinity` is a NodeAffinity that every pod has besides its own. `preemption` is whether pods
    may make room by evicting others (DefaultPreemption). `packing` scores devices: small ones and fragments come before
    whole cards (`haru.engine.devices.preference`). `expected` is a mix of work, each shape with how often it comes:
    nodes are scored by what they can still take of it (`haru.engine.nodes.remaining`), with `expected_weight`.
    """

    filters: frozenset[str] = FILTERS
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)
    placement_weights: Mapping[str, int] = field(default_factory=lambda: PLACEMENT_WEIGHTS)
    fit: FitStrategy = field(default_factory=FitStrategy)
    balanced: tuple[str, ...] = ("cpu", "memory")
    ignored_resources: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()
    added_affinity: Obj | None = None
    default_spread: tuple[Obj, ...] = SYSTEM_SPREAD
    system_spread: bool = True
    hard_affinity_weight: int = 1
    ignore_preferred_of_existing: bool = False
    preemption: bool = True
    packing: bool = False
    expected: tuple[tuple[Ask, int], ...] = ()
    expected_weight: int = 10

    def ignores(self, resource: str) -> bool:
        """Whether a resource is not to be filtered by (only extended resources can be ignored)."""
        if "/" not in resource:
            return False
        return resource in self.ignored_resources or resource.split("/", 1)[0] in self.ignored_groups

    @cached_property
    def remaining(self) -> Potential | None:
        """The measure of what nodes can still take; None if no mix is expected."""
        return Potential(dict(self.expected)) if self.expected else None

    def weight(self, plugin: str) -> int:
        """What a plugin's score counts; 0 if it does not score."""
        return self.weights.get(plugin, 0)


DEFAULT_PROFILE = Profile()
PACKING_PROFILE = Profile(
    weights={name: weight for name, weight in WEIGHTS.items() if name != "NodeResourcesBalancedAllocation"},
    fit=FitStrategy("MostAllocated"),
    default_spread=(),
    system_spread=False,
    packing=True,
)
"""`HaruPacking`: what is in use is filled up first; services are not spread unless they ask for it."""

USUAL_MIX: tuple[tuple[Ask, int], ...] = (
    (Ask(4_000, 1, CARD), 20),
    (Ask(8_000, 1, CARD), 20),
    (Ask(12_000, 1, CARD), 30),
    (Ask(16_000, 1, CARD), 10),
    (Ask(32_000, 4, CARD), 2),
    (Ask(64_000, 8, CARD), 2),
    (Ask(4_000, 1, 500), 20),
    (Ask(4_000, 1, 250), 10),
)
"""What work is expected to ask for, where nobody says better: cpu for each card differs, some ask for parts or many."""

EXPECTED_PROFILE = replace(PACKING_PROFILE, expected=USUAL_MIX)
"""`HaruExpected`: as HaruPacking, and nodes by what they can still take of the usual mix afterwards."""

PROFILES: Mapping[str, Profile] = MappingProxyType(
    {"Default": DEFAULT_PROFILE, "HaruPacking": PACKING_PROFILE, "HaruExpected": EXPECTED_PROFILE}
)
"""The profiles that have a name of their own."""
