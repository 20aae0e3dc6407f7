"""The bearer tokens that a server is started with."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from haru.apiserver.auth.user import ANONYMOUS, UserInfo

AUTHENTICATED = "system:authenticated"


class StaticTokens:
    """Who the tokens stand for, known by the tokens' digests.

    How long a look-up takes says something of the digest, from which nobody can work towards a token; the tokens
    themselves are compared in constant time.
    """

    def __init__(self, tokens: Mapping[str, UserInfo]) -> None:
        self._users = {_digest(token): (token.encode(), with_group(user)) for token, user in tokens.items()}

    def add(self, token: str, user: UserInfo) -> None:
        """Let one more token in."""
        self._users[_digest(token)] = (token.encode(), with_group(user))

    def find(self, token: str) -> UserInfo | None:
        """The user that a token stands for."""
        found = self._users.get(_digest(token))
        if found is None or not hmac.compare_digest(found[0], token.encode("utf-8", "replace")):
            return None
        return found[1]


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=32).digest()


def with_group(user: UserInfo) -> UserInfo:
    """The user as a member of all who are authenticated."""
    if AUTHENTICATED in user.groups or user.name == ANONYMOUS.name:
        return user
    return UserInfo(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)
