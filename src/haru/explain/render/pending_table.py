"""Rows of waiting work as a table, JSON and HTML."""

from __future__ import annotations

from collections.abc import Sequence

from haru.explain.pending_rows import PendingRow
from haru.explain.render.columns import Table
from haru.explain.render.json import to_json
from haru.explain.render.labels import labelled
from haru.explain.render.short import command_of, holding_stage, holding_text, remedy_text, shortage, shortage_json
from haru.kube.meta import Obj
from haru.kube.names import counted, parse_time
from haru.kube.printers import human_duration
from haru.markup import Html, section, table


def pending_table(rows: Sequence[PendingRow], now: str, *, wide: bool = False, namespaces: bool = False) -> Table:
    """The columns of `haru explain --all`, with `wide` all of them."""
    head: tuple[str, ...] = ("NAMESPACE",) if namespaces else ()
    head += ("WHAT", "PODS", "SINCE", "VERDICT", "SHORT BY")
    head += ("HELD BY", "BECAUSE", "STARTS", "FIRST REMEDY") if wide else ("FIRST REMEDY",)
    return head, [_cells(row, now, wide=wide, namespaces=namespaces) for row in rows]


def _cells(row: PendingRow, now: str, *, wide: bool, namespaces: bool) -> tuple[str, ...]:
    stage = holding_stage(row.explanation)
    first = row.remedy
    cells: tuple[str, ...] = (row.namespace,) if namespaces else ()
    cells += (what_text(row), str(row.pods), _age(row.since, now), row.explanation.verdict, short_by(row))
    if wide:
        holders = holding_text(stage) if stage is not None else ""
        cells += (holders, row.explanation.summary, f"{row.starts}/{row.pods}")
        return (*cells, remedy_text(first) if first is not None else _elsewhere(row))
    doubt = "" if first is None or first.confirmed else " (not confirmed)"
    return (*cells, f"{first.summary}{doubt}" if first is not None else _elsewhere(row) or row.explanation.summary)


def _elsewhere(row: PendingRow) -> str:
    """Where its remedies are, if they were not looked for here."""
    return "" if row.is_searched else f"run: {command_of(row.explanation)}"


def what_text(row: PendingRow) -> str:
    """`job/train and 2 more`."""
    return f"{row.what} and {row.others} more" if row.others else row.what


def short_by(row: PendingRow) -> str:
    """What is missing, of each unit where several wait, each for itself."""
    missing = shortage(row.explanation)
    if missing is None:
        return ""
    return f"{missing.text} each" if row.units > 1 else missing.text


def _age(since: str, now: str) -> str:
    """How long ago it was, as kubectl says it."""
    if not since or not now:
        return "<unknown>"
    return human_duration(max(0.0, (parse_time(now) - parse_time(since)).total_seconds()))


def total_text(rows: Sequence[PendingRow], where: str) -> str:
    """How much waits, and how to learn more of it."""
    if not rows:
        return f"nothing waits {where}"
    # Rows of one workload are its pods that wait for different reasons.
    named = len({(row.namespace, row.what) for row in rows})
    pods, works = sum(row.pods for row in rows), named + sum(row.others for row in rows)
    verb = "waits" if pods == 1 else "wait"
    left = sum(not row.is_searched for row in rows)
    more = f"; {counted(left, 'row')} of fewer pods name the command that searches for remedies" if left else ""
    return f"{counted(pods, 'pod')} of {counted(works, 'workload')} {verb} {where}{more}"


def step_lines(rows: Sequence[PendingRow], source: str = "") -> list[str]:
    """What lets most of it start, with the command that makes the change, and where to read more of it."""
    if not rows:
        return []
    first = rows[0]
    helps = [remedy_text(first.remedy)] if first.remedy is not None and first.remedy.command else []
    return [*labelled("helps", helps), *labelled("more", [f"{_command(first, source)} {source}".rstrip()])]


def _command(row: PendingRow, source: str) -> str:
    """The command that explains a row: of a gang Job by the Job's name, as the row has it; files may lack the Job."""
    if row.explanation.kind == "PodGroup" and row.what.startswith("job/") and not source:
        return f"haru explain {row.what} -n {row.namespace}"
    return command_of(row.explanation)


def trouble_text(pods: Sequence[str]) -> str:
    """How many pods have their places and do not run, and how to learn why."""
    if not pods:
        return ""
    namespace, _, name = pods[0].partition("/")
    has = "has its place and does" if len(pods) == 1 else "have their places and do"
    return f"; {counted(len(pods), 'pod')} {has} not run: haru explain pod/{name} -n {namespace}"


def pending_json(rows: Sequence[PendingRow], now: str) -> Obj:
    """The ExplanationList object of haru.dev/v1alpha1."""
    return {
        "apiVersion": "haru.dev/v1alpha1",
        "kind": "ExplanationList",
        "pods": sum(row.pods for row in rows),
        "items": [row_json(row) for row in rows],
        "at": now,
    }


def row_json(row: PendingRow) -> Obj:
    """One item of it."""
    return {
        "namespace": row.namespace,
        "workload": row.what,
        "moreWorkloads": row.others,
        "pods": row.pods,
        "units": row.units,
        "examples": list(row.names),
        "since": row.since,
        **shortage_json(row.explanation),
        **({} if row.is_searched else {"remediesSearched": False}),
        "starts": row.starts,
        "unblocks": row.unblocks,
        "explanation": to_json(row.explanation),
    }


def pending_html(rows: Sequence[PendingRow], where: str, now: str) -> Html:
    """The table for a notebook or a page."""
    head, cells = pending_table(rows, now, wide=True, namespaces=True)
    title = total_text(rows, where)
    return section(title, table(title, [name.lower() for name in head], cells))
