"""Files that flags name, read before anything is served."""

from __future__ import annotations

from pathlib import Path

from haru.embedded.errors import OptionError


def read_file(path: Path | None, flag: str) -> bytes:
    """What is in a file; nothing without one. Raises OptionError."""
    try:
        return path.read_bytes() if path is not None else b""
    except OSError as error:
        raise OptionError(f"{flag}: {path}: {error.strerror}") from None


def read_authorities(path: Path | None, flag: str) -> bytes:
    """The certificates in a file; nothing without one. Raises OptionError."""
    from haru.apiserver.auth import PemError, read_certificates

    try:
        return read_certificates(path) if path is not None else b""
    except PemError as error:
        raise OptionError(f"{flag}: {error}") from None
