"""The timeline of gangs over devices and time: any range, or a live tail."""

from __future__ import annotations

import time
from collections.abc import Sequence

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.views.device_timeline import (
    DeviceTimeline,
    Held,
    device_timeline,
    happenings,
    held_now,
)
from haru.dashboard.views.looks import LOOKS
from haru.dashboard.views.queue import waiting_work
from haru.explain.happenings import Happening
from haru.kube.names import format_milliseconds, parse_milliseconds

RANGES = {"15m": 900_000, "1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000, "7d": 604_800_000}
USUAL = "1h"
_AHEAD = 0.12
"""The part of a live range that lies ahead: expected starts are there."""
_MOST_EXPLAINED = 20
_WAIT_SECONDS = 0.2


async def timeline(asked: Asked) -> Answer:
    """Show who held which device when, what waits, and what happened."""
    now = int(time.time() * 1000)
    span, tail = _span(asked, now)
    held_before, happened, why = await _history(asked, *span)
    view, services = asked.view, asked.services
    queue = await asked.compute(lambda: waiting_work(view.snapshot, asked.chosen, services.pods))
    explained = await services.explanations.of(view, queue[:_MOST_EXPLAINED], _WAIT_SECONDS)

    def drawn() -> DeviceTimeline:
        held = held_now(view.snapshot, view.layouts)
        marks = happenings(view.snapshot, view.layouts, view.events, happened, now)
        works = [*(each.work for each in (*held, *held_before)), *(each.workload for each in queue)]
        LOOKS.show(works, time.monotonic())
        return device_timeline(held, held_before, queue, explained, marks, *span, now, asked.chosen)

    found = await asked.compute(drawn)
    length = span[1] - span[0]
    moves = {
        name: asked.address(range=None, **{"from": format_milliseconds(since), "to": format_milliseconds(until)})
        for name, since, until in (
            ("earlier", span[0] - length // 2, span[1] - length // 2),
            ("later", span[0] + length // 2, span[1] + length // 2),
            ("in", span[0] + length // 4, span[1] - length // 4),
            ("out", span[0] - length // 2, span[1] + length // 2),
        )
    }
    ranges = [(each, each) for each in RANGES]
    return Answer("Timeline", {"found": found, "why": why, "tail": tail, "ranges": ranges, "moves": moves})


def _span(asked: Asked, now: int) -> tuple[tuple[int, int], str]:
    """The time that is asked for, and the name of the live range; a time that cannot be read is none."""
    try:
        since, until = (parse_milliseconds(asked.query.get(name, "")) for name in ("from", "to"))
        if 0 < since < until:
            return (since, until), ""
    except ValueError:
        pass
    tail = asked.query.get("range", "")
    tail = tail if tail in RANGES else USUAL
    ahead = round(RANGES[tail] * _AHEAD)
    return (now - RANGES[tail] + ahead, now + ahead), tail


async def _history(asked: Asked, since: int, until: int) -> tuple[Sequence[Held], Sequence[Happening], str]:
    history = asked.services.history
    if history is None:
        return (), (), "No history is read here: what has ended is not shown."
    try:
        return *await asked.compute(lambda: (history.held(since, until), history.happened(since, until))), ""
    except (OSError, ValueError) as error:
        return (), (), str(error)
