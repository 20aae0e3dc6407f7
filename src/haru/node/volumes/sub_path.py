"""Parts of volumes that containers mount: `subPath` and `subPathExpr`."""

from __future__ import annotations

import contextlib
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from haru.kube.pod_environment.environment import expand
from haru.kube.pod_environment.fields import ConfigError

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")


def sub_path_of(mount: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    """The path within the volume that a container mounts, empty for all of it. Raises `ConfigError`."""
    text = mount.get("subPathExpr") or ""
    named = {found[1] for found in _REFERENCE.finditer(text) if found[1]}
    if missing := sorted(name for name in named if not variables.get(name)):
        raise ConfigError(f"missing value for {', '.join(missing)}")
    below: str = expand(text, variables) if text else mount.get("subPath") or ""
    if below.startswith("/"):
        raise ConfigError(f"error SubPath `{below}` must not be an absolute path")
    if ".." in Path(below).parts:
        raise ConfigError(f"unable to provision SubPath `{below}`: must not contain '..'")
    return below


def make_sub_path(volume: Path, below: str) -> Path | None:
    """A path within a volume, made if it is not there; None if links lead out of it, or a file is on the way."""
    with contextlib.suppress(FileExistsError, NotADirectoryError):
        return _made(volume, below)
    return None


def _made(volume: Path, below: str) -> Path | None:
    target = volume / below
    base = volume.resolve()
    if not target.resolve().is_relative_to(base):
        return None
    if not target.exists():
        # Each directory is as open as the volume, with its group where fsGroup has set that bit.
        mode = stat.S_IMODE(base.stat().st_mode)
        for part in reversed([target, *target.parents]):
            if part.is_relative_to(volume) and not part.exists():
                part.mkdir()
                part.chmod(mode)
    return target.resolve()
