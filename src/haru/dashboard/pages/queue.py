"""The queue: what waits, with reasons and remedies."""

from __future__ import annotations

import time

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.views.looks import LOOKS
from haru.dashboard.views.queue import queue_table, waiting_work

MOST = 50
"""Workloads whose explanations are shown whole; the table has more."""


async def queue(asked: Asked) -> Answer:
    """List what waits, with the explanations that are there after a moment."""
    view, pods = asked.view, asked.services.pods
    found = await asked.compute(lambda: waiting_work(view.snapshot, asked.chosen, pods))
    await asked.compute(lambda: LOOKS.show([each.workload for each in found], time.monotonic()))
    explanations = await asked.services.explanations.of(view, found)
    table = await asked.compute(lambda: queue_table(found, explanations, asked.query))
    by_work = {each.workload: each for each in found}
    shown = [by_work[row[0].work] for row in table.rows[:MOST] if row[0].work is not None]
    pending = sum(each.pods for each in found)
    return Answer("Queue", {"found": shown, "left": max(0, table.found - len(shown)), "total": len(found),
                            "pods": pending, "explanations": explanations, "table": table})  # fmt: skip
