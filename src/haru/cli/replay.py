"""Make the decisions in a scheduler's decision log again, and show those that differ.

DIRECTORY is the directory that `--decision-log` of `haru up` or `haru scheduler` wrote. --about takes a pod, a PodGroup
or the workload that its pods belong to: NAME, KIND/NAME (job/training, deployment/notebooks) or NAMESPACE/NAME. Exit
status: 0 all are equal, 1 some differ, 2 the log cannot be read or has no decision about this object.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.main import UsageError
from haru.engine.state import workload_of
from haru.kube.kinds import all_kinds
from haru.kube.meta import Obj
from haru.kube.names import counted

if TYPE_CHECKING:
    from haru.engine import Snapshot
    from haru.engine.journal import Replayed

_SOME = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru replay`."""
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="decision log")
    parser.add_argument("--about", metavar="[KIND/]NAME", help="only decisions about this pod, PodGroup or workload")
    parser.add_argument("-n", "--namespace", default="default", help="namespace of what --about names")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="output format")


def run(options: argparse.Namespace) -> int:
    """Prints what differs."""
    from haru.engine.journal import JournalError, Replay
    from haru.scheduler.decision_log import entries

    made, different = 0, []
    replay, about = Replay(), _About(options.about, options.namespace) if options.about else None
    try:
        for one in replay.run(entries(options.directory)):
            if about is not None and not about.includes(one.asked, replay.cluster.snapshot()):
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
    if about is not None and not made:
        raise UsageError(about.missing())
    if options.output == "json":
        print(json.dumps(_document(made, different), indent=2))
    else:
        for one in different:
            print(f"entry {one.number}: {one.asked['group'] or one.asked['pods'][0]}:")
            print(f"  then {told(one.before)}\n  now  {told(one.now)}")
        print(f"{counted(made, 'decision')} made again, {len(different)} differ")
    return 1 if different else 0


class _About:
    """The object that `--about` names, compared with what decisions are about."""

    def __init__(self, name: str, namespace: str) -> None:
        self._name, self._namespace = name, namespace
        kind, _, rest = name.partition("/")
        self._wanted = {name, f"{namespace}/{name}", f"{namespace}/{_singular(kind)}/{rest}"}
        self._seen: dict[str, None] = {}

    def includes(self, asked: Obj, snapshot: Snapshot) -> bool:
        """Whether a decision is about the object, as pod, PodGroup or owner of the pods."""
        names = set()
        for path in asked["pods"]:
            namespace, _, name = path.partition("/")
            workload = workload_of(snapshot.pods[path])
            self._seen.setdefault(f"{namespace}/{workload}")
            names |= {path, f"{namespace}/pod/{name}", f"{namespace}/{workload}"}
            names.add(f"{namespace}/{workload.partition('/')[2]}")
        if asked["group"]:
            namespace, _, name = asked["group"].partition("/")
            names |= {asked["group"], f"{namespace}/podgroup/{name}"}
        return not names.isdisjoint(self._wanted)

    def missing(self) -> str:
        """Say that no decision is about the object, and which objects there are."""
        some = ", ".join(itertools.islice(self._seen, _SOME)) or "nothing"
        more = f" and {len(self._seen) - _SOME} more" if len(self._seen) > _SOME else ""
        return f"--about {self._name}: no decision is about it; there are decisions about {some}{more}"


def _singular(word: str) -> str:
    """`jobs`, `Job` and `job` as owners are named: `job`."""
    kinds = (kind for kind in all_kinds() if word.lower() in (kind.singular, kind.plural, *kind.short_names))
    return next((kind.singular for kind in kinds), word.lower())


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
