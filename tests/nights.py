"""Seeds of long runs: every night has its own, so that what one has not met another may.

`make nightly` sets HARU_NIGHT to the day of the year, the header of pytest's report says it; with the same number the
same histories are made again. Without one it is 0.
"""

from __future__ import annotations

import os
from typing import Final

NIGHT: Final = int(os.environ.get("HARU_NIGHT") or "0")
_APART: Final = 1_000_000


def tonight(seeds: range) -> range:
    """Return as many seeds, of this night."""
    return range(seeds.start + NIGHT * _APART, seeds.stop + NIGHT * _APART, seeds.step)
