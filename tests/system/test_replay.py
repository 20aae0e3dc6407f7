"""Decisions of a churning cluster, written down as they were made, are the same when they are made again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from churn_world import ChurnWorld

import virtual_time
from haru.engine import Options, decide
from haru.engine.journal import DecisionInput, JournalError, Replay, Replayed
from haru.scheduler import decision_log
from haru.scheduler.decision_log import DecisionLog, entries


def churned(root: Path, minutes: float, mebibytes: int) -> list[Path]:
    """Let a cluster churn; return the log of each of its schedulers, one after the other."""
    folders: list[Path] = []
    logs: list[DecisionLog] = []

    def log() -> DecisionLog:
        for old in logs:
            old.close()
        folders.append(root / str(len(folders)))
        logs.append(DecisionLog(folders[-1], mebibytes))
        return logs[-1]

    world = ChurnWorld(5, log=log)
    virtual_time.run(world.play(minutes))
    logs[-1].close()
    assert not world.problems
    return folders


def again(directory: Path) -> list[Replayed]:
    return list(Replay().run(entries(directory)))


def check(replayed: list[Replayed]) -> None:
    different = [one for one in replayed if not one.same]
    assert not different, f"{len(different)} of {len(replayed)}: {different[0]}"
    statuses = {one.now["status"] for one in replayed}
    assert {"scheduled", "unschedulable"} <= statuses


def test_decision_log_replays_to_equal_decisions(tmp_path: Path) -> None:
    last = churned(tmp_path, 60, 64)[-1]
    replayed = again(last)
    assert len(replayed) > 30
    check(replayed)
    # A part that follows from the one before has the same decisions in it.
    whole = last / "1.log.jsonl"
    (last / "0.log.jsonl").rename(whole)
    lines = whole.read_text().splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if i > len(lines) // 2 and line.startswith('{"decide"'))
    (last / "0.log.jsonl").write_text("".join(lines[:cut]))
    whole.write_text("".join(lines[cut:]) + '{"decide": {"pods": ["cut')
    assert [one.now for one in again(last)] == [one.now for one in replayed]


def test_part_of_decision_log_keeps_to_its_share_while_base_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base of each part is late: no log grows on meanwhile."""
    make_base = decision_log._compact

    def late(directory: Path, part: int) -> None:
        time.sleep(0.05)
        make_base(directory, part)

    monkeypatch.setattr(decision_log, "_compact", late)
    log = DecisionLog(tmp_path, 1)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {}}
    metadata = {"name": "p", "namespace": "default", "uid": "u", "annotations": {"a": "x" * 100_000}}
    large = {**pod, "metadata": metadata}
    log.cluster.apply(large)
    decision = decide(log.cluster.snapshot(), [pod], group=None, options=Options())
    for _ in range(20):
        log.cluster.apply(large)
        log.decided(DecisionInput([pod], None, Options(), "s"), decision)
    log.close()
    assert max(path.stat().st_size for path in tmp_path.glob("*.log.jsonl")) < 0.5 * 1024 * 1024


def test_decision_log_is_bounded_and_replayable_from_oldest_part(tmp_path: Path) -> None:
    """A cluster of a pod that never fits: its attempts alone fill the log."""
    log = DecisionLog(tmp_path, 1)
    log.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gone", "namespace": "default"}})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {}}
    log.cluster.apply(pod)
    log.cluster.remove({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gone", "namespace": "default"}})
    for number in range(3000):
        log.cluster.apply(pod)
        options = Options(seed=number)
        log.decided(
            DecisionInput([pod], None, options, "s"),
            decide(log.cluster.snapshot(), [pod], group=None, options=options),
        )
    log.close()
    assert "0.base.jsonl" not in {path.name for path in tmp_path.iterdir()}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1.5 * 1024 * 1024
    replayed = again(tmp_path)
    assert replayed[-1].asked["options"]["seed"] == 2999
    assert 100 < len(replayed) < 3000
    assert all(one.same for one in replayed)


def test_unreadable_decision_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no decisions are logged here"):
        list(entries(tmp_path))
    (tmp_path / "0.base.jsonl").write_text('{"apply": 3}\n')
    (tmp_path / "0.log.jsonl").write_text("nonsense\n")
    with pytest.raises(JournalError, match="entry 1: TypeError"):
        again(tmp_path)
    (tmp_path / "0.base.jsonl").write_text('{"invent": 3}\n')
    with pytest.raises(JournalError, match=r'entry 1: .*"invent" is none of apply, '):
        again(tmp_path)
    (tmp_path / "0.base.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"0\.log\.jsonl: line 1: "):
        again(tmp_path)


@pytest.mark.nightly
def test_thousand_logged_decisions_replay_equally(tmp_path: Path) -> None:
    # A scheduler that starts begins a log of its own.
    replayed = [one for log in churned(tmp_path, 700, 512) for one in again(log)]
    assert len(replayed) > 1000
    check(replayed)
