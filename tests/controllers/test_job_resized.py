"""Gang Jobs that come back from suspension with another parallelism, as queues admit them: in part, or whole again."""

import pytest
from controller_cluster import Kubelet
from gang_jobs import groups_of, indexed, job, reference_to, started

from haru.controllers.objects import JOBS, POD_GROUPS, PODS, WORKLOADS
from haru.kube.errors import StatusError
from haru.kube.job_groups import new_pod_group, new_workload
from haru.kube.meta import get_condition

NAME = "job-controller"
ALL = (NAME, "garbage-collector-controller", "podgroup-protection-controller")


async def change(cluster, **spec):
    await cluster.client.patch(JOBS, "j", {"spec": spec}, "ns")


async def suspended(cluster):
    """Suspend the Job, and wait until it has no pods."""
    await change(cluster, suspend=True)

    async def told():
        condition = get_condition(await cluster.get(JOBS, "j"), "Suspended")
        return condition is not None and condition["status"] == "True"

    await cluster.eventually(told)
    await started(cluster, 0)


async def gangs(cluster):
    """The minCounts of the PodGroups that stay, and of the Workloads."""
    groups = [g for g in await cluster.items(POD_GROUPS) if not g["metadata"].get("deletionTimestamp")]
    workloads = [w["spec"]["podGroupTemplates"][0] for w in await cluster.items(WORKLOADS)]
    return [[o["schedulingPolicy"]["gang"]["minCount"] for o in of] for of in ((g["spec"] for g in groups), workloads)]


async def test_suspended_job_resized_before_start_gets_gang_of_new_size(cluster):
    await cluster.create(JOBS, job(**indexed(4, suspend=True)))
    await cluster.start(NAME)
    live = await cluster.get(JOBS, "j")
    live["spec"] |= {"parallelism": 2, "completions": 2}
    await cluster.client.update(JOBS, live)
    await change(cluster, suspend=False)
    await started(cluster, 2)
    assert await gangs(cluster) == [[2], [2]]


@pytest.mark.parametrize("size", [2, 6])
async def test_resumed_job_gets_gang_of_its_new_size(cluster, size):
    await cluster.create(JOBS, job(**indexed(4)))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(*ALL)
    await started(cluster, 4)
    before = await groups_of(cluster)
    await suspended(cluster)
    await change(cluster, parallelism=size, completions=size, suspend=False)
    await started(cluster, size)

    async def replaced():
        return await gangs(cluster) == [[size], [size]]

    await cluster.eventually(replaced)
    (group,) = await groups_of(cluster)
    assert group is not None and {group} != before
    await suspended(cluster)
    await change(cluster, parallelism=4, completions=4, suspend=False)
    await started(cluster, 4)
    await cluster.eventually(lambda: _equal(gangs(cluster), [[4], [4]]))
    assert None not in await groups_of(cluster)
    assert (await cluster.get(JOBS, "j"))["status"].get("failed", 0) == 0


async def _equal(found, wanted):
    return await found == wanted


async def test_job_resumed_below_its_completions_has_no_group(cluster):
    """Kueue lowers the parallelism alone: the indexes are done by turns."""
    await cluster.create(JOBS, job(**indexed(4)))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(*ALL)
    await started(cluster, 4)
    await suspended(cluster)
    await change(cluster, parallelism=2, suspend=False)
    await started(cluster, 2)
    assert await groups_of(cluster) == {None}
    await cluster.eventually(lambda: _equal(gangs(cluster), [[], []]))
    await change(cluster, parallelism=1)  # no gang stands against it any more
    await started(cluster, 1)


async def test_gang_of_resumed_job_excludes_completed_indexes(cluster):
    def phase(pod):
        index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        return "Succeeded" if index == "0" else "Running"

    await cluster.create(JOBS, job(**indexed(4)))
    await cluster.play(Kubelet(cluster.client, phase).run())
    await cluster.start(*ALL)

    async def one_is_done():
        return ((await cluster.get(JOBS, "j")).get("status") or {}).get("completedIndexes") == "0"

    await cluster.eventually(one_is_done)
    await change(cluster, suspend=True)
    await started(cluster, 1)
    await change(cluster, parallelism=3, completions=3, suspend=False)
    await started(cluster, 3)
    await cluster.eventually(lambda: _equal(gangs(cluster), [[2], [2]]))


@pytest.mark.parametrize("died", ["after the Workload", "after the PodGroup"])
async def test_controller_crash_between_new_workload_and_group_creates_no_duplicate(cluster, died):
    await cluster.create(JOBS, job(**indexed(4)))
    await cluster.start(NAME)
    await started(cluster, 4)
    await suspended(cluster)
    await cluster.kill()
    await change(cluster, parallelism=2, completions=2, suspend=False)
    live = await cluster.get(JOBS, "j")
    workload = await cluster.create(WORKLOADS, new_workload(live, 1))
    if died == "after the PodGroup":
        await cluster.create(POD_GROUPS, new_pod_group(live, workload))
    await cluster.start(*ALL)
    await started(cluster, 2)
    await cluster.eventually(lambda: _equal(gangs(cluster), [[2], [2]]))
    (group,) = await cluster.items(POD_GROUPS)
    assert await groups_of(cluster) == {group["metadata"]["name"]}


async def test_group_created_by_another_manager_is_never_replaced(cluster):
    created = await cluster.create(JOBS, job(**indexed(4)))
    workload = new_workload(created)
    del workload["metadata"]["annotations"]
    workload = await cluster.create(WORKLOADS, workload)
    await cluster.start(NAME)
    await started(cluster, 4)
    assert workload["metadata"]["ownerReferences"] == [reference_to(created) | {"blockOwnerDeletion": True}]
    await suspended(cluster)
    with pytest.raises(StatusError, match="cannot change parallelism"):
        await change(cluster, parallelism=2, completions=2)
    await change(cluster, suspend=False)
    await started(cluster, 4)
    assert await gangs(cluster) == [[4], [4]]


async def test_forbidden_deletion_of_old_gang_leaves_it_and_job_runs(cluster, monkeypatch, caplog):
    """As under the Job controller's role of 1.36."""
    client = cluster.client_of(NAME)
    delete = client.delete

    async def refusing(kind, *args, **kwargs):
        if kind in (WORKLOADS, POD_GROUPS):
            raise StatusError(403, "Forbidden", "may not delete it")
        return await delete(kind, *args, **kwargs)

    monkeypatch.setattr(client, "delete", refusing)
    await cluster.create(JOBS, job(**indexed(4)))
    await cluster.start(NAME)
    await started(cluster, 4)
    await suspended(cluster)
    await change(cluster, parallelism=2, completions=2, suspend=False)
    await started(cluster, 2)
    groups = {g["metadata"]["name"]: g["spec"]["schedulingPolicy"] for g in await cluster.items(POD_GROUPS)}
    (name,) = await groups_of(cluster)
    assert len(groups) == 2 and groups[name] == {"gang": {"minCount": 2}}
    assert "stays until its Job goes: may not delete it" in caplog.text
    assert not [p for p in await cluster.items(PODS) if p["metadata"].get("deletionTimestamp")]
