"""The kubelet API of one node, put together: who may come in, what is shown, where it listens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from haru.client.api import ApiClient
from haru.node.api.access import Access, AlwaysAllow, WebhookAccess
from haru.node.api.app import KubeletApp
from haru.node.api.handlers import Handlers, KubeletSources
from haru.node.api.metrics import Counters
from haru.node.api.options import ServerOptions
from haru.secure_serving.certificates import ensure_certificate
from haru.secure_serving.http import Answer, HttpError, Receive, Request, Send, cleaned, send_answer, text_answer
from haru.secure_serving.identity import Authenticator
from haru.secure_serving.listener import Listener, TlsFiles
from haru.secure_serving.reviews import ApiReviewer, Reviewer


class HealthApp:
    """`/healthz` and nothing else."""

    def __init__(self, healthz: Callable[[Request], Awaitable[Answer]]) -> None:
        self._healthz = healthz

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        request = Request(scope, receive)
        try:
            if request.method not in ("GET", "HEAD") or request.path != cleaned(request.path):
                raise HttpError(404, "404 page not found")
            if request.parts[0] != "healthz":
                raise HttpError(404, "404 page not found")
            answer = await self._healthz(request)
        except HttpError as error:
            answer = text_answer(f"{error}\n", error.status)
        await send_answer(answer, send, request.method)


@dataclass(frozen=True, slots=True)
class ServedNode:
    """The node: what its serving certificate is made for."""

    name: str
    addresses: Sequence[str] = ()


class KubeletServer:
    """Serves `shown` for the node `name`. Raises ValueError for options that do not go together."""

    def __init__(
        self,
        node: ServedNode,
        shown: KubeletSources,
        options: ServerOptions,
        *,
        client: ApiClient | None,
        reviewer: Reviewer | None = None,
    ) -> None:
        if bool(options.cert_file) != bool(options.key_file):
            raise ValueError("a certificate and its key go together: name both files, or none")
        if not options.cert_file and options.cert_dir is None:
            raise ValueError("there is no place for a serving certificate: name its file and its key's, or a directory")
        self._node, self._options = node, options
        authentication, authorization = options.authentication, options.authorization
        counters = Counters()
        if reviewer is None and client is not None:
            reviewer = ApiReviewer(client, observe=counters.reviewed)
        if reviewer is None and (authentication.webhook or authorization.mode == "Webhook"):
            raise ValueError("no client of an API server: tokens and rights can not be asked for (webhook)")
        access: Access = AlwaysAllow()
        if authorization.mode == "Webhook":
            assert reviewer is not None
            access = WebhookAccess(reviewer, node.name, authorization)
        authenticator = Authenticator(
            reviewer if authentication.webhook else None,
            anonymous=authentication.anonymous,
            audiences=authentication.audiences,
            cache_seconds=authentication.cache_seconds,
        )
        handlers = Handlers(shown, options, counters)
        self._app = KubeletApp(authenticator, access, handlers.routes(), counters, debugging=options.debugging_handlers)
        self._health_app = HealthApp(handlers.healthz)
        self._listeners: list[Listener] = []

    @property
    def port(self) -> int:
        """Where the API is served, once started."""
        return self._listeners[0].port

    @property
    def healthz_port(self) -> int:
        """Where health is served without TLS, once started."""
        return self._listeners[1].port

    async def start(self) -> None:
        """Listen. Raises OSError and ValueError; nothing is served then."""
        o = self._options
        certificate = (o.cert_file, o.key_file) if o.cert_file and o.key_file else None
        if certificate is None:
            assert o.cert_dir is not None
            node, now = self._node, datetime.now(UTC)
            certificate = ensure_certificate(o.cert_dir, "kubelet", node.name, node.addresses, now)
        tls = TlsFiles(*certificate, o.authentication.client_ca_file)
        listeners = [Listener(self._app, o.address, o.port, tls, look_seconds=o.certificate_check_seconds)]
        if o.healthz_port >= 0:
            listeners.append(Listener(self._health_app, o.healthz_address, o.healthz_port))
        for listener in listeners:
            try:
                await listener.start()
            except BaseException:
                await self.stop()
                raise
            self._listeners.append(listener)

    async def stop(self) -> None:
        """End streams, let what is in flight end, and close."""
        self._app.stop_streams()
        for listener in self._listeners:
            await listener.stop()
