"""Hold why a plugin refused a node, and join the refusals of all nodes into one message.

The grammar is kube-scheduler's: `0/<N> nodes are available: <count> <reason>, ….`, entries sorted as text so that the
message is the same at every attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from haru.engine.state.decision import FilterFailure as FilterFailure
from haru.engine.state.decision import Reason, ReasonType

NO_NODES = "no nodes available to schedule pods"


def refuse(
    plugin: str,
    type_: ReasonType,
    message: str,
    data: Mapping[str, Any] | None = None,
    *,
    resolvable: bool = False,
) -> FilterFailure:
    """Make a failure with its reason."""
    return FilterFailure(plugin, Reason(type_, message, data or {}), resolvable)


Weighed = Sequence[tuple[Sequence[FilterFailure], int]]
"""Failures, each with the number of nodes that share it; in the order of their first occurrence."""


def weighed(refusals: Collection[Sequence[FilterFailure]]) -> Weighed:
    """Count equal refusals by identity: nodes of one equivalence class share the object."""
    counts = Counter(map(id, refusals))
    said = {id(failures): failures for failures in refusals}
    return [(said[number], count) for number, count in counts.items()]


def unavailable_message(nodes: int, refusals: Weighed) -> str:
    """Return `0/5 nodes are available: 2 Insufficient cpu, 3 cannot allocate all claims.`"""
    return _message(nodes, _counts(refusals))


def _counts(refusals: Weighed) -> Counter[str]:
    counts: Counter[str] = Counter()
    for failures, count in refusals:
        for failure in failures:
            counts[failure.reason.message] += count
    return counts


def counted_message(nodes: int, texts: Iterable[str]) -> str:
    """Return the same message from the messages of nodes."""
    return _message(nodes, Counter(texts))


def _message(nodes: int, counts: Mapping[str, int]) -> str:
    if not nodes:
        return NO_NODES
    entries = sorted(f"{count} {message}" for message, count in counts.items())
    listed = f": {', '.join(entries)}." if entries else "."
    return f"0/{nodes} nodes are available{listed}"


def rejected_message(nodes: int, message: str) -> str:
    """Return the message for a pod that PreFilter rejected."""
    return f"0/{nodes} nodes are available: {message}." if nodes else NO_NODES


def summed_reasons(refusals: Weighed) -> tuple[Reason, ...]:
    """Return one reason per message, with the number of nodes that gave it; the most frequent first."""
    counts = _counts(refusals)
    first: dict[str, Reason] = {}
    for failures, _ in refusals:
        for failure in failures:
            first.setdefault(failure.reason.message, failure.reason)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        Reason(first[message].type, message, {**first[message].data, "nodes": count}) for message, count in ordered
    )


def rejecting_plugins(refusals: Weighed) -> tuple[str, ...]:
    """Return the names of the plugins that refused nodes, sorted."""
    return tuple(sorted({failure.plugin for failures, _ in refusals for failure in failures}))
