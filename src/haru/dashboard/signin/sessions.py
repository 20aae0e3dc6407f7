"""The sessions of people who have signed in with a token: the cookie is a random number, the token stays here.

A session ends after `seconds`, when its person signs out, when the cluster no longer knows the token, and with the
server. Only digests of the numbers are kept.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

MOST, MOST_OF_ONE = 4096, 64
_BYTES = 32


@dataclass(frozen=True, slots=True)
class Session:
    """The token of a session, when it ends (monotonic seconds), and what its form to sign out has to send."""

    token: str
    user: str
    ends: float
    sign_out: str


class Sessions:
    """The sessions of one server; `monotonic` is in seconds."""

    def __init__(self, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._monotonic = monotonic
        self._key = secrets.token_bytes(_BYTES)
        self._sessions: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, token: str, user: str) -> str:
        """Begin a session; return what its cookie holds. The oldest ones end where there are too many."""
        self._drop_ended()
        own = [mark for mark, session in self._sessions.items() if session.user == user]
        for marks, most in ((own, MOST_OF_ONE), (list(self._sessions), MOST)):
            for mark in marks[: max(0, len(marks) - most + 1)]:
                self._sessions.pop(mark, None)
        number = secrets.token_urlsafe(_BYTES)
        sign_out = hmac.digest(self._key, number.encode(), hashlib.sha256).hex()
        self._sessions[_mark(number)] = Session(token, user, self._monotonic() + self.seconds, sign_out)
        return number

    def find(self, number: str) -> Session | None:
        """Return the session of a cookie."""
        found = self._sessions.get(_mark(number))
        if found is not None and self._monotonic() >= found.ends:
            self.close(number)
            return None
        return found

    def close(self, number: str) -> None:
        """End a session."""
        self._sessions.pop(_mark(number), None)

    def _drop_ended(self) -> None:
        now = self._monotonic()
        for mark in [mark for mark, session in self._sessions.items() if now >= session.ends]:
            del self._sessions[mark]


def _mark(number: str) -> bytes:
    return hashlib.sha256(number.encode("utf-8", "surrogateescape")).digest()
