"""Everything that is no resource: discovery, OpenAPI, version, health, metrics."""

from __future__ import annotations

from haru.apiserver.auth.authentication import is_open
from haru.apiserver.auth.authorization import RequestAuthorizer
from haru.apiserver.auth.tokens import discovery as openid
from haru.apiserver.auth.tokens.issuer import AccountTokens
from haru.apiserver.observability import snapshots
from haru.apiserver.observability.documents import Documents
from haru.apiserver.observability.health import HEALTH, Health
from haru.apiserver.observability.metrics import Metrics
from haru.apiserver.request.http import Request, Response, json_response, text_response
from haru.kube.errors import PageNotFound, method_not_allowed_error, no_such_path
from haru.kube.gate_table import NEWEST
from haru.version import __version__

KUBERNETES_VERSION = "v1.36.0"
_FIRST = (".well-known", "api", "apis", "debug", "metrics", "openapi", "openid", "version")
_PATHS = ("/healthz", "/livez", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/readyz", "/version")


class Endpoints:
    """The handlers of the paths that are no resources."""

    def __init__(
        self,
        requests: RequestAuthorizer,
        documents: Documents,
        health: Health,
        metrics: Metrics,
        account_tokens: AccountTokens,
    ) -> None:
        self._requests = requests
        self._documents = documents
        self._health = health
        self._metrics = metrics
        self._account_tokens = account_tokens

    async def handle(self, request: Request) -> Response:
        """Answer a GET; 404 for what is not served."""
        self._documents.refresh()
        path = "/" + request.path.strip("/")
        self._requests.permit_path(request, path, is_open=request.method == "GET" and is_open(path))
        first, *rest = path.strip("/").split("/")
        if request.method not in ("GET", "HEAD"):
            if first not in (*HEALTH, *_FIRST, ""):
                raise PageNotFound
            raise method_not_allowed_error("the server does not allow this method on the requested resource")
        if first in HEALTH:
            return await self._health.response(request, first, rest)
        if path == "/version":
            return json_response(version_info(self._metrics.gates.minor))
        if path in ("/metrics", "/metrics/slis"):
            response = text_response(await (self._metrics.text() if path == "/metrics" else self._health.metrics()))
            response.content_type = "text/plain; version=0.0.4; charset=utf-8"
            return response
        if first == "openapi":
            return await self._documents.openapi(request, rest)
        if path in openid.PATHS:
            return self._openid(path)
        if path == snapshots.PATH:
            return await snapshots.snapshot_response(self._health.store)
        if first in ("api", "apis"):
            return await self._documents.discovery(request, path, rest)
        if path == "/":
            return json_response({"paths": self._paths()})
        raise PageNotFound

    def _openid(self, path: str) -> Response:
        """A document of OpenID discovery; 404 if the server has no keys."""
        found = self._account_tokens.document(path)
        if found is None:
            raise no_such_path()
        body, content_type, age = found
        return Response(200, body, content_type, [(b"cache-control", b"public, max-age=%d" % age)])

    def _paths(self) -> list[str]:
        openid_paths = openid.PATHS if self._account_tokens.document(openid.KEYS) is not None else ()
        return sorted([*self._documents.paths(), *openid_paths, *_PATHS])


def version_info(emulated: int = NEWEST) -> dict[str, str]:
    """`GET /version` of a server that takes the place of version 1.`emulated`."""
    return {
        "major": "1",
        "minor": str(NEWEST),
        "emulationMajor": "1",
        "emulationMinor": str(emulated),
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": str(emulated - 1),
        "gitVersion": f"{KUBERNETES_VERSION}+haru.{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }
