"""Connect DefaultPreemption to the scheduling framework.

Source: kube-scheduler 1.36's DefaultPreemption plugin and the validation of its arguments, as behaviour.
"""

from __future__ import annotations

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.profile import Profile
from haru.kube.errors import invalid


class DefaultPreemption:
    """Evict pods with less priority for a pod that fits nowhere.

    `haru.engine.preemption` is the implementation. A pod that was being bound was nobody's victim until then.
    """

    name = "DefaultPreemption"
    events = frozenset({ClusterEvent.POD_BOUND})

    def read_arguments(self, arguments: Arguments, profile: Profile) -> Profile:
        """Check the numbers of candidates and change nothing: all candidates are tried."""
        share = arguments.integer("minCandidateNodesPercentage", 10)
        count = arguments.integer("minCandidateNodesAbsolute", 100)
        if share is not None and not 0 <= share <= 100:
            name = arguments.at("minCandidateNodesPercentage")
            arguments.findings.append(invalid(name, share, "not in valid range [0, 100]"))
        if count is not None and count < 0:
            name = arguments.at("minCandidateNodesAbsolute")
            arguments.findings.append(invalid(name, count, "not in valid range [0, inf)"))
        if share == 0 and count == 0:
            name = arguments.at("minCandidateNodesPercentage")
            why = "cannot be zero at the same time as minCandidateNodesAbsolute"
            arguments.findings.append(invalid(name, share, why))
        return profile
