"""Declare what the scheduling framework asks of plugins.

Source: kube-scheduler's framework (staging k8s.io/kube-scheduler/framework), as behaviour; the keys of scores are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable
from zlib import crc32

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.profile import DEFAULT_PROFILE, Profile
from haru.engine.framework.status import FilterFailure
from haru.engine.state.cache import Snapshot
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo

MAX_SCORE = 100


def rounded(value: float) -> int:
    """The nearest integer of a number that is not negative, halves up."""
    whole = math.trunc(value)
    return whole + 1 if value - whole >= 0.5 else whole


def normalised(raw: Sequence[int], *, reverse: bool = False) -> list[int]:
    """Scores brought to 0..100 relative to the largest; `reverse` makes the largest the worst."""
    top = max(raw, default=0)
    if top == 0:
        return [MAX_SCORE if reverse else 0] * len(raw)
    scaled = [value * MAX_SCORE // top for value in raw]
    return [MAX_SCORE - value for value in scaled] if reverse else scaled


def pick(count: int, seed: int, salt: str) -> int:
    """A number below `count`, evenly; the same seed and salt give the same number."""
    return crc32(f"{seed}/{salt}".encode()) % count


NodeFilter = Callable[[NodeInfo], Sequence[FilterFailure]]
"""Return why a node is refused for one pod; an empty sequence if it is not."""

PASS: tuple[FilterFailure, ...] = ()
RequestT = TypeVar("RequestT", contravariant=True)


@dataclass(frozen=True, slots=True)
class FilterRequest:
    """What PreFilter and Filter read of one pod and of the cluster.

    `backed`: extended resources that devices may serve instead of the node. `sole_use` refuses nodes while another pod
    uses a ReadWriteOncePod claim of this pod, which depends on all nodes; None if the pod has no such claim.
    """

    snapshot: Snapshot
    pod: PodInfo
    profile: Profile = DEFAULT_PROFILE
    backed: Collection[str] = ()
    declared_features: bool = True
    sole_use: NodeFilter | None = None


class PreFilterResult(NamedTuple):
    """Why no node can take the pod, and the filter for nodes that the pod's spec leaves out by name."""

    rejection: FilterFailure | None = None
    nodes: NodeFilter | None = None


@runtime_checkable
class Plugin(Protocol):
    """One plugin by its name in kube-scheduler; `events` may undo its rejections (EventsToRegister)."""

    @property
    def name(self) -> str:
        """The name in profiles, reasons and messages."""

    @property
    def events(self) -> frozenset[ClusterEvent]:
        """The changes after which a pod that the plugin rejected is tried again."""


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    """A plugin that looks at the pod once, before any node."""

    def pre_filter(self, request: FilterRequest) -> PreFilterResult:
        """Reject the pod, or leave out nodes by name."""


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    """A plugin that refuses nodes one by one."""

    @property
    def general(self) -> bool:
        """Whether its filters answer alike for all nodes of one lot (`Snapshot.node_classes`)."""

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filters for one pod, in order; None for a filter that refuses no node."""


@runtime_checkable
class ScorePlugin(Plugin, Protocol[RequestT]):
    """A plugin that scores nodes. `RequestT` is what its PreScore reads."""

    def scorer(self, request: RequestT) -> Scorer | None:
        """Make the scorer for one kind of pod; None if it would score all nodes alike."""


@runtime_checkable
class ArgumentsPlugin(Plugin, Protocol):
    """A plugin that takes arguments, the `args` of one entry of `pluginConfig`."""

    def read_arguments(self, arguments: Arguments, profile: Profile) -> Profile:
        """Check the arguments and return the profile with them."""


class Scorer(Protocol):
    """Score nodes for one kind of pod by small keys; nodes with equal keys score alike.

    A scorer looks at a node once, so a choice among thousands of nodes compares a handful of keys. What depends on
    other nodes (how full a zone is) is looked up when keys are compared, so that a placement changes the key of the
    node that it touched and no other. `alone`: a pod on one node changes nothing for other nodes.
    """

    weight: int
    alone: bool

    @property
    def general(self) -> bool:
        """Whether nodes of one lot (`Snapshot.node_classes`) have the same key."""

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """Take in the overlay's changes.

        Return the nodes whose keys have changed besides those that changed themselves; None: all nodes.
        """

    def key(self, node: NodeInfo) -> Hashable:
        """Return what the plugin sees of a node. For DynamicResources the allocator gives the key."""

    def scores(self, keys: Sequence[Any], sizes: Sequence[int]) -> list[int]:
        """Normalise: 0..100 for each distinct key of the feasible nodes; `sizes` has the number of nodes of each."""


class NodeScorer:
    """Base of scorers that look at the node alone."""

    alone = True
    general = True

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """Return no nodes: only the nodes that changed themselves have new keys."""
        del overlay
        return set()
