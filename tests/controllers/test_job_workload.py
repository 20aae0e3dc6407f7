"""Jobs that are gangs: the Workload and PodGroup that the Job controller makes for them, and what may go wrong."""

from datetime import timedelta

import pytest
from controller_cluster import Kubelet, pod_body, template

from haru.controllers.job_workload import (
    never_started,
    new_pod_group,
    new_workload,
    pod_group_name,
    template_name,
    workload_name,
)
from haru.controllers.objects import CLAIMS, JOBS, POD_GROUPS, PODS, WORKLOADS
from haru.kube import kinds
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates
from haru.kube.jobs import is_gang_job
from haru.kube.meta import get_condition
from haru.kube.names import is_dns1123_label, is_dns1123_subdomain

EVENTS = kinds.lookup("", "v1", "events")
CRON_JOBS = kinds.lookup("batch", "v1", "cronjobs")
NAME = "job-controller"
HELD = "scheduling.k8s.io/podgroup-protection"


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
def test_which_jobs_are_gangs(spec, expected):
    assert is_gang_job(gang_of(**spec)["spec"]) is expected


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
def test_only_a_job_without_history_gets_a_group(status, has_pods, expected):
    assert never_started({**gang_of(), "status": status}, has_pods) is expected


@pytest.mark.parametrize("length", [1, 10, 57, 58, 61, 63])
def test_template_names_fit(length):
    name = template_name("j" * length)
    assert not is_dns1123_label(name)
    assert (name == "j" * length + "-pgt-0") is (length <= 57)
    assert template_name("j" * 58) != template_name("j" * 59)


def test_long_names_are_cut_and_stay_different():
    long = {"metadata": {"name": "j" * 253, "uid": "u"}}
    assert len(workload_name(long)) <= 253
    names = {pod_group_name("w" * 253, "t" * n) for n in (1, 30, 63)}
    assert len(names) == 3
    assert all(len(name) <= 253 and not is_dns1123_subdomain(name) for name in names)
    assert pod_group_name("w" * 200, "t").startswith("w" * 200 + "-t-")


def test_workload_and_pod_group():
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
    of_job, of_workload = group["metadata"]["ownerReferences"]
    assert (of_job["kind"], of_job["controller"], of_job["blockOwnerDeletion"]) == ("Job", True, True)
    assert of_workload == {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "Workload",
        "name": workload["metadata"]["name"],
        "uid": "w1",
    }


# -- on the API -------------------------------------------------------------------------------------------------------


def job(name="j", **spec):
    pods = template({}, restartPolicy="Never")
    return {"metadata": {"name": name}, "spec": {"template": pods, **spec}}


def indexed(count, **spec):
    return {"completionMode": "Indexed", "completions": count, "parallelism": count, **spec}


async def groups_of(cluster):
    return {(p["spec"].get("schedulingGroup") or {}).get("podGroupName") for p in await cluster.items(PODS)}


async def started(cluster, count):
    async def holds():
        return len(await cluster.items(PODS)) == count

    await cluster.eventually(holds)


async def test_a_gang_gets_a_workload_and_a_group_before_its_pods(cluster):
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
async def test_long_job_names(cluster, length):
    await cluster.create(JOBS, job("j" * length, **indexed(2)))
    await cluster.start(NAME)
    await started(cluster, 2)
    assert None not in await groups_of(cluster)


@pytest.mark.parametrize("leave", ["workload", "both"])
async def test_a_crash_between_the_creations_makes_nothing_twice(cluster, leave):
    created = await cluster.create(JOBS, job(**indexed(2)))
    workload = await cluster.create(WORKLOADS, new_workload(created))
    if leave == "both":
        await cluster.create(POD_GROUPS, new_pod_group(created, workload))
    await cluster.start(NAME)
    await started(cluster, 2)
    assert len(await cluster.items(WORKLOADS)) == 1
    (group,) = await cluster.items(POD_GROUPS)
    assert await groups_of(cluster) == {group["metadata"]["name"]}


async def test_two_workloads_for_one_job_mean_none(cluster):
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


async def test_a_deleted_gang_goes_altogether(cluster):
    await cluster.create(JOBS, job(**indexed(2)))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(NAME, "garbage-collector-controller", "podgroup-protection-controller")
    await started(cluster, 2)
    await cluster.client.delete(JOBS, "j", "ns", propagation_policy="Foreground")

    async def gone():
        left = [await cluster.items(kind) for kind in (JOBS, PODS, POD_GROUPS, WORKLOADS)]
        return not any(left)

    await cluster.eventually(gone)


async def test_a_group_stays_while_a_pod_may_run(cluster):
    group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
    await cluster.create(POD_GROUPS, group)
    await cluster.create(PODS, pod_body("p", nodeName="n1", schedulingGroup={"podGroupName": "g"}))
    await cluster.start("podgroup-protection-controller")
    await cluster.client.delete(POD_GROUPS, "g", "ns")

    async def stays():
        return (await cluster.get(POD_GROUPS, "g"))["metadata"]["deletionTimestamp"]

    await cluster.always(stays)
    await cluster.set_status(PODS, "p", {"phase": "Succeeded"})

    async def gone():
        return await cluster.get(POD_GROUPS, "g") is None

    await cluster.eventually(gone)


async def the_group(cluster):
    (group,) = await cluster.items(POD_GROUPS)
    return group["metadata"]


async def suspend(cluster, suspended):
    await cluster.client.patch(JOBS, "j", {"spec": {"suspend": suspended}}, "ns")
    wanted = "True" if suspended else "False"

    async def told():
        condition = get_condition(await cluster.get(JOBS, "j"), "Suspended")
        return condition is not None and condition["status"] == wanted

    await cluster.eventually(told)


@pytest.mark.parametrize(
    "spec",
    [
        indexed(1),
        indexed(5, parallelism=4),
        {"completions": 4, "parallelism": 4},
        indexed(4, template=template({}, restartPolicy="Never", schedulingGroup={"podGroupName": "mine"})),
    ],
)
async def test_other_jobs_have_no_group_of_their_own(cluster, spec):
    await cluster.create(JOBS, job(**spec))
    await cluster.start(NAME)
    await started(cluster, spec["parallelism"])
    assert await groups_of(cluster) == ({"mine"} if "template" in spec else {None})
    assert not await cluster.items(WORKLOADS)
    assert not await cluster.items(POD_GROUPS)


async def test_whoever_made_the_job_does_not_matter(cluster):
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


async def test_with_the_gate_off_nothing_is_grouped_and_what_started_so_goes_on_so(cluster):
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


async def test_a_job_that_was_suspended_first_gets_its_group_when_it_starts(cluster):
    await cluster.create(JOBS, job(**indexed(2, suspend=True)))
    await cluster.start(NAME)

    async def suspended():
        return get_condition(await cluster.get(JOBS, "j"), "Suspended")

    await cluster.eventually(suspended)
    assert not await cluster.items(WORKLOADS)
    await suspend(cluster, False)
    await started(cluster, 2)
    assert await groups_of(cluster) == {(await the_group(cluster))["name"]}


async def test_a_gang_that_is_suspended_keeps_its_group_and_finds_it_again(cluster):
    requests = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    await cluster.create(JOBS, job(**indexed(2)))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(NAME, "garbage-collector-controller", "podgroup-protection-controller")
    await started(cluster, 2)
    before = await the_group(cluster)
    shared = {"name": "shared", "ownerReferences": [_reference(await cluster.get(POD_GROUPS, before["name"]))]}
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


def _reference(owner):
    metadata = owner["metadata"]
    kind = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    return {**kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}


# -- changes ----------------------------------------------------------------------------------------------------------


async def test_a_failed_member_is_replaced_in_the_same_group(cluster):
    failed = set()

    def phase(pod):
        if not failed and pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1":
            failed.add(pod["metadata"]["name"])
        return "Failed" if pod["metadata"]["name"] in failed else "Running"

    await cluster.create(JOBS, job(**indexed(3)))
    await cluster.play(Kubelet(cluster.client, phase).run())
    cluster.ahead = timedelta(hours=1)
    await cluster.start(NAME)

    async def replaced():
        status = (await cluster.get(JOBS, "j")).get("status") or {}
        return (status.get("failed"), status.get("ready")) == (1, 3)

    await cluster.eventually(replaced)
    assert len(await cluster.items(PODS)) == 4
    assert await groups_of(cluster) == {(await the_group(cluster))["name"]}


async def test_a_gang_keeps_its_size(cluster):
    await cluster.create(JOBS, job(**indexed(4)))
    with pytest.raises(StatusError, match=r"spec\.parallelism: Invalid value: 8: field is immutable"):
        await cluster.client.patch(JOBS, "j", {"spec": {"parallelism": 8, "completions": 8}}, "ns")


async def test_members_that_wait_for_a_gang_that_has_become_too_small_are_made_anew(cluster):
    """Two pods of a group whose minCount is four would wait for ever."""
    await cluster.create(JOBS, job(**indexed(4)))
    await cluster.start(NAME)
    await started(cluster, 4)
    await cluster.client.patch(JOBS, "j", {"spec": {"parallelism": 2}}, "ns")

    async def alone():
        return len(await cluster.items(PODS)) == 2 and await groups_of(cluster) == {None}

    await cluster.eventually(alone)
    assert (await cluster.get(JOBS, "j"))["status"].get("failed", 0) == 0


async def test_members_that_run_go_on_when_the_job_becomes_smaller(cluster):
    await cluster.create(JOBS, job(**indexed(4)))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(NAME)

    async def active(count):
        return ((await cluster.get(JOBS, "j")).get("status") or {}).get("ready") == count

    await cluster.eventually(lambda: active(4))
    before = {p["metadata"]["uid"] for p in await cluster.items(PODS)}
    await cluster.client.patch(JOBS, "j", {"spec": {"parallelism": 2}}, "ns")
    await started(cluster, 2)
    assert {p["metadata"]["uid"] for p in await cluster.items(PODS)} < before


# -- objects of others ------------------------------------------------------------------------------------------------


REFERENCE = {"apiGroup": "batch", "kind": "Job", "name": "j"}
POLICY = {"schedulingPolicy": {"gang": {"minCount": 2}}}


async def a_workload(cluster, name, owner=None, templates=1):
    metadata = {"name": name, **({"ownerReferences": [owner]} if owner else {})}
    spec = {"controllerRef": REFERENCE, "podGroupTemplates": [{"name": f"t{i}", **POLICY} for i in range(templates)]}
    return await cluster.create(WORKLOADS, {"metadata": metadata, "spec": spec})


async def a_pod_group(cluster, name, workload, owner=None):
    metadata = {"name": name, **({"ownerReferences": [owner]} if owner else {})}
    reference = {"workload": {"workloadName": workload, "podGroupTemplateName": "t0"}}
    return await cluster.create(
        POD_GROUPS, {"metadata": metadata, "spec": {"podGroupTemplateRef": reference, **POLICY}}
    )


@pytest.mark.parametrize("case", ["their workload", "two templates", "their group", "two groups"])
async def test_what_is_not_clearly_its_own_means_no_group(cluster, case):
    owner = _reference(await cluster.create(JOBS, job(**indexed(2))))
    mine = case != "their workload"
    await a_workload(cluster, "w", owner if mine else None, templates=2 if case == "two templates" else 1)
    if "group" in case:
        await a_pod_group(cluster, "g", "w", owner if case == "two groups" else None)
    if case == "two groups":
        await a_pod_group(cluster, "h", "w", owner)
    before = len(await cluster.items(POD_GROUPS))
    await cluster.start(NAME)
    await started(cluster, 2)
    assert await groups_of(cluster) == {None}
    assert (len(await cluster.items(WORKLOADS)), len(await cluster.items(POD_GROUPS))) == (1, before)


async def test_what_is_its_own_is_used_whatever_it_is_called(cluster):
    owner = _reference(await cluster.create(JOBS, job(**indexed(2))))
    await a_workload(cluster, "any-name", owner)
    await a_pod_group(cluster, "another", "any-name", owner)
    await cluster.start(NAME)
    await started(cluster, 2)
    assert await groups_of(cluster) == {"another"}


async def test_a_name_that_somebody_else_took_is_passed_over(cluster):
    created = await cluster.create(JOBS, job(**indexed(2)))
    theirs = new_workload(created)
    del theirs["metadata"]["ownerReferences"], theirs["spec"]["controllerRef"]
    await cluster.create(WORKLOADS, theirs)
    second = new_workload(created, 1)
    group = pod_group_name(second["metadata"]["name"], "j-pgt-0")
    await cluster.create(POD_GROUPS, {"metadata": {"name": group}, "spec": POLICY})
    await cluster.start(NAME)
    await started(cluster, 2)
    assert await groups_of(cluster) == {pod_group_name(second["metadata"]["name"], "j-pgt-0", 1)}
    assert len(await cluster.items(WORKLOADS)) == 2


async def test_a_job_of_the_same_name_is_another_job(cluster):
    """What the first one left is still there when the second one starts: nobody collects garbage here."""
    await cluster.create(JOBS, job(**indexed(2)))
    await cluster.start(NAME)
    await started(cluster, 2)
    old = await the_group(cluster)
    await cluster.client.delete(JOBS, "j", "ns", propagation_policy="Background")
    await cluster.create(JOBS, job(**indexed(2)))

    async def grouped():
        names = await groups_of(cluster)
        return len(await cluster.items(PODS)) == 4 and names - {old["name"]}

    assert None not in await cluster.eventually(grouped)
    assert len(await cluster.items(WORKLOADS)) == 2


async def test_without_its_workload_a_gang_stays_together(cluster):
    await cluster.create(JOBS, job(**indexed(2)))
    await cluster.play(Kubelet(cluster.client).run())
    cluster.ahead = timedelta(hours=1)
    await cluster.start(NAME, "garbage-collector-controller", "podgroup-protection-controller")
    await started(cluster, 2)
    group = await the_group(cluster)
    (workload,) = await cluster.items(WORKLOADS)
    await cluster.client.delete(WORKLOADS, workload["metadata"]["name"], "ns")
    first, _ = await cluster.items(PODS)
    await cluster.client.delete(PODS, first["metadata"]["name"], "ns")

    async def replaced():
        names = {p["metadata"]["name"] for p in await cluster.items(PODS)}
        return len(names) == 2 and first["metadata"]["name"] not in names

    await cluster.eventually(replaced)
    assert await groups_of(cluster) == {group["name"]}
    assert not await cluster.items(WORKLOADS)


# -- order ------------------------------------------------------------------------------------------------------------


async def test_new_members_wait_while_the_group_is_on_its_way_out(cluster):
    """It may vanish before the first pod that needs it is seen; a pod of a group that is gone waits for ever."""
    created = await cluster.create(JOBS, job(**indexed(2)))
    workload = await cluster.create(WORKLOADS, new_workload(created))
    old = await cluster.create(POD_GROUPS, new_pod_group(created, workload))
    await cluster.client.delete(POD_GROUPS, old["metadata"]["name"], "ns")
    await cluster.start(NAME)

    async def nothing():
        return not await cluster.items(PODS)

    await cluster.always(nothing)
    assert not (await cluster.get(JOBS, "j")).get("status", {}).get("startTime")
    await cluster.client.patch(POD_GROUPS, old["metadata"]["name"], {"metadata": {"finalizers": None}}, "ns")
    await started(cluster, 2)
    group = await the_group(cluster)
    assert group["uid"] != old["metadata"]["uid"]
    assert await groups_of(cluster) == {group["name"]}


async def test_members_go_before_their_group(cluster):
    await cluster.create(JOBS, job(**indexed(2)))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(NAME)
    await started(cluster, 2)
    group = (await the_group(cluster))["name"]
    for pod in await cluster.items(PODS):
        await cluster.client.patch(PODS, pod["metadata"]["name"], {"metadata": {"finalizers": ["test/hold"]}}, "ns")

    async def running():
        return all((p.get("status") or {}).get("phase") == "Running" for p in await cluster.items(PODS))

    await cluster.eventually(running)
    await cluster.kill()  # the kubelet too: the members cannot end
    await cluster.start(NAME, "garbage-collector-controller", "podgroup-protection-controller")
    await cluster.client.delete(JOBS, "j", "ns", propagation_policy="Foreground")

    async def going():
        return (await cluster.get(POD_GROUPS, group))["metadata"].get("deletionTimestamp")

    await cluster.eventually(going)
    await cluster.always(going)
    for pod in await cluster.items(PODS):
        await cluster.set_status(PODS, pod["metadata"]["name"], {"phase": "Failed"})

    async def gone():
        return await cluster.get(POD_GROUPS, group) is None

    await cluster.eventually(gone)


async def test_a_member_that_comes_again_under_its_name_is_another_pod(cluster):
    """Deleted and created again in one step: the group of the first one is looked at."""
    for name in ("old", "new"):
        await cluster.create(POD_GROUPS, {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"basic": {}}}})
    await cluster.create(PODS, pod_body("p", schedulingGroup={"podGroupName": "old"}))
    await cluster.start("podgroup-protection-controller")
    await cluster.client.delete(POD_GROUPS, "old", "ns")
    assert (await cluster.get(POD_GROUPS, "old"))["metadata"]["finalizers"] == [HELD]
    await cluster.client.delete(PODS, "p", "ns", grace_period_seconds=0)
    await cluster.create(PODS, pod_body("p", schedulingGroup={"podGroupName": "new"}))

    async def gone():
        return await cluster.get(POD_GROUPS, "old") is None

    await cluster.eventually(gone)
    assert await cluster.get(POD_GROUPS, "new")
