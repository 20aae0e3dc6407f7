"""CronJobs against the API server; the controllers' clock is ahead as far as a test wants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from controller_cluster import template

from haru.controllers.cron_job import job_of
from haru.controllers.objects import CRON_JOBS, JOBS
from haru.kube import kinds
from haru.kube.names import format_time

EVENTS = kinds.lookup("", "v1", "events")


def cron_job(schedule="@hourly", **spec):
    job = template({"app": "c"})
    job["spec"]["restartPolicy"] = "Never"
    body = {"schedule": schedule, "jobTemplate": {"spec": {"template": job}}, **spec}
    return {"metadata": {"name": "tick"}, "spec": body}


async def jobs(cluster):
    return sorted(await cluster.items(JOBS), key=lambda job: job["metadata"]["name"])


async def end(cluster, job, outcome="Complete"):
    now = format_time(datetime.now(UTC))
    base = {"status": "True", "lastTransitionTime": now, "lastProbeTime": now}
    first = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[outcome]
    status = {"startTime": now, "conditions": [{"type": first, **base}, {"type": outcome, **base}]}
    if outcome == "Complete":
        status["completionTime"] = now
    await cluster.client.patch(JOBS, job["metadata"]["name"], {"status": status}, "ns", subresource="status")


async def count(cluster, wanted):
    async def holds():
        found = await jobs(cluster)
        return found if len(found) == wanted else None

    return await cluster.eventually(holds)


async def next_hour(cluster, hours=1):
    """The clock goes on, and the controller starts anew as if it had slept."""
    await cluster.kill()
    cluster.ahead += timedelta(hours=hours)
    await cluster.start("cronjob-controller")


async def test_cron_job_creates_job_at_scheduled_time(cluster):
    await cluster.create(CRON_JOBS, cron_job())
    await cluster.start("cronjob-controller")

    async def none():
        return not await jobs(cluster)

    await cluster.always(none)
    await next_hour(cluster)
    (job,) = await count(cluster, 1)
    assert job["metadata"]["ownerReferences"][0]["name"] == "tick"
    assert job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].endswith(":00:00Z")

    async def told():
        status = (await cluster.get(CRON_JOBS, "tick")).get("status") or {}
        return [entry["name"] for entry in status.get("active") or ()] == [job["metadata"]["name"]]

    await cluster.eventually(told)
    # Started again at once it makes no second one for the same time.
    await next_hour(cluster, 0)
    await cluster.always(lambda: count(cluster, 1))


async def test_only_last_missed_schedule_is_run(cluster):
    await cluster.create(CRON_JOBS, cron_job())
    await next_hour(cluster, 30)
    (job,) = await count(cluster, 1)
    due = datetime.fromisoformat(job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"])
    assert datetime.now(UTC) + cluster.ahead - due < timedelta(hours=1)


@pytest.mark.parametrize(("policy", "kept"), [("Allow", 2), ("Forbid", 1), ("Replace", 1)])
async def test_concurrency_policy_applies_while_a_job_runs(cluster, policy, kept):
    await cluster.create(CRON_JOBS, cron_job(concurrencyPolicy=policy))
    await next_hour(cluster)
    (first,) = await count(cluster, 1)
    await next_hour(cluster)
    if policy == "Forbid":
        await cluster.always(lambda: count(cluster, 1))
    else:

        async def another():
            found = {
                job["metadata"]["name"] for job in await jobs(cluster) if not job["metadata"].get("deletionTimestamp")
            }
            return len(found) == kept and found != {first["metadata"]["name"]}

        await cluster.eventually(another)


async def test_job_made_by_hand_from_a_cron_job_is_told_of_and_holds_no_scheduled_one_back(cluster):
    cron = await cluster.create(CRON_JOBS, cron_job(concurrencyPolicy="Forbid"))
    by_hand = job_of({**cron, "metadata": {**cron["metadata"], "namespace": "ns"}}, datetime.now(UTC))
    by_hand["metadata"] |= {"name": "by-hand", "annotations": {"cronjob.kubernetes.io/instantiate": "manual"}}
    await cluster.create(JOBS, by_hand)
    await cluster.start("cronjob-controller")

    async def told():
        found = [event for event in await cluster.items(EVENTS) if event["reason"] == "UnexpectedJob"]
        return [event["message"] for event in found]

    assert await cluster.eventually(told) == ["Saw a job that the controller did not create or forgot: by-hand"]
    assert "active" not in ((await cluster.get(CRON_JOBS, "tick")).get("status") or {})
    await next_hour(cluster)
    await count(cluster, 2)

    async def active():
        status = (await cluster.get(CRON_JOBS, "tick")).get("status") or {}
        return [entry["name"] for entry in status.get("active") or ()]

    (name,) = await cluster.eventually(active)
    assert name.startswith("tick-")
    await cluster.client.delete(JOBS, name, "ns", propagation_policy="Background")

    async def ended():
        return not await active()

    await cluster.eventually(ended)


async def test_history_limits_delete_finished_jobs(cluster):
    await cluster.create(CRON_JOBS, cron_job(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=1))
    outcomes = ("Complete", "Failed", "Complete", "Failed")
    for outcome in outcomes:
        await next_hour(cluster)

        async def running():
            return [job for job in await jobs(cluster) if not (job.get("status") or {}).get("conditions")]

        (job,) = await cluster.eventually(running)
        await end(cluster, job, outcome)

    async def kept():
        found = [(job.get("status") or {}).get("conditions", [{}])[-1].get("type") for job in await jobs(cluster)]
        return sorted(map(str, found)) == ["Complete", "Failed"]

    await cluster.eventually(kept)

    async def told():
        status = (await cluster.get(CRON_JOBS, "tick"))["status"]
        return status.get("lastSuccessfulTime") and "active" not in status

    await cluster.eventually(told)


async def test_suspended_or_late_schedule_creates_no_job(cluster):
    await cluster.create(CRON_JOBS, cron_job(suspend=True))
    await next_hour(cluster, 2)

    async def none():
        return not await jobs(cluster)

    await cluster.always(none)
    # So late that the deadline, which is a second, is over: unless it is just past the hour.
    wanted = {"suspend": False, "startingDeadlineSeconds": 1}
    await cluster.client.patch(CRON_JOBS, "tick", {"spec": wanted}, "ns")
    if (datetime.now(UTC) + cluster.ahead).minute not in (0, 59):
        await cluster.always(none)


def test_job_name_differs_per_scheduled_time():
    cron = cron_job()
    cron["metadata"] |= {"namespace": "ns", "uid": "u"}
    one, two = (job_of(cron, datetime(2026, 1, 1, hour, tzinfo=UTC))["metadata"]["name"] for hour in (1, 2))
    assert one != two and one.startswith("tick-")
