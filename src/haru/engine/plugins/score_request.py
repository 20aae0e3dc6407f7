"""Hold what PreScore of the score plugins reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.framework.profile import Profile
from haru.engine.plugins.helper.topology_domains import TopologyDomains
from haru.engine.plugins.interpodaffinity.filter import TopologyToAffinityTerms
from haru.engine.plugins.podtopologyspread.filter import Constraint
from haru.engine.state.pod_info import PodInfo


class CardRequest(NamedTuple):
    """One request: so many devices, and of each so much of its capacities (billionths, by name) if not all."""

    number: int
    amounts: tuple[tuple[str, int], ...] = ()


class ScoreRequest(NamedTuple):
    """One kind of pod, and the indexes that pods share.

    `soft` are its ScheduleAnyway constraints, `affinity` the inter-pod terms that concern it (None: no term does),
    `card_requests` the device requests of its claims. `domains` has the nodes by one topology label, `indexes`
    what else a plugin keeps of the cluster.
    """

    pod: PodInfo
    profile: Profile
    soft: tuple[Constraint, ...]
    affinity: TopologyToAffinityTerms | None
    card_requests: tuple[CardRequest, ...]
    indexes: DecisionCache
    domains: Callable[[str], TopologyDomains]
