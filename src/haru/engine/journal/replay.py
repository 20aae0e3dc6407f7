"""Replay a journal: rebuild the cache and make each decision again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from haru.engine.framework.profile import Profile
from haru.engine.journal.entries import change, entry_kinds
from haru.engine.journal.values import decision_value, options_from, profile_from
from haru.engine.podgroup.podgroup_cycle import decide
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision
from haru.kube.meta import Obj


class JournalError(ValueError):
    """Raised for an entry that cannot be read; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Hold a decision as written and as made now; `number` counts the entries from 1."""

    number: int
    asked: Obj
    before: Obj
    now: Obj
    decision: Decision

    @property
    def same(self) -> bool:
        """Tell whether both are equal."""
        return self.before == self.now


def share_ids(seed: str) -> Iterator[str]:
    """Identifiers of shares that follow from a text."""
    return (str(uuid5(NAMESPACE_URL, f"{seed}/{number}")) for number in itertools.count())


class Replay:
    """Rebuild a cluster from a journal. After the last entry `cluster` equals the writer's."""

    def __init__(self, cluster: SchedulerCache | None = None) -> None:
        self.cluster = SchedulerCache() if cluster is None else cluster
        self._profiles: dict[str, Profile] = {}

    def run(self, entries: Iterable[Obj]) -> Iterator[Replayed]:
        """Apply the entries and yield each decision, made again. Raises JournalError."""
        for number, entry in enumerate(entries, 1):
            try:
                found = self._take(number, entry)
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                raise JournalError(f"entry {number}: {type(error).__name__}: {error}") from error
            if found is not None:
                yield found

    def _take(self, number: int, entry: Obj) -> Replayed | None:
        kind = next(iter(entry), "")
        if kind == "decide":
            return self._decide(number, entry)
        if kind == "profile":
            self._profiles[entry["profile"]["name"]] = profile_from(entry["profile"]["profile"])
        elif kind in entry_kinds():
            change(self.cluster, kind, entry[kind])
        else:
            raise ValueError(f'"{kind}" is none of {", ".join(sorted(entry_kinds()))}')
        return None

    def _decide(self, number: int, entry: Obj) -> Replayed:
        asked: dict[str, Any] = entry["decide"]
        snapshot = self.cluster.snapshot()
        pods = [snapshot.pods[path].obj for path in asked["pods"]]
        group = snapshot.pod_groups[asked["group"]] if asked["group"] else None
        ids = share_ids(asked["share"])
        options = options_from(asked["options"], self._profiles[asked["profile"]], lambda: next(ids))
        decision = decide(snapshot, pods, group=group, options=options)
        return Replayed(number, asked, entry["decision"], decision_value(decision), decision)
