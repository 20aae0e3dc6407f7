"""A comparison as JSON for programs. The schema is docs/reference/whatif.md: fields are added, never renamed."""

from __future__ import annotations

from haru.kube.meta import Obj
from haru.whatif.comparison_data import ComparisonData, Displacement, Wait
from haru.whatif.left_pending import answer_json, rows_json
from haru.whatif.usage import Amount


def to_json(comparison: ComparisonData) -> Obj:
    """The WhatIf object of haru.dev/v1alpha1."""
    starts, displaced = comparison.anyway
    return {
        "apiVersion": "haru.dev/v1alpha1",
        "kind": "WhatIf",
        "changes": list(comparison.changes),
        "harmless": comparison.harmless,
        "starts": [
            {"pod": s.path, "workload": s.workload, "node": s.node, "devices": list(s.devices)}
            for s in comparison.starts
        ],
        "displaced": [_displaced(entry) for entry in comparison.displaced],
        "waits": [_wait(entry) for entry in comparison.waits],
        "gangs": [{"podGroup": g.path, "placed": g.placed, "minCount": g.min_count} for g in comparison.gangs],
        "usage": _usage(comparison),
        "stillWaiting": comparison.still_waiting,
        "pending": rows_json(comparison.pending),
        "anyway": {"starts": starts, "displaced": displaced},
        "errors": list(comparison.errors),
        "settled": comparison.settled,
    }


def _usage(comparison: ComparisonData) -> Obj:
    told: Obj = {"devices": {}}
    for name, (before, after) in comparison.usage.items():
        amounts = {"before": _amount(name, before), "after": _amount(name, after)}
        kind, _, driver = name.partition(" ")
        if driver:
            told[kind][driver] = amounts
        else:
            told[name] = amounts
    return told


def _displaced(entry: Displacement) -> Obj:
    told: Obj = {
        "pod": entry.path,
        "workload": entry.workload,
        "node": entry.node,
        "cause": {"type": entry.cause.type, "message": entry.cause.message, **entry.cause.data},
        "outcome": entry.outcome,
    }
    if entry.after_seconds:
        told["afterSeconds"] = entry.after_seconds
    if entry.new_node:
        told["newNode"] = entry.new_node
    if entry.reasons:
        told["reasons"] = [reason.to_json() for reason in entry.reasons]
    return told | answer_json(entry.explanation)


def _wait(entry: Wait) -> Obj:
    reasons = [reason.to_json() for reason in entry.reasons]
    told: Obj = {"pod": entry.path, "workload": entry.workload, "new": entry.new, "reasons": reasons}
    return told | answer_json(entry.explanation)


def _amount(name: str, amount: Amount) -> Obj:
    """Devices in cards, with the words for them; cpu in cores, memory in bytes."""
    scale = 1000 if name == "cpu" else 1
    words = amount.cards.as_dict() if amount.cards is not None else {}
    told = {"total": amount.total / scale, "used": amount.used / scale, **words}
    return {word: _plain(value) for word, value in told.items()}


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else round(value, 3)
