"""Hold what PreScore of the score plugins reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from haru.engine.framework.profile import Profile
from haru.engine.plugins.haruexpected.score import CardRequest
from haru.engine.plugins.helper.topology_domains import TopologyDomains
from haru.engine.plugins.imagelocality.score import ImageStates
from haru.engine.plugins.interpodaffinity.filter import TopologyToAffinityTerms
from haru.engine.plugins.podtopologyspread.filter import Constraint
from haru.engine.state.pod_info import PodInfo


class ScoreRequest(NamedTuple):
    """One kind of pod, and the indexes that pods share.

    `soft` are its ScheduleAnyway constraints, `affinity` the inter-pod terms that concern it (None: no term does),
    `card_requests` the device requests of its claims. `domains` has the nodes by one topology label.
    """

    pod: PodInfo
    profile: Profile
    soft: tuple[Constraint, ...]
    affinity: TopologyToAffinityTerms | None
    card_requests: tuple[CardRequest, ...]
    images: ImageStates
    domains: Callable[[str], TopologyDomains]
