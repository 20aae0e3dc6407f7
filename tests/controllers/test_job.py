"""Jobs against the API server, with a kubelet that plays along."""

import pytest
from controller_cluster import Kubelet
from gang_jobs import indexed, job

from haru.controllers.job_indexes import INDEX, index_of
from haru.controllers.job_tracking import TRACKING
from haru.controllers.objects import JOBS, PODS
from haru.kube.meta import get_condition

NAME = "job-controller"


async def conditions(cluster, name="j"):
    listed = ((await cluster.get(JOBS, name)).get("status") or {}).get("conditions") or ()
    return {c["type"]: (c["status"], c["reason"]) for c in listed}


async def ends(cluster, type_, name="j"):
    async def holds():
        return (await conditions(cluster, name)).get(type_)

    status, reason = await cluster.eventually(holds)
    assert status == "True"
    return reason, (await cluster.get(JOBS, name))["status"]


@pytest.mark.parametrize(
    ("spec", "succeeded"),
    [
        ({}, 1),
        ({"completions": 5, "parallelism": 2}, 5),
        ({"completions": None, "parallelism": 3}, 3),
        (indexed(4), 4),
        (indexed(5, parallelism=2), 5),
        ({"completions": 0}, 0),
    ],
)
async def test_job_completes_with_expected_counts(cluster, spec, succeeded):
    await cluster.create(JOBS, job(**spec))
    await cluster.play(Kubelet(cluster.client, lambda pod: "Succeeded").run())
    await cluster.start(NAME)
    reason, status = await ends(cluster, "Complete")
    assert reason == "CompletionsReached"
    assert (status.get("succeeded", 0), status.get("failed", 0), status.get("active", 0)) == (succeeded, 0, 0)
    assert status["uncountedTerminatedPods"] == {}
    assert status["startTime"]
    assert status["completionTime"]
    assert (await conditions(cluster))["SuccessCriteriaMet"] == ("True", "CompletionsReached")
    pods = await cluster.items(PODS)
    assert len(pods) == succeeded
    assert not any(TRACKING in p["metadata"].get("finalizers", ()) for p in pods)
    if spec.get("completionMode") == "Indexed":
        assert status["completedIndexes"] == f"0-{succeeded - 1}"
        assert sorted(index_of(p) for p in pods) == list(range(succeeded))


async def test_indexed_pod_has_index_hostname_and_environment(cluster):
    await cluster.create(JOBS, job(**indexed(2)))
    await cluster.start(NAME)

    async def both():
        return len(await cluster.items(PODS)) == 2

    await cluster.eventually(both)
    pods = sorted(await cluster.items(PODS), key=index_of)
    metadata, spec = pods[1]["metadata"], pods[1]["spec"]
    assert metadata["name"].startswith("j-1-")
    assert metadata["labels"][INDEX] == metadata["annotations"][INDEX] == "1"
    assert metadata["labels"]["batch.kubernetes.io/job-name"] == metadata["labels"]["job-name"] == "j"
    assert metadata["finalizers"] == [TRACKING]
    assert spec["hostname"] == "j-1"
    assert [e["name"] for e in spec["containers"][0]["env"]] == ["JOB_COMPLETION_INDEX"]


async def test_job_fails_after_backoff_limit(cluster):
    await cluster.create(JOBS, job(parallelism=3, completions=3, backoffLimit=1))
    await cluster.play(Kubelet(cluster.client, lambda pod: "Failed").run())
    await cluster.start(NAME)
    reason, status = await ends(cluster, "Failed")
    assert reason == "BackoffLimitExceeded"
    assert status["failed"] >= 2
    assert status.get("active", 0) == 0
    assert status["uncountedTerminatedPods"] == {}
    assert (await conditions(cluster))["FailureTarget"] == ("True", "BackoffLimitExceeded")


async def test_how_the_pods_of_a_job_ended_is_forgotten_with_it(cluster):
    await cluster.create(JOBS, job(backoffLimit=0))
    await cluster.play(Kubelet(cluster.client, lambda pod: "Failed").run())
    manager = await cluster.start(NAME)
    await ends(cluster, "Failed")
    remembered = manager.running[NAME]._endings
    assert len(remembered) == 1
    await cluster.client.delete(JOBS, "j", "ns", propagation_policy="Background")

    async def forgotten():
        return not remembered

    await cluster.eventually(forgotten)


async def test_failed_job_waits_for_termination_of_its_pods(cluster):
    first = set()

    def phase(pod):
        first.add(pod["metadata"]["name"]) if not first else None
        return "Failed" if pod["metadata"]["name"] in first else "Running"

    await cluster.create(JOBS, job(parallelism=3, completions=3, backoffLimit=0))
    await cluster.play(Kubelet(cluster.client, phase).run())
    await cluster.start(NAME)
    _, status = await ends(cluster, "Failed")
    assert status["failed"] == 3
    assert status["terminating"] == 0


async def test_job_fails_after_active_deadline(cluster):
    await cluster.create(JOBS, job(activeDeadlineSeconds=1))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(NAME)
    reason, _ = await ends(cluster, "Failed")
    assert reason == "DeadlineExceeded"


async def test_suspended_job_deletes_pods_and_completes_after_resume(cluster):
    await cluster.create(JOBS, job(parallelism=2, completions=2, suspend=True))
    finish = False
    await cluster.play(Kubelet(cluster.client, lambda pod: "Succeeded" if finish else "Running").run())
    await cluster.start(NAME)

    async def state(expected, active):
        async def holds():
            status = (await cluster.get(JOBS, "j")).get("status") or {}
            condition = get_condition(status.get("conditions"), "Suspended")
            return condition and condition["status"] == expected and status.get("active", 0) == active

        await cluster.eventually(holds)
        return (await cluster.get(JOBS, "j"))["status"]

    assert "startTime" not in await state("True", 0)
    await cluster.client.patch(JOBS, "j", {"spec": {"suspend": False}}, "ns")
    assert (await state("False", 2))["startTime"]
    await cluster.client.patch(JOBS, "j", {"spec": {"suspend": True}}, "ns")
    status = await state("True", 0)
    assert "startTime" not in status
    assert status.get("failed", 0) == 0  # taken away is not failed

    async def gone():
        return not await cluster.items(PODS)

    await cluster.eventually(gone)
    finish = True
    await cluster.client.patch(JOBS, "j", {"spec": {"suspend": False}}, "ns")
    await ends(cluster, "Complete")


async def test_lower_parallelism_deletes_pods_without_failures(cluster):
    await cluster.create(JOBS, job(parallelism=4, completions=10))
    await cluster.play(Kubelet(cluster.client).run())
    await cluster.start(NAME)

    async def active(count):
        status = (await cluster.get(JOBS, "j")).get("status") or {}
        return status.get("active", 0) == count and len(await cluster.items(PODS)) == count

    await cluster.eventually(lambda: active(4))
    await cluster.client.patch(JOBS, "j", {"spec": {"parallelism": 1}}, "ns")
    await cluster.eventually(lambda: active(1))
    assert (await cluster.get(JOBS, "j"))["status"].get("failed", 0) == 0


async def test_pods_of_deleted_job_lose_finalizers(cluster):
    await cluster.create(JOBS, job(parallelism=2, completions=2))
    await cluster.start(NAME)

    async def both():
        return len(await cluster.items(PODS)) == 2

    await cluster.eventually(both)
    await cluster.kill()
    await cluster.client.delete(JOBS, "j", "ns", propagation_policy="Background")
    await cluster.start(NAME, "garbage-collector-controller")

    async def gone():
        return not await cluster.items(PODS)

    await cluster.eventually(gone)


async def test_job_counts_stay_exact_when_controller_is_killed(cluster):
    await cluster.create(JOBS, job(**indexed(12, parallelism=4)))
    seen = set()
    for _ in range(8):
        kubelet = Kubelet(cluster.client, lambda pod: "Succeeded")
        await cluster.play(kubelet.run())
        await cluster.start(NAME)
        seen |= {p["metadata"]["name"] for p in await cluster.items(PODS)}
        await cluster.kill()
    await cluster.play(Kubelet(cluster.client, lambda pod: "Succeeded").run())
    await cluster.start(NAME)
    _, status = await ends(cluster, "Complete")
    assert (status["succeeded"], status["completedIndexes"]) == (12, "0-11")
    assert len(await cluster.items(PODS)) == 12


async def test_finished_job_is_deleted_after_ttl(cluster):
    await cluster.create(JOBS, job(ttlSecondsAfterFinished=1))
    await cluster.play(Kubelet(cluster.client, lambda pod: "Succeeded").run())
    await cluster.start(NAME, "ttl-after-finished-controller", "garbage-collector-controller")
    await ends(cluster, "SuccessCriteriaMet")

    async def gone():
        return await cluster.get(JOBS, "j") is None and not await cluster.items(PODS)

    await cluster.eventually(gone)


async def test_pod_that_was_deleted_while_it_ran_is_not_replaced_at_once(cluster):
    await cluster.create(JOBS, job(backoffLimit=6))
    await cluster.start(NAME)

    async def made():
        return await cluster.items(PODS)

    (pod,) = await cluster.eventually(made)
    await cluster.client.delete(PODS, pod["metadata"]["name"], "ns")
    failed = {"status": {"phase": "Failed"}}
    await cluster.client.patch(PODS, pod["metadata"]["name"], failed, "ns", subresource="status")

    async def counted():
        return (await cluster.get(JOBS, "j"))["status"].get("failed") == 1 and not await cluster.items(PODS)

    await cluster.eventually(counted)
    await cluster.always(counted)


async def test_pods_of_suspended_job_do_not_delay_those_after_it_resumes(cluster):
    await cluster.create(JOBS, job())
    await cluster.start(NAME)

    async def made():
        return await cluster.items(PODS)

    await cluster.eventually(made)
    await cluster.client.patch(JOBS, "j", {"spec": {"suspend": True}}, "ns")
    await cluster.eventually(lambda: gone(cluster))
    await cluster.client.patch(JOBS, "j", {"spec": {"suspend": False}}, "ns")
    await cluster.eventually(made, 5)


async def gone(cluster):
    return not await cluster.items(PODS)
