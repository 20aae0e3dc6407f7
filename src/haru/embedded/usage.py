"""The history of usage, as the dashboard draws it: neither of the two components knows the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haru.accounting.device_states import UsageKey
    from haru.accounting.ledger import Interval
    from haru.dashboard.views.device_timeline import Held, HeldBetween
    from haru.dashboard.views.usage import Measured, Span, Use


def measured_by(path: Path) -> Measured:
    """A function that reads the usage history of a file or directory; it raises ValueError if it cannot."""

    def measured(since: int, until: int) -> Sequence[Span]:
        from haru.accounting.history import read

        return [_span(interval) for interval in read(path, since, until)]

    return measured


def held_by(path: Path) -> HeldBetween:
    """A function that reads who held which device from a file or directory; it raises ValueError if it cannot."""

    def held(since: int, until: int) -> Sequence[Held]:
        from haru.accounting.history import read_holdings
        from haru.dashboard.views.device_timeline import Held
        from haru.dashboard.views.workloads import Workload

        return [
            Held(
                each.key.node, each.key.driver, each.key.pool, each.key.card, each.key.device,
                Workload(each.key.namespace, each.key.owner), each.began, each.ended, each.percent,
            )
            for each in read_holdings(path, since, until)
        ]  # fmt: skip

    return held


def _span(interval: Interval) -> Span:
    from haru.accounting.device_states import WHOLE
    from haru.dashboard.views.usage import Span

    amounts: dict[Use, float] = defaultdict(float)
    for key, amount in interval.amounts.items():
        amounts[_use(key)] += amount / WHOLE
    return Span(interval.began, interval.ended, interval.observed, amounts)


def _use(key: UsageKey) -> Use:
    """What an amount of the ledger counts; a history that was written before there were words tells by states."""
    from haru.accounting.device_states import HELD, MISSED
    from haru.dashboard.views.usage import Use
    from haru.dashboard.views.workloads import Workload

    if key.state in HELD:
        kind = _HELD_BY_STATE[key.state] if not key.word else key.word
        return Use(kind, Workload(key.namespace, key.owner))  # type: ignore[arg-type]
    if key.state in MISSED and key.word in ("", "free"):
        return Use("missed")
    return Use("free" if key.word in ("", "free") else key.word)  # type: ignore[arg-type]


_HELD_BY_STATE = {"Busy": "inUse", "Idle": "idle", "Unused": "idle", "Held": "unmeasured"}
