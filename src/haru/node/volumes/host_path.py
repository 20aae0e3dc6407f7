"""hostPath volumes: what has to be at a path of this machine, and what is made there."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from haru.kube.pod_environment.fields import ConfigError


class _Type(NamedTuple):
    test: Callable[[int], bool]
    text: str
    create: Callable[[Path], None] | None = None


_DIRECTORY: Final = _Type(stat.S_ISDIR, "directory")
_FILE: Final = _Type(stat.S_ISREG, "file")
_TYPES: Final[Mapping[str, _Type]] = {
    "Directory": _DIRECTORY,
    "DirectoryOrCreate": _DIRECTORY._replace(create=lambda path: path.mkdir(mode=0o755, parents=True)),
    "File": _FILE,
    "FileOrCreate": _FILE._replace(create=lambda path: path.touch(mode=0o644)),
    "Socket": _Type(stat.S_ISSOCK, "socket file"),
    "CharDevice": _Type(stat.S_ISCHR, "character device"),
    "BlockDevice": _Type(stat.S_ISBLK, "block device"),
}


def check_host_path(path: Path, kind: str) -> None:
    """Have at a path what a hostPath volume of a type needs. Raises `ConfigError`."""
    if not kind:
        return
    wanted = _TYPES[kind]
    if wanted.create is not None and not path.exists():
        try:
            wanted.create(path)
        except OSError as error:
            call = "mkdir" if wanted is _TYPES["DirectoryOrCreate"] else "open"
            raise ConfigError(f"{call} {error.filename or path}: {(error.strerror or '').lower()}") from error
    if not (path.exists() and wanted.test(path.stat().st_mode)):
        raise ConfigError(f"hostPath type check failed: {path} is not a {wanted.text}")
