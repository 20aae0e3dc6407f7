"""Bearer tokens: a fixed one, or one in a file that is renewed under us (as a pod's service account token is)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

_REREAD_SECONDS = 60.0


class BearerToken:
    """The token to send now; a file is read again after a minute, and an unreadable file keeps the last token."""

    def __init__(self, token: str, file: Path | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._token = token
        self._file = file
        self._monotonic = monotonic
        self._read_at: float | None = None

    @classmethod
    def of(cls, token: str = "", file: Path | None = None) -> BearerToken | None:
        """A token source, or None where there is no token; the file goes first, as in kubectl."""
        return cls(token, file) if token or file else None

    def value(self) -> str:
        """The token to send now."""
        now = self._monotonic()
        if self._file is not None and (self._read_at is None or now - self._read_at >= _REREAD_SECONDS):
            try:
                self._token = self._file.read_text(encoding="utf-8").strip() or self._token
            except OSError:
                if not self._token:
                    raise
            self._read_at = now
        return self._token
