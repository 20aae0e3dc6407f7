"""Tune Python's garbage collection: a full collection stops the process, for seconds with many objects.

What is allocated at a start lives until the end: it is not collected meanwhile, and never again afterwards.
"""

from __future__ import annotations

import gc

# Young objects are collected in portions: small ones hold nobody up, in larger ones more have gone by themselves. All
# since the start are collected only after 100 million more of them.
_THRESHOLDS = (30_000, 1, 1_700)


def postpone_collection() -> None:
    """Disable collection for a start, until `resume_collection`."""
    gc.disable()


def resume_collection() -> None:
    """Exempt what lives now from collection, and collect the rest seldom."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()
