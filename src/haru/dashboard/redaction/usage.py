"""The usage history as somebody may see it: work of hidden namespaces is one workload."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from haru.dashboard.views.device_timeline import Held
from haru.dashboard.views.usage import Span, Use
from haru.dashboard.views.usage_history import UsageHistory
from haru.dashboard.views.workloads import ANOTHER
from haru.explain.happenings import Happening


def redacted_history(history: UsageHistory, shown: Collection[str]) -> UsageHistory:
    """Return a history that names only the shown namespaces. Looks are those of all work: they are numbers."""
    return UsageHistory(
        partial(_spans, history, shown), partial(_held, history, shown), partial(_happened, history, shown)
    )


def _spans(history: UsageHistory, shown: Collection[str], since: int, until: int) -> list[Span]:
    return redacted_spans(history.spans(since, until), shown)


def _held(history: UsageHistory, shown: Collection[str], since: int, until: int) -> list[Held]:
    return redacted_holdings(history.held(since, until), shown)


def _happened(history: UsageHistory, shown: Collection[str], since: int, until: int) -> list[Happening]:
    return redacted_happenings(history.happened(since, until), shown)


def redacted_spans(spans: Iterable[Span], shown: Collection[str]) -> list[Span]:
    """Return spans in which only work of the shown namespaces has a name."""
    return [replace(span, amounts=_amounts(span.amounts, shown)) for span in spans]


def redacted_holdings(holdings: Iterable[Held], shown: Collection[str]) -> list[Held]:
    """Return who held which device, with only work of the shown namespaces by its name."""
    return [each if each.work.namespace in shown else replace(each, work=ANOTHER) for each in holdings]


def redacted_happenings(happenings: Iterable[Happening], shown: Collection[str]) -> list[Happening]:
    """Return what happened to the shown namespaces, and to nodes and devices, which belong to none."""
    return [each for each in happenings if not each.namespace or each.namespace in shown]


def _amounts(amounts: Mapping[Use, float], shown: Collection[str]) -> Mapping[Use, float]:
    found: dict[Use, float] = defaultdict(float)
    for use, amount in amounts.items():
        hidden = use.workload is not None and use.workload.namespace not in shown
        found[use._replace(workload=ANOTHER) if hidden else use] += amount
    return found
