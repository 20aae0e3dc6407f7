"""Files that are there as a whole or not at all, also after a crash or a loss of power."""

from __future__ import annotations

import codecs
import errno
import os
from pathlib import Path


def text_of(data: bytes) -> str:
    """The text in a file that people write: UTF-8, or UTF-16 with a byte order mark, as kubectl reads it.

    Raises ValueError that says what else it is.
    """
    encoding = "UTF-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "UTF-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        what = f"{encoding} text: {error.reason} at byte {error.start}"
        raise ValueError(f"this is no {what}; save it as UTF-8") from error
    if "\0" in text:
        raise ValueError(f"this is no UTF-8 text: a zero at byte {data.index(0)}; save it as UTF-8")
    return text


def write_whole(path: Path, data: bytes | str, mode: int = 0o600, *, parents: bool = False) -> None:
    """Write a file so that a reader, and whoever comes after a crash, finds the old content or the new.

    Only the owner can read the file, unless `mode` says otherwise. With `parents` its directory is made if it is not
    there. Raises OSError; then the old content is still there.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def new_private_file(path: Path) -> None:
    """An empty file that only its owner can read; FileExistsError when it is there."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def sync_directory(directory: Path) -> None:
    """Make the names in a directory outlive a loss of power. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
