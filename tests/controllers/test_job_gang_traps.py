"""What may go wrong with the gang of a Job: changes, objects of others, and the order in which things go."""

from datetime import timedelta

import pytest
from controller_cluster import Kubelet, pod_body
from gang_jobs import groups_of, indexed, job, reference_to, started, the_group

from haru.controllers.objects import JOBS, POD_GROUPS, PODS, WORKLOADS
from haru.kube.errors import StatusError
from haru.kube.job_groups import new_pod_group, new_workload, pod_group_name

NAME = "job-controller"
HELD = "scheduling.k8s.io/podgroup-protection"


# -- changes ----------------------------------------------------------------------------------------------------------


async def test_failed_member_is_replaced_in_same_pod_group(cluster):
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


async def test_parallelism_of_gang_job_cannot_be_changed(cluster):
    await cluster.create(JOBS, job(**indexed(4)))
    await cluster.start(NAME)
    await started(cluster, 4)
    group = (await the_group(cluster))["name"]
    for size in ({"parallelism": 8, "completions": 8}, {"parallelism": 2}):
        with pytest.raises(StatusError, match=f'cannot change parallelism .* PodGroup "{group}"') as raised:
            await cluster.client.patch(JOBS, "j", {"spec": size}, "ns")
        assert raised.value.code == 403


async def without_its_group(cluster, size):
    """Somebody takes the PodGroup away, which 1.36 allows, and then the Job gets another size."""
    group = (await the_group(cluster))["name"]
    await cluster.client.patch(POD_GROUPS, group, {"metadata": {"finalizers": None}}, "ns")
    await cluster.client.delete(POD_GROUPS, group, "ns")
    await cluster.client.patch(JOBS, "j", {"spec": size}, "ns")


async def test_pending_members_of_deleted_group_are_recreated_without_group(cluster):
    """Two pods of a group whose minCount is four would wait for ever."""
    await cluster.create(JOBS, job(**indexed(4)))
    await cluster.start(NAME)
    await started(cluster, 4)
    await without_its_group(cluster, {"parallelism": 2})

    async def alone():
        return len(await cluster.items(PODS)) == 2 and await groups_of(cluster) == {None}

    await cluster.eventually(alone)
    assert (await cluster.get(JOBS, "j"))["status"].get("failed", 0) == 0


async def test_pending_members_get_a_gang_of_the_new_job_size(cluster):
    await cluster.create(JOBS, job(**indexed(4)))
    await cluster.start(NAME)
    await started(cluster, 4)
    before = await groups_of(cluster)
    await without_its_group(cluster, {"parallelism": 2, "completions": 2})

    async def smaller():
        names = await groups_of(cluster)
        return len(await cluster.items(PODS)) == 2 and not names & (before | {None})

    await cluster.eventually(smaller)
    (group,) = await cluster.items(POD_GROUPS)
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}


async def test_running_members_stay_when_job_without_group_shrinks(cluster):
    await cluster.create(JOBS, job(**indexed(4)))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(NAME)

    async def active(count):
        return ((await cluster.get(JOBS, "j")).get("status") or {}).get("ready") == count

    await cluster.eventually(lambda: active(4))
    before = {p["metadata"]["uid"] for p in await cluster.items(PODS)}
    await without_its_group(cluster, {"parallelism": 2})
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
async def test_ambiguous_or_foreign_workload_means_no_pod_group(cluster, case):
    owner = reference_to(await cluster.create(JOBS, job(**indexed(2))))
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


async def test_own_workload_and_pod_group_are_used_by_reference_not_name(cluster):
    owner = reference_to(await cluster.create(JOBS, job(**indexed(2))))
    await a_workload(cluster, "any-name", owner)
    await a_pod_group(cluster, "another", "any-name", owner)
    await cluster.start(NAME)
    await started(cluster, 2)
    assert await groups_of(cluster) == {"another"}


async def test_workload_name_taken_by_another_object_is_avoided(cluster):
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


async def test_recreated_job_gets_its_own_workload_and_group(cluster):
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


async def test_gang_without_its_workload_keeps_its_pod_group(cluster):
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


@pytest.mark.parametrize("kind", [WORKLOADS, POD_GROUPS], ids=lambda kind: kind.kind)
async def test_failed_requests_are_retried_until_job_has_its_gang(cluster, monkeypatch, kind):
    client = cluster.client_of("job-controller")
    create, refused = client.create, []

    async def failing(of, *args, **kwargs):
        if of == kind and len(refused) < 3:
            refused.append(of)
            raise StatusError(500, "InternalError", "not now")
        return await create(of, *args, **kwargs)

    monkeypatch.setattr(client, "create", failing)
    await cluster.create(JOBS, job(**indexed(2)))
    await cluster.start(NAME)
    await started(cluster, 2)
    assert len(refused) == 3
    assert await groups_of(cluster) == {(await the_group(cluster))["name"]}


async def test_new_members_wait_until_terminating_group_is_replaced(cluster):
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


async def test_pod_group_is_deleted_after_its_members(cluster):
    await cluster.create(JOBS, job(**indexed(2)))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(NAME)
    await started(cluster, 2)
    group = (await the_group(cluster))["name"]
    for pod in await cluster.items(PODS):
        # Without the Job's own finalizer beside it the pod would not count any more, and be replaced.
        held = {"metadata": {"finalizers": [*pod["metadata"]["finalizers"], "test/hold"]}}
        await cluster.client.patch(PODS, pod["metadata"]["name"], held, "ns")

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


async def test_recreated_member_in_other_group_releases_old_group(cluster):
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
