"""Each adapter: from a pod and the object that it names to the gang, by the conventions of its project."""

from __future__ import annotations

from typing import Any

import foreign_objects as made
import pytest

from haru.gangs import ADAPTERS, Gang, parse_adapters
from haru.gangs import translated as translate

Obj = dict[str, Any]


def gang(adapter: str, pod: Obj, obj: Obj | None = None) -> Gang | None:
    return ADAPTERS[adapter].gang_of(pod, obj)


ROWS = [made.replicated_job("driver", 1, 1), made.replicated_job("workers", 2, 4)]
IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
LWS = "leaderworkerset"
PT, TF = ("PyTorchJob", "train", "pytorchReplicaSpecs"), ("TFJob", "train", "tfReplicaSpecs")
LATER = {"launcherCreationPolicy": "WaitForWorkersReady"}


@pytest.mark.parametrize(
    ("adapter", "pod", "obj", "expected"),
    [
        ("coscheduling", made.grouped("p", "g"), made.coscheduling("g", 4), Gang("podgroup:g", 4, None, False)),
        ("coscheduling", made.grouped("p", "g"), made.coscheduling("g", 2, 30), Gang("podgroup:g", 2, 30, False)),
        ("jobset", made.job_set_pod("p", "t", "workers"), made.job_set("t", *ROWS), Gang("jobset:t", 9)),
        (
            "jobset",
            made.job_set_pod("p", "t", "workers"),
            made.job_set("t", *ROWS, **IN_ORDER),
            Gang("jobset:t:workers", 8),
        ),
        ("jobset", made.job_set_pod("p", "t", "driver"), made.job_set("t", *ROWS, **IN_ORDER), None),
        ("jobset", made.job_set_pod("p", "t", "workers", attempt=0), made.job_set("t", *ROWS), Gang("jobset:t", 9)),
        ("jobset", made.job_set_pod("p", "t", "workers", attempt=2), made.job_set("t", *ROWS), Gang("jobset:t:2", 9)),
        (
            "jobset",
            made.job_set_pod("p", "t", "workers", attempt=1),
            made.job_set("t", *ROWS, **IN_ORDER),
            Gang("jobset:t:workers:1", 8),
        ),
        (
            "jobset",
            made.job_set_pod("p", "t", "node"),
            made.job_set(
                "t",
                made.replicated_job("init", 1, 1),
                made.replicated_job("node", 1, 3, dependsOn=[{"name": "init", "status": "Complete"}]),
            ),
            Gang("jobset:t:node", 3),
        ),
        (
            "jobset",
            made.job_set_pod("p", "t", "workers", annotations={"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}),
            made.job_set("t", *ROWS),
            None,
        ),
        (LWS, made.lws_pod("s-1-2", "s", 1, 2, 4), made.leader_worker_set("s", 4), Gang("leaderworkerset:s:1", 4)),
        (LWS, made.lws_pod("s-0", "s", 0, 0, 3), made.leader_worker_set("s", 4), Gang("leaderworkerset:s:0", 3)),
        (LWS, made.lws_pod("s-0", "s", 0, 0, 4), made.leader_worker_set("s", 4, startupPolicy="LeaderReady"), None),
        (
            LWS,
            made.lws_pod("s-0-1", "s", 0, 1, 4),
            made.leader_worker_set("s", 4, startupPolicy="LeaderReady"),
            Gang("leaderworkerset:s:0", 3),
        ),
        (
            LWS,
            made.lws_pod("s-0-1", "s", 0, 1, 4, **{"exclusive-topology": "rack"}),
            made.leader_worker_set("s", 4),
            Gang("leaderworkerset:s:0", 3),
        ),
        (
            LWS,
            made.lws_pod("s-1", "s", 1, 0, 4, revision="6b6b99"),
            made.leader_worker_set("s", 4),
            Gang("leaderworkerset:s:1:6b6b99", 4),
        ),
        (
            "kuberay",
            made.ray_pod("p", "r", "worker"),
            made.ray_cluster(
                "r", {"replicas": 2, "numOfHosts": 2}, {"replicas": 5, "maxReplicas": 3, "minReplicas": 0}
            ),
            Gang("raycluster:r", 8, None, False),
        ),
        (
            "kuberay",
            made.ray_pod("p", "r", "head"),
            made.ray_cluster("r", {"replicas": 4, "minReplicas": 1}, enableInTreeAutoscaling=True),
            Gang("raycluster:r", 2, None, False),
        ),
        ("kuberay", made.ray_pod("p", "r", "head"), made.ray_cluster("r", {"replicas": 4, "suspend": True}), None),
        (
            "kubeflow",
            made.training_pod("p", "train", "pytorchjob-controller"),
            made.training_job(*PT, {"Master": 1, "Worker": 3}),
            Gang("pytorchjob:train", 4),
        ),
        (
            "kubeflow",
            made.training_pod("p", "train", "tfjob-controller"),
            made.training_job(*TF, {"PS": 2, "Worker": 6}, {"minAvailable": 5, "scheduleTimeoutSeconds": 60}),
            Gang("tfjob:train", 5, 60),
        ),
        ("mpijob", made.training_pod("p", "m", "mpi-operator"), made.mpi_job("m", 3), Gang("mpijob:m", 4)),
        ("mpijob", made.training_pod("p", "m", "mpi-operator"), made.mpi_job("m", 3, **LATER), Gang("mpijob:m", 3)),
        ("mpijob", made.training_pod("p", "m", "mpi-operator", "launcher"), made.mpi_job("m", 3, **LATER), None),
        ("kueue", made.kueue_pod("p", "g", 3), None, Gang("kueue:g", 3, None, False)),
        (
            "annotation",
            made.owned(made.pod("p", annotations={"haru.dev/gang-min-count": "3"}), "Job", "train"),
            None,
            Gang("job:train", 3),
        ),
    ],
)
def test_gang_of_pod_and_object(adapter: str, pod: Obj, obj: Obj | None, expected: Gang | None) -> None:
    source = ADAPTERS[adapter].source_of(pod)
    assert source is not None
    if obj is not None:
        assert source.kind is not None and source.kind.is_kind_of(obj) and source.name == obj["metadata"]["name"]
    assert gang(adapter, pod, obj) == expected


@pytest.mark.parametrize(
    "pod",
    [
        made.pod("plain"),
        made.owned(made.pod("indexed"), "Job", "train"),
        made.pod("submitter", {"ray.io/cluster": "r"}),
        made.pod("redis", {"ray.io/cluster": "r", "ray.io/node-type": "redis-cleanup"}),
        made.pod("lws-without-index", {"leaderworkerset.sigs.k8s.io/name": "s"}),
        made.training_pod("p", "j", "some-other-operator"),
        made.kueue_pod("web-0", "web", 3, **{"pod-group-serving": "true", "pod-group-fast-admission": "true"}),
        made.kueue_pod("single", "g", 1),
        made.pod("annotated-alone", annotations={"haru.dev/gang-min-count": "3"}),
    ],
    ids=lambda value: value["metadata"]["name"],
)
def test_pod_of_no_gang_has_no_source(pod: Obj) -> None:
    assert [name for name, adapter in ADAPTERS.items() if adapter.source_of(pod)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*", set(ADAPTERS)),
        ("", set()),
        ("jobset,kueue", {"jobset", "kueue"}),
        ("*,-kuberay", set(ADAPTERS) - {"kuberay"}),
        ("-kuberay,*", set(ADAPTERS) - {"kuberay"}),
    ],
)
def test_flag_chooses_adapters(text: str, expected: set[str]) -> None:
    assert parse_adapters(text) == expected


def test_unknown_adapter_is_refused_with_near_name() -> None:
    with pytest.raises(ValueError, match='"jobsets": no such adapter; did you mean "jobset"'):
        parse_adapters("jobsets")


def test_pod_group_that_operator_made_wins_over_job_of_same_pod() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "g", "jobset.sigs.k8s.io/jobset-name": "t"}
    found = translate([made.coscheduling("g", 2), made.job_set("t", *ROWS), made.pod("p", labels)])
    assert [each["metadata"]["name"] for each in found if each["kind"] == "PodGroup"] == ["podgroup:g"]
