"""What `haru whatif` and `haru simulate` say of work left pending is what `haru explain` says of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import preemption_situations
import pytest
from random_situations import Situation, situation

from haru.api.changes import Apply
from haru.api.snapshot import Snapshot
from haru.cli.main import main
from haru.kube.meta import Obj

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SEEDS = [*range(10), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(10, 200))]
NOTHING: Obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nothing", "namespace": "default"}}


def answer(told: Obj) -> tuple[object, ...]:
    """What all of them say: verdict, headline, reasons with their numbers."""
    return told["verdict"], told["summary"], told["reasons"]


def explained(found: Situation) -> Obj:
    return Snapshot.of(found.objects).explain(found.about, remedies=False).as_dict()


@pytest.mark.parametrize("seed", SEEDS)
def test_whatif_without_effect_says_what_explain_says(seed: int) -> None:
    found = situation(Random(seed))
    expected = explained(found)
    told = Snapshot.of(found.objects).what_if(Apply([NOTHING])).as_dict()
    if expected["verdict"] == "Starting":
        assert told["anyway"]["starts"] > 0 and not told["pending"]
        return
    [row] = told["pending"]
    assert answer(row["explanation"]) == answer(expected)
    assert row["explanation"]["requests"] == expected["requests"]


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 150), marks=pytest.mark.nightly)])
def test_whatif_says_of_every_gang_and_pod_what_explain_says(seeds: range) -> None:
    """Gangs and pods of several priorities, in clusters where nothing starts and nobody is evicted anyway."""
    compared = 0
    for seed in seeds:
        snapshot = Snapshot.of(list(preemption_situations.situation(seed).objects()))
        told = snapshot.what_if(Apply([NOTHING]), now=NOW).as_dict()
        for row in told["pending"] if not any(told["anyway"].values()) else ():
            subject = row["explanation"]["subject"]
            about = f"{subject['kind'].lower()}/{subject['name']}"
            alone = snapshot.explain(about, namespace=subject["namespace"], remedies=False, now=NOW).as_dict()
            assert answer(row["explanation"]) == answer(alone), (seed, about)
            compared += 1
    assert compared, "some cluster is at rest"


@pytest.mark.parametrize("seed", SEEDS)
def test_whatif_counts_the_cards_that_top_counts(seed: int) -> None:
    snapshot = Snapshot.of(situation(Random(seed)).objects)
    told = snapshot.what_if(Apply([NOTHING])).as_dict()["usage"]["devices"]
    counts = snapshot.usage().as_dict()["counts"]
    amounts = [driver["before"] for driver in told.values()]
    starts = [driver["after"]["held"] - driver["before"]["held"] for driver in told.values()]
    assert not any(starts), "what starts anyway starts in both"
    for word in ("total", "unavailable"):
        assert sum(amount[word] for amount in amounts) == pytest.approx(counts[word])
    if snapshot.explain(situation(Random(seed)).about, remedies=False).verdict != "Starting":
        for word, value in counts.items():
            assert sum(amount[word] for amount in amounts) == pytest.approx(value), word


@pytest.mark.parametrize("seed", SEEDS)
def test_whatif_that_brings_work_says_what_explain_says(seed: int) -> None:
    found = situation(Random(seed))
    there, coming = waiting_apart(found)
    expected = explained(found)
    told = Snapshot.of(there).what_if(Apply(coming)).as_dict()
    assert bool(told["waits"]) == (expected["verdict"] != "Starting")
    for wait in told["waits"]:
        assert answer(wait) == answer(expected)
        assert wait["new"]


@pytest.mark.parametrize("seed", SEEDS)
def test_simulate_says_what_explain_says(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = situation(Random(seed))
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found.objects}))
    files = ("-f", str(tmp_path / "cluster.json"))
    assert main(["explain", found.about, *files, "--no-remedies", "-o", "json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert main(["explain", found.about, *files, "--no-remedies"]) == 0
    short = capsys.readouterr().out
    assert main(["simulate", *files, "--policy", "default", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"][0]["pending"]
    assert main(["simulate", *files, "--policy", "default"]) == 0
    text = capsys.readouterr().out
    if expected["verdict"] == "Starting":
        assert rows == [] and "waiting at the end" not in text
        return
    [row] = rows
    assert answer(row["explanation"]) == answer(expected)
    assert f"{expected['verdict']}: {expected['summary']}" in text
    missing = [line for line in short.splitlines() if line.startswith("short by")]
    assert all(line in text for line in missing), "what it is short by, in the same words"
    assert bool(missing) == ("shortBy" in row)


def waiting_apart(found: Situation) -> tuple[list[Obj], list[Obj]]:
    """What is there, and what waits."""
    work = [obj for obj in found.objects if is_work(obj)]
    return [obj for obj in found.objects if not is_work(obj)], work


def is_work(obj: Obj) -> bool:
    if obj["kind"] == "Pod":
        return not obj["spec"].get("nodeName")
    unused = obj["kind"] == "ResourceClaim" and not obj.get("status")
    return unused or obj["kind"] in ("PodGroup", "ResourceClaimTemplate")
