"""Where `haru up` keeps its state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from haru.embedded.errors import OptionError


def state_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Where state is kept: `$XDG_STATE_HOME/haru`, by default `~/.local/state/haru`.

    Raises OptionError if that is nowhere: a container may run under a user that it does not know.
    """
    if base := environ.get("XDG_STATE_HOME"):
        return Path(base) / "haru"
    try:
        home = Path(environ.get("HOME") or Path.home())
    except RuntimeError:
        what = "HOME is not set, and this user has no home directory: set HOME or XDG_STATE_HOME"
        raise OptionError(what) from None
    return home / ".local" / "state" / "haru"


def default_data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The data directory of `haru up` without `--data-dir`."""
    return state_home(environ) / "default"
