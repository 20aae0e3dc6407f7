"""The history of usage, as the dashboard draws it: neither of the two components knows the other."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haru.accounting.device_states import UsageKey
    from haru.accounting.ledger import Interval
    from haru.dashboard.views.device_timeline import Held
    from haru.dashboard.views.usage import Span, Use
    from haru.dashboard.views.usage_history import UsageHistory
    from haru.dashboard.views.workloads import Workload
    from haru.explain.happenings import Happening

_log = logging.getLogger(__name__)


def usage_history(path: Path) -> UsageHistory:
    """Return what reads the history in a file or directory, and keeps the looks of workloads there."""
    from haru.dashboard.views.usage_history import UsageHistory

    return UsageHistory(partial(_spans, path), partial(_held, path), partial(_happened, path), RecordedLooks(path))


class RecordedLooks:
    """The looks of workloads in a history. Where it cannot be written, they last as long as the process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def known(self) -> Mapping[Workload, int]:
        """Return what is recorded; nothing where there is no history yet."""
        from haru.accounting.history import read_looks

        try:
            return _by_workload(read_looks(self._path))
        except ValueError:
            return {}

    def record(self, looks: Mapping[Workload, int]) -> Mapping[Workload, int]:
        """Record looks, but none of work that has one; return what is recorded now."""
        from haru.accounting.history import put_looks

        try:
            return _by_workload(
                put_looks(self._path, {(work.namespace, work.name): look for work, look in looks.items()})
            )
        except ValueError as error:
            _log.info("the looks of workloads are not kept: %s", error)
            return {}


def _by_workload(looks: Mapping[tuple[str, str], int]) -> dict[Workload, int]:
    from haru.dashboard.views.workloads import Workload

    return {Workload(*work): look for work, look in looks.items()}


def _spans(path: Path, since: int, until: int) -> Sequence[Span]:
    from haru.accounting.history import read

    return [_span(interval) for interval in read(path, since, until)]


def _held(path: Path, since: int, until: int) -> Sequence[Held]:
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


def _happened(path: Path, since: int, until: int) -> Sequence[Happening]:
    from haru.accounting.history import read_happenings

    return read_happenings(path, since, until)


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
