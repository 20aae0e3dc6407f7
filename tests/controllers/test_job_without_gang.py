"""Jobs that could be gangs and get no group of their own, for they say so or are placed exclusively by JobSet."""

from __future__ import annotations

from typing import Any

import pytest
from controller_cluster import template
from gang_jobs import groups_of, indexed, job, started

from haru.controllers.objects import JOBS, POD_GROUPS, WORKLOADS
from haru.kube.gates import FeatureGates
from haru.kube.jobs import gang_refusal, is_gang_job
from haru.kube.workload_pods import made_by
from haru.testing import Cluster

Obj = dict[str, Any]
TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
BY_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
REFUSED = {"haru.dev/gang": "false"}
EXCLUSIVE = {TOPOLOGY: "kubernetes.io/hostname"}


def annotated(of_job: Obj | None = None, of_pods: Obj | None = None, count: int = 3) -> Obj:
    """A Job that could be a gang, with annotations of its own and of its pods."""
    body = job("train", **indexed(count))
    body |= {"apiVersion": "batch/v1", "kind": "Job"}
    body["metadata"] |= {"namespace": "default", "annotations": of_job or {}}
    pods = template({"app": "train"}, restartPolicy="Never")
    pods["metadata"]["annotations"] = of_pods or {}
    body["spec"]["template"] = pods
    return body


CASES: list[tuple[Obj, Obj, bool]] = [
    ({}, {}, True),
    ({"haru.dev/gang": "true"}, {}, True),
    (REFUSED, {}, False),
    ({}, REFUSED, True),  # it is said of the Job, not of its pods
    (EXCLUSIVE, EXCLUSIVE, False),  # as JobSet sets it
    (EXCLUSIVE, {}, False),
    ({}, EXCLUSIVE, False),
    # Nodes are labelled beforehand: nobody waits for the first pod.
    ({**EXCLUSIVE, BY_SELECTOR: "true"}, {**EXCLUSIVE, BY_SELECTOR: "true"}, True),
    ({**EXCLUSIVE, BY_SELECTOR: "true", **REFUSED}, {}, False),
]


@pytest.mark.parametrize(("of_job", "of_pods", "expected"), CASES)
def test_gang_annotations_decide_whether_job_gets_a_group(of_job: Obj, of_pods: Obj, expected: bool) -> None:
    assert is_gang_job(annotated(of_job, of_pods)) is expected


@pytest.mark.parametrize(("of_job", "of_pods", "expected"), CASES)
def test_expanded_manifests_have_same_group_as_controller_creates(of_job: Obj, of_pods: Obj, expected: bool) -> None:
    made = list(made_by(annotated(of_job, of_pods), FeatureGates.accelerator_defaults().all()))
    assert [obj["kind"] for obj in made] == ["Workload", "PodGroup"] * expected + ["Pod"] * 3
    assert all(("schedulingGroup" in obj["spec"]) is expected for obj in made if obj["kind"] == "Pod")


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        ({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "controller": True}, False),
        ({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}, True),
        ({"apiVersion": "batch/v1", "kind": "CronJob", "controller": True}, True),
    ],
)
def test_job_of_a_job_set_leaves_the_gang_to_the_job_set(owner: Obj, expected: bool) -> None:
    body = annotated()
    body["metadata"]["ownerReferences"] = [{**owner, "name": "sweep", "uid": "1"}]
    assert is_gang_job(body) is expected
    assert ("JobSet sweep" in gang_refusal(body)) is not expected


async def test_job_without_gang_gets_no_group_and_can_be_resized(cluster):
    body = annotated(REFUSED)
    body["metadata"]["namespace"] = "ns"
    await cluster.create(JOBS, body)
    await cluster.start("job-controller")
    await started(cluster, 3)
    assert await groups_of(cluster) == {None}
    assert not await cluster.items(WORKLOADS) and not await cluster.items(POD_GROUPS)
    await cluster.client.patch(JOBS, "train", {"spec": {"parallelism": 4, "completions": 4}}, "ns")
    await started(cluster, 4)


# -- with the scheduler, and somebody who refuses all pods but the first until that has its node -----------------------

POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: leader-first}
spec:
  failurePolicy: Fail
  paramKind: {apiVersion: v1, kind: Pod}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions:
  - {name: followers, expression: "object.metadata.labels[?'INDEX'].orValue('0') != '0'"}
  validations:
  - {expression: "has(params.spec.nodeName)", message: leader pod not yet scheduled}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: leader-first}
spec:
  policyName: leader-first
  validationActions: [Deny]
  paramRef: {selector: {matchLabels: {INDEX: "0"}}, parameterNotFoundAction: Allow}
""".replace("INDEX", "batch.kubernetes.io/job-completion-index")


def all_run(cluster: Cluster) -> None:
    cluster.wait_for("Job", "train", lambda found: (found.get("status") or {}).get("ready") == 3)


@pytest.mark.haru(profiles="cpu:1")
def test_gang_with_webhook_waiting_for_first_pod_is_stuck_until_gang_is_refused(haru_cluster: Cluster) -> None:
    """Until the Job says that it is no gang: then its pods are made anew, without a group."""
    haru_cluster.apply(POLICY)
    haru_cluster.apply(annotated())
    messages = haru_cluster.wait_for_event("train", "FailedCreate")
    assert "leader pod not yet scheduled" in messages[0]
    (group,) = haru_cluster.list("PodGroup", "default")
    (leader,) = haru_cluster.list("Pod", "default")
    assert leader["spec"]["schedulingGroup"] == {"podGroupName": group["metadata"]["name"]}
    assert not leader["spec"].get("nodeName")
    haru_cluster.patch("Job", "train", {"metadata": {"annotations": REFUSED}})
    all_run(haru_cluster)
    assert not any(pod["spec"].get("schedulingGroup") for pod in haru_cluster.list("Pod", "default"))


@pytest.mark.haru(profiles="cpu:1")
@pytest.mark.parametrize("annotations", [REFUSED, EXCLUSIVE], ids=["refused", "exclusive"])
def test_job_without_gang_starts_with_webhook_that_waits_for_first_pod(haru_cluster: Cluster, annotations: Obj) -> None:
    haru_cluster.apply(POLICY)
    haru_cluster.apply(annotated(annotations, annotations))
    all_run(haru_cluster)
    assert not haru_cluster.list("PodGroup", "default")
    assert len(haru_cluster.list("Pod", "default")) == 3
