"""The kubelet API of one node, put together: who may come in, what is shown, where it listens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from haru.client.api import ApiClient
from haru.node.api.access import Access, AlwaysAllow, WebhookAccess
from haru.node.api.app import KubeletApp
from haru.node.api.certificates import ensure_certificate
from haru.node.api.handlers import Handlers, Shown
from haru.node.api.health import HealthApp
from haru.node.api.identity import Authenticator
from haru.node.api.listener import LOOK_SECONDS, Listener
from haru.node.api.metrics import Counters
from haru.node.api.options import ServerOptions
from haru.node.api.reviews import ApiReviewer, Reviewer


class KubeletServer:
    """Serves `shown` for the node `name`. Raises ValueError for options that do not go together."""

    def __init__(
        self,
        name: str,
        addresses: Sequence[str],
        shown: Shown,
        options: ServerOptions,
        *,
        client: ApiClient | None,
        reviewer: Reviewer | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        if bool(options.cert_file) != bool(options.key_file):
            raise ValueError("a certificate and its key go together: name both files, or none")
        if not options.cert_file and options.cert_dir is None:
            raise ValueError("there is no place for a serving certificate: name its file and its key's, or a directory")
        self._name, self._addresses, self._options, self._look_seconds = name, addresses, options, look_seconds
        counters = Counters()
        if reviewer is None and client is not None:
            reviewer = ApiReviewer(client, observe=counters.reviewed)
        if reviewer is None and (options.webhook_authentication or options.mode == "Webhook"):
            raise ValueError("no client of an API server: tokens and rights can not be asked for (webhook)")
        access: Access = AlwaysAllow()
        if options.mode == "Webhook":
            assert reviewer is not None
            access = WebhookAccess(
                reviewer,
                name,
                allowed_seconds=options.authorized_seconds,
                denied_seconds=options.unauthorized_seconds,
                harden=options.require_create_for_streams,
                monotonic=monotonic,
            )
        authenticator = Authenticator(
            reviewer if options.webhook_authentication else None,
            anonymous=options.anonymous,
            audiences=options.audiences,
            cache_seconds=options.authentication_cache_seconds,
            monotonic=monotonic,
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
            certificate = ensure_certificate(o.cert_dir, self._name, self._addresses, datetime.now(UTC))
        listeners = [
            Listener(
                self._app,
                o.address,
                o.port,
                certificate=certificate,
                client_ca=o.client_ca_file,
                look_seconds=self._look_seconds,
            )
        ]
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
