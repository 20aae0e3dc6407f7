"""Tune Python's garbage collection: a full collection stops the process, for seconds with many objects.

What is allocated at a start lives until the end: it is not collected meanwhile, and never again afterwards.
"""

from __future__ import annotations

import gc

# Young objects are collected in small portions; all since the start only after 100 million more of them.
_THRESHOLDS = (10_000, 2, 5_000)


def postpone_collection() -> None:
    """Disable collection for a start, until `resume_collection`."""
    gc.disable()


def resume_collection() -> None:
    """Exempt what lives now from collection, and collect the rest seldom."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()
