"""Why a node was refused, and how the refusals of all nodes become one message.

The grammar is kube-scheduler's: `0/<N> nodes are available: <count> <reason>, ….`, entries sorted as text so that the
message is the same at every attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haru.engine.decision import Reason, ReasonType

NO_NODES = "no nodes available to schedule pods"


@dataclass(frozen=True, slots=True)
class Failure:
    """A refusal by one plugin. `resolvable`: evicting pods from the node might help."""

    plugin: str
    reason: Reason
    resolvable: bool


def refuse(
    plugin: str,
    type_: ReasonType,
    message: str,
    data: Mapping[str, Any] | None = None,
    *,
    resolvable: bool = False,
) -> Failure:
    """A failure that says why."""
    return Failure(plugin, Reason(type_, message, data or {}), resolvable)


def unavailable_message(nodes: int, refusals: Iterable[Sequence[Failure]]) -> str:
    """`0/5 nodes are available: 2 Insufficient cpu, 3 cannot allocate all claims.`"""
    return counted_message(nodes, (failure.reason.message for failures in refusals for failure in failures))


def counted_message(nodes: int, texts: Iterable[str]) -> str:
    """The same from what nodes say in words."""
    if not nodes:
        return NO_NODES
    counts = Counter(texts)
    entries = sorted(f"{count} {message}" for message, count in counts.items())
    listed = f": {', '.join(entries)}." if entries else "."
    return f"0/{nodes} nodes are available{listed}"


def rejected_message(nodes: int, message: str) -> str:
    """The message for a pod that was rejected before any node was looked at."""
    return f"0/{nodes} nodes are available: {message}." if nodes else NO_NODES


def summed_reasons(refusals: Iterable[Sequence[Failure]]) -> tuple[Reason, ...]:
    """One reason per message, with the number of nodes that gave it; the most frequent first."""
    counts: Counter[str] = Counter()
    first: dict[str, Reason] = {}
    for failures in refusals:
        for failure in failures:
            counts[failure.reason.message] += 1
            first.setdefault(failure.reason.message, failure.reason)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        Reason(first[message].type, message, {**first[message].data, "nodes": count}) for message, count in ordered
    )


def rejecting_plugins(refusals: Iterable[Sequence[Failure]]) -> tuple[str, ...]:
    """Who refused, sorted."""
    return tuple(sorted({failure.plugin for failures in refusals for failure in failures}))
