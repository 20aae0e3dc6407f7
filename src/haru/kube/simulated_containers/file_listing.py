"""`ls -l` in a simulated container: modes, owners, sizes and times of files that are known. Pure.

Source: busybox, as behaviour; the links of volumes that kubelets make of objects.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Sequence
from typing import Final

from haru.kube.simulated_containers.files import ContainerFiles
from haru.kube.simulated_containers.text import SOME_DAY, as_printed, date_mark

_BLOCK: Final = 4096
_LINK_MODE: Final = stat.S_IFLNK | 0o777


def long_listing(files: ContainerFiles, paths: Sequence[str]) -> list[str] | None:
    """The lines for a directory, or for these files; None where something of it is not known."""
    names = files.listed(paths[0]) if len(paths) == 1 else None
    if names is None:
        found = [_entry(files, path, path) for path in paths]
        lines = [line for line, _ in found]
    else:
        shown = sorted(name for name in names if not name.startswith("."))
        found = [_entry(files, f"{paths[0].rstrip('/')}/{name}", name) for name in shown]
        lines = [f"total {sum(blocks for _, blocks in found)}", *(line for line, _ in found)]
    return None if "" in lines else lines


def _entry(files: ContainerFiles, path: str, name: str) -> tuple[str, int]:
    """The line of one file, and how many KiB it takes; an empty line for what is not known, as of a directory."""
    known, target = files.stat(path), files.link_of(path)
    if known is None or (known.is_directory and not target):
        return "", 0
    if target:
        mode, size, blocks = _LINK_MODE, len(target), 0
    else:
        size = len(as_printed(files[path], SOME_DAY).encode())
        mode, blocks = stat.S_IFREG | known.mode, 4 * math.ceil(size / _BLOCK)
    owner, group = (_named(number) for number in ((0, 0) if target else (known.uid, known.gid)))
    when = date_mark("%b %e %H:%M", files.changed_at(path))
    shown = f"{name} -> {target}" if target else name
    return f"{stat.filemode(mode)}    1 {owner:8s} {group:8s} {size:9d} {when} {shown}", blocks


def _named(number: int) -> str:
    return "root" if number == 0 else str(number)
