"""Declare what the scheduling framework asks of plugins, and join their refusals into one message.

The grammar is kube-scheduler's: `0/<N> nodes are available: <count> <reason>, ….`, entries sorted as text so that the
message is the same at every attempt.

Source: kube-scheduler's framework (staging k8s.io/kube-scheduler/framework), as behaviour; the keys of scores are ours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable
from zlib import crc32

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.profile import DEFAULT_PROFILE, Profile
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import FilterFailure as FilterFailure
from haru.engine.state.decision import Reason, ReasonType
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo

NO_NODES = "no nodes available to schedule pods"
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
ScoreKey = tuple[Hashable, ...]
"""What the scorers of a profile see of a node, in their order."""
RequestT = TypeVar("RequestT", contravariant=True)


@dataclass(frozen=True, slots=True)
class FilterRequest:
    """What PreFilter and Filter read of one pod and of the cluster.

    `backed`: extended resources that devices may serve instead of the node. `sole_use` refuses nodes while another pod
    uses a ReadWriteOncePod claim of this pod, which depends on all nodes; None if the pod has no such claim.
    `late_binding` refuses nodes without volumes for claims that are bound late, which depends on the volumes that other
    members of the decision take; None if the pod has no such claim.
    """

    snapshot: Snapshot
    pod: PodInfo
    profile: Profile = DEFAULT_PROFILE
    backed: Collection[str] = ()
    declared_features: bool = True
    sole_use: NodeFilter | None = None
    late_binding: NodeFilter | None = None


class PreFilterResult(NamedTuple):
    """Why no node can take the pod, and the nodes that its spec names, if it does: no other one is filtered."""

    rejection: FilterFailure | None = None
    nodes: frozenset[str] | None = None


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


class PluginScore(NamedTuple):
    """What one plugin gives a node: 0 to `MAX_SCORE`, which counts `weight` times."""

    plugin: str
    weight: int
    score: int


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


def refuse(
    plugin: str,
    type_: ReasonType,
    message: str,
    data: Mapping[str, Any] | None = None,
    *,
    resolvable: bool = False,
) -> FilterFailure:
    """Make a failure with its reason."""
    return FilterFailure(plugin, Reason(type_, message, data or {}), resolvable)


Weighed = Sequence[tuple[Sequence[FilterFailure], int]]
"""Failures, each with the number of nodes that share it; in the order of their first occurrence."""


def weighed(refusals: Collection[Sequence[FilterFailure]]) -> Weighed:
    """Count equal refusals by identity: nodes of one equivalence class share the object."""
    said = dict(zip(map(id, refusals), refusals, strict=True))
    if len(said) == 1:  # as often: all nodes lack the same
        return [(failures, len(refusals)) for failures in said.values()]
    counts = Counter(map(id, refusals))
    return [(said[number], count) for number, count in counts.items()]


def unavailable_message(nodes: int, refusals: Weighed) -> str:
    """Return `0/5 nodes are available: 2 Insufficient cpu, 3 cannot allocate all claims.`"""
    return counted_message(nodes, _counts(refusals))


def _counts(refusals: Weighed) -> Counter[str]:
    counts: Counter[str] = Counter()
    for failures, count in refusals:
        for failure in failures:
            counts[failure.reason.message] += count
    return counts


def counted_message(nodes: int, counts: Mapping[str, int]) -> str:
    """Return the same message from how many nodes say what."""
    if not nodes:
        return NO_NODES
    entries = sorted(f"{count} {message}" for message, count in counts.items())
    listed = f": {', '.join(entries)}." if entries else "."
    return f"0/{nodes} nodes are available{listed}"


def rejected_message(nodes: int, message: str) -> str:
    """Return the message for a pod that PreFilter rejected."""
    return f"0/{nodes} nodes are available: {message}." if nodes else NO_NODES


def summed_reasons(refusals: Weighed) -> tuple[Reason, ...]:
    """Return one reason per message, with the number of nodes that gave it; the most frequent first."""
    counts = _counts(refusals)
    first: dict[str, Reason] = {}
    for failures, _ in refusals:
        for failure in failures:
            first.setdefault(failure.reason.message, failure.reason)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        Reason(first[message].type, message, {**first[message].data, "nodes": count}) for message, count in ordered
    )


def rejecting_plugins(refusals: Weighed) -> tuple[str, ...]:
    """Return the names of the plugins that refused nodes, sorted."""
    return tuple(sorted({failure.plugin for failures, _ in refusals for failure in failures}))
