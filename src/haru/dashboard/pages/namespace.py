"""The page of a namespace: quotas, workloads, claims, events."""

from __future__ import annotations

import time

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.views.namespace import NamespacePage, namespace_page
from haru.dashboard.views.usage import Span

_DAY = 86_400_000


async def namespace(asked: Asked) -> Answer | None:
    """Tell of a namespace; None if there is none."""
    name = asked.parts["name"]
    found = await asked.compute(lambda: _page(asked, name))
    return Answer(f"Namespace {name}", {"found": found}) if found is not None else None


def _page(asked: Asked, name: str) -> NamespacePage | None:
    view = asked.view
    return namespace_page(view.snapshot, name, view.events, _last_day(asked), asked.query)


def _last_day(asked: Asked) -> list[Span]:
    """What was measured, where a history is read."""
    if asked.services.history is None:
        return []
    until = int(time.time() * 1000)
    try:
        return list(asked.services.history.spans(until - _DAY, until))
    except (OSError, ValueError):
        return []
