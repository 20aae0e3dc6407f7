"""Golden journals: decisions and explanations as they were, to be made again and compared to the last detail.

    make golden-record    # writes journal.jsonl.xz from the seeds below, with the code that is there
    make golden           # makes all of it again; fails when anything comes out differently
    make golden-explanations    # writes the explanations anew and leaves the decisions as they are

`golden-explanations` is for a change of explanations alone.
A change that is meant to leave behaviour as it is leaves every line as it is. A change that is meant to alter a
decision or an explanation records the file anew and says in its commit what differs, and why.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden_histories import Recorder, record_preemption, record_rules, record_safety, waiting_units

from haru.engine.equivalence import DecisionCache
from haru.engine.journal import Replay
from haru.engine.state.cache import SchedulerCache
from haru.explain.entry import explain
from haru.explain.render import to_json

Obj = dict[str, Any]
JOURNAL = Path(__file__).parent / "journal.jsonl.xz"
SAFETY = [(seed, 4) for seed in range(1000, 1022)]
PREEMPTION = range(500)
RULES = [(seed, 50) for seed in range(10)]
NOW = "2027-01-16T00:00:00Z"
EXPLAINED_AT_MOST = 3
"""Units that are explained at the end of each history."""


def explanations(cluster: SchedulerCache) -> Iterator[Obj]:
    """What is said of the units that wait, as `{"explain": [kind, path], "explanation": ...}`."""
    snapshot = cluster.snapshot()
    for listed, group in list(waiting_units(cluster))[:EXPLAINED_AT_MOST]:
        obj, kind = (group, "podgroup") if group is not None else (listed[0], "pod")
        metadata = obj["metadata"]
        told = to_json(explain(snapshot, kind, obj, now=NOW))  # type: ignore[arg-type]
        yield {"explain": [kind, f"{metadata['namespace']}/{metadata['name']}"], "explanation": told}


def record(path: Path) -> int:
    """Write a journal, and return how many decisions are in it."""
    lines: list[Obj] = []
    recorder = Recorder(lines.append)
    for seed, histories in SAFETY:
        record_safety(recorder, seed, histories)
    record_preemption(recorder, PREEMPTION)
    for seed, examples in RULES:
        record_rules(recorder, seed, examples)
    with lzma.open(path, "wt", encoding="utf-8", preset=9) as file:
        for history in split(lines):
            for entry in (*history, *explanations(replayed(history))):
                file.write(json.dumps(entry, sort_keys=True, separators=(",", ":")) + "\n")
    return recorder.decisions


def record_explanations(path: Path) -> int:
    """Write the explanations of a journal anew, and return how many they are; its decisions stay as they are."""
    histories = read(path)
    explained = 0
    with lzma.open(path, "wt", encoding="utf-8", preset=9) as file:
        for history in histories:
            decided = [entry for entry in history if "explain" not in entry]
            told = list(explanations(replayed(decided)))
            explained += len(told)
            for entry in (*decided, *told):
                file.write(json.dumps(entry, sort_keys=True, separators=(",", ":")) + "\n")
    return explained


def split(entries: list[Obj]) -> Iterator[list[Obj]]:
    """The entries of each history, its head among them."""
    history: list[Obj] = []
    for entry in entries:
        if "history" in entry and history:
            yield history
            history = []
        history.append(entry)
    yield history


def replayed(history: list[Obj]) -> SchedulerCache:
    """The cluster after a history."""
    replay = Replay()
    for _ in replay.run(entry for entry in history[1:] if "explain" not in entry):
        pass
    return replay.cluster


def read(path: Path) -> list[list[Obj]]:
    """The histories of a journal."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return list(split([json.loads(line) for line in file]))


def differences(history: list[Obj], cache: DecisionCache | None = None) -> Iterator[str]:
    """What comes out differently in a history, made again; `cache`: what keeps results between decisions."""
    name = history[0]["history"]
    replay = Replay(SchedulerCache(cache))
    for one in replay.run(entry for entry in history[1:] if "explain" not in entry):
        if normal(one.before) != normal(one.now):
            yield f"{name}: decision {one.number}: {one.asked['pods']}\n  then {one.before}\n  now  {one.now}"
    told = [entry for entry in history if "explain" in entry]
    for before, now in zip(told, explanations(replay.cluster), strict=True):
        if before != normal(now):
            yield f"{name}: explanation of {before['explain']}\n  then {before}\n  now  {now}"


def normal(value: Any) -> Any:
    """A value as it comes back from JSON."""
    return json.loads(json.dumps(value))


def check(path: Path) -> int:
    """Print what differs; the exit status."""
    decisions = explained = different = 0
    for history in read(path):
        decisions += sum("decide" in entry for entry in history)
        explained += sum("explain" in entry for entry in history)
        for text in differences(history):
            different += 1
            print(text)
    print(f"{decisions} decisions and {explained} explanations made again, {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    command, *files = sys.argv[1:] or ["check"]
    target = Path(files[0]) if files else JOURNAL
    if command == "explanations":
        print(f"{record_explanations(target)} explanations recorded in {target}")
    elif command == "record":
        print(f"{record(target)} decisions recorded in {target}")
    else:
        sys.exit(check(target))
