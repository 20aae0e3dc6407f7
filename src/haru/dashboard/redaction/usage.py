"""The usage history as somebody may see it: work of hidden namespaces is one workload."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from haru.dashboard.views.device_timeline import Held
from haru.dashboard.views.usage import Span, Use
from haru.dashboard.views.workloads import ANOTHER


def redacted_spans(spans: Iterable[Span], shown: Collection[str]) -> list[Span]:
    """Return spans in which only work of the shown namespaces has a name."""
    return [replace(span, amounts=_amounts(span.amounts, shown)) for span in spans]


def redacted_holdings(holdings: Iterable[Held], shown: Collection[str]) -> list[Held]:
    """Return who held which device, with only work of the shown namespaces by its name."""
    return [each if each.work.namespace in shown else replace(each, work=ANOTHER) for each in holdings]


def _amounts(amounts: Mapping[Use, float], shown: Collection[str]) -> Mapping[Use, float]:
    found: dict[Use, float] = defaultdict(float)
    for use, amount in amounts.items():
        hidden = use.workload is not None and use.workload.namespace not in shown
        found[use._replace(workload=ANOTHER) if hidden else use] += amount
    return found
