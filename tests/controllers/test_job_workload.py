"""Jobs that are gangs: the Workload and PodGroup that the Job controller makes for them, and what may go wrong."""

import pytest
from controller_cluster import Kubelet, pod_body, template
from gang_jobs import groups_of, indexed, job, reference_to, started, the_group

from haru.controllers.objects import CLAIMS, JOBS, POD_GROUPS, PODS, WORKLOADS
from haru.kube import kinds
from haru.kube.gates import FeatureGates
from haru.kube.job_groups import (
    never_started,
    new_pod_group,
    new_workload,
    pod_group_name,
    template_name,
    workload_name,
)
from haru.kube.jobs import is_gang_job
from haru.kube.meta import get_condition
from haru.kube.names import is_dns1123_label, is_dns1123_subdomain

EVENTS = kinds.lookup("", "v1", "events")
CRON_JOBS = kinds.lookup("batch", "v1", "cronjobs")
NAME = "job-controller"


def at(seconds):
    return f"2026-01-01T00:00:{seconds:02}Z"


def gang_of(**spec):
    base = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": {"spec": {}}}
    return {"metadata": {"name": "train", "namespace": "ns", "uid": "u1"}, "spec": {**base, **spec}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, True),
        ({"parallelism": 1, "completions": 1}, False),
        ({"completions": 5}, False),
        ({"completions": None}, False),
        ({"completionMode": "NonIndexed"}, False),
        ({"template": {"spec": {"schedulingGroup": {"podGroupName": "mine"}}}}, False),
    ],
)
def test_indexed_parallel_job_is_a_gang(spec, expected):
    assert is_gang_job(gang_of(**spec)) is expected


@pytest.mark.parametrize(
    ("status", "has_pods", "expected"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"startTime": at(0)}, False, False),
        ({"failed": 1}, False, False),
        ({"conditions": [{"type": "Suspended", "status": "True"}]}, False, True),
    ],
)
def test_only_never_started_job_gets_a_group(status, has_pods, expected):
    assert never_started({**gang_of(), "status": status}, has_pods) is expected


@pytest.mark.parametrize("length", [1, 10, 57, 58, 61, 63])
def test_template_name_is_a_valid_label_value(length):
    name = template_name("j" * length)
    assert not is_dns1123_label(name)
    assert (name == "j" * length + "-pgt-0") is (length <= 57)
    assert template_name("j" * 58) != template_name("j" * 59)


def test_long_names_are_truncated_with_unique_suffix():
    long = {"metadata": {"name": "j" * 253, "uid": "u"}}
    assert len(workload_name(long)) <= 253
    names = {pod_group_name("w" * 253, "t" * n) for n in (1, 30, 63)}
    assert len(names) == 3
    assert all(len(name) <= 253 and not is_dns1123_subdomain(name) for name in names)
    assert pod_group_name("w" * 200, "t").startswith("w" * 200 + "-t-")


def test_workload_and_pod_group_have_expected_fields():
    workload = new_workload(gang_of())
    assert workload["spec"] == {
        "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "train"},
        "podGroupTemplates": [{"name": "train-pgt-0", "schedulingPolicy": {"gang": {"minCount": 4}}}],
    }
    workload["metadata"]["uid"] = "w1"
    group = new_pod_group(gang_of(), workload)
    reference = {"workloadName": workload["metadata"]["name"], "podGroupTemplateName": "train-pgt-0"}
    assert group["spec"] == {
        "podGroupTemplateRef": {"workload": reference},
        "schedulingPolicy": {"gang": {"minCount": 4}},
    }
    annotations = {"haru.dev/count-succeeded": "true", "haru.dev/job-parallelism": "4"}
    assert group["metadata"]["annotations"] == annotations
    assert workload["metadata"]["annotations"] == {"haru.dev/job-parallelism": "4"}
    of_job, of_workload = group["metadata"]["ownerReferences"]
    assert (of_job["kind"], of_job["controller"], of_job["blockOwnerDeletion"]) == ("Job", True, True)
    assert of_workload == {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "Workload",
        "name": workload["metadata"]["name"],
        "uid": "w1",
    }


# -- on the API -------------------------------------------------------------------------------------------------------


async def test_workload_and_group_are_created_before_pods(cluster):
    created = await cluster.create(JOBS, job(**indexed(4)))
    await cluster.start(NAME)
    await started(cluster, 4)
    (workload,) = await cluster.items(WORKLOADS)
    (group,) = await cluster.items(POD_GROUPS)
    assert await groups_of(cluster) == {group["metadata"]["name"]}
    assert workload["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}
    assert group["spec"]["podGroupTemplateRef"]["workload"] == {
        "workloadName": workload["metadata"]["name"],
        "podGroupTemplateName": "j-pgt-0",
    }

    async def told():
        return [e["message"] for e in await cluster.items(EVENTS) if e["reason"] == "WorkloadCreated"]

    assert await cluster.eventually(told) == [f"Created Workload {workload['metadata']['name']} for Job j"]


@pytest.mark.parametrize("length", [57, 58, 61])
async def test_long_job_name_gets_a_group(cluster, length):
    await cluster.create(JOBS, job("j" * length, **indexed(2)))
    await cluster.start(NAME)
    await started(cluster, 2)
    assert None not in await groups_of(cluster)


@pytest.mark.parametrize("leave", ["workload", "both"])
async def test_crash_between_workload_and_group_creates_no_duplicates(cluster, leave):
    created = await cluster.create(JOBS, job(**indexed(2)))
    workload = await cluster.create(WORKLOADS, new_workload(created))
    if leave == "both":
        await cluster.create(POD_GROUPS, new_pod_group(created, workload))
    await cluster.start(NAME)
    await started(cluster, 2)
    assert len(await cluster.items(WORKLOADS)) == 1
    (group,) = await cluster.items(POD_GROUPS)
    assert await groups_of(cluster) == {group["metadata"]["name"]}


async def test_two_workloads_of_one_job_mean_no_group(cluster, caplog):
    for name in ("one", "two"):
        reference = {"apiGroup": "batch", "kind": "Job", "name": "j"}
        policy = {"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}
        spec = {"controllerRef": reference, "podGroupTemplates": [policy]}
        await cluster.create(WORKLOADS, {"metadata": {"name": name}, "spec": spec})
    await cluster.create(JOBS, job(**indexed(2)))
    await cluster.start(NAME)
    await started(cluster, 2)
    assert await groups_of(cluster) == {None}
    assert not await cluster.items(POD_GROUPS)
    assert "job ns/j: its pods are created without a PodGroup: several workloads refer to it: one, two" in caplog.text


async def test_foreground_deletion_removes_job_pods_group_and_workload(cluster):
    await cluster.create(JOBS, job(**indexed(2)))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(NAME, "garbage-collector-controller", "podgroup-protection-controller")
    await started(cluster, 2)
    await cluster.client.delete(JOBS, "j", "ns", propagation_policy="Foreground")

    async def gone():
        left = [await cluster.items(kind) for kind in (JOBS, PODS, POD_GROUPS, WORKLOADS)]
        return not any(left)

    await cluster.eventually(gone)


async def test_pod_group_stays_until_last_pod_has_terminated(cluster):
    group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
    await cluster.create(POD_GROUPS, group)
    await cluster.create(PODS, pod_body("p", nodeName="n1", schedulingGroup={"podGroupName": "g"}))
    await cluster.set_status(PODS, "p", {"phase": "Running"})
    await cluster.start("podgroup-protection-controller")
    await cluster.client.delete(POD_GROUPS, "g", "ns")

    async def stays():
        return (await cluster.get(POD_GROUPS, "g"))["metadata"]["deletionTimestamp"]

    await cluster.always(stays)
    await cluster.set_status(PODS, "p", {"phase": "Succeeded"})

    async def gone():
        return await cluster.get(POD_GROUPS, "g") is None

    await cluster.eventually(gone)


@pytest.mark.parametrize(
    "spec",
    [
        indexed(1),
        indexed(5, parallelism=4),
        {"completions": 4, "parallelism": 4},
        indexed(4, template=template({}, restartPolicy="Never", schedulingGroup={"podGroupName": "mine"})),
    ],
)
async def test_job_that_is_no_gang_gets_no_workload(cluster, spec):
    await cluster.create(JOBS, job(**spec))
    await cluster.start(NAME)
    await started(cluster, spec["parallelism"])
    assert await groups_of(cluster) == ({"mine"} if "template" in spec else {None})
    assert not await cluster.items(WORKLOADS)
    assert not await cluster.items(POD_GROUPS)


async def test_job_of_any_owner_gets_a_gang(cluster):
    spec = {"schedule": "@hourly", "jobTemplate": {"spec": job(**indexed(2))["spec"]}}
    cron = await cluster.create(CRON_JOBS, {"metadata": {"name": "c"}, "spec": spec})
    body = job(**indexed(2))
    metadata = cron["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": metadata["uid"], "controller": True}
    body["metadata"]["ownerReferences"] = [owner]
    await cluster.create(JOBS, body)
    await cluster.start(NAME)
    await started(cluster, 2)
    assert await groups_of(cluster) == {(await the_group(cluster))["name"]}


async def test_feature_gate_off_creates_no_group_and_keeps_existing_ones(cluster):
    everything, cluster.gates = cluster.gates, FeatureGates()
    await cluster.create(JOBS, job(**indexed(2)))
    await cluster.start(NAME)
    await started(cluster, 2)
    await cluster.kill()
    cluster.gates = everything
    await cluster.start(NAME)
    first, _ = await cluster.items(PODS)
    await cluster.client.patch(PODS, first["metadata"]["name"], {"metadata": {"finalizers": None}}, "ns")
    await cluster.client.delete(PODS, first["metadata"]["name"], "ns", grace_period_seconds=0)

    async def replaced():
        names = {p["metadata"]["name"] for p in await cluster.items(PODS)}
        return len(names) == 2 and first["metadata"]["name"] not in names

    await cluster.eventually(replaced)
    assert await groups_of(cluster) == {None}
    assert not await cluster.items(WORKLOADS)


# -- suspend and resume -----------------------------------------------------------------------------------------------


async def suspend(cluster, suspended):
    await cluster.client.patch(JOBS, "j", {"spec": {"suspend": suspended}}, "ns")
    wanted = "True" if suspended else "False"

    async def told():
        condition = get_condition(await cluster.get(JOBS, "j"), "Suspended")
        return condition is not None and condition["status"] == wanted

    await cluster.eventually(told)


async def test_suspended_job_gets_group_on_resume(cluster):
    await cluster.create(JOBS, job(**indexed(2, suspend=True)))
    await cluster.start(NAME)

    async def suspended():
        return get_condition(await cluster.get(JOBS, "j"), "Suspended")

    await cluster.eventually(suspended)
    assert not await cluster.items(WORKLOADS)
    await suspend(cluster, False)
    await started(cluster, 2)
    assert await groups_of(cluster) == {(await the_group(cluster))["name"]}


async def test_suspended_gang_keeps_its_group_after_resume(cluster):
    requests = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    await cluster.create(JOBS, job(**indexed(2)))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(NAME, "garbage-collector-controller", "podgroup-protection-controller")
    await started(cluster, 2)
    before = await the_group(cluster)
    shared = {"name": "shared", "ownerReferences": [reference_to(await cluster.get(POD_GROUPS, before["name"]))]}
    await cluster.create(CLAIMS, {"metadata": shared, "spec": requests})
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": before["name"], "uid": before["uid"]}
    await cluster.set_status(CLAIMS, "shared", {"allocation": {}, "reservedFor": [consumer]})
    await suspend(cluster, True)
    await started(cluster, 0)
    assert (await the_group(cluster))["uid"] == before["uid"]
    assert (await cluster.get(CLAIMS, "shared"))["status"]["reservedFor"] == [consumer]
    assert (await cluster.get(JOBS, "j"))["status"].get("failed", 0) == 0
    await suspend(cluster, False)
    await started(cluster, 2)
    assert await groups_of(cluster) == {before["name"]}
    assert (await the_group(cluster))["uid"] == before["uid"]
    assert len(await cluster.items(WORKLOADS)) == 1
