"""Who held what: the history of one device, of a node's devices, or of a workload, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from haru.dashboard.views import tables
from haru.dashboard.views.device_timeline import Held
from haru.dashboard.views.tables import Column, Table
from haru.kube.names import format_milliseconds

COLUMNS = (
    Column("device", "Device"),
    Column("node", "Node"),
    Column("workload", "Workload"),
    Column("from", "From"),
    Column("until", "Until"),
    Column("hours", "Hours", numeric=True),
    Column("busy", "Utilization", numeric=True),
)
DAY = 86_400_000


def holdings(
    held: Iterable[Held], chosen: Callable[[Held], bool], until: int, query: Mapping[str, str], caption: str
) -> Table:
    """Make the table of what is chosen, the latest first; `until` (ms since 1970) is now."""
    found = sorted((each for each in held if chosen(each)), key=lambda each: (-each.began, each.node, each.device))
    return tables.table("held", f"{caption}, last 24 hours", COLUMNS, [_row(each, until) for each in found], query)


def _row(each: Held, until: int) -> tuple[tables.Cell, ...]:
    hours = ((each.ended or until) - each.began) / 3_600_000
    return (
        tables.link(each.device, f"/device/{each.driver}/{each.pool}/{each.device}"),
        tables.link(each.node, f"/node/{each.node}") if "/" not in each.node else tables.text(each.node),
        tables.work(each.work),
        tables.time(format_milliseconds(each.began)),
        tables.time(format_milliseconds(each.ended)) if each.ended else tables.text("now"),
        tables.number(hours, f"{hours:.2f}"),
        tables.number(each.percent, "" if each.percent is None else f"{each.percent:.0f} %"),
    )
