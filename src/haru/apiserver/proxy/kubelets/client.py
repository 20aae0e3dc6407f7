"""Asking the kubelet of a node: over TLS, with the API server's certificate.

Where a kubelet is, its Node says: an address of a preferred type, and the port of `daemonEndpoints`. A node without
such a port has no kubelet: it is simulated. Source: kube-apiserver's connections to kubelets, as behaviour.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haru.apiserver.object_store import ObjectStore
from haru.apiserver.proxy.kubelets.options import KubeletOptions
from haru.kube.errors import StatusError
from haru.tls import client_context, present_certificate
from haru.upgrade_proxy import Headers, UpgradeError, UpgradeRequest, UpgradeResponse, Upstream, open_upgrade

if TYPE_CHECKING:
    import aiohttp


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a kubelet listens."""

    host: str
    port: int
    is_verified: bool = True
    """Whether the kubelet's certificate is verified, if the server has an authority for it."""

    @property
    def netloc(self) -> str:
        """As in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def endpoint_of(node: Mapping[str, Any], address_types: Sequence[str]) -> Endpoint | None:
    """Where a node's kubelet listens; None for a node that has none. Raises 500 for one without a fitting address."""
    status = node.get("status") or {}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or 0
    if not port:
        return None
    for wanted in address_types:
        for one in status.get("addresses") or ():
            if one.get("type") == wanted and one.get("address"):
                return Endpoint(str(one["address"]), int(port))
    listed = ", ".join(address_types)
    raise StatusError(500, "InternalError", f"no preferred addresses found; known addresses are none of {listed}")


class Kubelets:
    """The kubelets of one cluster."""

    def __init__(self, objects: ObjectStore, options: KubeletOptions) -> None:
        self._objects, self._options = objects, options
        self._unchecked = _tls(options, b"")
        self._checked = _tls(options, options.authority) if options.authority else self._unchecked
        self._session: aiohttp.ClientSession | None = None

    async def endpoint(self, node: str) -> Endpoint | None:
        """Where the kubelet of a node listens; None where there is none."""
        found = await self._objects.peek("", "nodes", "", node)
        return endpoint_of(found, self._options.address_types) if found is not None else None

    def request(
        self,
        endpoint: Endpoint,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
    ) -> Any:
        """A request that is to be awaited: its answer, whose body comes in pieces. Raises aiohttp.ClientError."""
        import aiohttp
        from yarl import URL

        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=30)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._options.seconds)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        return self._session.request(
            method,
            URL(f"https://{endpoint.netloc}{target}", encoded=True),
            headers=list(headers),
            data=body or None,
            ssl=self._checked if endpoint.is_verified else self._unchecked,
            allow_redirects=False,
        )

    async def tunnel(self, endpoint: Endpoint, method: str, target: str, headers: Headers) -> UpgradeResponse:
        """Ask for another protocol. 500 where the kubelet can not be reached."""
        given = [("host", endpoint.netloc), *headers]
        try:
            return await open_upgrade(
                Upstream(endpoint.host, endpoint.port, self._checked), UpgradeRequest(method, target, given)
            )
        except UpgradeError as error:
            raise StatusError(500, "InternalError", f"error dialing backend: {error}") from error

    @property
    def seconds(self) -> float:
        """So long a kubelet may take to answer."""
        return self._options.seconds

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _tls(options: KubeletOptions, authority: bytes) -> ssl.SSLContext:
    if authority:
        context = client_context(authority.decode("utf-8", "replace"))
    else:
        # Without the system's authorities: nothing is checked, and reading them takes its time at every start.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if options.certificate:
        present_certificate(context, options.certificate, options.key)
    return context
