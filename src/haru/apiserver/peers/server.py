"""One server among its peers: from the moment on that it listens until it stops.

Nothing is forwarded before the Leases of the others have been read; `/readyz` says so until then. A server without the
certificates for it only tells that it is there.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Coroutine
from typing import Any

import orjson

from haru.apiserver.peers.client import PeerClient
from haru.apiserver.peers.counts import PeerMetrics
from haru.apiserver.peers.discovery_cache import PeerDiscoveryCache
from haru.apiserver.peers.endpoints import Address, PeerEndpoints, url_of
from haru.apiserver.peers.excluded import ExcludedVersions
from haru.apiserver.peers.identity import COLLECT_SECONDS, RENEW_SECONDS, Identity
from haru.apiserver.peers.options import PeerOptions
from haru.apiserver.peers.proxy import PeerProxy
from haru.apiserver.peers.request_header import was_forwarded
from haru.apiserver.peers.routes import ResourceRequest, resource_request_of
from haru.apiserver.registry.loopback import Loopback
from haru.apiserver.request.http import Request, Response
from haru.apiserver.serving_address import ServingAddress
from haru.apiserver.start_retry import until_store_answers
from haru.apiserver.streams import OpenStreams
from haru.event_loop import cancelled
from haru.kube.discovery_merge import Groups, merged
from haru.kube.errors import StatusError
from haru.storage import CompareFailed, StoreError

HOOK = "poststarthook/unknown-version-proxy-filter"
WITHDRAWAL_SECONDS = 3.0
_LOG = logging.getLogger("haru.apiserver")


class Peers:
    """The other API servers, as one server knows them."""

    def __init__(self, loopback: Loopback, options: PeerOptions, address: ServingAddress, streams: OpenStreams) -> None:
        objects = self._objects = loopback.objects
        self._options, self._serving = options, address
        self.counts = PeerMetrics()
        self.identity = Identity(loopback, options.hostname)
        self.proxies = options.complete and objects.gates.enabled("UnknownVersionInteroperabilityProxy")
        """Whether requests are forwarded and discovery is merged."""
        self._reachable = objects.gates.enabled("UnknownVersionInteroperabilityProxy")
        self.endpoints = PeerEndpoints(objects, self.identity.name)
        self._client = PeerClient(options, self.counts)
        self._excluded = ExcludedVersions(objects)
        self.discovery_cache = PeerDiscoveryCache(
            objects, self.identity.name, self.endpoints.resolve, self._client.offer, self.counts
        )
        self._proxy = PeerProxy(streams, self.endpoints, self._client, self.counts)
        self._tasks: list[asyncio.Task[None]] = []
        self._synced = False
        self._merged: tuple[object, bytes, str] | None = None

    @property
    def failing(self) -> str:
        """The name of the check that `/readyz` fails by; empty when it does not."""
        return HOOK if self.proxies and not self._synced else ""

    async def start(self) -> None:
        """Tell the others of this server, which listens now, and find out about them."""
        address = self._address()
        told = url_of(address).removeprefix("https://")
        await until_store_answers("the Lease of this server", lambda: self.identity.claim(told))
        if self.proxies:
            self._client.open()
            await self._excluded.start()
            await self.discovery_cache.start()
            self._run("who is there", self.discovery_cache.follow())
            self._synced = True
        if self._reachable:
            await until_store_answers("the address of this server", lambda: self.endpoints.publish(address))
        self._run("telling", self._keep_telling(address))

    async def stop(self) -> None:
        """Take this server away from the others' view, and end what it does for them."""
        tasks, self._tasks = self._tasks, []
        await cancelled(*tasks)
        try:
            async with asyncio.timeout(WITHDRAWAL_SECONDS):
                await self.endpoints.withdraw()
                await self.identity.withdraw()
        except (StoreError, CompareFailed, StatusError, TimeoutError) as error:
            # What is left runs out.
            _LOG.info("this server could not be taken away from its peers: %s", error)
        await self.discovery_cache.stop()
        await self._client.stop()

    async def elsewhere(self, request: Request) -> tuple[ResourceRequest, list[str]] | None:
        """The requested resource and the peers that serve it; None: this server answers."""
        if not self.proxies or not self._synced or was_forwarded(request):
            return None
        asked = resource_request_of(request.path)
        if asked is None or self._objects.served.get(*asked.gvr) is not None:
            return None
        peers = self.discovery_cache.serving(asked.gvr, await self._excluded.now())
        return (asked, peers) if peers else None

    async def forward(self, request: Request, asked: ResourceRequest, peers: list[str], watches: bool) -> Response:
        """The answer of one of the peers."""
        return await self._proxy.forward(request, asked, peers, watches)

    async def discovery(self, own: Groups, generation: tuple[int, int]) -> tuple[bytes, str] | None:
        """Return the merged document and its ETag; None when the peers add nothing to `own`, this server's items.

        `generation` changes whenever `own` changes: the generations of the served resources and of the aggregator.
        """
        excluded = await self._excluded.now()
        basis = (self.discovery_cache.generation, generation, frozenset(excluded))
        if self._merged is not None and self._merged[0] == basis:
            self.counts.hits += 1
        else:
            self.counts.misses += 1
            self.counts.aggregations += 1
            groups = merged({**self.discovery_cache.documents(excluded), self.identity.name: own}, self.identity.name)
            body = b"" if groups is own else _document(groups)
            self._merged = basis, body, etag_of(body)
        return self._merged[1:] if self._merged[1] else None

    def _address(self) -> Address:
        """Where peers reach this server: as it is told, else where it is advertised, at the port that it serves."""
        ip, port = self._serving.reachable()
        return self._options.advertise_ip or ip, self._options.advertise_port or port

    async def _keep_telling(self, address: Address) -> None:
        collected = time.monotonic()
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                await self.identity.renew()
                if self._reachable:
                    await self.endpoints.publish(address)
                if time.monotonic() - collected >= COLLECT_SECONDS:
                    collected = time.monotonic()
                    await self.identity.collect()
            except (StoreError, StatusError, CompareFailed) as error:
                _LOG.warning("the peers could not be told that this server is there: %s", error)

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=f"haru peers: {name}"))


def _document(groups: Groups) -> bytes:
    document = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}}
    return orjson.dumps({**document, "items": groups})


def etag_of(body: bytes) -> str:
    """The ETag of a document of discovery: its SHA-512 in capitals."""
    return f'"{hashlib.sha512(body).hexdigest().upper()}"'
