"""Score nodes by preferred inter-pod affinity terms; the filter is in `filter.py`.

Source: kube-scheduler 1.36's InterPodAffinity plugin and the validation of its arguments, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import MAX_SCORE, Scorer
from haru.engine.framework.profile import InterPodAffinityArgs, Profile
from haru.engine.plugins.helper.topology_domains import HOSTNAME, TopologyDomains
from haru.engine.plugins.interpodaffinity.filter import TopologyToAffinityTerms
from haru.engine.plugins.score_request import ScoreRequest
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.kube.errors import invalid


class InterPodAffinityScore:
    """InterPodAffinity: what the preferred terms say, the pod's own and those of the pods on nodes.

    Where a label tells every node from every other, the sum is part of the node's key; else the value is.
    """

    alone = general = False

    def __init__(self, weight: int, affinity: TopologyToAffinityTerms, hosts: TopologyDomains) -> None:
        self.weight = weight
        self._affinity = affinity
        self._hosts = hosts
        self._keys: tuple[str, ...] = ()

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """The surroundings themselves have been caught up before, and say what they touched."""
        self._hosts.catch_up(overlay)
        before, self._keys = self._keys, tuple(sorted(self._affinity.preferred))
        if self._affinity.touched is None or before != self._keys:
            return None
        return self._hosts.nodes(value for key, value in self._affinity.touched.preferred if key == HOSTNAME)

    def key(self, node: NodeInfo) -> tuple[int | str | None, ...]:
        """Per label of interest the sum on the host, or the domain."""
        return tuple(
            self._affinity.preferred[key].get(node.labels.get(key, ""), 0) if key == HOSTNAME else node.labels.get(key)
            for key in self._keys
        )

    def scores(self, keys: Sequence[tuple[int | str | None, ...]], sizes: Sequence[int]) -> list[int]:
        """The sums of the domains, spread between the smallest and the largest."""
        del sizes
        return min_max_normalised([self._raw(key) for key in keys])

    def _raw(self, key: tuple[int | str | None, ...]) -> int:
        total = 0
        for name, seen in zip(self._keys, key, strict=True):
            if isinstance(seen, str):
                total += self._affinity.preferred[name].get(seen, 0)
            elif seen is not None:
                total += seen
        return total


def min_max_normalised(raw: Sequence[int]) -> list[int]:
    """Scores spread over 0..100 between the smallest and the largest; all 0 if they are equal."""
    low, high = min(raw, default=0), max(raw, default=0)
    if low == high:
        return [0] * len(raw)
    return [int(MAX_SCORE * (float(value - low) / float(high - low))) for value in raw]


class InterPodAffinity:
    """Refuse and score nodes by the pods on them.

    The filter is `TopologyToAffinityTerms`, which follows placements and so is not made per request.
    """

    name = "InterPodAffinity"
    events = frozenset(
        {
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_LABEL,
            ClusterEvent.POD_ADD,
            ClusterEvent.POD_DELETE,
            ClusterEvent.NAMESPACE,
        }
    )

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer; None if no inter-pod term concerns the pod."""
        weight = request.profile.weight(self.name)
        if request.affinity is None or not weight:
            return None
        return InterPodAffinityScore(weight, request.affinity, request.domains(HOSTNAME))

    def read_arguments(self, arguments: Arguments, profile: Profile) -> Profile:
        """Return the profile with the weight of required terms, and whether others' preferred terms count."""
        weight = arguments.integer("hardPodAffinityWeight", 1)
        assert weight is not None
        if not 0 <= weight <= 100:
            arguments.findings.append(
                invalid(arguments.at("hardPodAffinityWeight"), weight, "not in valid range [0, 100]")
            )
        ignore = arguments.flag("ignorePreferredTermsOfExistingPods")
        return replace(profile, affinity=InterPodAffinityArgs(weight, ignore))
