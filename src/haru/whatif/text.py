"""A comparison as text that is read in ten seconds: pods by their workloads, what hurts marked, sums last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from haru.engine import Reason
from haru.explain.changes import listed
from haru.explain.render import answer_lines
from haru.kube.names import counted
from haru.whatif.comparison_data import ComparisonData, Displacement, Start, Wait
from haru.whatif.left_pending import rows_text
from haru.whatif.usage import Amount

K = TypeVar("K")
T = TypeVar("T")

_WIDTH = 10
_GIB = 2**30
_MOST = 4


def to_text(comparison: ComparisonData) -> str:
    """The answer of `haru whatif`."""
    lines = [*_entries("change", comparison.changes), *_entries("so", [verdict_text(comparison)])]
    lines += _entries("starts", _starts(comparison.starts))
    lines += _entries("displaced", _displaced(comparison.displaced))
    lines += _entries("waits", _waits(comparison.waits))
    lines += _entries("gangs", (f"{g.path}: {g.placed} placed, {g.min_count} needed" for g in comparison.gangs))
    lines += _entries("usage", _usage(comparison))
    lines += _entries("besides", _besides(comparison))
    return "\n".join(lines)


def _entries(title: str, texts: Iterable[str]) -> list[str]:
    """The first line carries the title; further lines of an entry are indented by its text already."""
    lines = [line for text in texts for line in text.split("\n")]
    return [f"{title if number == 0 else '':<{_WIDTH}}{line}" for number, line in enumerate(lines)]


def verdict_text(comparison: ComparisonData) -> str:
    """What the changes come to, in one line."""
    outcomes = Counter(entry.outcome for entry in comparison.displaced)
    parts = []
    if comparison.starts:
        parts.append(f"{counted(len(comparison.starts), 'pod')} {_verb(len(comparison.starts), 'start')}")
    if comparison.displaced:
        total = len(comparison.displaced)
        parts.append(f"{counted(total, 'pod')} {'is' if total == 1 else 'are'} displaced")
        texts = {
            "Restarts": "{} can start again",
            "Waits": "{} cannot be placed again",
            "Lost": "{} lost",
            "GoesWithNode": "{} there for the node only",
            "Deleted": "{} deleted",
        }
        parts += [text.format(outcomes[outcome]) for outcome, text in texts.items() if outcomes[outcome]]  # type: ignore[index]
    if comparison.waits:
        parts.append(f"{counted(len(comparison.waits), 'pod')} more {_verb(len(comparison.waits), 'wait')}")
    return "; ".join(parts) or "nobody starts, nobody is displaced"


def _verb(count: int, verb: str) -> str:
    return f"{verb}s" if count == 1 else verb


def _workload(path: str, workload: str) -> str:
    return f"{path.partition('/')[0]}/{workload}"


def _starts(starts: Sequence[Start]) -> Iterator[str]:
    for workload, group in _grouped(starts, lambda s: _workload(s.path, s.workload)).items():
        places = Counter(start.node for start in group)
        yield f"{_pods_of(workload, len(group))}: {_on(places)}"


def _displaced(entries: Sequence[Displacement]) -> Iterator[str]:
    def key(entry: Displacement) -> tuple[str, str, int]:
        return _workload(entry.path, entry.workload), entry.cause.message, entry.after_seconds

    for (workload, message, seconds), group in _grouped(entries, key).items():
        later = f" after {seconds} s" if seconds else ""
        left = Counter(entry.node for entry in group)
        yield f"{_pods_of(workload, len(group))} from {', '.join(sorted(left))}{later}: {message}"
        again = Counter(entry.new_node for entry in group if entry.outcome == "Restarts")
        if again:
            yield f"  → {_restart(sum(again.values()))}: {_on(again)}"
        for outcome, text in _ENDS.items():
            if number := sum(entry.outcome == outcome for entry in group):
                yield f"  → {number} {text}"
        waiting = [entry for entry in group if entry.outcome == "Waits"]
        if waiting:
            first, *rest = _why(waiting)
            yield f"  → {len(waiting)} cannot be placed again: {first}"
            yield from (f"    {line}" for line in rest)


_ENDS = {
    "Lost": "lost: nobody makes it again",
    "GoesWithNode": "there for the node only",
    "Deleted": "deleted",
}


def _restart(number: int) -> str:
    return f"{number} {_verb(number, 'start')} again"


def _waits(waits: Sequence[Wait]) -> Iterator[str]:
    for (workload, new), group in _grouped(waits, lambda w: (_workload(w.path, w.workload), w.new)).items():
        came = "" if new else ", which would have started"
        first, *rest = _why(group)
        yield f"{_pods_of(workload, len(group))}{came}: {first}"
        yield from (f"  {line}" for line in rest)


def _why(entries: Sequence[Wait | Displacement]) -> list[str]:
    """What keeps pods of one workload waiting, each different answer once."""
    answers = (answer_lines(e.explanation) if e.explanation else _reasons(e.reasons) for e in entries)
    different = list(dict.fromkeys(line for lines in answers for line in lines))
    more = [f"and {counted(len(different) - _MOST, 'more line')}: -o json"] if len(different) > _MOST + 1 else []
    return [*different[:_MOST], *more] if more else different


def _reasons(reasons: Sequence[Reason]) -> list[str]:
    return [f"{reason.type}: {reason.message}" for reason in reasons]


def _grouped(entries: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    found: dict[K, list[T]] = {}
    for entry in entries:
        found.setdefault(key(entry), []).append(entry)
    return found


def _pods_of(workload: str, number: int) -> str:
    return workload if "/pod/" in workload else f"{workload}, {counted(number, 'pod')}"


def _on(places: Counter[str]) -> str:
    return listed([f"{number} on {node}" if number > 1 else f"on {node}" for node, number in sorted(places.items())])


def _usage(comparison: ComparisonData) -> Iterator[str]:
    for name, (before, after) in comparison.usage.items():
        yield f"{name}: {amount_text(name, before)} → {amount_text(name, after)}"


def amount_text(name: str, amount: Amount) -> str:
    """How much of a resource is in use."""
    if amount.cards is not None:
        words = amount.cards.as_dict()
        rest = [f"{words[word]:.4g} {word}" for word in ("reserved", "unavailable") if words[word]]
        return ", ".join([f"{words['held']:.4g} of {words['total']:.6g} held", f"{words['free']:.4g} free", *rest])
    scale = {"cpu": 1000, "memory": _GIB}.get(name, 1)
    unit = " GiB" if name == "memory" else ""
    return f"{amount.used / scale:.4g} of {amount.total / scale:.6g}{unit} ({amount.share:.0%})"


def _besides(comparison: ComparisonData) -> Iterator[str]:
    starts, displaced = comparison.anyway
    if starts:
        yield f"{counted(starts, 'pod')} {_verb(starts, 'start')} with or without the change"
    if displaced:
        yield f"{counted(displaced, 'pod')} would be displaced without the change too"
    if comparison.still_waiting:
        pods = counted(comparison.still_waiting, "pod")
        yield f"{pods} {_verb(comparison.still_waiting, 'wait')} with or without the change; with it:"
        changed = {wait.path for wait in comparison.waits} | {gone.path for gone in comparison.displaced}
        yield from (f"  {line}" for line in rows_text([r for r in comparison.pending if not changed & {*r.paths}]))
    yield from comparison.errors
    if not comparison.settled:
        yield "evictions went on and on: this is how far they were followed"
