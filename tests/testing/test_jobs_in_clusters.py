"""Gang Jobs on a whole cluster, treated as Kueue treats them: admitted in part, taken back, and admitted again."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.errors import StatusError
from haru.testing import Cluster

Obj = dict[str, Any]

TRAINING = """
apiVersion: batch/v1
kind: Job
metadata: {name: training}
spec:
  completionMode: Indexed
  completions: 4
  parallelism: 4
  suspend: %s
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, resources: {requests: {cpu: "1"}}}]
"""


def runs(cluster: Cluster, count: int) -> set[str]:
    """Wait until so many pods of the Job run and no other is there; the PodGroups that they belong to."""

    def all_run() -> list[Obj]:
        pods = cluster.list("Pod", "default")
        phases = [pod["status"]["phase"] for pod in pods]
        return pods if phases == ["Running"] * count else []

    pods = cluster.wait_until(all_run, what=f"{count} pods of the Job run")
    return {(pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "") for pod in pods}


def gangs(cluster: Cluster) -> list[int]:
    groups = cluster.list("PodGroup", "default")
    return [group["spec"]["schedulingPolicy"]["gang"]["minCount"] for group in groups]


def change(cluster: Cluster, **spec: Any) -> None:
    cluster.patch("Job", "training", {"spec": spec})


@pytest.mark.parametrize("completions", [2, 4])
def test_suspended_job_with_lower_parallelism_runs(haru_cluster: Cluster, completions: int) -> None:
    haru_cluster.apply(TRAINING % "true")
    haru_cluster.wait("Job", "training", "Suspended")
    change(haru_cluster, parallelism=2, completions=completions)
    change(haru_cluster, suspend=False)
    groups = runs(haru_cluster, 2)
    assert ("" in groups) is (completions == 4), "with 4 it is no gang: the indexes are done by turns"


def test_resumed_gang_runs_with_smaller_and_original_size(haru_cluster: Cluster) -> None:
    haru_cluster.apply(TRAINING % "false")
    first = runs(haru_cluster, 4)
    assert "" not in first and gangs(haru_cluster) == [4]
    with pytest.raises(StatusError, match="cannot change parallelism for a Job referencing gang-scheduled PodGroup"):
        change(haru_cluster, parallelism=2, completions=2)
    change(haru_cluster, suspend=True)
    haru_cluster.wait("Job", "training", "Suspended")
    change(haru_cluster, parallelism=2, completions=2)
    change(haru_cluster, suspend=False)
    second = runs(haru_cluster, 2)
    assert "" not in second and not second & first
    haru_cluster.wait_until(lambda: gangs(haru_cluster) == [2], what="the old PodGroup is gone")
    change(haru_cluster, suspend=True)
    haru_cluster.wait("Job", "training", "Suspended")
    change(haru_cluster, parallelism=4, completions=4, suspend=False)
    assert "" not in runs(haru_cluster, 4)
    haru_cluster.wait_until(lambda: gangs(haru_cluster) == [4], what="the old PodGroup is gone")
