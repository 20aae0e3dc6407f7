"""The way to extension API servers: TLS to an endpoint of the Service, this server's certificate shown.

The certificate of the other side has to be for `<service>.<namespace>.svc`, from the APIService's `caBundle` or,
without one, from an authority that the machine believes. A Service is resolved anew for each request; those of type
ExternalName and pods of simulated nodes lead nowhere, as for webhooks.
Source: kube-aggregator's proxy transport, as behaviour.
"""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from cachetools import LRUCache

from haru.apiserver.aggregation.options import AggregationOptions
from haru.apiserver.namesakes import trust_namesake
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.service_endpoints import endpoint_behind
from haru.apiserver.upstream_session import passing_session
from haru.event_loop import imported
from haru.kube.meta import Obj
from haru.tls import client_context, present_certificate
from haru.upgrade_proxy import UpgradeRequest, UpgradeResponse, Upstream, open_upgrade

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 10.0
CONTEXTS_AT_MOST = 64
Headers = Sequence[tuple[str, str]]


class ServiceReference(NamedTuple):
    """The Service of an APIService."""

    namespace: str
    name: str
    port: int

    @property
    def host(self) -> str:
        """What the server's certificate is for."""
        return f"{self.name}.{self.namespace}.svc"

    @property
    def url(self) -> str:
        """How messages name the server: the same wherever its endpoints are."""
        return f"https://{self.host}:{self.port}"


def reference_of(service: Obj) -> ServiceReference:
    """The Service of a remote APIService."""
    told = service["spec"]["service"]
    return ServiceReference(told["namespace"], told["name"], int(told.get("port") or 443))


class ExtensionClient:
    """Requests to extension API servers, over connections that are kept."""

    def __init__(self, objects: ObjectStore, options: AggregationOptions) -> None:
        self._options = options
        self._objects = objects
        self._session: aiohttp.ClientSession | None = None
        self._contexts: LRUCache[tuple[str, bool], ssl.SSLContext] = LRUCache(CONTEXTS_AT_MOST)

    async def stop(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def request(
        self, service: Obj, method: str, target: str, headers: Headers, body: bytes = b""
    ) -> aiohttp.ClientResponse:
        """The head of the answer; `target` is encoded. Raises StatusError, aiohttp.ClientError, OSError, ValueError."""
        await imported("aiohttp")
        import aiohttp

        try:
            return await self._request(service, method, target, headers, body)
        except aiohttp.ClientConnectorCertificateError as error:
            if not await trust_namesake(self._tls(service), error, reference_of(service).host):
                raise
        return await self._request(service, method, target, headers, body)

    async def _request(
        self, service: Obj, method: str, target: str, headers: Headers, body: bytes
    ) -> aiohttp.ClientResponse:
        from yarl import URL

        reference, tls = reference_of(service), self._tls(service)
        address, port = await endpoint_behind(self._objects, *reference)
        shown = f"[{address}]" if ":" in address else address
        if self._session is None:
            self._session = passing_session(CONNECT_SECONDS)
        return await self._session.request(
            method,
            URL(f"https://{shown}:{port}{target}", encoded=True),
            headers=[("host", f"{reference.host}:{reference.port}"), *headers],
            data=body or None,
            ssl=tls,
            server_hostname=reference.host,
            allow_redirects=False,
        )

    async def tunnel(self, service: Obj, method: str, target: str, headers: Headers, seconds: float) -> UpgradeResponse:
        """A connection that speaks another protocol from then on. Raises StatusError, TunnelError, ValueError."""
        reference, tls = reference_of(service), self._tls(service)
        address, port = await endpoint_behind(self._objects, *reference)
        whole = [("host", f"{reference.host}:{reference.port}"), *headers]
        upstream = Upstream(address, port, tls, reference.host)
        return await open_upgrade(upstream, UpgradeRequest(method, target, whole), seconds)

    def _tls(self, service: Obj) -> ssl.SSLContext:
        """Whose certificates are believed; ValueError for a bundle that is none."""
        spec = service["spec"]
        key = (spec.get("caBundle") or "", bool(spec.get("insecureSkipTLSVerify")))
        found = self._contexts.get(key)
        if found is None:
            found = self._contexts[key] = _context(*key, self._options)
        return found


def _context(bundle: str, insecure: bool, options: AggregationOptions) -> ssl.SSLContext:
    try:
        pem = base64.b64decode(bundle, validate=True).decode("utf-8", "replace")
        context = client_context(pem, insecure=insecure)
    except (binascii.Error, ssl.SSLError) as error:
        raise ValueError(f"unable to load root certificates: unable to parse bytes as PEM block ({error})") from None
    if options.certificate and options.key:
        show_certificate(context, options)
    return context


def show_certificate(context: ssl.SSLContext, options: AggregationOptions) -> None:
    """Have the server's own certificate shown. Raises ssl.SSLError for what is no pair."""
    present_certificate(context, options.certificate, options.key)
