"""The first page: how the cards are used, what that wastes, what waits, what would help, and the last day."""

from __future__ import annotations

import time
from collections.abc import Sequence

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.views.device_map import device_map
from haru.dashboard.views.looks import LOOKS
from haru.dashboard.views.out_of_service import MOST, outages
from haru.dashboard.views.overview import overview
from haru.dashboard.views.queue import waiting_work
from haru.dashboard.views.usage import PERIODS, Allocation, begin_of, states
from haru.dashboard.views.usage_chart import usage_chart
from haru.explain.happenings import Happening

_MOST_EXPLAINED = 50
_WAIT_SECONDS = 0.3
_PERIOD = "24h"


async def overview_page(asked: Asked) -> Answer:
    """Show the cluster at a glance."""
    view, chosen, services = asked.view, asked.chosen, asked.services
    found = await asked.compute(lambda: device_map(view.snapshot, view.layouts, chosen, services.places))
    queue = await asked.compute(lambda: waiting_work(view.snapshot, chosen, services.pods))
    works = [*(work for work, _ in found.holders), *(each.workload for each in queue)]
    await asked.compute(lambda: LOOKS.show(works, time.monotonic()))
    explanations = await services.explanations.of(view, queue[:_MOST_EXPLAINED], _WAIT_SECONDS)
    shown = await asked.compute(lambda: overview(found, queue, explanations, services.prices))
    history, why = None, "No history of usage is read here."
    try:
        day = await asked.compute(lambda: _day(asked))
        if day is not None:
            history, why = (usage_chart(day), "") if day.bands else (None, "No card was measured yet.")
    except (OSError, ValueError) as error:
        why = str(error)
    down = await asked.compute(lambda: outages(view.snapshot, view.layouts, _faults(asked), chosen))
    values = {"found": shown, "history": history, "why": why, "outages": down[:MOST], "more_outages": len(down[MOST:])}
    return Answer("Overview", values)


def _faults(asked: Asked) -> Sequence[Happening]:
    """What the history knows of faults that last now."""
    if asked.services.history is None:
        return ()
    now = int(time.time() * 1000)
    try:
        return asked.services.history.happened(now, now)
    except (OSError, ValueError):
        return ()


def _day(asked: Asked) -> Allocation | None:
    if asked.services.history is None:
        return None
    until = int(time.time() * 1000)
    since = until - PERIODS[_PERIOD]
    spans = asked.services.history.spans(since, until)
    return states(spans, begin_of(spans, since), until)
