"""What explain, schedule, what-if and top say of gangs that other projects made, and of what Kueue holds."""

from __future__ import annotations

from typing import Any

import foreign_objects as made
import pytest

from haru import Apply, Cordon, Snapshot
from haru.errors import InputError, NotFoundError
from haru.explain import Explanation

Obj = dict[str, Any]
CPU = {"requests": {"cpu": "1"}}


def node(name: str, cpu: int) -> Obj:
    amounts = {"cpu": str(cpu), "memory": "8Gi", "pods": "20"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def sized(pod: Obj, **spec: Any) -> Obj:
    container = {"name": "c", "image": "i", "resources": CPU}
    return {**pod, "spec": {**pod["spec"], "containers": [container], **spec}}


def snapshot(*objects: Obj) -> Snapshot:
    return Snapshot.of([sized(obj) if obj["kind"] == "Pod" else obj for obj in objects])


PODS = [made.job_set_pod(f"t-w-{n}", "t", "w") for n in range(3)]
JOB_SET = made.job_set("t", made.replicated_job("w", 1, 3))


@pytest.mark.parametrize(
    ("subject", "objects"),
    [
        ("jobset/t", [JOB_SET, *PODS]),
        ("trainjob/t", [JOB_SET, *PODS]),
        ("jobsets.jobset.x-k8s.io/t", [JOB_SET, *PODS]),
        ("podgroup/g", [made.coscheduling("g", 3), *(made.grouped(f"p{n}", "g") for n in range(3))]),
        (
            "lws/s",
            [made.leader_worker_set("s", 3), *(made.lws_pod(f"p{n}", "s", 0, n, 3) for n in range(3))],
        ),
        ("mpijob/m", [made.mpi_job("m", 2), *(made.training_pod(f"p{n}", "m", "mpi-operator") for n in range(3))]),
    ],
)
def test_gang_that_does_not_fit_waits_whole(subject: str, objects: list[Obj]) -> None:
    told = snapshot(node("n1", 2), *objects).explain(subject)
    assert isinstance(told, Explanation)
    assert told.verdict != "Runs" and "2 of the 3 pods that have to start together find a place" in told.summary
    fits = snapshot(node("n1", 3), *objects).explain(subject)
    assert isinstance(fits, Explanation) and fits.verdict == "Starting"


def test_round_places_gang_whole_or_not_at_all() -> None:
    for cpu, expected in ((2, 0), (3, 3)):
        result = snapshot(node("n1", cpu), JOB_SET, *PODS).schedule()
        assert len(result.as_dict()["bindings"]) == expected


def test_title_names_object_that_describes_gang() -> None:
    told = snapshot(node("n1", 2), JOB_SET, *PODS).explain("jobset/t")
    assert (told.kind, told.name) == ("JobSet", "t")  # type: ignore[union-attr]


def test_job_set_of_a_train_job_is_called_by_what_its_author_wrote() -> None:
    of_train_job = made.owned(JOB_SET, "TrainJob", "t")
    cluster = snapshot(node("n1", 2), of_train_job, *PODS)
    for subject in ("trainjob/t", "jobset/t"):
        told = cluster.explain(subject)
        assert (told.kind, told.name) == ("TrainJob", "t")  # type: ignore[union-attr]
    assert [row.what for row in cluster.explain_pending().rows] == ["trainjob/t"]
    assert cluster.explain("pod/t-w-0").summary.endswith("; its gang is trainjob/t")  # type: ignore[union-attr]
    others = snapshot(node("n1", 2), made.owned(JOB_SET, "Other", "o"), *PODS)
    assert [row.what for row in others.explain_pending().rows] == ["jobset/t"]


def jobs_of_set(name: str, *jobs: str) -> list[Obj]:
    """The Jobs of a JobSet, each with a pod."""
    owner = made.custom("jobset.x-k8s.io/v1alpha2", "JobSet", name, {})
    of_set = [made.owned({**made.custom("batch/v1", "Job", f"{name}-{job}", JOB_SPEC)}, "JobSet", name) for job in jobs]
    pods = [made.owned(made.job_set_pod(f"{name}-{job}-0", name, job), "Job", f"{name}-{job}") for job in jobs]
    job_set = {**owner, "spec": {"replicatedJobs": [made.replicated_job(job, 1, 1) for job in jobs]}}
    return [job_set, *of_set, *pods]


JOB_SPEC: Obj = {"parallelism": 1, "completions": 1, "template": {"metadata": {}, "spec": {"containers": []}}}


ONE_SET = jobs_of_set("t", "a", "b")


def test_job_of_job_set_is_asked_about_with_whole_gang() -> None:
    cluster = snapshot(node("n1", 2), *jobs_of_set("t", "a", "b", "c"))
    told = cluster.explain("job/t-a")
    assert isinstance(told, Explanation) and (told.kind, told.name) == ("Job", "t-a")
    assert "2 of the 3 pods that have to start together find a place" in told.summary
    assert told.remedies == cluster.explain("jobset/t").remedies  # type: ignore[union-attr]


def test_pod_that_waits_with_its_gang_names_what_describes_it() -> None:
    told = snapshot(node("n1", 2), JOB_SET, *PODS).explain("pod/t-w-0")
    assert told.summary.endswith("find a place; its gang is jobset/t")  # type: ignore[union-attr]
    few = snapshot(node("n1", 9), JOB_SET, PODS[0]).explain("pod/t-w-0")
    assert few.summary.endswith("; its gang is jobset/t")  # type: ignore[union-attr]


def test_list_names_what_describes_gang_and_not_one_of_its_jobs() -> None:
    groups = [made.lws_pod(f"s-{n // 3}-{n % 3}", "s", n // 3, n % 3, 3) for n in range(6)]
    cluster = snapshot(node("n1", 1), *jobs_of_set("t", "a", "b"), made.leader_worker_set("s", 3), *groups)
    named = {row.what: (row.pods, row.others) for row in cluster.explain_pending().rows}
    assert named == {"jobset/t": (2, 0), "leaderworkerset/s": (6, 0)}


def test_job_set_is_named_as_what_holds_node_and_its_job_is_still_found_by_its_own_name() -> None:
    running = [{**obj, "spec": {**obj["spec"], "nodeName": "n1"}} if obj["kind"] == "Pod" else obj for obj in ONE_SET]
    story = snapshot(node("n1", 2), *running).explain("node/n1")
    assert [holder.name for holder in story.workloads] == ["jobset/t"]  # type: ignore[union-attr]
    cluster = snapshot(node("n1", 1), *ONE_SET)
    assert [row.pods for row in cluster.explain_pending("job/t-a").rows] == [2]


def test_missing_and_incomplete_gangs_are_told_with_what_to_create() -> None:
    told = snapshot(node("n1", 9), made.coscheduling("other", 1), made.grouped("p0", "g")).explain("pod/p0")
    assert told.summary == "PodGroup (scheduling.x-k8s.io) default/g does not exist"  # type: ignore[union-attr]
    (remedy,) = told.remedies  # type: ignore[union-attr]
    created = remedy.changes[0]["object"]
    assert created["apiVersion"] == "scheduling.x-k8s.io/v1alpha1" and created["spec"] == {"minMember": 1}
    few = snapshot(node("n1", 9), made.coscheduling("g", 3), made.grouped("p0", "g")).explain("podgroup/g")
    kinds = {remedy.kind: remedy for remedy in few.remedies}  # type: ignore[union-attr]
    assert kinds["LowerMinCount"].changes[0]["patch"] == {"spec": {"minMember": 1}}
    assert "schedulingGroup" not in str(kinds["AddMembers"].changes)
    assert kinds["AddMembers"].summary == "create 2 more pods of PodGroup (scheduling.x-k8s.io) default/g"


ADMISSION = [{"name": "kueue.x-k8s.io/admission"}]
PENDING = [{"type": "QuotaReserved", "status": "False", "message": "insufficient quota for example.com/gpu"}]


@pytest.mark.parametrize(
    ("pod", "workload", "expected"),
    [
        (
            made.kueue_pod("p", "k", 1),
            made.workload("k", PENDING),
            "Kueue holds it, see Workload k (queue team-a): no quota is reserved: insufficient quota for "
            "example.com/gpu; gates: kueue.x-k8s.io/admission; once admitted, a place is free for it",
        ),
        (
            made.owned(made.pod("p"), "Job", "train"),
            made.workload("job-train-1", [{"type": "QuotaReserved", "status": "True"}], owner="train"),
            "Kueue holds it, see Workload job-train-1 (queue team-a): quota is reserved, but it is not admitted yet; "
            "gates: kueue.x-k8s.io/admission; once admitted, a place is free for it",
        ),
        (
            made.pod("p", annotations={"kueue.x-k8s.io/workload": "w"}),
            made.workload("w", [{"type": "Admitted", "status": "True"}]),
            "Kueue holds it, see Workload w (queue team-a): it is admitted, and the gates are about to go; "
            "gates: kueue.x-k8s.io/admission; once admitted, a place is free for it",
        ),
        (
            made.pod("p", {"kueue.x-k8s.io/queue-name": "q"}),
            made.workload("of-somebody-else", active=False),
            "Kueue holds it (queue q): Kueue has no Workload for it yet; gates: kueue.x-k8s.io/admission; "
            "once admitted, a place is free for it",
        ),
    ],
)
def test_what_kueue_holds_is_told_with_its_workload(pod: Obj, workload: Obj, expected: str) -> None:
    gated = {**pod, "spec": {**pod["spec"], "schedulingGates": ADMISSION}}
    told = snapshot(node("n1", 1), workload, gated).explain("pod/p")
    assert told.summary == expected  # type: ignore[union-attr]
    assert told.verdict == "FitsLater" and told.remedies == ()  # type: ignore[union-attr]


def test_suspended_job_set_is_told_with_workload_of_kueue() -> None:
    waiting = made.job_set("t", made.replicated_job("w", 1, 3), suspend=True)
    with pytest.raises(NotFoundError, match=r"it is suspended; Kueue holds it, see Workload jobset-t: no quota"):
        snapshot(node("n1", 9), waiting, made.workload("jobset-t", PENDING, owner="t")).explain("jobset/t")
    with pytest.raises(NotFoundError, match='there is no jobset "other"'):
        snapshot(node("n1", 9)).explain("jobset/other")
    with pytest.raises(InputError, match="jobset, trainjob, leaderworkerset"):
        snapshot(node("n1", 9)).explain("daemonset/t")


TOO_MUCH = [
    {
        "type": "QuotaReserved",
        "status": "False",
        "message": "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously "
        "considered podsets requests (0) + current podset request (9) > maximum capacity (4)",
    }
]


def test_what_asks_for_more_than_its_queue_may_have_does_not_come_by_itself() -> None:
    """Kueue 0.17 says so, and no work that ends makes room."""
    pod = made.pod("p", annotations={"kueue.x-k8s.io/workload": "w"}, schedulingGates=ADMISSION)
    told = snapshot(node("n1", 1), made.workload("w", TOO_MUCH), pod).explain("pod/p")
    assert (told.verdict, told.remedies) == ("FitsIf", ())  # type: ignore[union-attr]
    job = snapshot(node("n1", 9), SUSPENDED_JOB, made.workload("jobset-t", TOO_MUCH, owner="t")).explain("job/t-w-0")
    assert (job.verdict, job.remedies) == ("FitsIf", ())  # type: ignore[union-attr]


SUSPENDED_JOB = made.owned(made.custom("batch/v1", "Job", "t-w-0", {**JOB_SPEC, "suspend": True}), "JobSet", "t")


def test_suspended_job_that_kueue_holds_is_told_with_its_workload_and_not_to_be_resumed() -> None:
    cluster = snapshot(node("n1", 9), SUSPENDED_JOB, made.workload("jobset-t", PENDING, owner="t"))
    told = cluster.explain("job/t-w-0")
    assert told.summary.startswith(  # type: ignore[union-attr]
        "job default/t-w-0 is suspended: Kueue holds it, see Workload jobset-t: no quota is reserved: insufficient"
    )
    assert (told.verdict, told.remedies) == ("FitsLater", ())  # type: ignore[union-attr]


def test_suspended_job_of_job_set_is_resumed_by_job_set() -> None:
    told = snapshot(node("n1", 9), SUSPENDED_JOB).explain("job/t-w-0")
    (remedy,) = told.remedies  # type: ignore[union-attr]
    assert remedy.summary == "resume jobset t"
    assert remedy.command.startswith("kubectl patch jobset t -n default") and not remedy.confirmed


def test_what_if_counts_gang_whole_and_finds_members_that_come() -> None:
    two = snapshot(node("n1", 1), node("n2", 2), JOB_SET, *PODS[:2])
    comparison = two.what_if(Apply(sized(PODS[2])))
    assert len(comparison.starts) == 3
    assert not two.what_if(Cordon("n1")).starts
    smaller = two.what_if(Apply(made.job_set("t", made.replicated_job("w", 1, 2))))
    assert len(smaller.starts) == 2


def test_capture_has_objects_as_served_and_hidden_one_decides_alike() -> None:
    cluster = snapshot(node("n1", 3), JOB_SET, *PODS)
    assert "jobset:" not in str(cluster.as_dict())
    assert Snapshot.of(cluster.as_dict()["items"]).counts() == cluster.counts()
    hidden = cluster.hidden()
    assert hidden.counts() == {"Node": 1, "Pod": 3, "PodGroup": 1}
    assert "'t-w-" not in str(hidden.as_dict()) and "'t'" not in str(hidden.as_dict())
    assert len(hidden.schedule().as_dict()["bindings"]) == 3
