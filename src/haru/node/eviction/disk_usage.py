"""How much of a disk a directory takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from haru.node.eviction.ranking import Disk


def disk_usage(path: Path) -> int:
    """Bytes on disk of a file, or of a directory and everything in it on the same file system; 0 if it is not there.

    A file with several names counts once, one that goes meanwhile not at all.
    """
    return disk_of(path).used


def disk_of(path: Path) -> Disk:
    """The same, and how many inodes it takes."""
    try:
        top = path.lstat()
    except OSError:
        return Disk()
    seen: set[int] = set()
    total, inodes = top.st_blocks, 1
    for stat in _below(str(path), top.st_dev):
        if stat.st_nlink > 1:
            if stat.st_ino in seen:
                continue
            seen.add(stat.st_ino)
        total += stat.st_blocks
        inodes += 1
    return Disk(total * 512, inodes)


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
