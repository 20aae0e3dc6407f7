"""How Jobs fail and succeed by their policies, with a kubelet that plays along."""

from datetime import timedelta

import pytest
from controller_cluster import Kubelet
from gang_jobs import indexed, job

from haru.controllers.job_indexes import index_of
from haru.controllers.job_retries import FAILURES, IGNORED_FAILURES
from haru.controllers.job_tracking import TRACKING
from haru.controllers.objects import JOBS, PODS
from haru.kube.errors import StatusError
from haru.kube.meta import get_condition

NAME = "job-controller"
IGNORE_DISRUPTION = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def on_codes(action, *codes):
    return {"action": action, "onExitCodes": {"operator": "In", "values": list(codes)}}


async def status_of(cluster):
    return (await cluster.get(JOBS, "j")).get("status") or {}


async def ends(cluster, type_):
    async def holds():
        condition = get_condition(await cluster.get(JOBS, "j"), type_)
        return condition is not None and condition["status"] == "True" and condition

    condition = await cluster.eventually(holds)
    return condition["reason"], condition["message"], await status_of(cluster)


async def live_pods(cluster):
    pods = [p for p in await cluster.items(PODS) if not p["metadata"].get("deletionTimestamp")]
    return [p for p in pods if (p.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]


async def evict(cluster, name):
    """As preemption and taint eviction do: first the condition, then the deletion."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    body = {"status": {"conditions": [condition]}}
    await cluster.client.patch(PODS, name, body, "ns", type="strategic", subresource="status")
    await cluster.client.delete(PODS, name, "ns")


async def test_preempted_pod_does_not_count_as_failure_with_ignore_rule(cluster):
    policy = {"rules": [IGNORE_DISRUPTION]}
    await cluster.create(JOBS, job(**indexed(3, backoffLimit=0, podFailurePolicy=policy)))
    await cluster.play(Kubelet(cluster.client).run())
    cluster.ahead = timedelta(hours=1)
    await cluster.start(NAME)
    seen = set()

    async def ready():
        seen.update(p["metadata"]["uid"] for p in await cluster.items(PODS))
        return (await status_of(cluster)).get("ready") == 3

    await cluster.eventually(ready)
    for _ in range(3):
        victim = (await live_pods(cluster))[0]["metadata"]
        await evict(cluster, victim["name"])

        async def replaced(gone=victim["uid"]):
            pods = await live_pods(cluster)
            return len(pods) == 3 and gone not in {p["metadata"]["uid"] for p in pods} and await ready()

        await cluster.eventually(replaced)
    assert len(seen) == 6
    status = await status_of(cluster)
    assert (status.get("failed", 0), status.get("conditions")) == (0, None)


async def test_exit_code_rule_fails_whole_job(cluster):
    def phase(pod):
        return "Failed 42" if index_of(pod) == 1 else "Running"

    policy = {"rules": [on_codes("Ignore", 3), on_codes("FailJob", 42)]}
    await cluster.create(JOBS, job(**indexed(3, podFailurePolicy=policy)))
    await cluster.play(Kubelet(cluster.client, phase).run())
    await cluster.start(NAME)
    reason, message, status = await ends(cluster, "Failed")
    assert reason == "PodFailurePolicy"
    assert message.endswith("failed with exit code 42 matching FailJob rule at index 1")
    assert (status["failed"], status.get("active", 0), status["terminating"]) == (3, 0, 0)
    assert get_condition(await cluster.get(JOBS, "j"), "FailureTarget")["message"] == message


async def test_backoff_limit_per_index_fails_indexes_separately(cluster):
    def phase(pod):
        return "Failed 1" if index_of(pod) == 1 else "Succeeded"

    await cluster.create(JOBS, job(**indexed(3, backoffLimitPerIndex=2)))
    await cluster.play(Kubelet(cluster.client, phase).run())
    cluster.ahead = timedelta(hours=1)
    await cluster.start(NAME)
    reason, message, status = await ends(cluster, "Failed")
    assert (reason, message) == ("FailedIndexes", "Job has failed indexes")
    assert (status["completedIndexes"], status["failedIndexes"], status["failed"]) == ("0,2", "1", 3)
    tries = [p["metadata"]["annotations"][FAILURES] for p in await cluster.items(PODS) if index_of(p) == 1]
    assert sorted(tries) == ["0", "1", "2"]
    assert not any(TRACKING in p["metadata"].get("finalizers", ()) for p in await cluster.items(PODS))


async def test_max_failed_indexes_fails_job(cluster):
    def phase(pod):
        return "Failed 1" if index_of(pod) < 2 else "Running"

    await cluster.create(JOBS, job(**indexed(4, backoffLimitPerIndex=0, maxFailedIndexes=1)))
    await cluster.play(Kubelet(cluster.client, phase).run())
    await cluster.start(NAME)
    reason, message, status = await ends(cluster, "Failed")
    assert reason == "MaxFailedIndexesExceeded"
    assert message == "Job has exceeded the specified maximal number of failed indexes"
    assert status["failedIndexes"] == "0,1"


async def test_fail_index_rule_and_ignore_rule_apply_per_index(cluster):
    ignored = set()

    def phase(pod):
        if index_of(pod) == 0:
            return "Failed 7"
        if len(ignored) < 2:
            ignored.add(pod["metadata"]["name"])
        return "Failed 3" if pod["metadata"]["name"] in ignored else "Succeeded"

    policy = {"rules": [on_codes("FailIndex", 7), on_codes("Ignore", 3)]}
    await cluster.create(JOBS, job(**indexed(2, backoffLimitPerIndex=1, podFailurePolicy=policy)))
    await cluster.play(Kubelet(cluster.client, phase).run())
    cluster.ahead = timedelta(hours=1)
    await cluster.start(NAME)
    _, _, status = await ends(cluster, "Failed")
    assert (status["completedIndexes"], status["failedIndexes"], status["failed"]) == ("1", "0", 1)
    last = max(await cluster.items(PODS), key=lambda p: p["metadata"]["annotations"].get(IGNORED_FAILURES, "0"))
    assert last["metadata"]["annotations"][IGNORED_FAILURES] == "2"
    assert last["metadata"]["annotations"][FAILURES] == "0"


async def test_counts_per_index_stay_exact_when_controller_is_killed(cluster):
    def phase(pod):
        return "Failed 1" if index_of(pod) == 1 else "Succeeded"

    await cluster.create(JOBS, job(**indexed(3, backoffLimitPerIndex=3)))
    cluster.ahead = timedelta(hours=1)
    for _ in range(6):
        await cluster.play(Kubelet(cluster.client, phase).run())
        await cluster.start(NAME)
        await cluster.kill()
    await cluster.play(Kubelet(cluster.client, phase).run())
    await cluster.start(NAME)
    _, _, status = await ends(cluster, "Failed")
    assert (status["completedIndexes"], status["failedIndexes"], status["failed"]) == ("0,2", "1", 4)


async def test_success_policy_of_leader_deletes_other_pods(cluster):
    def phase(pod):
        return "Succeeded" if index_of(pod) == 0 else "Running"

    policy = {"rules": [{"succeededIndexes": "0"}]}
    await cluster.create(JOBS, job(**indexed(3, successPolicy=policy)))
    await cluster.play(Kubelet(cluster.client, phase).run())
    await cluster.start(NAME)
    reason, message, status = await ends(cluster, "Complete")
    assert (reason, message) == ("SuccessPolicy", "Matched rules at index 0")
    assert (status["completedIndexes"], status.get("failed", 0), status["terminating"]) == ("0", 0, 0)
    assert status["completionTime"]
    assert await live_pods(cluster) == []


async def test_job_with_foreign_managed_by_is_not_changed(cluster):
    await cluster.create(JOBS, job(**indexed(2, managedBy="example.com/other")))
    await cluster.start(NAME)

    async def nothing():
        return not await cluster.items(PODS) and not (await cluster.get(JOBS, "j")).get("status")

    await cluster.always(nothing)
    # The other manager's status is held to the same rules.
    live = await cluster.get(JOBS, "j")
    live["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    with pytest.raises(StatusError, match="cannot set Complete=True condition without the SuccessCriteriaMet=true"):
        await cluster.client.update_status(JOBS, live)


async def test_replacement_policy_failed_waits_until_pod_has_terminated(cluster):
    """podReplacementPolicy: Failed. Without a kubelet a pod that is being deleted does not end."""
    await cluster.create(JOBS, job(**indexed(1, podReplacementPolicy="Failed")))
    kubelet = Kubelet(cluster.client)
    await cluster.play(kubelet.run())
    cluster.ahead = timedelta(hours=1)
    await cluster.start(NAME)

    async def ready():
        return (await status_of(cluster)).get("ready") == 1

    await cluster.eventually(ready)
    await cluster.kill()
    (first,) = await cluster.items(PODS)
    await cluster.start(NAME)
    await cluster.client.delete(PODS, first["metadata"]["name"], "ns")

    async def terminating():
        return (await status_of(cluster)).get("terminating") == 1

    await cluster.eventually(terminating)

    async def alone():
        return len(await cluster.items(PODS)) == 1 and not (await status_of(cluster)).get("failed")

    await cluster.always(alone)
    await cluster.play(Kubelet(cluster.client).run())

    async def replaced():
        status = await status_of(cluster)
        return (status.get("failed"), status.get("ready"), status["terminating"]) == (1, 1, 0)

    await cluster.eventually(replaced)


async def test_deleted_pod_without_node_is_collected_and_replaced(cluster):
    """Nobody but the pod collector can say that a deleted pod without a node has ended."""
    await cluster.create(JOBS, job(podReplacementPolicy="Failed"))
    cluster.ahead = timedelta(hours=1)
    await cluster.start(NAME, "pod-garbage-collector-controller")

    async def pods(count):
        found = await cluster.items(PODS)
        return found if len(found) == count else None

    (first,) = await cluster.eventually(lambda: pods(1))
    await cluster.client.delete(PODS, first["metadata"]["name"], "ns")

    async def replaced():
        uids = {p["metadata"]["uid"] for p in await cluster.items(PODS)}
        return uids and first["metadata"]["uid"] not in uids and (await status_of(cluster)).get("failed") == 1

    await cluster.eventually(replaced)
