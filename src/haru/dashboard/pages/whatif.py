"""What a change would do: before and after."""

from __future__ import annotations

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.views.difference import difference_page
from haru.dashboard.whatif import AskedChange, NotAnswered
from haru.drivers.simulated.profiles import profile_names


async def whatif(asked: Asked) -> Answer:
    """Try the change that the query names on a copy of the cluster; without one, say what can be asked."""
    change, found, why = AskedChange.of(asked.query), None, ""
    if change.change:
        try:
            told = await asked.services.what_if.answer(asked.view, change, asked.services)
            found = await asked.compute(lambda: difference_page(told, asked.query))
        except NotAnswered as error:
            why = str(error)
    return Answer("What if", {"found": found, "why": why, "change": change, "profiles": profile_names()})
