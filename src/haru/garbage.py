"""When Python looks for garbage: a search through all that lives holds up everybody, for seconds where much lives.

What a start allocates lives until the end: nobody looks at it while it comes in, and never again once it is there.
"""

from __future__ import annotations

import gc

# Young objects are looked at in small portions; all that came after the start only after 100 million more of them.
_THRESHOLDS = (10_000, 5, 2_000)


def postpone_collection() -> None:
    """A start begins: no garbage is looked for until `resume_collection`."""
    gc.disable()


def resume_collection() -> None:
    """The start is over: what lives by now is never looked at again, and what comes after it seldom."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()
