"""Serve the dashboard of a cluster to its people: HTTPS, for whom the cluster knows, each sees what he may see."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from haru.client.api import ApiClient
from haru.cluster_view import ClusterWatch
from haru.dashboard.app import Dashboard
from haru.dashboard.signin.app import SignIn
from haru.dashboard.signin.hosts import KnownHosts
from haru.dashboard.signin.sessions import Sessions
from haru.dashboard.signin.visibility import VisibilityReviews
from haru.dashboard.views.prices import Prices
from haru.dashboard.views.usage_history import UsageHistory
from haru.dashboard.whatif import slices_of
from haru.secure_serving.authorization import ReviewedAccess
from haru.secure_serving.component import health_route
from haru.secure_serving.component_certificates import CertifiedServer, ComponentCertificates
from haru.secure_serving.identity import Authenticator
from haru.secure_serving.options import ServingOptions
from haru.secure_serving.request_header import FrontProxy
from haru.secure_serving.reviews import ApiReviewer

NAME = "haru-dashboard"
TOKEN_SECONDS, ALLOWED_SECONDS, DENIED_SECONDS = 60.0, 60.0, 120.0
"""How long what the API server says of a token, and of a right, holds."""


@dataclass(frozen=True, slots=True)
class TeamOptions:
    """How the dashboard of a cluster is served. `session_seconds`: how long nobody has to show the token again.

    `front_proxy`: who may speak for people; the authority of its certificate is the client CA of `serving`.
    """

    serving: ServingOptions
    hosts: Collection[str] = ()
    session_seconds: float = 12 * 3600.0
    front_proxy: FrontProxy | None = None
    history: UsageHistory | None = field(default=None, compare=False)
    prices: Prices | None = None


class TeamServer(CertifiedServer):
    """Serves until it is stopped; it watches the cluster while somebody looks, and a minute longer."""

    def __init__(self, client: ApiClient, options: TeamOptions) -> None:
        serving = options.serving
        self._watch = ClusterWatch(client)
        slices = slices_of(client)
        self._pages = Dashboard(self._watch, None, options.history, options.prices, slices)
        reviewer = ApiReviewer(client)
        reviewed = ReviewedAccess(reviewer, ALLOWED_SECONDS, DENIED_SECONDS)
        checks = {"ping": lambda: True}
        app = SignIn(
            self._pages,
            Authenticator(reviewer, cache_seconds=TOKEN_SECONDS),
            VisibilityReviews(reviewed),
            self._namespaces,
            Sessions(options.session_seconds),
            KnownHosts((*serving.names, *options.hosts)),
            {path: health_route(path[1:], checks) for path in ("/healthz", "/livez", "/readyz")},
            lambda: options.front_proxy,
        )
        super().__init__(app, serving, ComponentCertificates(serving, NAME))

    async def start(self) -> None:
        """Listen. Raises OSError and ValueError."""
        self._certificates.prepare()
        await self._listener.start()

    async def stop(self) -> None:
        """End the streams, let what is in flight end, and close."""
        await self._pages.stop()
        await self._listener.stop()

    async def _namespaces(self) -> Collection[str]:
        """The namespaces in which something is. Raises OSError where the cluster cannot be watched."""
        async with self._watch.viewing():
            snapshot = self._watch.view().snapshot
        known = snapshot.objects("Namespace")
        return tuple(known) if known else {path.partition("/")[0] for path in (*snapshot.pods, *snapshot.claims)}
