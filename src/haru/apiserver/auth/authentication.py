"""Find the user of a request: the one that a front proxy names; else that of a static token, a ServiceAccount token or
a client certificate; else the anonymous user.

Source: Kubernetes authentication; ServiceAccount tokens as bound tokens (KEP 1205).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from haru.apiserver.auth.tokens.issuer import AccountTokens
from haru.apiserver.auth.tokens.validation import InvalidToken
from haru.apiserver.auth.user import ANONYMOUS, UserInfo, with_group
from haru.apiserver.config import AuthenticationOptions
from haru.apiserver.peers.request_header import Authorities
from haru.apiserver.request.http import Request
from haru.kube.errors import unauthorized_error
from haru.upgrade_proxy import wants_upgrade

_LOG = logging.getLogger("haru.apiserver")
PEER = "haru.peer"
"""The ASGI extension in which the HTTP server reports a verified client certificate: whom it names, who signed it."""
TOKEN_PROTOCOL = "base64url.bearer.authorization.k8s.io."
"""What a subprotocol of a WebSocket that is a bearer token begins with."""
_OPEN = ("/healthz", "/livez", "/readyz", "/version")


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


class Authenticator:
    """Find the user of a request: by static tokens, ServiceAccount tokens and client certificates."""

    def __init__(self, options: AuthenticationOptions, account_tokens: AccountTokens) -> None:
        self.static_tokens = StaticTokens(options.tokens)
        self.account_tokens = account_tokens
        self._authorities = Authorities(options.client_ca_pem, options.front_proxy)

    async def review(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, Sequence[str]] | None:
        """Return the user of a token and the audiences that it is good for; None if there is no user.

        Raises InvalidToken.
        """
        if (static := self.static_tokens.find(token)) is not None:
            # Such a token is for this server, and for nobody else.
            own = self.account_tokens.audiences
            shared = [each for each in audiences or own if each in own]
            return (static, shared) if shared else None
        checked = await self.account_tokens.check(token, audiences)
        return (checked.user, checked.audiences) if checked is not None else None

    async def authenticate(self, request: Request) -> None:
        """Set the request's user; 401 for bad credentials. Who gives none is anonymous."""
        peer = (request.scope.get("extensions") or {}).get(PEER)
        spoken_for = self._authorities.front_proxy_user(request, peer)
        header = request.headers.get(b"authorization")
        if spoken_for is not None:
            request.user = spoken_for
        elif header is not None and (given := bearer(header)):
            request.user = await self._user_of_token(request, given)
        elif token := websocket_token(request):
            request.user = await self._user_of_token(request, token)
        elif peer and not self._authorities.is_user(peer):
            raise unauthorized_error()
        elif (certified := user_of_certificate(request.scope)) is not None:
            request.user = certified
        else:
            request.user = ANONYMOUS

    async def _user_of_token(self, request: Request, token: str) -> UserInfo:
        """The user that a bearer token stands for; 401 when there is none."""
        if (user := self.static_tokens.find(token)) is not None:
            return user
        try:
            checked = await self.account_tokens.check(token)
        except InvalidToken as error:
            _LOG.info("unable to authenticate the request: %s", error)
            checked = None
        if checked is None:
            raise unauthorized_error()
        request.annotations.update(checked.notes)
        return checked.user


def is_open(path: str) -> bool:
    """Whether everybody may ask, whatever roles there are: how healthy the server is, and of which version."""
    return path.rstrip("/") in _OPEN


def bearer(header: bytes) -> str:
    """The token of an Authorization header; empty for another scheme, which is no credential here."""
    scheme, _, token = header.decode("latin-1").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def websocket_token(request: Request) -> str:
    """The token that a WebSocket names as a subprotocol, as pages in a browser do; 401 for one that is malformed.

    It is taken out of the subprotocols, of which one more has to be there.
    """
    asked = request.headers.get(b"sec-websocket-protocol")
    if asked is None or not wants_upgrade(request.scope["headers"]):
        return ""
    protocols = [part.strip() for part in asked.decode("latin-1").split(",")]
    tokens = [part.removeprefix(TOKEN_PROTOCOL) for part in protocols if part.startswith(TOKEN_PROTOCOL)]
    others = [part for part in protocols if not part.startswith(TOKEN_PROTOCOL)]
    if not any(tokens):
        return ""
    if len(tokens) > 1 or not others:
        raise unauthorized_error()
    headers = request.scope["headers"]
    kept = [(name, value) for name, value in headers if name.lower() != b"sec-websocket-protocol"]
    request.scope["headers"] = [*kept, (b"sec-websocket-protocol", ", ".join(others).encode("latin-1"))]
    try:
        padded = tokens[0] + "=" * (-len(tokens[0]) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise unauthorized_error() from None


def user_of_certificate(scope: Any) -> UserInfo | None:
    """The user of a verified client certificate: its common name, and its organizations as groups."""
    peer = (scope.get("extensions") or {}).get(PEER)
    if not peer or not peer["names"]:
        return None
    return with_group(UserInfo(peer["names"][0], tuple(peer["organizations"])))
