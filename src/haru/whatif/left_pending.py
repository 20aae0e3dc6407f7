"""What waits in the end, explained as `haru explain` does it: one core, one wording, the same numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from haru.engine import Snapshot
from haru.explain import Choice, PendingRow, pending_rows, row_json, what_text
from haru.explain.render import answer_lines, shortage_json
from haru.explain.results import Explanation
from haru.kube.meta import Obj
from haru.kube.names import counted, format_time

MOST_TOLD = 3
_NO_MAKERS = Choice(makers=lambda kind, obj: False)


@dataclass(frozen=True, slots=True)
class Inquiry:
    """How to explain: the feature gates, and the kinds that whoever asks may not read."""

    gates: Mapping[str, bool] | None = None
    unread: Sequence[str] = ()


def left_pending(snapshot: Snapshot, at: datetime, inquiry: Inquiry) -> tuple[PendingRow, ...]:
    """Explain every pod that waits, equal work once, without remedies."""
    now = format_time(at)
    return pending_rows(snapshot, _NO_MAKERS, now, remedies=False, unread=inquiry.unread, gates=inquiry.gates)


def rows_text(rows: Sequence[PendingRow]) -> Iterator[str]:
    """The first rows: the workload, its verdict, and what it is short by; then how many there are besides."""
    for row in rows[:MOST_TOLD]:
        first, *rest = answer_lines(row.explanation)
        yield f"{row.namespace}/{what_text(row)}, {counted(row.pods, 'pod')}: {first}"
        yield from (f"  {line}" for line in rest)
    if len(rows) > MOST_TOLD:
        yield f"and {counted(len(rows) - MOST_TOLD, 'more kind')} of waiting work"


def rows_json(rows: Iterable[PendingRow]) -> list[Obj]:
    """The items of an ExplanationList, without what is known of remedies only."""
    return [{k: v for k, v in row_json(row).items() if k not in ("starts", "unblocks")} for row in rows]


def answer_json(explanation: Explanation | None) -> Obj:
    """The fields `verdict`, `summary` and `shortBy` of an explanation."""
    if explanation is None:
        return {}
    return {"verdict": explanation.verdict, "summary": explanation.summary, **shortage_json(explanation)}
