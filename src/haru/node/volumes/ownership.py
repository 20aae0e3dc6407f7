"""The group of a volume's files: `fsGroup` may read them, and write them where the volume is no copy of objects.

Source: the kubelet's ownership of volumes, as behaviour: its links change hands but not their targets, directories pass
the group on to what is made in them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def give_to_group(directory: Path, group: int, *, read_only: bool) -> None:
    """Give a directory and everything in it to a group. Raises OSError."""
    for folder, directories, files in os.walk(directory, topdown=False):
        for name in (*directories, *files):
            _give(Path(folder, name), group, read_only=read_only)
    _give(directory, group, read_only=read_only)


def _give(path: Path, group: int, *, read_only: bool) -> None:
    mode = path.lstat().st_mode
    os.chown(path, -1, group, follow_symlinks=False)
    if stat.S_ISLNK(mode):
        return
    more = 0o440 if read_only else 0o660
    if stat.S_ISDIR(mode):
        more |= stat.S_ISGID | 0o110
    path.chmod(stat.S_IMODE(mode) | more)
