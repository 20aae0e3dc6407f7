"""A captured cluster is decided alike elsewhere, with and without its names; logged decisions are made again."""

from __future__ import annotations

import gzip
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from engine_objects import node, pod
from preemption_situations import situation

from haru.api.anonymize import hidden, new_names
from haru.cli.main import main
from haru.engine import Options, SchedulerCache, decide, run_round
from haru.engine.framework import PreemptionOptions
from haru.engine.journal import DecisionInput
from haru.kube.yaml import load
from haru.scheduler.decision_log import DecisionLog

Obj = dict[str, Any]


@pytest.mark.parametrize("seed", range(25))
def test_decisions_are_equal_after_names_are_hidden(seed: int) -> None:
    objects = list(situation(seed).objects())
    names = new_names(objects)
    options = Options(preemption=PreemptionOptions(preempt_for_groups=True, preempt_for_pods=True))
    before = run_round(SchedulerCache.of(objects), options)
    after = run_round(SchedulerCache.of(hidden(objects)), options)

    def path(text: str) -> str:
        return f"default/{names[text.partition('/')[2]]}"

    for ours, theirs in ((before.nominations, after.nominations), (before.bindings, after.bindings)):
        assert {path(p) for p in ours} == theirs.keys()
        # Which of equal members goes where is a tie that its name breaks.
        assert sorted(names[n] for n in ours.values()) == sorted(theirs.values())
    assert [names[e.pod.name] for e in before.evictions] == [e.pod.name for e in after.evictions]
    assert {path(p) for p in before.pending} == after.pending.keys()


def test_hidden_capture_contains_no_original_names() -> None:
    secret = pod("secret-project", node="secret-node", volumes=[{"name": "v", "secret": {"secretName": "secret-key"}}])
    secret["metadata"]["uid"] = "1"
    secret["metadata"]["annotations"] = {"team": "secret-team", "haru.dev/run-time-limit": "1h"}
    secret["metadata"]["managedFields"] = [{"manager": "secret-tool"}]
    secret["spec"]["containers"][0] |= {"command": ["secret-command"], "env": [{"name": "A", "value": "secret-value"}]}
    secret["spec"]["containers"][0]["image"] = "registry.example.com/secret-image:1"
    secret["status"]["conditions"] = [{"type": "Ready", "message": "secret-message"}]
    text = json.dumps(hidden([secret, node("secret-node")]))
    assert "secret-" not in text
    assert "haru.dev/run-time-limit" in text


def test_capture_of_files_is_read_by_other_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "in.yaml", tmp_path / "out.json"
    source.write_text("\n---\n".join(json.dumps(obj) for obj in (node("a"), pod("p"))))
    assert main(["capture", "-f", str(source), "-w", str(target)]) == 0
    assert capsys.readouterr().err == "2 objects captured\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert main(["schedule", "-f", str(target), "-o", "json"]) == 0
    assert main(["capture", "-f", str(source), "--hide"]) == 0
    answer = load(capsys.readouterr().out.splitlines()[-1])
    assert [item["metadata"]["name"] for item in answer["items"]] == ["x0", "x1"]
    assert main(["capture", "-f", str(source), "-w", str(tmp_path / "no" / "where")]) == 2
    assert "--write: " in capsys.readouterr().err


def logged(directory: Path) -> None:
    log = DecisionLog(directory)
    log.cluster.apply(node("a"))
    for name, cpu in (("fits", "1"), ("waits", "99")):
        log.cluster.apply(pod(name, cpu=cpu))
        snapshot, options = log.cluster.snapshot(), Options(seed=7)
        pods = [snapshot.pods[f"default/{name}"].obj]
        log.decided(DecisionInput(pods, None, options, "s"), decide(snapshot, pods, group=None, options=options))
    log.close()


def test_replay_of_decision_log_reports_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logged(tmp_path)
    assert main(["replay", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "2 decisions made again, 0 differ\n"
    assert main(["replay", str(tmp_path), "--about", "default/fits"]) == 0
    assert "scheduled: fits on a\n1 decision made again, 0 differ" in capsys.readouterr().out
    path = tmp_path / "0.log.jsonl"
    path.write_text(path.read_text().replace('"cpu":"8"', '"cpu":"0"'))
    assert main(["replay", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "  then scheduled: fits on a\n  now  unschedulable: 0/1 nodes are available" in out
    assert main(["replay", str(tmp_path), "-o", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["kind"], answer["decisions"], len(answer["different"])) == ("Replay", 2, 2)


def logged_workloads(directory: Path) -> None:
    """A gang of a Job, whose PodGroup has a name of its own, and a pod of a Deployment."""
    log = DecisionLog(directory)
    log.cluster.apply(node("a"))
    owned = (
        ("train-0", {}, {"apiVersion": "batch/v1", "kind": "Job", "name": "train"}),
        ("web-5d9-x", {"pod-template-hash": "5d9"}, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9"}),
    )
    for name, labels, owner in owned:
        made = pod(name, cpu="1")
        made["metadata"] |= {"labels": labels, "ownerReferences": [{**owner, "uid": "1", "controller": True}]}
        log.cluster.apply(made)
        snapshot, options = log.cluster.snapshot(), Options(seed=7)
        pods = [snapshot.pods[f"default/{name}"].obj]
        log.decided(DecisionInput(pods, None, options, "s"), decide(snapshot, pods, group=None, options=options))
    log.close()


@pytest.mark.parametrize(
    ("about", "found"),
    [
        ("job/train", "train-0"),
        ("jobs/train", "train-0"),
        ("default/train", "train-0"),
        ("train", "train-0"),
        ("pod/train-0", "train-0"),
        ("deploy/web", "web-5d9-x"),
        ("Deployment/web", "web-5d9-x"),
    ],
)
def test_replay_about_finds_workload_of_pods(
    about: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged_workloads(tmp_path)
    assert main(["replay", str(tmp_path), "--about", about]) == 0
    assert f"scheduled: {found} on a\n1 decision made again" in capsys.readouterr().out


def test_replay_about_unknown_object_names_those_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logged_workloads(tmp_path)
    assert main(["replay", str(tmp_path), "--about", "job/web"]) == 2
    expected = (
        "--about job/web: no decision is about it; there are decisions about default/job/train, default/deployment/web"
    )
    assert expected in capsys.readouterr().err
    assert main(["replay", str(tmp_path), "--about", "job/train", "-n", "other"]) == 2
    assert "--about job/train" in capsys.readouterr().err


def test_missing_or_corrupt_decision_log_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path)]) == 2
    assert "no decisions are logged here" in capsys.readouterr().err
    (tmp_path / "0.base.jsonl").write_bytes(gzip.compress(b"x"))
    (tmp_path / "0.log.jsonl").touch()
    assert main(["replay", str(tmp_path)]) == 2
