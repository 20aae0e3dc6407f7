"""Where `haru up` keeps its state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def state_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Where state is kept: `$XDG_STATE_HOME/haru`, by default `~/.local/state/haru`."""
    base = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".local" / "state")
    return Path(base) / "haru"


def default_data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The data directory of `haru up` without `--data-dir`."""
    return state_home(environ) / "default"
