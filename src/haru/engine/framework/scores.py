"""Normalise the scores of nodes and break ties between them.

Scores are computed with doubles where kube-scheduler does, so that the same numbers come out, rounding included. The
seed breaks ties, evenly and reproducibly. Source: kube-scheduler 1.36's score plugins, as behaviour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from zlib import crc32

MAX_SCORE = 100


def rounded(value: float) -> int:
    """The nearest integer of a number that is not negative, halves up."""
    whole = math.trunc(value)
    return whole + 1 if value - whole >= 0.5 else whole


def normalised(raw: Sequence[int], *, reverse: bool = False) -> list[int]:
    """Scores brought to 0..100 relative to the largest; `reverse` makes the largest the worst."""
    top = max(raw, default=0)
    if top == 0:
        return [MAX_SCORE if reverse else 0] * len(raw)
    scaled = [value * MAX_SCORE // top for value in raw]
    return [MAX_SCORE - value for value in scaled] if reverse else scaled


def pick(count: int, seed: int, salt: str) -> int:
    """A number below `count`, evenly; the same seed and salt give the same number."""
    return crc32(f"{seed}/{salt}".encode()) % count
