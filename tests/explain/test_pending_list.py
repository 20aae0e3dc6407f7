"""Everything that waits as one table: which rows there are, in which order, and what each says."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from explain_schema import check_explanation
from explain_world import Obj, cluster, gang, pod, template, workload

from haru.api.changes import Apply, Cordon
from haru.api.snapshot import Snapshot
from haru.cli.main import main
from haru.errors import NotFoundError
from haru.explain import PendingList
from haru.explain.pending_rows import MOST_WITH_REMEDIES

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MADE = "2026-01-01T09:00:00Z"


def of(kind: str, name: str, obj: Obj, namespace: str = "default") -> Obj:
    """A pod of a controller."""
    owner = {"apiVersion": "v1", "kind": kind, "name": name, "uid": f"{namespace}-{name}", "controller": True}
    metadata = {"namespace": namespace, "uid": obj["metadata"]["name"], "creationTimestamp": MADE, **obj["metadata"]}
    return {**obj, "metadata": {**metadata, "ownerReferences": [owner]}}


def listed(snapshot: Snapshot, *objects: Obj, about: str = "", **asked: Any) -> PendingList:
    return snapshot.changed(Apply(objects)).explain_pending(about, now=NOW, **asked)


def whats(found: PendingList) -> list[tuple[str, int]]:
    return [(row.what, row.pods) for row in found.rows]


MIXED = [
    template(),
    template("eight", 8),
    template("nine", 9),
    *gang("train", 3, template="eight"),
    workload("Job", "sweep", 4, template="gpu", nodeSelector={"pool": "x"}),
    pod("large", "nine"),
]


def test_table_of_everything_is_exact() -> None:
    found = listed(cluster(dgx_h100=2, cpu=1), *MIXED)
    assert found.text().replace("<unknown>", "3h") == (
        "WHAT             PODS   SINCE       VERDICT     SHORT BY                      FIRST REMEDY\n"
        "job/sweep        4      3h   FitsIf      -                             label dgx-h100-0 with pool=x\n"
        "podgroup/train   3      3h   NeverFits   8 devices of gpu.nvidia.com   ask for 4 devices instead of 8\n"
        "pod/large        1      3h   NeverFits   9 devices of gpu.nvidia.com   ask for 8 devices instead of 9\n"
        "8 pods of 3 workloads wait in namespace default\n"
        "helps    label dgx-h100-0 with pool=x: kubectl label node dgx-h100-0 pool=x\n"
        "more     haru explain pod/sweep-0 -n default"
    )


def test_list_of_one_workload_says_the_command_to_begin_with() -> None:
    pods = [of("ReplicaSet", "web", pod(f"web-{n}", nodeSelector={"pool": "x"})) for n in range(2)]
    found = listed(cluster(cpu=1), *pods, about="replicaset/web")
    step = "helps    label cpu-0 with pool=x: kubectl label node cpu-0 pool=x"
    assert found.text().splitlines()[-2:] == [step, "more     haru explain pod/web-0 -n default"]
    assert step not in found.text(wide=True), "it is in the table"
    assert listed(cluster(cpu=1)).text() == "nothing waits in namespace default"


def pod_for(node: str, name: str, *claims: str, **spec: Any) -> Obj:
    """A pod of the DaemonSet `agent`."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return of("DaemonSet", "agent", pod(name, *claims, affinity=affinity, **spec))


def test_pods_of_a_daemonset_that_wait_for_one_reason_each_on_its_node_are_one_row() -> None:
    pods = [pod_for(f"cpu-{number}", f"agent-{number}", "gpu") for number in range(3)]
    found = listed(cluster(dgx_h100=1, cpu=3), template(), *pods)
    assert [(row.what, row.pods, row.units) for row in found.rows] == [("daemonset/agent", 3, 3)]
    summary = "no device of class gpu.nvidia.com (the only node that the pod may go to)"
    assert found.rows[0].explanation.summary == summary
    assert found.rows[0].names == ("agent-0", "agent-1", "agent-2")


def test_pods_of_a_daemonset_are_explained_once_for_what_their_nodes_say() -> None:
    large = [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "5000"}}}]
    pods = [pod_for(f"cpu-{number}", f"agent-{number}", containers=large) for number in range(5)]
    made_by = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default", "uid": "default-agent"},
        "spec": {"template": {"spec": {"containers": large}}},
    }
    done: list[tuple[int, int]] = []
    world = cluster(cpu=5).changed(Cordon("cpu-4"))
    found = listed(world, made_by, *pods, progress=lambda *numbers: done.append(numbers))
    assert done == [(0, 2), (1, 2)]
    (row, other) = found.rows
    assert (row.pods, other.pods) == (4, 1)
    assert row.remedy is not None and row.remedy.summary.startswith("ask for cpu ")
    step = row.remedy.command
    assert step.startswith("kubectl patch daemonset agent ") and "delete" not in step, "it makes its pods again itself"


def test_row_of_a_gang_job_is_explained_by_the_name_of_the_job() -> None:
    group, *members = gang("train-pg", 3, template="nine")
    pods = [of("Job", "train", member) for member in members]
    found = listed(cluster(dgx_h100=1), template("nine", 9), group, *pods)
    assert [row.what for row in found.rows] == ["job/train"]
    assert found.text().splitlines()[-1] == "more     haru explain job/train -n default"


def test_wide_table_has_all_columns() -> None:
    head, rows = listed(cluster(dgx_h100=2), *MIXED).table(wide=True)
    assert head == ("WHAT", "PODS", "SINCE", "VERDICT", "SHORT BY", "HELD BY", "BECAUSE", "STARTS", "FIRST REMEDY")
    assert rows[0][-2:] == ("4/4", "label dgx-h100-0 with pool=x: kubectl label node dgx-h100-0 pool=x")


def test_equal_work_is_explained_once_and_one_row() -> None:
    told: list[tuple[int, int]] = []
    jobs = [workload("Job", f"sweep-{n}", 2, template="nine") for n in range(20)]
    found = listed(cluster(dgx_h100=1), *MIXED[:3], *jobs, progress=lambda done, of: told.append((done, of)))
    [row] = found.rows
    assert (row.what, row.others, row.pods, row.units, told) == ("job/sweep-0", 19, 40, 40, [(0, 1)])
    assert found.total == "40 pods of 20 workloads wait in namespace default"
    assert found.text().splitlines()[1].startswith("job/sweep-0 and 19 more   40 ")
    assert "1 device of gpu.nvidia.com each" in found.text()


def test_pods_whose_template_of_claims_is_missing_are_one_row() -> None:
    pods = [of("ReplicaSet", "web", pod(f"web-{n}", template="none")) for n in range(3)]
    found = Snapshot.of([*cluster(cpu=1), *pods]).explain_pending(now=NOW)
    assert whats(found) == [("replicaset/web", 3)]


def test_row_of_pods_that_a_quota_refuses_beside_running_ones_does_not_say_that_they_run() -> None:
    full = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "1"}},
            "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}  # fmt: skip
    maker = workload("ReplicaSet", "web", 3)
    maker["metadata"]["uid"] = "default-web"
    runs = {**of("ReplicaSet", "web", pod("web-0", nodeName="cpu-0")), "status": {"phase": "Running"}}
    [row] = Snapshot.of([*cluster(cpu=1), full, maker, runs]).explain_pending(now=NOW).rows
    assert (row.pods, row.explanation.verdict) == (2, "FitsIf")
    assert "2 more pods not made: exceeded quota" in row.explanation.summary


def test_gang_that_a_quota_refuses_in_part_is_one_row() -> None:
    full = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "1"}},
            "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}  # fmt: skip
    maker = workload("Job", "train", 3, completionMode="Indexed", completions=3)
    maker["metadata"]["uid"] = "default-train"
    group, made, *_ = gang("train", 3)
    found = Snapshot.of([*cluster(cpu=1), full, maker, group, of("Job", "train", made)]).explain_pending(now=NOW)
    assert [(row.what, row.pods, row.names) for row in found.rows] == [("job/train", 3, ("train-0",))]
    assert found.rows[0].explanation.remedies[0].summary == "raise the quota full to pods=3"
    assert found.total == "3 pods of 1 workload wait in namespace default"


def test_pods_of_one_workload_that_wait_for_different_reasons_are_rows_of_their_own() -> None:
    pods = [of("StatefulSet", "db", pod(f"db-{n}", cpu="4000" if n else "1", schedulingGates=gates)) for n, gates in
            ((0, [{"name": "quota"}]), (1, []), (2, []))]  # fmt: skip
    found = Snapshot.of([*cluster(cpu=1), *pods]).explain_pending("statefulset/db", now=NOW)
    assert sorted(whats(found)) == [("statefulset/db", 1), ("statefulset/db", 2)]
    assert found.total == "3 pods of 1 workload wait in statefulset/db"
    assert [row[2] for row in found.table()[1]] == ["3h", "3h"]


def test_rows_are_sorted_by_pods_that_start_with_the_first_remedy() -> None:
    """Uncordon lets the four of the large Deployment start; the end of one pod lets one of many start."""
    taken = {**pod("work", cpu="30", nodeName="cpu-0"), "status": {"phase": "Running"}}
    closed = cluster(dgx_h100=1, cpu=1).changed(Cordon("dgx-h100-0"))
    many = [pod(f"many-{n}", cpu="30", nodeSelector={"kubernetes.io/hostname": "cpu-0"}) for n in range(6)]
    found = listed(closed, taken, template(), *many, workload("ReplicaSet", "web", 4, template="gpu"))
    assert [(row.what, row.starts, row.pods) for row in found.rows] == [("replicaset/web", 4, 4), ("pod/many-0", 1, 6)]
    assert found.rows[0].remedy is not None and found.rows[0].remedy.kind == "Uncordon"


def test_workload_that_lacks_pods_is_found_by_its_own_name() -> None:
    made = [template(), workload("ReplicaSet", "web", 4, template="gpu"), workload("ReplicaSet", "api", 4)]
    found = listed(cluster(cpu=1), *made, about="replicaset/web")
    assert whats(found) == [("replicaset/web", 4)]


def test_rows_with_the_same_first_remedy_count_together() -> None:
    closed = cluster(dgx_h100=1, cpu=1).changed(Cordon("dgx-h100-0"))
    found = listed(closed, template(), pod("a", "gpu"), pod("b", "gpu", cpu="2"))
    assert [(row.starts, row.unblocks) for row in found.rows] == [(1, 2), (1, 2)]


def test_rows_beyond_the_largest_name_the_command_that_searches_remedies() -> None:
    different = [pod(f"p{n:02}", cpu=str(900 + n)) for n in range(MOST_WITH_REMEDIES + 2)]
    snapshot = cluster(cpu=1).changed(Apply(different))
    found = snapshot.explain_pending(now=NOW)
    left = [row for row in found.rows if not row.is_searched]
    assert len(left) == 2 and not any(row.explanation.remedies for row in left)
    command = f"run: haru explain {left[0].what} -n default"
    for wide in (False, True):
        assert [line for line in found.text(wide=wide).splitlines() if line.endswith(command)]
    assert found.total.endswith("; 2 rows of fewer pods name the command that searches for remedies")
    assert sum(item.get("remediesSearched") is False for item in found.as_dict()["items"]) == 2
    unasked = snapshot.explain_pending(now=NOW, remedies=False)
    assert all(row.is_searched for row in unasked.rows), "who wants no remedies is sent nowhere"


def test_suspended_job_and_work_refused_by_quota_are_listed() -> None:
    full = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}},
            "status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}  # fmt: skip
    objects = [workload("Job", "later", 2, suspend=True), full, workload("ReplicaSet", "web", 3)]
    made = [{**obj, "metadata": {**obj["metadata"], "uid": obj["metadata"]["name"]}} for obj in objects]
    found = Snapshot.of([*cluster(cpu=1), *made]).explain_pending(now=NOW)
    assert {row.what: row.explanation.reasons[0].type for row in found.rows} == {
        "job/later": "Suspended",
        "replicaset/web": "QuotaExceeded",
    }


def other_namespace(obj: Obj, namespace: str = "team") -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


def labelled(obj: Obj, **labels: str) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}}


def test_namespace_labels_and_all_namespaces_select() -> None:
    work = [labelled(pod("a", cpu="999"), app="x"), pod("b", cpu="998"), other_namespace(pod("c", cpu="997"))]
    snapshot = cluster(cpu=1).changed(Apply(work))
    assert sorted(whats(snapshot.explain_pending())) == [("pod/a", 1), ("pod/b", 1)]
    assert whats(snapshot.explain_pending(namespace="team")) == [("pod/c", 1)]
    assert (
        whats(snapshot.explain_pending("ns/team"))
        == [("pod/c", 1)]
        == whats(snapshot.explain_pending("namespace/team"))
    )
    everything = snapshot.explain_pending(all_namespaces=True)
    assert len(everything.rows) == 3 and everything.table()[0][0] == "NAMESPACE"
    assert whats(snapshot.explain_pending(selector="app=x")) == [("pod/a", 1)]
    assert str(snapshot.explain_pending(selector="app=y")) == "nothing waits in namespace default with app=y"


def uid(obj: Obj, owner: tuple[str, str] | None = None) -> Obj:
    owners = (
        [{"apiVersion": "v1", "kind": owner[0], "name": owner[1], "uid": owner[1], "controller": True}] if owner else []
    )
    return {**obj, "metadata": {**obj["metadata"], "uid": obj["metadata"]["name"], "ownerReferences": owners}}


def test_pods_are_found_by_deployment_daemonset_cronjob_and_device_class() -> None:
    huge = {"cpu": "999"}
    replicas = uid(pod("web-5d8f-1", **huge), ("ReplicaSet", "web-5d8f"))
    replicas["metadata"]["labels"] = {"pod-template-hash": "5d8f"}
    job = uid(workload("Job", "nightly-1", 1), ("CronJob", "nightly"))
    objects = [template(count=9), replicas, uid(pod("agent-1", **huge), ("DaemonSet", "agent")), job,
               uid(pod("nightly-1-x", **huge), ("Job", "nightly-1")), pod("nine", "gpu")]  # fmt: skip
    snapshot = Snapshot.of([*cluster(dgx_h100=1, cpu=1), *objects])
    for about, what in (
        ("deployment/web", "deployment/web"),
        ("deploy/web", "deployment/web"),
        ("daemonset/agent", "daemonset/agent"),
        ("cronjob/nightly", "job/nightly-1"),
        ("deviceclass/gpu.nvidia.com", "pod/nine"),
    ):
        assert whats(snapshot.explain_pending(about)) == [(what, 1)], about


def test_pods_are_found_by_workload_of_kubernetes_and_of_kueue() -> None:
    group, *members = gang("train", 2, cpu="999")
    group["spec"]["podGroupTemplateRef"] = {"workload": {"workloadName": "train", "podGroupTemplateName": "x"}}
    ours: Obj = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "Workload",
        "metadata": {"name": "train"},
        "spec": {},
    }
    theirs: Obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "held"}, "spec": {}}
    gated = pod("notebook", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    gated["metadata"]["annotations"] = {"kueue.x-k8s.io/workload": "held"}
    snapshot = Snapshot([*cluster(cpu=1), *Snapshot.of([group, *members, gated]), ours, theirs])
    assert whats(snapshot.explain_pending("workload/train")) == [("podgroup/train", 2)]
    assert whats(snapshot.explain_pending("workload/held")) == [("pod/notebook", 1)]
    with pytest.raises(NotFoundError, match='there is no workload "none" in namespace default'):
        snapshot.explain_pending("workload/none")


def test_pods_are_found_by_whatever_controls_them() -> None:
    huge = {"cpu": "999"}
    step = uid(workload("Job", "step", 1), ("Workflow", "train"))
    objects = [uid(pod("train-1", **huge), ("Workflow", "train")), uid(pod("train-2", **huge), ("Workflow", "train")),
               uid(pod("other-1", **huge), ("Workflow", "other")), step]  # fmt: skip
    snapshot = Snapshot.of([*cluster(cpu=1), *objects])
    for about in ("workflow/train", "Workflow/train", "workflows/train", "workflows.argoproj.io/train"):
        assert whats(snapshot.explain_pending(about)) == [("workflow/train", 2), ("workflow/train", 1)], about
    assert whats(snapshot.explain_pending("workflow/other")) == [("workflow/other", 1)]
    with pytest.raises(NotFoundError, match=r'no pod in namespace default belongs to "workflow/none"; KIND is one of'):
        snapshot.explain_pending("workflow/none")
    with pytest.raises(NotFoundError, match=r'namespace team belongs to "workflow/train"; namespace default has one'):
        snapshot.explain_pending("workflow/train", namespace="team")


def test_name_in_wrong_namespace_gets_hint() -> None:
    web = other_namespace(workload("ReplicaSet", "web", 1))
    deployment: Obj = {**web, "kind": "Deployment"}
    snapshot = Snapshot.of([*cluster(cpu=1), other_namespace(pod("p")), web, deployment])
    for about in ("deployment/web", "replicaset/web", "pod/p"):
        ask = snapshot.explain_pending if about.startswith("deployment") else snapshot.explain
        with pytest.raises(
            NotFoundError,
            match=f'"{about.partition("/")[2]}" in namespace default; namespace team has one: add -n team',
        ):
            ask(about)  # type: ignore[operator]


def test_name_with_a_typing_error_gets_the_one_that_is_there() -> None:
    web = workload("ReplicaSet", "web-server", 1)
    snapshot = Snapshot.of([*cluster(cpu=1), pod("trainer"), web, {**web, "kind": "Deployment"}])
    for about in ("deployment/web-sever", "replicaset/web-sever", "pod/trainr"):
        ask = snapshot.explain_pending if about.startswith("deployment") else snapshot.explain
        with pytest.raises(NotFoundError, match=r"in namespace default; did you mean (web-server|trainer)[?]"):
            ask(about)  # type: ignore[operator]
    with pytest.raises(NotFoundError, match=r'there is no pod "database" in namespace default$'):
        snapshot.explain("pod/database")


def test_list_as_json_has_an_explanation_in_each_item() -> None:
    answer = listed(cluster(dgx_h100=2), *MIXED).as_dict()
    assert (answer["apiVersion"], answer["kind"], answer["pods"]) == ("haru.dev/v1alpha1", "ExplanationList", 8)
    for item in answer["items"]:
        check_explanation(item["explanation"])
        assert item.keys() - {"shortBy"} == {
            "namespace", "workload", "moreWorkloads", "pods", "units", "examples", "since", "starts", "unblocks",
            "explanation",
        }  # fmt: skip
    assert answer["items"][1]["shortBy"] == {
        "text": "8 devices of gpu.nvidia.com",
        "numbers": "24 needed; of 16 devices 16 are free",
    }


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    cluster(dgx_h100=2, cpu=1).changed(Apply(MIXED)).write(path)
    return str(path)


def test_command_prints_every_form(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> str:
        assert main(["explain", *arguments, "-f", file]) == 0
        return capsys.readouterr().out

    assert said("--all").startswith("WHAT ") and "8 pods of 3 workloads wait" in said("-A")
    assert said("--all").splitlines()[-1] == f"more     haru explain pod/sweep-0 -n default -f {file}"
    assert "HELD BY" in said("--all", "--wide") and said("--all", "-o", "wide") == said("--all", "--wide")
    assert json.loads(said("--all", "-o", "json"))["kind"] == "ExplanationList"
    assert "kind: ExplanationList" in said("deviceclass", "gpu.nvidia.com", "-o", "yaml")
    assert said("--all", "-o", "html").startswith("<!doctype html>\n<html lang=")
    assert said("pod/large", "-o", "html").count("<table>") >= 2
    short = said("pod", "large").splitlines()
    assert len(short) <= 5 and short[-1].startswith(f"more     haru explain pod/large -f {file} --wide (")
    assert said("pod/large", "--wide") == said("pod/large", "-o", "wide") != said("pod/large")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pod/large", "--all"], "leave one of them out"),
        (["pod/large", "pod/other"], "write one KIND/NAME"),
        (["pod/default/large"], "write KIND/NAME"),
        (["-l", "a in ("], "-l: "),
        (["deployment/none"], 'there is no deployment "none" in namespace default'),
        (["workflow/none"], 'no pod in namespace default belongs to "workflow/none"'),
    ],
)
def test_command_refuses_what_makes_no_sense(
    arguments: list[str], words: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *arguments, "-f", file]) == 2
    assert words in capsys.readouterr().err


def test_who_may_not_read_pods_is_told_who_answers_of_other_kinds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haru.cli.explain._resident_text", lambda options, about: False)
    monkeypatch.setattr("haru.cli.explain._read_all", lambda options, about: Snapshot([], refused=("Pod",)))
    assert main(["explain", "workflow/train"]) == 2
    told = "what waits with workflow/train cannot be told: not allowed to read Pod objects; haru explain --all"
    assert told in capsys.readouterr().err


def test_command_shows_groups_where_pods_of_a_job_wait_for_different_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = uid(workload("Job", "mixed", 2))
    pods = [uid(pod("mixed-a", cpu="999"), ("Job", "mixed")), uid(pod("mixed-b", cpu="998"), ("Job", "mixed"))]
    path = tmp_path / "cluster.json"
    Snapshot.of([*cluster(cpu=1), job, *pods]).write(path)
    assert main(["explain", "job/mixed", "-f", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Job default/mixed: NeverFits: ") and out.count("\njob/mixed   1 ") == 2
    assert out.endswith("2 pods of 1 workload wait in job/mixed\n")
