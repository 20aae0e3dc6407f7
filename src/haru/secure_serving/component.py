"""Health and metrics of a component, as kube-scheduler serves them: over HTTPS for those who may, or on loopback.

Source: the insecure and secure serving of kube-scheduler, as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from haru.client.api import ApiClient
from haru.event_loop import cancelled
from haru.kube.errors import StatusError
from haru.secure_serving.authorization import Forbidden, PathAccess, ReviewedAccess
from haru.secure_serving.component_certificates import NOT_READABLE, ComponentCertificates
from haru.secure_serving.http import Answer, Receive, Request, Send, cleaned, redirect, send_answer, text_answer
from haru.secure_serving.identity import Authenticator, Unauthenticated
from haru.secure_serving.listener import Listener
from haru.secure_serving.options import ServingOptions
from haru.secure_serving.protocol import CERTIFICATE
from haru.secure_serving.reviews import ApiReviewer, ReviewFailed

Route = Callable[[Request], Answer]
_log = logging.getLogger(__name__)


class ComponentApp:
    """Answers GET and HEAD of a few paths. Without authenticator everybody may read: only for loopback."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        authenticator: Authenticator | None = None,
        access: PathAccess | None = None,
    ) -> None:
        self._routes, self._authenticator, self._access = routes, authenticator, access

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "http":
            request = Request(scope, receive)
            await send_answer(await self._answer(request), send, request.method)

    async def _answer(self, request: Request) -> Answer:
        if (clean := cleaned(request.path)) != request.path:
            return redirect(clean, request.scope.get("query_string", b""))
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        route = self._routes.get(request.path)
        if route is None:
            return text_answer("404 page not found\n", 404)
        if request.method not in ("GET", "HEAD"):
            return text_answer("Method Not Allowed\n", 405)
        try:
            return route(request)
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            return text_answer("Internal Server Error\n", 500)

    async def _refusal(self, request: Request) -> Answer | None:
        """The answer for who may not read; None for who may."""
        if self._authenticator is None or self._access is None:
            return None
        certificate = (request.scope.get("extensions") or {}).get(CERTIFICATE)
        try:
            user = await self._authenticator.user(certificate, request.header(b"authorization"))
        except (Unauthenticated, ReviewFailed) as error:
            _log.info("%s %s: unable to authenticate the request: %s", request.method, request.path, error)
            return text_answer("Unauthorized\n", 401)
        try:
            await self._access.require(user, request.method, request.path)
        except Forbidden as error:
            return text_answer(f"{error}\n", 403)
        except ReviewFailed as error:
            _log.warning("%s %s: %s", request.method, request.path, error)
            return text_answer("Internal Server Error: the API server did not say whether this is allowed\n", 500)
        return None


class ComponentServer:
    """The HTTPS port of a component: `authentication` makes TokenReviews, `authorization` SubjectAccessReviews."""

    def __init__(
        self,
        name: str,
        routes: Mapping[str, Route],
        options: ServingOptions,
        authentication: ApiClient,
        authorization: ApiClient,
    ) -> None:
        self._options, self._authentication = options, authentication
        self._certificates = ComponentCertificates(options, name)
        authenticator = Authenticator(ApiReviewer(authentication), anonymous=True, cache_seconds=options.token_seconds)
        reviewed = ReviewedAccess(ApiReviewer(authorization), options.allowed_seconds, options.denied_seconds)
        app = ComponentApp(routes, authenticator, PathAccess(reviewed, options.always_allowed))
        self._listener = Listener(
            app, options.address, options.port, self._certificates, look_seconds=options.look_seconds
        )
        self._following: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port that is served, once started."""
        return self._listener.port

    async def start(self) -> None:
        """Listen. Raises OSError and ValueError; nothing is served then."""
        self._certificates.prepare()
        looks_up = self._options.client_ca_file is None and not self._options.skip_lookup
        if looks_up:
            await self._look_up()
        await self._listener.start()
        if looks_up:
            self._following = asyncio.create_task(self._certificates.follow(self._authentication), name="client CA")

    async def _look_up(self) -> None:
        try:
            await self._certificates.look_up(self._authentication.hasty(5.0))
        except (StatusError, OSError, ValueError) as error:
            if not self._options.tolerate_lookup_failure:
                raise ValueError(
                    f"{NOT_READABLE}: {error}; give --client-ca-file, or bind the Role "
                    "extension-apiserver-authentication-reader, or --authentication-tolerate-lookup-failure=true"
                ) from error
            _log.warning("%s, client certificates are not accepted: %s", NOT_READABLE, error)

    async def stop(self) -> None:
        """Let what is in flight end, and close."""
        if self._following is not None:
            await cancelled(self._following)
        await self._listener.stop()


def health_route(name: str, checks: Mapping[str, Callable[[], bool]]) -> Route:
    """`ok`, or with `?verbose` or a failure each check by its name; 503 where one fails."""

    def answer(request: Request) -> Answer:
        found = {check: holds() for check, holds in checks.items()}
        well = all(found.values())
        if well and "verbose" not in request.query:
            return text_answer("ok")
        lines = [f"[{'+' if holds else '-'}]{check} {'ok' if holds else 'failed'}" for check, holds in found.items()]
        lines.append(f"{name} check {'passed' if well else 'failed'}")
        return text_answer("".join(f"{line}\n" for line in lines), 200 if well else 503)

    return answer
