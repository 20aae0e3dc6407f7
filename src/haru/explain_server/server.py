"""The extension API server: an HTTPS port, the watches behind it, and who may speak for users."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from haru.client.api import ApiClient
from haru.client.informer import Selection
from haru.clock import utc_now
from haru.cluster_view import ClusterWatch
from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS
from haru.event_loop import cancelled
from haru.explain_server.access import ExplainAccess
from haru.explain_server.answers import Answers
from haru.explain_server.app import ExplainApp
from haru.explain_server.metrics import Metrics
from haru.explain_server.options import Limits
from haru.explain_server.registration import register
from haru.kube.errors import StatusError
from haru.kube.workload_pods import FAILED_CREATE
from haru.secure_serving.authorization import PathAccess, ReviewedAccess
from haru.secure_serving.component import ComponentApp, health_route
from haru.secure_serving.component_certificates import CertifiedServer
from haru.secure_serving.http import METRICS, Answer
from haru.secure_serving.identity import Authenticator
from haru.secure_serving.options import ServingOptions
from haru.secure_serving.request_header import FrontProxyCertificates
from haru.secure_serving.reviews import ApiReviewer

KINDS = (*WATCHED_KINDS, *HELD_BACK_BY, ("v1", "Event"), ("coordination.k8s.io/v1", "Lease"))
SELECTIONS: Mapping[str, Selection] = {
    "Event": Selection(field_selector=f"reason={FAILED_CREATE}"),
    "Lease": Selection(namespace="kube-system"),
}
"""Of events only those that say why pods are not made, of Leases only those of schedulers."""
NAME = "haru-explain"
_RETRY_SECONDS = 2.0
_log = logging.getLogger(__name__)


class ExplainServer(CertifiedServer):
    """Serves `explain.haru.dev`. With `resident` it watches all the time, otherwise while it is asked.

    `service` is the namespace, name and port of the Service for which the APIService is written, if it is to be.
    """

    _certificates: FrontProxyCertificates

    def __init__(
        self,
        client: ApiClient,
        options: ServingOptions,
        limits: Limits | None = None,
        *,
        resident: bool = True,
        service: tuple[str, str, int] | None = None,
        gates: Callable[[ApiClient], Mapping[str, bool]] | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        limits = limits or Limits()
        self._client, self._now, self._service = client, now, service
        self._resident = resident
        self._watch = ClusterWatch(client, kinds=KINDS, name=NAME, selections=SELECTIONS)
        reviewed = ReviewedAccess(ApiReviewer(client), limits.review_seconds, limits.review_seconds)
        access = ExplainAccess(reviewed, limits.namespaces)
        self._answers = Answers(client, self._watch, access, limits, now, gates)
        certificates = FrontProxyCertificates(options, NAME)
        self.synced = asyncio.Event()
        """Whether the cache has what the server has."""
        checks = {"ping": lambda: True}
        ready = {
            **checks,
            "front-proxy-known": lambda: certificates.front_proxy is not None,
            "informer-sync": lambda: self.synced.is_set() or not resident,
        }
        metrics = Metrics(lambda: self._answers.waiting, lambda: self._watch.view().snapshot)
        app = ExplainApp(
            self._answers,
            access,
            certificates.user_of,
            {
                "/healthz": health_route("healthz", checks),
                "/livez": health_route("livez", checks),
                "/readyz": health_route("readyz", ready),
            },
            ComponentApp(
                {"/metrics": lambda _: Answer(200, metrics.text(), METRICS)},
                Authenticator(ApiReviewer(client), anonymous=True, cache_seconds=options.token_seconds),
                PathAccess(reviewed),
            ),
            metrics,
        )
        super().__init__(app, options, certificates)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen, and find out in the background who may speak for users. Raises OSError and ValueError."""
        await self._certificates.begin(self._client)
        await self._listener.start()
        self._run("front proxy", self._certificates.follow(self._client))
        if self._resident:
            self._run("cache", self._view())
        if self._service is not None:
            self._run("APIService", self._register(*self._service))

    async def stop(self) -> None:
        """Let what is in flight end, and close."""
        await cancelled(*self._tasks)
        await self._listener.stop()
        self._answers.stop()
        await self._watch.stop()

    def _run(self, name: str, work: object) -> None:
        assert asyncio.iscoroutine(work)
        self._tasks.append(asyncio.create_task(work, name=f"{NAME} {name}"))

    async def _view(self) -> None:
        """Keep the cache for as long as the server runs."""
        while True:
            with contextlib.suppress(OSError):
                async with self._watch.viewing():
                    self.synced.set()
                    await self._watch.ended()
            self.synced.clear()
            await asyncio.sleep(_RETRY_SECONDS)

    async def _register(self, namespace: str, name: str, port: int) -> None:
        """Write the APIService until it is written."""
        told = False
        while True:
            try:
                return await register(self._client, namespace, name, port, self.certificate, self._now())
            except (StatusError, OSError) as error:
                if not told:
                    _log.warning("the APIService is not written: %s", error)
                told = True
            await asyncio.sleep(_RETRY_SECONDS)
