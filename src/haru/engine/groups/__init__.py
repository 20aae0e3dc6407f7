"""The gang cycle: who goes where, all or nothing; `decide` is the door, `pre_enqueue` the hold before it."""

from haru.engine.groups.cycle import decide
from haru.engine.groups.options import Options
from haru.engine.groups.quorum import pre_enqueue

__all__ = ["Options", "decide", "pre_enqueue"]
