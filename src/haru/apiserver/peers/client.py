"""The way to peers: TLS both ways, and the question what a peer serves.

A peer's certificate has to be for the service's name, whatever address it was reached at. This server's user says who
asks for discovery; whoever else asks is told in headers, by `passing`.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from haru.apiserver.peers.counts import Gvr, PeerMetrics
from haru.apiserver.peers.endpoints import Address, url_of
from haru.apiserver.peers.options import SERVER_NAME, PeerOptions
from haru.apiserver.upstream_session import passing_session
from haru.event_loop import imported
from haru.kube.discovery_merge import Groups, served_resources
from haru.tls import client_context

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 5.0
DISCOVERY_SECONDS = 10.0
DISCOVERY_BYTES = 16 * 1024 * 1024
_LIST = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
ACCEPT = f"{_LIST};profile=nopeer,{_LIST},application/json"
"""A peer that does not know the profile passes over it, and tells what it serves itself."""
_SELF = "system:apiserver"
_HEADERS = {
    "Accept": ACCEPT,
    "User-Agent": "haru-apiserver",
    "X-Remote-User": _SELF,
    "X-Remote-Uid": _SELF,
    "X-Remote-Group": "system:authenticated",
}


class NoDiscovery(Exception):
    """What a peer serves could not be found out; `str()` says why."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What one server serves: its resources, and its document of discovery (the core group is not in it)."""

    resources: frozenset[Gvr]
    groups: Groups


class PeerClient:
    """Requests to peers, over connections that are kept."""

    def __init__(self, options: PeerOptions, counts: PeerMetrics) -> None:
        self._options = options
        self._counts = counts
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None

    def open(self) -> None:
        """Load the certificates. Raises ssl.SSLError, ValueError for what is none."""
        self._tls = peer_tls(self._options)

    async def stop(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def request(self, method: str, address: Address, target: str, headers: list[tuple[str, str]], body: bytes) -> Any:
        """A request on its way to a peer; `target` is encoded. The answer's body comes as it was sent."""
        from yarl import URL

        if self._session is None:
            self._session = passing_session(CONNECT_SECONDS)
        assert self._tls is not None
        return self._session.request(
            method,
            URL(url_of(address) + target, encoded=True),
            headers=headers,
            data=body or None,
            ssl=self._tls,
            server_hostname=SERVER_NAME,
            allow_redirects=False,
        )

    async def offer(self, address: Address) -> Offer:
        """What the peer at an address serves. Raises NoDiscovery."""
        core, named = await self._groups(address, "/api"), await self._groups(address, "/apis")
        return Offer(frozenset(served_resources(core) | served_resources(named)), named)

    async def _groups(self, address: Address, path: str) -> Groups:
        await imported("aiohttp")
        import aiohttp

        try:
            async with (
                asyncio.timeout(DISCOVERY_SECONDS),
                self.request("GET", address, path, list(_HEADERS.items()), b"") as answer,
            ):
                self._counts.rerouted(answer.status)
                if answer.status != 200:
                    raise NoDiscovery(f"GET {path} was answered with {answer.status}")
                data = b""
                async for chunk in answer.content.iter_any():
                    data += chunk
                    if len(data) > DISCOVERY_BYTES:
                        raise NoDiscovery(f"the answer to GET {path} is larger than {DISCOVERY_BYTES} bytes")
        except TimeoutError:
            raise NoDiscovery(f"GET {path} was not answered in {DISCOVERY_SECONDS:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoDiscovery(f"GET {path}: {error or type(error).__name__}") from None
        return _items(data, path)


def _items(data: bytes, path: str) -> Groups:
    """The groups of a document, which has to be an aggregated one."""
    try:
        document = orjson.loads(data)
        items: Groups = document["items"]
        if document["kind"] != "APIGroupDiscoveryList":
            raise NoDiscovery(f"GET {path} was answered with {document['kind']}, no APIGroupDiscoveryList")
        served_resources(items)  # everything that is made use of is there
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise NoDiscovery(f"the answer to GET {path} is no APIGroupDiscoveryList") from None
    return items


def peer_tls(options: PeerOptions) -> ssl.SSLContext:
    """Whose certificates are believed, and the one that is shown. Raises ssl.SSLError, ValueError."""
    return client_context(options.authority.decode("ascii"), (options.certificate, options.key))
