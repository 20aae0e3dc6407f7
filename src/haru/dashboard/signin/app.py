"""Around the pages: the name of the server, health, sign-in and sign-out, and whose request it is.

A person is known by the headers of an authenticating proxy that shows a certificate of the named authority, by a bearer
token in the request, or by the session that a token has opened. Each is looked at again on every request; the reviews
behind it are kept for seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote

import orjson

from haru.dashboard.signin.answers import message, secured, sign_in
from haru.dashboard.signin.attempts import Attempts
from haru.dashboard.signin.hosts import KnownHosts
from haru.dashboard.signin.sessions import Sessions
from haru.dashboard.signin.viewer import VIEWER, Viewer, Visibility
from haru.dashboard.signin.visibility import VisibilityReviews
from haru.secure_serving.authorization import user_fields
from haru.secure_serving.component import Route
from haru.secure_serving.http import Answer, Receive, Request, Send, send_answer, text_answer
from haru.secure_serving.identity import Authenticator, Unauthenticated, User, bearer
from haru.secure_serving.protocol import CERTIFICATE
from haru.secure_serving.request_header import FrontProxy, user_told
from haru.secure_serving.reviews import ReviewFailed

SESSION, FORM = "__Host-haru-session", "__Host-haru-sign-in"
_FLAGS = "Path=/; Secure; HttpOnly; SameSite=Strict"
_FORM_SECONDS = 600
_LARGEST_FORM = 65_536
_MOST_AT_ONCE, _MOST_WAITING = 4, 32
_OPEN = ("/static/",)
"""What everybody gets: the style of the sign-in page."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Person:
    user: User
    session: str = ""
    sign_out: str = ""
    key: Hashable = ""
    """What says who it is, of which nothing can be told: equal for all requests that are signed in by the same."""


class SignIn:
    """Serves `app` to people who have signed in; `namespaces` are those of the cluster, as it is watched.

    Without `front_proxy` no headers are believed. `health` is answered to everybody.
    """

    def __init__(
        self,
        app: Callable[..., Any],
        authenticator: Authenticator,
        visibility: VisibilityReviews,
        namespaces: Callable[[], Awaitable[Collection[str]]],
        sessions: Sessions,
        hosts: KnownHosts,
        health: Mapping[str, Route],
        front_proxy: Callable[[], FrontProxy | None] = lambda: None,
        attempts: Attempts | None = None,
    ) -> None:
        self._app, self._authenticator, self._visibility, self._namespaces = app, authenticator, visibility, namespaces
        self._sessions, self._hosts, self._health, self._front_proxy = sessions, hosts, health, front_proxy
        self._attempts = attempts or Attempts()
        self._reviewing = asyncio.Semaphore(_MOST_AT_ONCE)
        self._waiting = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            answer = await self._answer(request, send)
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            answer = text_answer("Internal Server Error\n", 500)
        if answer is not None:
            await send_answer(answer, send, request.method)

    async def _answer(self, request: Request, send: Send) -> Answer | None:
        """The answer; None where the pages have answered."""
        if (route := self._health.get(request.path)) is not None:
            return route(request)
        if not self._hosts.knows(request.header(b"host") or ""):
            return message(421, "Unknown name", "This server is not known by the name in the address.")
        if request.path in ("/sign-in", "/sign-out"):
            return await self._form(request)
        if request.method not in ("GET", "HEAD"):
            return message(405, "Not allowed", "The dashboard only reads.", [(b"allow", b"GET, HEAD")])
        if request.path.startswith(_OPEN):
            await self._app(request.scope, request.receive, send)
            return None
        return await self._pages(request, send)

    async def _pages(self, request: Request, send: Send) -> Answer | None:
        try:
            person = await self._person(request)
            if person is None:
                return self._refusal(request)
            visibility = await self._visibility.of(person.user, self._namespaces)
        except (ReviewFailed, OSError) as error:
            _log.warning("%s: %s", request.path, error)
            return message(503, "Try again", "The API server did not say who you are and what you may see.")
        if visibility.nothing:
            text = f"{person.user.name} may see no namespace of this cluster: somebody has to grant view in one."
            return message(403, "Nothing to see", text, sign_out=person.sign_out)
        allowed = self._visibility.allowed_for(person.user)

        async def unchanged() -> bool:
            return await self._still_sees(request, visibility)

        viewer = Viewer(visibility, person.user.name, person.sign_out, allowed, unchanged, person.key)
        await self._app({**request.scope, VIEWER: viewer}, request.receive, send)
        return None

    async def _still_sees(self, request: Request, visibility: Visibility) -> bool:
        try:
            person = await self._person(request)
            return person is not None and await self._visibility.of(person.user, self._namespaces) == visibility
        except (ReviewFailed, OSError):
            return False

    def _refusal(self, request: Request) -> Answer:
        if request.path == "/" or b"text/html" in dict(request.scope["headers"]).get(b"accept", b""):
            where = b"/sign-in"
            if request.path != "/":
                where += b"?next=" + _quoted(request)
            return secured(Answer(303, headers=[(b"location", where)]))
        return secured(text_answer("Unauthorized: sign in first\n", 401))

    # -- who it is ----------------------------------------------------------------------------------------------------

    async def _person(self, request: Request) -> _Person | None:
        """Whose request it is; None for nobody's. Raises ReviewFailed."""
        certificate = (request.scope.get("extensions") or {}).get(CERTIFICATE)
        if certificate is not None and (front_proxy := self._front_proxy()) is not None:
            try:
                told = user_told(front_proxy, certificate, request.scope["headers"])
                return _Person(told, key=orjson.dumps(user_fields(told), option=orjson.OPT_SORT_KEYS))
            except Unauthenticated as error:
                _log.info("%s: headers of a proxy are not believed: %s", request.path, error)
        if (authorization := request.header(b"authorization")) is not None:
            owner = await self._owner_of(bearer(authorization))
            return _Person(owner, key=hashlib.sha256(authorization.encode()).digest()) if owner is not None else None
        number = _cookie(request, SESSION)
        session = self._sessions.find(number) if number else None
        if session is None:
            return None
        user = await self._owner_of(session.token)
        if user is None:
            self._sessions.close(number)
            return None
        return _Person(user, number, session.sign_out, number)

    async def _owner_of(self, token: str) -> User | None:
        """Whose a token is; None for nobody's. Raises ReviewFailed."""
        if not token:
            return None
        try:
            return await self._authenticator.user(None, f"Bearer {token}")
        except Unauthenticated:
            return None

    # -- forms --------------------------------------------------------------------------------------------------------

    async def _form(self, request: Request) -> Answer:
        if request.method in ("GET", "HEAD"):
            if request.path == "/sign-out":
                return secured(Answer(303, headers=[(b"location", b"/")]))
            return _sign_in(200, "", _next(request.param("next")))
        if request.method != "POST":
            return message(405, "Not allowed", "A form is posted.", [(b"allow", b"GET, HEAD, POST")])
        if request.header(b"sec-fetch-site") not in (None, "same-origin"):
            return message(403, "Not allowed", "This form was sent by another site.")
        try:
            fields = await _fields(request)
        except ValueError:
            return message(400, "Not understood", "No form of this server has so many fields.")
        if fields is None:
            return message(413, "Too large", "No token is as long as this.")
        return await self._signs_in(request, fields) if request.path == "/sign-in" else self._signs_out(request, fields)

    async def _signs_in(self, request: Request, fields: Mapping[str, str]) -> Answer:
        where, known = _next(fields.get("next", "")), _cookie(request, FORM)
        if not known or not hmac.compare_digest(known.encode(), fields.get("form", "").encode()):
            return _sign_in(403, "The form was too old, or not ours. Try again.", where)
        address = str((request.scope.get("client") or ("",))[0])
        if seconds := self._attempts.wait(address):
            retry = [(b"retry-after", str(int(seconds) + 1).encode())]
            return _sign_in(429, "Too many wrong tokens from your address. Wait some minutes.", where, retry)
        token = "".join(fields.get("token", "").split())
        try:
            user = await self._reviewed(token)
        except (ReviewFailed, TimeoutError) as error:
            _log.warning("a token was not reviewed: %s", error)
            return _sign_in(503, "The API server did not say whose the token is. Try again.", where)
        if user is None:
            self._attempts.failed(address)
            return _sign_in(401, "The cluster does not know this token.", where)
        number = self._sessions.open(token, user.name)
        cookies = (
            f"{SESSION}={number}; Max-Age={self._sessions.seconds:.0f}; {_FLAGS}",
            f"{FORM}=; Max-Age=0; {_FLAGS}",
        )
        headers = [(b"location", where.encode()), *((b"set-cookie", cookie.encode()) for cookie in cookies)]
        return secured(Answer(303, headers=headers))

    async def _reviewed(self, token: str) -> User | None:
        """Whose a typed token is; a few are reviewed at once, so that nobody floods the API server."""
        if self._waiting >= _MOST_WAITING:
            raise ReviewFailed("too many people sign in at once")
        self._waiting += 1
        try:
            async with self._reviewing:
                return await self._owner_of(token)
        finally:
            self._waiting -= 1

    def _signs_out(self, request: Request, fields: Mapping[str, str]) -> Answer:
        number = _cookie(request, SESSION)
        session = self._sessions.find(number) if number else None
        if session is not None:
            if not hmac.compare_digest(session.sign_out.encode(), fields.get("form", "").encode()):
                return message(403, "Not allowed", "This form was not ours.")
            self._sessions.close(number)
        gone = f"{SESSION}=; Max-Age=0; {_FLAGS}".encode()
        return secured(Answer(303, headers=[(b"location", b"/sign-in"), (b"set-cookie", gone)]))


def _sign_in(status: int, told: str, where: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> Answer:
    """The form, with a number in it and in a cookie that another site cannot know."""
    number = secrets.token_urlsafe(32)
    cookie = f"{FORM}={number}; Max-Age={_FORM_SECONDS}; {_FLAGS}".encode()
    return sign_in(status, number, where, told, [(b"set-cookie", cookie), *headers])


async def _fields(request: Request) -> dict[str, str] | None:
    """The fields of a posted form; None for one that is too large. Raises ValueError for too many."""
    body, more = b"", True
    while more:
        message = await request.receive()
        body += message.get("body", b"")
        more = message["type"] == "http.request" and bool(message.get("more_body"))
        if len(body) > _LARGEST_FORM:
            return None
    return dict(parse_qsl(body.decode("latin-1"), keep_blank_values=True, max_num_fields=16))


def _next(where: str) -> str:
    """An address of this server; the first page for any other."""
    is_own = where.startswith("/") and not where.startswith(("//", "/\\")) and where.isascii() and where.isprintable()
    return where if is_own else "/"


def _quoted(request: Request) -> bytes:
    query = request.scope.get("query_string", b"").decode("latin-1")
    whole = quote(request.path) + (f"?{query}" if query else "")
    return quote(whole, safe="").encode()


def _cookie(request: Request, name: str) -> str:
    try:
        morsel = SimpleCookie(request.header(b"cookie") or "").get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""
