"""The map: every card of the cluster with its holders."""

from __future__ import annotations

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.views.device_map import device_map


async def cluster_map(asked: Asked) -> Answer:
    """Show what the filter selects."""
    view, chosen, places = asked.view, asked.chosen, asked.services.places
    found = await asked.compute(lambda: device_map(view.snapshot, view.layouts, chosen, places))
    return Answer("Map", {"found": found})
