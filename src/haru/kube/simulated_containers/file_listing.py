"""`ls -l` in a simulated container: modes, owners, sizes and times of files and directories that are known. Pure.

Source: busybox, as behaviour; the links of volumes that kubelets make of objects.
"""

from __future__ import annotations

import math
import stat
import zlib
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from haru.kube.simulated_containers.files import ContainerFiles, Stat
from haru.kube.simulated_containers.text import SOME_DAY, as_printed, date_mark

_BLOCK: Final = 4096
_KIB: Final = 1024
_LINK_MODE: Final = stat.S_IFLNK | 0o777


class Listing(NamedTuple):
    """What `ls` is asked to tell at length."""

    paths: Sequence[str]
    options: frozenset[str]


def asked_listing(words: Sequence[str]) -> Listing | None:
    """What the words of `ls` ask for; None for its short form and for other options."""
    options = frozenset("".join(word[1:] for word in words if word.startswith("-")))
    paths = [word for word in words if not word.startswith("-")]
    return Listing(paths, options) if paths and "l" in options and options <= set("ldih1") else None


def long_listing(files: ContainerFiles, asked: Listing) -> list[str] | None:
    """The lines for a directory, or for these files; None where something of it is not known."""
    paths, options = asked
    names = files.listed(paths[0]) if len(paths) == 1 and "d" not in options else None
    if names is None:
        found = [_entry(files, path, path, options) for path in paths]
        lines = [line for line, _ in found]
    else:
        shown = sorted(name for name in names if not name.startswith("."))
        found = [_entry(files, f"{paths[0].rstrip('/')}/{name}", name, options) for name in shown]
        total = sum(blocks for _, blocks in found)
        lines = [
            f"total {_human(total * _KIB):9s}" if "h" in options else f"total {total}",
            *(line for line, _ in found),
        ]
    return None if "" in lines else lines


def _entry(files: ContainerFiles, path: str, name: str, options: Collection[str]) -> tuple[str, int]:
    """The line of one file, and how many KiB it takes; an empty line for what is not known, as in a directory."""
    target = files.link_of(path)
    known = files.stat(path)
    if (known is None and not target) or (
        known is not None and known.is_directory and not target and "d" not in options
    ):
        return "", 0
    links = 1
    if target or known is None:
        known, mode, size, blocks = Stat(0), _LINK_MODE, len(target), 0
    elif known.is_directory:
        mode, size, blocks, links = stat.S_IFDIR | known.mode, _BLOCK, 4, 2 + _directories_in(files, path)
    else:
        size = len(as_printed(files[path], SOME_DAY).encode())
        mode, blocks = stat.S_IFREG | known.mode, 4 * math.ceil(size / _BLOCK)
    inode = f"{1000 + zlib.crc32(files.key(path, follows=False).encode()) % 9_000_000:7d} " if "i" in options else ""
    when = date_mark("%b %e %H:%M", files.changed_at(path))
    long = f"{_human(size):>7s}" if "h" in options else f"{size:9d}"
    shown = f"{name} -> {target}" if target else name
    owners = f"{_named(known.uid):8s} {_named(known.gid):8s}"
    return f"{inode}{stat.filemode(mode)} {links:4d} {owners} {long} {when} {shown}", blocks


def _directories_in(files: ContainerFiles, path: str) -> int:
    found = (files.stat(f"{path.rstrip('/')}/{name}") for name in files.listed(path) or ())
    return sum(1 for one in found if one is not None and one.is_directory)


def _human(size: int) -> str:
    """A size as people read it."""
    amount, units = float(size), iter(("", "K", "M", "G"))
    unit = next(units)
    while amount >= _KIB:
        amount, unit = amount / _KIB, next(units)
    return f"{amount:.1f}{unit}" if unit else str(size)


def _named(number: int) -> str:
    return "root" if number == 0 else str(number)
