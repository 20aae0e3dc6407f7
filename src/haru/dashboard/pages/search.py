"""The page of what somebody looks for."""

from __future__ import annotations

from haru.dashboard.asked import Answer, Asked
from haru.dashboard.views.search import search


async def search_page(asked: Asked) -> Answer:
    """Find what the query names."""
    text = asked.query.get("q", "").strip()
    found = await asked.compute(lambda: search(asked.view.snapshot, text, asked.query))
    return Answer("Search", {"found": found, "text": text})
