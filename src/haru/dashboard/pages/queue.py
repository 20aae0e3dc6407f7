"""The queue: what waits, with reasons and remedies."""

from __future__ import annotations

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.views.queue import waiting_work

MOST = 200


async def queue(asked: Asked) -> Answer:
    """List what waits, with the explanations that are there after a moment."""
    view, pods = asked.view, asked.services.pods
    found = await asked.compute(lambda: waiting_work(view.snapshot, asked.chosen, pods))
    explanations = await asked.services.explanations.of(view.snapshot, found)
    pending = sum(each.pods for each in found)
    return Answer("Queue", {"found": found[:MOST], "left": max(0, len(found) - MOST), "total": len(found),
                            "pods": pending, "explanations": explanations})  # fmt: skip
