"""Count succeeded members towards a gang's quorum if its PodGroup says so.

In 1.36 a member that has succeeded leaves its gang's count, so a gang of four with one succeeded and one failed member
waits for ever for the replacement. A PodGroup with the annotation `haru.dev/count-succeeded: "true"` counts succeeded
members: quorum sees a gang with a lower minCount. Haru's Job controller sets it, as a completed index stays completed.
Source: Haru; KEP-4671 leaves it open.
"""

from __future__ import annotations

from collections import Counter

from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Obj
from haru.kube.jobs import COUNT_SUCCEEDED
from haru.kube.meta import annotations_of


def as_needed(group: Obj, succeeded: int) -> Obj:
    """Return the PodGroup with its minCount lowered by the members that have succeeded."""
    gang = group["spec"]["schedulingPolicy"].get("gang")
    if not succeeded or gang is None or annotations_of(group).get(COUNT_SUCCEEDED) != "true":
        return group
    policy = {"gang": {**gang, "minCount": max(1, gang["minCount"] - succeeded)}}
    return {**group, "spec": {**group["spec"], "schedulingPolicy": policy}}


def count_succeeded(cluster: SchedulerCache) -> None:
    """Lower the minCount of each group in the cache by its succeeded members; for a cluster read as a whole."""
    snapshot = cluster.snapshot()
    succeeded_by_group = Counter(
        pod.group.path for pod in snapshot.pods.values() if pod.group and pod.status.get("phase") == "Succeeded"
    )
    for path, number in succeeded_by_group.items():
        group = snapshot.pod_groups.get(path)
        if group is not None and (adjusted := as_needed(group, number)) is not group:
            cluster.apply(adjusted)
