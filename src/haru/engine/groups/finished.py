"""Members that have done their part: whether a gang still needs them is for the gang to say.

In 1.36 a member that has succeeded leaves its gang's count, so a gang of four of which one has finished and one has
failed waits for ever for its replacement. A PodGroup with the annotation `haru.dev/count-succeeded: "true"` (Haru's Job
controller sets it: an index that is done is done) counts them: to quorum it looks like a gang with a lower minCount.
Source: Haru; KEP-4671 leaves it open.
"""

from __future__ import annotations

from collections import Counter

from haru.engine.cluster import Cluster
from haru.engine.decision import Obj
from haru.kube.jobs import COUNT_SUCCEEDED
from haru.kube.meta import annotations_of


def as_needed(group: Obj, succeeded: int) -> Obj:
    """A PodGroup as quorum is to see it when so many of its members have succeeded."""
    gang = group["spec"]["schedulingPolicy"].get("gang")
    if not succeeded or gang is None or annotations_of(group).get(COUNT_SUCCEEDED) != "true":
        return group
    policy = {"gang": {**gang, "minCount": max(1, gang["minCount"] - succeeded)}}
    return {**group, "spec": {**group["spec"], "schedulingPolicy": policy}}


def count_succeeded(cluster: Cluster) -> None:
    """Let the groups of a cluster that was read as a whole count the members that have succeeded."""
    snapshot = cluster.snapshot()
    finished = Counter(
        pod.group.path for pod in snapshot.pods.values() if pod.group and pod.status.get("phase") == "Succeeded"
    )
    for path, number in finished.items():
        group = snapshot.pod_groups.get(path)
        if group is not None and (seen := as_needed(group, number)) is not group:
            cluster.apply(seen)
