"""Records the outcomes of a scheduler on a cluster, and compares two records.

    python -m side_by_side record --kubeconfig FILE --scheduler-name NAME --output RECORD [--minor 36] [CASE ...]
    python -m side_by_side record --coscheduling --kubeconfig FILE --scheduler-name NAME --output RECORD [CASE ...]
    python -m side_by_side compare RECORD OTHER [--messages]

Run it with tests and tests/side_by_side on PYTHONPATH. The cluster must be empty: nodes of its own would take the pods.
With `--coscheduling` it must serve the PodGroups of scheduler-plugins.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from cases import CASES
from coscheduling_cases import COSCHEDULING
from player import Player

from haru.client.api import ApiClient
from haru.client.discovery import adapt_to_server

Record = dict[str, Any]
_ALL = {**CASES, **COSCHEDULING}


def unequal(ours: list[Any], theirs: list[Any], messages: bool = False) -> bool:
    """Whether two outcomes differ, apart from words (and with `messages` in words too)."""
    return _without(ours, messages) != _without(theirs, messages)


def _without(outcomes: list[Any], messages: bool) -> list[Any]:
    return [
        {key: value for key, value in outcome.items() if messages or key != "messages"}
        if isinstance(outcome, dict) else outcome
        for outcome in outcomes
    ]  # fmt: skip


async def record(options: argparse.Namespace) -> Record:
    """The outcome of each case."""
    found: Record = {}
    async with ApiClient.from_kubeconfig(options.kubeconfig) as api:
        version = await adapt_to_server(api)
        player = Player(api, options.scheduler_name, time.monotonic, options.quiet)
        for name in options.cases or (COSCHEDULING if options.coscheduling else CASES):
            if _ALL[name].oldest > (options.minor or version.minor or 36):
                continue
            try:
                found[name] = await player.play(_ALL[name])
            except Exception as error:
                traceback.print_exc()
                found[name] = [f"{type(error).__name__}: {error}"]
            print(name, json.dumps(found[name])[:400], file=sys.stderr, flush=True)
            await asyncio.to_thread(Path(options.output).write_text, json.dumps(found, indent=1) + "\n")
    return found


def compare(options: argparse.Namespace) -> int:
    """Print the cases whose outcomes differ; how many there are."""
    ours, theirs = (json.loads(Path(path).read_text()) for path in options.records)
    shared = [name for name in ours if name in theirs]
    differing = [name for name in shared if unequal(ours[name], theirs[name], options.messages)]
    for name in differing:
        print(f"{name}:{'  (on purpose: ' + _ALL[name].on_purpose + ')' if _ALL[name].on_purpose else ''}")
        for number, (our, their) in enumerate(zip(ours[name], theirs[name], strict=False)):
            if unequal([our], [their], options.messages):
                print(f"  step {number}\n    {json.dumps(our)}\n    {json.dumps(their)}")
    print(f"{len(shared)} cases compared, {len(differing)} differ")
    return len(differing)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare schedulers side by side.")
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record", help="play the cases on a cluster")
    recorder.add_argument("--kubeconfig", required=True)
    recorder.add_argument("--scheduler-name", default="default-scheduler")
    recorder.add_argument("--output", required=True)
    recorder.add_argument("--quiet", type=float, default=2.5, help="seconds without a change that end a step")
    recorder.add_argument("--minor", type=int, default=0, help="leave out cases for newer versions")
    recorder.add_argument("--coscheduling", action="store_true", help="play the gangs of scheduler-plugins instead")
    recorder.add_argument("cases", nargs="*")
    comparer = commands.add_parser("compare", help="compare two records")
    comparer.add_argument("records", nargs=2)
    comparer.add_argument("--messages", action="store_true", help="compare the messages of PodScheduled too")
    options = parser.parse_args()
    if options.command == "record":
        asyncio.run(record(options))
        return 0
    return min(1, compare(options))


if __name__ == "__main__":
    sys.exit(main())
