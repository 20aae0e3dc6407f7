"""Make the decisions in a scheduler's decision log again, and show those that differ.

DIRECTORY is the directory that `--decision-log` of `haru up` or `haru scheduler` wrote. Exit status: 0 all are equal, 1
some differ, 2 the log cannot be read.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.cli.main import UsageError

if TYPE_CHECKING:
    from haru.engine.journal import Replayed

Obj = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru replay`."""
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="decision log")
    parser.add_argument("--about", metavar="NAME", help="only decisions about this pod or PodGroup (NAMESPACE/NAME)")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="output format")


def run(options: argparse.Namespace) -> int:
    """Prints what differs."""
    from haru.engine.journal import JournalError, Replay
    from haru.scheduler.decision_log import entries

    made, different = 0, []
    try:
        for one in Replay().run(entries(options.directory)):
            if options.about and options.about not in (*one.asked["pods"], one.asked["group"]):
                continue
            made += 1
            if options.about and options.output == "text":
                print(f"entry {one.number}: {told(one.now)}")
            if not one.same:
                different.append(one)
    except JournalError as error:
        raise UsageError(f"{options.directory}: {error}") from error
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    if options.output == "json":
        print(json.dumps(_document(made, different), indent=2))
    else:
        for one in different:
            print(f"entry {one.number}: {one.asked['group'] or one.asked['pods'][0]}:")
            print(f"  then {told(one.before)}\n  now  {told(one.now)}")
        print(f"{made} decisions made again, {len(different)} differ")
    return 1 if different else 0


def told(decision: Obj) -> str:
    """A decision in one line."""
    places = [f"{m['pod'][1]} on {m['node']}" for m in decision["members"] if m["node"]]
    gone = [eviction["pod"][1] for eviction in decision["evictions"]]
    text = str(decision["status"]) + (f": {', '.join(places)}" if places else f": {decision['message']}")
    return text + (f"; evicts {', '.join(gone)}" if gone else "")


def _document(made: int, different: list[Replayed]) -> Obj:
    items = [
        {
            "entry": one.number,
            "podGroup": one.asked["group"],
            "pods": one.asked["pods"],
            "before": one.before,
            "now": one.now,
        }
        for one in different
    ]
    return {"apiVersion": "haru.dev/v1alpha1", "kind": "Replay", "decisions": made, "different": items}
