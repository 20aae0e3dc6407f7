"""One stable look per workload on all pages: a colour that colour-blind people can tell apart, and a pattern."""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

from haru.dashboard.views.workloads import OTHER, Workload

COLOURS = 7
"""Okabe and Ito's palette without black: static/tokens.css has the values."""
PATTERNS = 4
"""Plain, rising stripes, dots, falling stripes."""


@lru_cache(maxsize=65536)
def look(work: Workload) -> str:
    """Return the CSS classes of a workload's look, equal in every process and on every page."""
    if work == OTHER or not work.namespace:
        return "cx p0"
    number = crc32("/".join(work).encode())
    return f"c{number % COLOURS} p{number // COLOURS % PATTERNS}"
