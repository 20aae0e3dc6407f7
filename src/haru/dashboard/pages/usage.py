"""The usage of cards over a time, from the history."""

from __future__ import annotations

import time

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.views.usage import PERIODS, USUAL, Allocation, allocation, begin_of
from haru.dashboard.views.usage_chart import usage_chart, usage_table

NO_HISTORY = (
    "No history of usage is read here. haru up keeps one unless --no-usage-history says otherwise; haru dashboard "
    "reads the one that --history names, and keeps one with --usage-history."
)


async def usage(asked: Asked) -> Answer:
    """Show who held the cards, as bands over time and in card-hours."""
    named = asked.query.get("since", "")
    period = named if named in PERIODS else USUAL
    found, why = None, NO_HISTORY
    if asked.services.history is not None:
        until = int(time.time() * 1000)
        try:
            found = await asked.compute(lambda: _measured(asked, until - PERIODS[period], until))
            why = "" if found.bands else "There were no cards in this time."
            why = why if any(found.seen) else "Nothing was measured in this time."
        except (OSError, ValueError) as error:
            why = str(error)
    values: dict[str, object] = {"why": why, "period": period, "periods": [(each, each) for each in PERIODS]}
    if found is not None and not why:
        values |= {"bands": usage_chart(found), "hours": usage_table(found, asked.query)}
    return Answer("Usage", values)


def _measured(asked: Asked, since: int, until: int) -> Allocation:
    assert asked.services.history is not None
    spans = asked.services.history.spans(since, until)
    return allocation(spans, begin_of(spans, since), until, asked.chosen)
