"""How much of a disk a directory takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def disk_usage(path: Path) -> int:
    """Bytes on disk of a file, or of a directory and everything in it on the same file system; 0 if it is not there.

    A file with several names counts once, one that goes meanwhile not at all.
    """
    try:
        top = path.lstat()
    except OSError:
        return 0
    seen: set[int] = set()
    total = top.st_blocks
    for stat in _below(str(path), top.st_dev):
        if stat.st_nlink > 1:
            if stat.st_ino in seen:
                continue
            seen.add(stat.st_ino)
        total += stat.st_blocks
    return total * 512


def _below(path: str, device: int) -> Iterator[os.stat_result]:
    """What is in a directory on one device. Directories have one name only, whatever their count of links."""
    pending = [path]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue  # no directory, or gone
        for entry in entries:
            try:
                stat = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.st_dev != device:
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            yield stat
