"""Scorers: each looks at a node once, keeps what it saw as a small key, and compares keys when a node is chosen.

Nodes with equal keys score alike, so a choice among thousands of nodes compares a handful of keys. What depends on
other nodes (how full a zone is, how many nodes have an image) is looked up when keys are compared, so that a placement
changes the key of the node that it touched and no other.
Source: kube-scheduler 1.36's score plugins and weights, as behaviour; the keys are our own.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from haru.engine.decision import Obj
from haru.engine.nodeinfo import NodeInfo
from haru.engine.nodes import scores
from haru.engine.nodes.domains import Domains, Images
from haru.engine.nodes.fitting import balance_score, fit_score
from haru.engine.nodes.interpod import Surroundings
from haru.engine.nodes.spread import Constraint, SpreadCounts
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo
from haru.engine.profile import Profile

HOSTNAME = "kubernetes.io/hostname"


class Scorer(Protocol):
    """One plugin's view of the nodes for one kind of pod. `alone`: a pod on one node changes nothing for others."""

    weight: int
    alone: bool

    @property
    def general(self) -> bool:
        """Whether nodes of one lot (`Snapshot.lots`) have the same key."""

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """Take in what has changed; the nodes whose keys have, besides those that changed themselves. None: all."""

    def key(self, node: NodeInfo) -> Hashable:
        """What the plugin sees of a node. For `Devices` it is given from outside."""

    def scores(self, keys: Sequence[Any], sizes: Sequence[int]) -> list[int]:
        """0..100 for each of the distinct keys of the feasible nodes; `sizes` says how many nodes have each."""


class _Plain:
    """A scorer that looks at the node alone."""

    alone = True
    general = True

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """Nothing changes but the nodes themselves."""
        del overlay
        return set()


class Room(_Plain):
    """NodeResourcesFit and NodeResourcesBalancedAllocation, weighted: they are compared without being normalised."""

    weight = 1

    def __init__(self, profile: Profile, pod: PodInfo) -> None:
        balance = balance_score(profile.balanced, pod)
        fit, even = profile.weight("NodeResourcesFit"), profile.weight("NodeResourcesBalancedAllocation")
        self._parts = [(fit, fit_score(profile.fit, pod))] if fit else []
        if even and balance is not None:
            self._parts.append((even, balance))

    def key(self, node: NodeInfo) -> int:
        """Both scores of the node, weighted and added."""
        total = 0
        for weight, score in self._parts:
            total += weight * score(node)
        return total

    def scores(self, keys: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """The keys are the scores."""
        del sizes
        return list(keys)


class Taints(_Plain):
    """TaintToleration: fewer PreferNoSchedule taints are better."""

    def __init__(self, weight: int, pod: PodInfo) -> None:
        self.weight = weight
        self._pod = pod

    def key(self, node: NodeInfo) -> int:
        """How many taints are not tolerated."""
        return scores.raw_taints(self._pod, node) if node.taints else 0

    def scores(self, keys: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Relative to the most."""
        del sizes
        return scores.normalised(keys, reverse=True)


class PreferredNodes(_Plain):
    """NodeAffinity: the weights of the preferred terms that hold, the pod's own and the profile's."""

    general = False

    def __init__(self, weight: int, terms: Sequence[Obj]) -> None:
        self.weight = weight
        self._terms = terms

    def key(self, node: NodeInfo) -> int:
        """The summed weights."""
        return scores.raw_affinity(self._terms, node)

    def scores(self, keys: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Relative to the largest."""
        del sizes
        return scores.normalised(keys)


class Devices(_Plain):
    """DynamicResources: how far up their lists of alternatives the claims are served; the key is that number."""

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def key(self, node: NodeInfo) -> int:
        """Nothing is seen of the node itself."""
        del node
        return 0

    def scores(self, keys: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Relative to the best."""
        del sizes
        return scores.normalised(keys)


class ImageLocality:
    """The sizes of the pod's images that the node has; what they count depends on how common they are."""

    alone = True

    def __init__(self, weight: int, pod: PodInfo, images: Images) -> None:
        self.weight = weight
        self._names = pod.images
        self._images = images
        self._known = False

    @property
    def general(self) -> bool:
        """Only images tell nodes of one lot apart."""
        return not self._known

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """All keys change when the first of the images comes to a node, or the last one goes."""
        self._images.catch_up(overlay)
        before, self._known = self._known, self._images.known(self._names)
        return set() if before == self._known else None

    def key(self, node: NodeInfo) -> tuple[int, ...]:
        """The size of each image, 0 if the node does not have it."""
        return tuple(node.images.get(name, 0) for name in self._names) if self._known else ()

    def scores(self, keys: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> list[int]:
        """Sizes weighted by how common the images are; not normalised."""
        del sizes
        shares = [self._images.share(name) for name in self._names]
        return [scores.image_score(key, shares) if key else 0 for key in keys]


class SoftSpread:
    """PodTopologySpread: nodes in emptier domains are better, the more domains the more so.

    A host counts by itself; other domains are kept by value. Nodes without one of the labels are the worst, unless
    the constraints are the built-in ones (`everywhere`).
    """

    alone = general = False

    def __init__(self, weight: int, pod: PodInfo, constraints: Sequence[Constraint], *, everywhere: bool) -> None:
        self.weight = weight
        self._constraints = constraints
        self._counts = SpreadCounts(pod, constraints, everywhere=everywhere)

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """Counts are looked up when keys are compared; a host's own are part of its key."""
        self._counts.catch_up(overlay)
        return set()

    def key(self, node: NodeInfo) -> tuple[int | str | None, ...] | None:
        """Per constraint the pods on the host, or the domain; None for a node that does not count."""
        if not self._counts.has_labels(node):
            return None
        return tuple(
            self._counts.on(node.name, number) if c.key == HOSTNAME and HOSTNAME in node.labels
            # Nodes without the label are a domain of their own, in which nothing is counted.
            else node.labels.get(c.key)
            for number, c in enumerate(self._constraints)
        )  # fmt: skip

    def scores(self, keys: Sequence[tuple[int | str | None, ...] | None], sizes: Sequence[int]) -> list[int]:
        """Pods in the domains, weighted by the number of domains, fewer being better."""
        counted = sum(size for key, size in zip(keys, sizes, strict=True) if key is not None)
        factors: list[float] = []
        for number, constraint in enumerate(self._constraints):
            domains = len({key[number] or "" for key in keys if key is not None})
            factors.append(math.log(float((counted if constraint.key == HOSTNAME else domains) + 2)))
        return scores.skew_normalised([None if key is None else self._raw(key, factors) for key in keys])

    def _raw(self, key: tuple[int | str | None, ...], factors: Sequence[float]) -> int:
        total = 0.0
        for number, (seen, factor) in enumerate(zip(key, factors, strict=True)):
            if seen is not None:
                pods = seen if isinstance(seen, int) else self._counts.counts[number].of(seen)
                total += float(pods) * factor + float(self._constraints[number].max_skew - 1)
        return scores.rounded(total)


class Company:
    """InterPodAffinity: what the preferred terms say, the pod's own and those of the pods on nodes.

    Where a label tells every node from every other, the sum is part of the node's key; else the value is.
    """

    alone = general = False

    def __init__(self, weight: int, around: Surroundings, hosts: Domains) -> None:
        self.weight = weight
        self._around = around
        self._hosts = hosts
        self._keys: tuple[str, ...] = ()

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """The surroundings themselves have been caught up before, and say what they touched."""
        self._hosts.catch_up(overlay)
        before, self._keys = self._keys, tuple(sorted(self._around.liked))
        if self._around.touched is None or before != self._keys:
            return None
        return self._hosts.nodes(value for key, value in self._around.touched.liked if key == HOSTNAME)

    def key(self, node: NodeInfo) -> tuple[int | str | None, ...]:
        """Per label of interest the sum on the host, or the domain."""
        return tuple(
            self._around.liked[key].get(node.labels.get(key, ""), 0) if key == HOSTNAME else node.labels.get(key)
            for key in self._keys
        )

    def scores(self, keys: Sequence[tuple[int | str | None, ...]], sizes: Sequence[int]) -> list[int]:
        """The sums of the domains, spread between the smallest and the largest."""
        del sizes
        return scores.min_max_normalised([self._raw(key) for key in keys])

    def _raw(self, key: tuple[int | str | None, ...]) -> int:
        total = 0
        for name, seen in zip(self._keys, key, strict=True):
            if isinstance(seen, str):
                total += self._around.liked[name].get(seen, 0)
            elif seen is not None:
                total += seen
        return total
