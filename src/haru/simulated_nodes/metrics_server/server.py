"""The extension API server of `metrics.k8s.io`: an HTTPS port behind the aggregation layer."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from haru.client.api import ApiClient
from haru.clock import utc_now
from haru.event_loop import cancelled
from haru.kube.meta import Obj
from haru.secure_serving.authorization import ReviewedAccess
from haru.secure_serving.component import health_route
from haru.secure_serving.component_certificates import CertifiedServer
from haru.secure_serving.options import ServingOptions
from haru.secure_serving.request_header import FrontProxyCertificates
from haru.secure_serving.reviews import ApiReviewer
from haru.simulated_nodes.metrics_server.app import MetricsApp
from haru.simulated_nodes.metrics_server.documents import API_SERVICE, GROUP, VERSION

NAME: Final = "haru-simulated-metrics"
_REVIEW_SECONDS: Final = 10.0
_log = logging.getLogger(__name__)


class MetricsServer(CertifiedServer):
    """Serves `metrics.k8s.io` for simulated nodes and their pods."""

    _certificates: FrontProxyCertificates

    def __init__(self, client: ApiClient, options: ServingOptions, now: Callable[[], datetime] = utc_now) -> None:
        self._client = client
        certificates = FrontProxyCertificates(options, NAME)
        access = ReviewedAccess(ApiReviewer(client), _REVIEW_SECONDS, _REVIEW_SECONDS)
        checks = {"ping": lambda: True}
        routes = {f"/{name}": health_route(name, checks) for name in ("healthz", "livez", "readyz")}
        app = MetricsApp(client, access, certificates.user_of, routes, now)
        super().__init__(app, options, certificates)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen, and find out in the background who may speak for users. Raises OSError and ValueError."""
        await self._certificates.begin(self._client)
        await self._listener.start()
        self._task = asyncio.create_task(self._certificates.follow(self._client), name=f"{NAME} front proxy")

    async def stop(self) -> None:
        """Let what is in flight end, and close."""
        if self._task is not None:
            await cancelled(self._task)
        await self._listener.stop()


def api_service(namespace: str, service: str, bundle: bytes) -> Obj:
    """The APIService that leads to a Service; `bundle` (PEM) is its serving certificate."""
    spec: Obj = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "service": {"namespace": namespace, "name": service, "port": 443},
        "caBundle": base64.b64encode(bundle).decode(),
    }
    head = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
    return {**head, "metadata": {"name": API_SERVICE}, "spec": spec}
