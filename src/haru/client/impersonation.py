"""Acting as another user, as `as` in a kubeconfig and `--as` ask for: the server is told of it with each request.

Source: impersonation as client-go does it (transport.ImpersonationConfig).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from haru.client.transport import HeaderValue

_LEGAL = "!#$&'*+-.^_`|~"
"""What the name of a header may have beside letters and digits; `%` is escaped, as it begins what is."""


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user to act as; empty fields say nothing."""

    user: str = ""
    uid: str = ""
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.user or self.uid or self.groups or self.extra)

    def over(self, other: Impersonation) -> Impersonation:
        """What this one says, and `other` where this one says nothing."""
        return Impersonation(
            self.user or other.user, self.uid or other.uid, self.groups or other.groups, self.extra or other.extra
        )

    def headers(self) -> dict[str, HeaderValue]:
        """The headers that ask for it. Raises ValueError for names that they cannot carry."""
        found: dict[str, HeaderValue] = {}
        if self.user:
            found["impersonate-user"] = _bytes_of(self.user)
        if self.uid:
            found["impersonate-uid"] = _bytes_of(self.uid)
        if self.groups:
            found["impersonate-group"] = tuple(map(_bytes_of, self.groups))
        for key, values in self.extra.items():
            found[f"impersonate-extra-{quote(key, safe=_LEGAL)}"] = tuple(map(_bytes_of, values))
        return found


def _bytes_of(text: str) -> str:
    """The text whose bytes, as headers are written, are those of `text` in UTF-8. Raises ValueError."""
    if not text.isprintable():
        raise ValueError(f"to act as {text!r}: a name is one line, without control characters")
    return text.encode().decode("latin-1")
