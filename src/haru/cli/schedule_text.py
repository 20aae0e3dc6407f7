"""The answer of `haru schedule`: as a document, and as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from haru.cli.schedule_cases import answer
from haru.engine.round import RoundResult

Obj = dict[str, Any]


def document(result: RoundResult) -> Obj:
    """What was decided, in the form of the cases, with typed reasons and the allocations to write."""
    found = answer(result)
    pending = {
        path: {**found["pending"][path], "reasons": [reason.to_json() for reason in result.pending[path].reasons]}
        for path in sorted(result.pending)
    }
    allocations = {path: given.allocation for path, given in sorted(result.allocations.items())}
    return {
        "apiVersion": "haru.dev/v1alpha1",
        "kind": "SchedulingRound",
        "bindings": found["bindings"],
        "nominations": found["nominations"],
        "evictions": found["evictions"],
        "allocations": allocations,
        "pending": pending,
        "groups": found["groups"],
    }


def show(answer: Obj) -> str:
    """A table for each thing that can become of a pod, and the groups."""
    lines: list[str] = []
    placed = ("bound", answer["bindings"]), ("nominated, once the evicted are gone", answer["nominations"])
    for title, places in placed:
        lines += _table(title, sorted(places.items()))
    lines += _table("evicted", [(path,) for path in answer["evictions"]])
    lines += _table("devices", _devices(answer["allocations"]))
    lines += _table("pending", [(path, entry["reason"]) for path, entry in answer["pending"].items()])
    lines += _table("groups", sorted(answer["groups"].items()))
    return "\n".join(lines) if lines else "no pod waits"


def _table(title: str, rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    width = max(len(row[0]) for row in rows)
    return [f"{title}:", *(f"  {'  '.join([row[0].ljust(width), *row[1:]]).rstrip()}" for row in rows)]


def _devices(allocations: Obj) -> list[tuple[str, str]]:
    def listed(results: Iterable[Obj]) -> str:
        return ", ".join(f"{r['request']}: {r['driver']}/{r['pool']}/{r['device']}" for r in results)

    return [(path, listed(allocation["devices"]["results"])) for path, allocation in allocations.items()]
