"""Atomic updates of a volume's files: timestamped directories, and one symbolic link to the current one.

    key -> ..data/key        ..data -> ..2026_11_22_10_00_00.1234567        ..2026_11_22_10_00_00.1234567/key

A reader that opens a file finds it whole, of the old state or of the new one. Source: the layout of the kubelet's
volumes, which programs that watch `..data` rely on.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path, PurePosixPath

from haru.kube.pod_environment.volume_files import Files
from haru.node.volumes.ownership import give_to_group

DATA = "..data"


def write_files(directory: Path, files: Files, group: int | None = None) -> bool:
    """Have exactly these files in a directory; whether anything was changed. Raises OSError and ValueError.

    Only what is in files is compared: a pod's modes, owner and group never change.
    """
    for path in files:
        _check(path)
    data = directory / DATA
    current = directory / data.readlink() if data.is_symlink() else None
    if current is not None and current.is_dir() and _same(current, files):
        _link(directory, files)
        return False
    stamp = time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime()) + f"{time.time_ns() % 10**9:09}"
    fresh = directory / stamp
    fresh.mkdir(mode=0o755)
    fresh.chmod(0o755)
    for path, file in files.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.data)
        target.chmod(file.mode)
        if file.owner is not None:
            os.chown(target, file.owner, -1)
    if group is not None:
        give_to_group(directory, group, read_only=True)
    pending = directory / "..data_tmp"
    pending.unlink(missing_ok=True)
    pending.symlink_to(stamp)
    pending.replace(data)
    _link(directory, files)
    for old in directory.iterdir():
        if old.name.startswith("..") and old.is_dir() and not old.is_symlink() and old.name != stamp:
            shutil.rmtree(old)
    return True


def _check(path: str) -> None:
    """A path that stays within its volume."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or parts[0].startswith(".."):
        raise ValueError(f'"{path}" is no path within a volume: it must be relative and not begin with ..')


def _same(directory: Path, files: Files) -> bool:
    present = {str(path.relative_to(directory)): path for path in directory.rglob("*") if not path.is_dir()}
    if present.keys() != {str(PurePosixPath(path)) for path in files}:
        return False
    return all(present[str(PurePosixPath(path))].read_bytes() == file.data for path, file in files.items())


def _link(directory: Path, files: Files) -> None:
    """Names beside `..data` for what is in it, and for nothing else."""
    wanted = {PurePosixPath(path).parts[0]: file.owner for path, file in files.items()}
    for name, owner in wanted.items():
        link = directory / name
        if not os.path.lexists(link):  # a mount point of another volume may be there
            link.symlink_to(f"{DATA}/{name}")
            if owner is not None:
                os.chown(link, owner, -1, follow_symlinks=False)
    for entry in directory.iterdir():
        if entry.is_symlink() and not entry.name.startswith("..") and entry.name not in wanted:
            entry.unlink()
