"""Cache what each peer serves: fetched when it comes, dropped when it goes, without excluded versions.

The Leases say who comes and goes, and by their holder who has started anew. A peer that can not be asked yet (its place
is written a moment after its Lease) is asked again with growing pauses, about eighty seconds in all, and then not until
its Lease says something new.
Source: the peer discovery cache of the mixed version proxy (KEP 4020), as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from haru.apiserver.encoding.objects import shared
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.peers.client import NoDiscovery, Offer
from haru.apiserver.peers.counts import Gvr, PeerMetrics
from haru.apiserver.peers.endpoints import Address, Unresolved
from haru.apiserver.peers.identity import PREFIX, has_run_out, is_identity
from haru.event_loop import cancelled
from haru.kube.discovery_merge import Groups, without_versions
from haru.storage import Compacted, Record, StoreError, Watch

ATTEMPTS = 20
FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 7.5
_LOOK_SECONDS = 60.0
_LOG = logging.getLogger("haru.apiserver")
GroupVersion = tuple[str, str]


def pauses() -> Iterable[float]:
    """How long to wait before each attempt after the first."""
    pause = FIRST_PAUSE_SECONDS
    for _ in range(ATTEMPTS):
        yield pause
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


class PeerDiscoveryCache:
    """What each peer offers, by its server's name."""

    def __init__(
        self,
        objects: ObjectStore,
        own: str,
        resolve: Callable[[str], Awaitable[Address]],
        ask: Callable[[Address], Awaitable[Offer]],
        counts: PeerMetrics,
    ) -> None:
        self._objects, self._own, self._counts = objects, own, counts
        self._resolve, self._ask = resolve, ask
        self._holders: dict[str, str] = {}
        self.offers: dict[str, Offer] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._watch: Watch | None = None
        self.generation = 0
        """Counts the changes of what is known."""

    async def start(self) -> None:
        """Read the Leases and fetch the discovery of the peers that they name."""
        await self._read()

    async def follow(self) -> None:
        """Take in what Leases say, for as long as the server runs."""
        while True:
            watch = self._watch
            if watch is None or watch.closed:
                return
            await watch.wait(_LOOK_SECONDS)
            try:
                for event in watch.pending():
                    self._take(event.key, event.new)
            except Compacted:
                await self._read_again()
            # Who has died without a word runs out without an event.
            await self._forget_run_out()

    async def stop(self) -> None:
        """End all questions."""
        if self._watch is not None:
            self._watch.close()
        tasks = list(self._asking.values())
        await cancelled(*tasks)

    def serving(self, gvr: Gvr, excluded: set[GroupVersion]) -> list[str]:
        """The peers that serve a resource, in the order of their names."""
        if gvr[:2] in excluded:
            return []
        return sorted(server for server, offer in self.offers.items() if gvr in offer.resources)

    def documents(self, excluded: set[GroupVersion]) -> Mapping[str, Groups]:
        """The discovery of each peer."""
        return {server: without_versions(offer.groups, excluded) for server, offer in self.offers.items()}

    async def _read(self) -> None:
        page = await self._objects.store.range(PREFIX)
        self._watch = self._objects.store.watch(PREFIX, page.revision)
        there = {record.key: record for record in page.records}
        for server in [server for server in self._holders if PREFIX + server not in there]:
            self._take(PREFIX + server, None)
        for key, record in there.items():
            self._take(key, record)

    async def _read_again(self) -> None:
        if self._watch is not None:
            self._watch.close()
        while True:
            try:
                await self._read()
                return
            except (StoreError, Compacted) as error:
                self._counts.sync_error("lease_list")
                _LOG.warning("the Leases of the API servers can not be read: %s", error)
                await asyncio.sleep(1.0)

    def _take(self, key: str, record: Record | None) -> None:
        """A Lease that has come, changed or gone."""
        server = key.removeprefix(PREFIX)
        if server == self._own:
            return
        lease = shared(record) if record is not None else None
        if lease is None or not is_identity(lease) or has_run_out(lease, self._objects.clock()):
            if self._holders.pop(server, None) is not None:
                self._drop(server)
            return
        holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
        if not holder or self._holders.get(server) == holder:
            return
        self._holders[server] = holder
        self._drop(server)
        self._asking[server] = asyncio.create_task(self._learn(server), name=f"haru peers: what {server} serves")

    def _drop(self, server: str) -> None:
        if (asking := self._asking.pop(server, None)) is not None:
            asking.cancel()
        if self.offers.pop(server, None) is not None:
            self.generation += 1

    async def _forget_run_out(self) -> None:
        for server in list(self._holders):
            self._take(PREFIX + server, await self._objects.store.get(PREFIX + server))

    async def _learn(self, server: str) -> None:
        """Ask a peer what it serves until it says so, for a bounded time."""
        problem = ""
        for pause in pauses():
            try:
                self.offers[server] = await self._ask(await self._resolve(server))
                self.generation += 1
                return
            except (Unresolved, StoreError) as error:
                self._counts.sync_error("hostport_resolution")
                problem = str(error)
            except NoDiscovery as error:
                self._counts.sync_error("fetch_discovery")
                problem = str(error)
            await asyncio.sleep(pause)
        _LOG.warning("what the API server %s serves is not known: %s", server, problem)
