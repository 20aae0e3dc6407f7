"""The history of usage, as the dashboard draws it: neither of the two components knows the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haru.accounting.ledger import Interval
    from haru.dashboard.views.usage import Measured, Span, Use


def measured_by(path: Path) -> Measured:
    """A function that reads the usage history of a file or directory; it raises ValueError if it cannot."""

    def measured(since: int, until: int) -> Sequence[Span]:
        from haru.accounting.history import read

        return [_span(interval) for interval in read(path, since, until)]

    return measured


def _span(interval: Interval) -> Span:
    from haru.accounting.device_states import HELD, WHOLE
    from haru.dashboard.views.usage import Span, Use
    from haru.dashboard.views.workloads import Workload

    amounts: dict[Use, float] = defaultdict(float)
    for key, amount in interval.amounts.items():
        if key.state in HELD:
            use = Use("held", Workload(key.namespace, key.owner))
        else:
            use = Use("free" if key.state == "Free" else "missed")
        amounts[use] += amount / WHOLE
    return Span(interval.began, interval.ended, interval.observed, amounts)
