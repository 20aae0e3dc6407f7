"""Jobs, ReplicaSets and StatefulSets without pods: what their controllers would make is judged."""

from __future__ import annotations

import pytest
from explain_world import Obj, cluster, pod, template, told_as_is, workload

from haru.api.snapshot import Snapshot

GPUS = {"nvidia.com/gpu": "8"}


def stored(obj: Obj, **status: object) -> Obj:
    """As a server has it, so that its controller is at work."""
    return {**obj, "metadata": {**obj["metadata"], "uid": "3b1c"}, "status": dict(status)}


def plugins(count: int = 1) -> Snapshot:
    return cluster(dgx_h100_plugin=count)


def test_extended_resource_limits_of_workload_template_are_counted() -> None:
    taken = pod("taken", limits={"nvidia.com/gpu": "4"}, nodeName="dgx-h100-plugin-0")
    job = stored(workload("Job", "j", 3, limits=GPUS, suspend=True))
    found = told_as_is(plugins(), taken, job, about="job/j")
    assert found.pods[0].resources["nvidia.com/gpu"] == 8
    assert "there is room" not in found.summary
    assert found.verdict == "FitsIf" and "8 are needed: 8 short" in found.summary


def test_suspended_indexed_job_is_explained_as_gang() -> None:
    job = stored(workload("Job", "j", 3, template="gpu", suspend=True, indexed=True))
    found = told_as_is(cluster(dgx_h100=2), template(count=8), job, about="job/j")
    assert found.requests[0].needed == 24
    assert "Quorum" in [reason.type for reason in found.reasons]


def test_suspended_job_without_group_is_explained_pod_by_pod() -> None:
    job = stored(workload("Job", "j", 3, template="gpu", suspend=True))
    found = told_as_is(cluster(dgx_h100=2), template(count=8), job, about="job/j")
    assert "there is room for 2 of its 3 pods now; the others would wait: " in found.summary
    assert found.verdict == "FitsIf"


def test_started_gang_job_without_pods_fits_later() -> None:
    job = stored(workload("Job", "j", 2, template="gpu", indexed=True))
    found = told_as_is(cluster(dgx_h100=2), template(count=8), job, about="job/j")
    assert (found.verdict, found.summary) == (
        "FitsLater",
        "no pod of job default/j exists yet; there is room for them now",
    )


def test_job_without_pods_joins_its_existing_pod_group() -> None:
    job = stored(workload("Job", "j", 2, template="gpu", indexed=True), startTime="2026-01-01T00:00:00Z")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "3b1c", "controller": True}
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "its-own", "ownerReferences": [owner]},
        "spec": policy,
    }
    alone = told_as_is(cluster(dgx_h100=1), template(count=8), job, about="job/j")
    together = told_as_is(cluster(dgx_h100=1), template(count=8), job, group, about="job/j")
    assert alone.requests[0].needed == 8 and together.requests[0].needed == 16


def test_nodes_without_devices_are_not_offered_a_label() -> None:
    job = stored(workload("Job", "j", 1, limits=GPUS, suspend=True, nodeSelector={"pool": "gpu"}))
    found = told_as_is(cluster(cpu=2), job, about="job/j")
    assert "LabelNodes" not in [remedy.kind for remedy in found.remedies]
    assert found.verdict == "NeverFits"


def test_remedy_changes_only_existing_objects() -> None:
    job = stored(workload("Job", "j", 1, template="gpu"))
    found = told_as_is(cluster(dgx_h100=1), template(count=9), job, about="job/j")
    lower = next(remedy for remedy in found.remedies if remedy.kind == "LowerCount")
    named = {(change.get("target") or change["object"])["kind"] for change in lower.changes}
    assert lower.confirmed and named == {"ResourceClaimTemplate"}


def test_remedy_for_template_names_the_template() -> None:
    taint = {"key": "maintenance", "value": "", "effect": "NoSchedule"}
    snapshot = cluster(dgx_h100=1)
    tainted = Snapshot([{**o, "spec": {"taints": [taint]}} if o["kind"] == "Node" else o for o in snapshot.objects])
    found = told_as_is(
        tainted, template(), stored(workload("Job", "j", 1, template="gpu", suspend=True)), about="job/j"
    )
    tolerate = next(remedy for remedy in found.remedies if remedy.kind == "Tolerate")
    assert not tolerate.changes and "the template of job/j has to say so" in tolerate.costs


def test_suspended_job_gets_confirmed_resume_remedy() -> None:
    job = stored(workload("Job", "j", 2, template="gpu", suspend=True))
    first = told_as_is(cluster(dgx_h100=1), template(), job, about="job/j").remedies[0]
    assert (first.kind, first.confirmed) == ("Resume", True)
    assert first.changes[0]["patch"] == {"spec": {"suspend": False}}


def test_suspended_job_without_free_cards_gets_unconfirmed_resume_remedy() -> None:
    taken = pod("taken", limits=GPUS, nodeName="dgx-h100-plugin-0")
    found = told_as_is(plugins(), taken, stored(workload("Job", "j", 1, limits=GPUS, suspend=True)), about="job/j")
    assert found.verdict == "FitsIf"
    assert (found.remedies[0].kind, found.remedies[0].confirmed) == ("Resume", False)


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
def test_replica_set_and_stateful_set_without_pods_are_explained_alike(kind: str) -> None:
    found = told_as_is(plugins(), stored(workload(kind, "w", 2, limits=GPUS)), about=f"{kind.lower()}/w")
    assert "there is room for 1 of its 2 pods now" in found.summary
    assert found.pods[0].resources["nvidia.com/gpu"] == 8


def test_stateful_set_with_running_pods_has_verdict_runs() -> None:
    owned = workload("StatefulSet", "w", 1)
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w", "uid": "3b1c", "controller": True}
    its_pod = pod("w-0", nodeName="cpu-0")
    its_pod["metadata"]["ownerReferences"] = [owner]
    its_pod["status"] = {"phase": "Running"}
    assert told_as_is(cluster(cpu=1), stored(owned), its_pod, about="statefulset/w").verdict == "Runs"


def test_remedy_for_suspended_job_also_resumes_it() -> None:
    job = stored(workload("Job", "j", 1, template="gpu", suspend=True))
    found = told_as_is(cluster(dgx_h100=1), template(count=9), job, about="job/j")
    lower = next(remedy for remedy in found.remedies if remedy.kind == "LowerCount")
    assert lower.changes[-1]["patch"] == {"spec": {"suspend": False}} and "resume job j" in lower.summary
