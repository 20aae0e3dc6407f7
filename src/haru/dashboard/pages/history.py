"""Who held devices in the last day, for the pages of what was held and of who held it."""

from __future__ import annotations

import time
from collections.abc import Callable

from haru.dashboard.asked import Asked
from haru.dashboard.views.device_timeline import Held
from haru.dashboard.views.holdings import DAY, holdings
from haru.dashboard.views.tables import Table


async def who_held(asked: Asked, chosen: Callable[[Held], bool], caption: str = "Who held it") -> Table | None:
    """Return the table of what is chosen; None where no history is read."""
    return await asked.compute(lambda: _table(asked, chosen, caption))


def _table(asked: Asked, chosen: Callable[[Held], bool], caption: str) -> Table | None:
    history = asked.services.history
    if history is None:
        return None
    until = int(time.time() * 1000)
    try:
        return holdings(history.held(until - DAY, until), chosen, until, asked.query, caption)
    except (OSError, ValueError):
        return None
