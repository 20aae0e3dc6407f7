"""The command `haru`, also as `python -m haru`. Next to nothing is imported before Ctrl-C has a quiet end."""

import gc

from haru.interrupts import end_at_once
from haru.open_files import stand_in_for_closed_streams, write_what_streams_can

_PORTION = 200_000
"""Objects more than before that begin a garbage collection: what a command imports and reads lives until its end."""


def main() -> int:
    """Runs the command line of this process; returns the exit status."""
    end_at_once()
    stand_in_for_closed_streams()
    write_what_streams_can()
    gc.set_threshold(_PORTION, 10, 10)
    from haru.cli.main import main as run

    status = run()
    gc.freeze()  # the interpreter collects once more at its end, which frees nothing but what ends anyway
    end_at_once()  # what is left is the interpreter's
    return status


if __name__ == "__main__":
    raise SystemExit(main())
