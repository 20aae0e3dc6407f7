"""Pods that cannot be created, because a webhook or a policy refuses them: the events of their owner say why."""

from __future__ import annotations

from typing import Any

import pytest
from explain_world import Obj, cluster, gang, pod, told_as_is, workload

from haru.api.snapshot import Snapshot
from haru.explain import Explanation
from haru.kube.errors import aggregate
from haru.kube.limit_ranges import pod_faults

DENIED = 'Error creating: admission webhook "teams.example.com" denied the request: no label team'
FIRST, LAST = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"


def stored(obj: Obj, **status: object) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "uid": "3b1c"}, "status": dict(status)}


def denied(kind: str, name: str, uid: str = "3b1c", **more: Any) -> Obj:
    """The event of a controller that could not create a pod, twelve times."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.1"},
        "involvedObject": {"kind": kind, "namespace": "default", "name": name, "uid": uid},
        "reason": "FailedCreate",
        "type": "Warning",
        "message": DENIED,
        "count": 12,
        "firstTimestamp": FIRST,
        "lastTimestamp": LAST,
        **more,
    }


def owned(name: str, kind: str, owner: str, created: str, **more: Any) -> Obj:
    made = pod(name, **more)
    version = "batch/v1" if kind == "Job" else "apps/v1"
    reference = {"apiVersion": version, "kind": kind, "name": owner, "uid": "3b1c", "controller": True}
    made["metadata"] |= {"ownerReferences": [reference], "creationTimestamp": created, "uid": f"uid-{name}"}
    return made


def types(found: Explanation) -> list[str]:
    return [reason.type for reason in found.reasons]


@pytest.mark.parametrize("kind", ["Job", "ReplicaSet", "StatefulSet"])
def test_failed_create_event_is_first_reason_of_workload(kind: str) -> None:
    found = told_as_is(cluster(cpu=1), stored(workload(kind, "w", 2)), denied(kind, "w"), about=f"{kind.lower()}/w")
    assert found.verdict == "FitsIf"
    assert found.summary == f"2 pods not made: {DENIED} (12 times since {FIRST}, last {LAST})"
    assert types(found)[:2] == ["FailedCreate", "PodsMissing"]
    assert found.reasons[0].data == {"count": 12, "since": FIRST, "last": LAST}


def test_event_series_count_is_reported() -> None:
    series = {"count": 30, "lastObservedTime": "2026-01-01T00:20:00.123456Z"}
    first = "2026-01-01T00:00:00.000000Z"
    event = denied("Job", "w", count=None, series=series, firstTimestamp=None, lastTimestamp=None, eventTime=first)
    found = told_as_is(cluster(cpu=1), stored(workload("Job", "w", 2)), event, about="job/w")
    assert found.summary.endswith(f"(30 times since {FIRST}, last 2026-01-01T00:20:00Z)")


def test_failed_creation_of_further_pods_is_reported_beside_running_ones() -> None:
    runs = {**owned("w-0", "ReplicaSet", "w", FIRST, nodeName="cpu-0"), "status": {"phase": "Running"}}
    replicas = stored(workload("ReplicaSet", "w", 3))
    found = told_as_is(cluster(cpu=1), replicas, runs, denied("ReplicaSet", "w"), about="replicaset/w")
    assert found.verdict == "Runs" and "2 more pods not made: Error creating" in found.summary


def test_failed_create_event_before_pod_creation_is_ignored() -> None:
    later = owned("w-0", "Job", "w", "2026-01-01T00:30:00Z", nodeName="cpu-0")
    found = told_as_is(cluster(cpu=1), stored(workload("Job", "w", 2)), later, denied("Job", "w"), about="job/w")
    assert "FailedCreate" not in types(found)


@pytest.mark.parametrize("event", [denied("Job", "w", uid="another"), denied("Job", "w", reason="SuccessfulCreate")])
def test_unrelated_events_are_ignored(event: Obj) -> None:
    found = told_as_is(cluster(cpu=1), stored(workload("Job", "w", 2)), event, about="job/w")
    assert "FailedCreate" not in types(found)


def test_suspended_job_ignores_failed_create_event() -> None:
    job = stored(workload("Job", "w", 2, suspend=True))
    found = told_as_is(cluster(cpu=1), job, denied("Job", "w"), about="job/w")
    assert "FailedCreate" not in types(found)


NO_ACCOUNT = (
    'pods "w-1" is forbidden: error looking up service account default/trainer: serviceaccount "trainer" not found'
)
NO_PRIORITY = 'pods "w-1" is forbidden: no PriorityClass with name urgent was found'


@pytest.mark.parametrize(
    ("message", "kind", "summary", "cpu"),
    [
        (NO_ACCOUNT, "CreateServiceAccount", "create ServiceAccount default/trainer", "1"),
        (NO_PRIORITY, "CreatePriorityClass", "create PriorityClass urgent", "1"),
        (NO_ACCOUNT, "CreateServiceAccount", "create ServiceAccount default/trainer", "500"),
    ],
)
def test_object_that_refused_pods_name_is_created_first(message: str, kind: str, summary: str, cpu: str) -> None:
    event = denied("ReplicaSet", "w", message=f"(combined from similar events): Error creating: {message}")
    found = told_as_is(cluster(cpu=1), stored(workload("ReplicaSet", "w", 2, cpu=cpu)), event, about="replicaset/w")
    assert found.summary.startswith(f"2 pods not made: Error creating: {message} (12 times")
    first = found.remedies[0]
    assert (first.kind, first.summary, first.confirmed) == (kind, summary, cpu == "1")
    assert first.changes[0]["object"]["metadata"]["name"] in message and first.command.endswith("| kubectl create -f -")


def test_list_names_why_pods_are_refused() -> None:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    replicas = stored(workload("ReplicaSet", "w", 2))
    replicas["metadata"]["ownerReferences"] = [deployment]
    event = denied("ReplicaSet", "w", message=f"Error creating: {NO_ACCOUNT}")
    snapshot = Snapshot.of([*cluster(cpu=1), replicas, event])
    (row,) = snapshot.explain_pending("deployment/web").rows
    assert (row.what, row.pods, row.explanation.verdict) == ("deployment/web", 2, "FitsIf")
    assert row.remedy is not None and row.remedy.summary == "create ServiceAccount default/trainer" and row.starts == 2


def test_jobs_of_a_cron_job_whose_pods_are_refused_are_one_row() -> None:
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "c", "controller": True}
    objects = []
    for number in range(3):
        job = {**workload("Job", f"nightly-{number}", 2), "status": {}}
        job["metadata"] |= {"uid": f"u-{number}", "ownerReferences": [cron]}
        message = f'Error creating: pods "nightly-{number}-x" is forbidden: no PriorityClass with name urgent was found'
        objects += [job, denied("Job", f"nightly-{number}", uid=f"u-{number}", message=message)]
    (row,) = Snapshot.of([*cluster(cpu=1).objects, *objects]).explain_pending().rows
    assert (row.what, row.pods, row.units, row.starts) == ("cronjob/nightly", 6, 3, 6)


@pytest.mark.parametrize(
    "message", [NO_ACCOUNT, "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1"]
)
def test_daemon_set_whose_pods_are_refused_is_in_the_list(message: str) -> None:
    daemons = stored(workload("DaemonSet", "agent", 1), desiredNumberScheduled=3)
    del daemons["spec"]["replicas"]
    made = owned("agent-x", "DaemonSet", "agent", FIRST, nodeName="cpu-0")
    event = denied("DaemonSet", "agent", message=f"Error creating: {message}", lastTimestamp=LAST)
    snapshot = Snapshot.of([*cluster(cpu=1).objects, QUOTA, made, daemons, event])
    for about in ("", "daemonset/agent"):
        (row,) = snapshot.explain_pending(about).rows
        assert (row.what, row.pods, row.explanation.verdict) == ("daemonset/agent", 2, "FitsIf")
        assert row.explanation.summary.startswith(f"2 pods not made: Error creating: {message}")
    helps = ["RaiseQuota"] if "quota" in message else ["CreateServiceAccount", "RaiseQuota"]
    assert row.explanation.remedies[-1].summary == "raise the quota few to pods=3"
    assert [(one.kind, one.confirmed) for one in row.explanation.remedies] == [(kind, False) for kind in helps]
    unheard = Snapshot.of([*cluster(cpu=1).objects, QUOTA, made, daemons]).explain_pending().rows[0].explanation
    assert unheard.summary.startswith("2 pods not made: exceeded quota: few, requested: pods=1")
    assert [one.summary for one in unheard.remedies] == ["raise the quota few to pods=3"]
    enough = {**daemons, "status": {"desiredNumberScheduled": 1}}
    assert Snapshot.of([*cluster(cpu=1).objects, made, enough, event]).explain_pending().rows == ()


QUOTA: Obj = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few"},
    "spec": {"hard": {"pods": "1"}},
    "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}},
}
EXCEEDED = "Error creating: pods is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1"


def test_readable_quota_is_preferred_to_event() -> None:
    event = denied("Job", "w", message=EXCEEDED)
    found = told_as_is(cluster(cpu=1), stored(workload("Job", "w", 2)), QUOTA, event, about="job/w")
    assert types(found)[0] == "QuotaExceeded" and "FailedCreate" not in types(found)


def test_unreadable_quota_is_reported_by_event() -> None:
    event = denied("Job", "w", message=EXCEEDED)
    found = told_as_is(cluster(cpu=1), stored(workload("Job", "w", 2)), event, about="job/w")
    assert types(found)[0] == "FailedCreate" and "exceeded quota: few" in found.summary


def test_remedies_are_unconfirmed_while_pods_cannot_be_created() -> None:
    job = stored(workload("Job", "w", 1, cpu="500"))
    full = pod("full", cpu="30", nodeName="cpu-0")
    found = told_as_is(cluster(cpu=1), job, full, denied("Job", "w"), about="job/w")
    assert not any(remedy.confirmed for remedy in found.remedies)


@pytest.mark.parametrize("about", ["podgroup/g", "pod/g-0"])
def test_gang_whose_job_cannot_create_members_names_reason(about: str) -> None:
    group, *_ = gang("g", 3)
    member = owned("g-0", "Job", "w", FIRST, group="g")
    job = stored(workload("Job", "w", 3, indexed=True))
    found = told_as_is(cluster(cpu=1), group, member, job, denied("Job", "w"), about=about)
    assert types(found)[0] == "TooFewMembers" and "FailedCreate" in types(found)
    assert "job w cannot create the others: Error creating: admission webhook" in found.summary
    assert "AddMembers" not in [remedy.kind for remedy in found.remedies]


LIMITS: Obj = {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}


def beyond(limit_range: Obj, of: Obj) -> str:
    """What a controller tells of pods that a LimitRange refuses."""
    faults = aggregate(pod_faults(limit_range, of["spec"]["template"]))
    return f'Error creating: pods "w-1" is forbidden: {faults}'


@pytest.mark.parametrize(
    ("limits", "room", "confirmed"),
    [
        (LIMITS, 32, True),
        (LIMITS, 1, False),
        ({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}}, 32, True),
        ({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2", "memory": "1Gi"}}]}}, 32, False),
    ],
)
@pytest.mark.parametrize("kind", ["Job", "ReplicaSet", "StatefulSet"])
def test_pods_beyond_a_limit_range_are_to_ask_for_what_it_allows(
    kind: str, limits: Obj, room: int, confirmed: bool
) -> None:
    work = stored(workload(kind, "w", 2, cpu="4", limits={"cpu": "4"}))
    others = pod("others", cpu=str(32 - room), nodeName="cpu-0")
    event = denied(kind, "w", message=beyond(limits, work))
    found = told_as_is(cluster(cpu=1), work, others, event, about=f"{kind.lower()}/w")
    first = found.remedies[0]
    assert (first.kind, first.summary) == ("LowerRequest", "ask for cpu 2 instead of 4")
    assert (first.confirmed, first.command.startswith("kubectl patch ")) == (confirmed, True)
    change = first.changes[-1]
    made = change["patch"]["spec"] if change["action"] == "patch" else change["object"]["spec"]
    (container,) = made["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    assert not pod_faults(LIMITS, made["template"])


@pytest.mark.parametrize(
    ("limits", "asked", "text", "resources"),
    [
        (
            {"min": {"cpu": "500m"}},
            {"requests": {"cpu": "200m"}, "limits": {"cpu": "300m"}},
            "ask for cpu 500m instead of 200m",
            {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}},
        ),
        (
            {"min": {"memory": "1Gi"}},
            {"requests": {"cpu": "1"}},
            "ask for memory 1Gi instead of nothing",
            {"requests": {"cpu": "1", "memory": "1Gi"}},
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "3", "memory": "2"}},
            {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "3Gi"}},
            "ask for a limit of cpu of at most 3 times the request and a limit of memory of at most 2 times the "
            "request",
            {"requests": {"cpu": "334m", "memory": "1536Mi"}, "limits": {"cpu": "1", "memory": "3Gi"}},
        ),
    ],
)
def test_pods_below_a_limit_range_are_to_ask_for_more(limits: Obj, asked: Obj, text: str, resources: Obj) -> None:
    work = stored(workload("ReplicaSet", "w", 2, cpu="1"))
    work["spec"]["template"]["spec"]["containers"][0]["resources"] = asked
    limit_range: Obj = {"spec": {"limits": [{"type": "Container", **limits}]}}
    event = denied("ReplicaSet", "w", message=beyond(limit_range, work))
    first = told_as_is(cluster(cpu=1), work, event, about="replicaset/w").remedies[0]
    assert (first.kind, first.summary, first.confirmed) == ("RaiseRequest", text, True)
    assert first.costs.startswith("each pod takes more of its node; ")
    (container,) = first.changes[-1]["patch"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == resources
    made = {"spec": {"containers": [container]}}
    assert not pod_faults(limit_range, made)


def test_which_of_several_containers_is_to_have_less_is_not_guessed() -> None:
    work = stored(workload("ReplicaSet", "w", 2, cpu="4", limits={"cpu": "4"}))
    containers = work["spec"]["template"]["spec"]["containers"]
    containers.append({**containers[0], "name": "other"})
    limits = {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}}
    found = told_as_is(
        cluster(cpu=1), work, denied("ReplicaSet", "w", message=beyond(limits, work)), about="replicaset/w"
    )
    assert "LowerRequest" not in [remedy.kind for remedy in found.remedies]
