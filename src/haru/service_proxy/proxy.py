"""Watch Services and EndpointSlices, and keep the node's nftables as they want them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from haru.client.api import ApiClient
from haru.client.backoff import Backoff
from haru.client.informer import Informer, strip_managed_fields
from haru.errors import HaruError
from haru.event_loop import cancelled
from haru.kube.kinds import known_kind
from haru.service_proxy.ruleset import ProxyOptions, Ruleset, full_transaction, removal, ruleset, transaction
from haru.service_proxy.services import service_ports

_log = logging.getLogger(__name__)
SERVICES = known_kind("v1", "Service")
SLICES = known_kind("discovery.k8s.io/v1", "EndpointSlice")
FAMILIES = (4, 6)
_NFT_SECONDS = 60.0


class NftError(HaruError):
    """nftables refused a transaction, or could not be run."""


@dataclass(frozen=True, slots=True)
class ServiceProxyOptions:
    """One node's proxy."""

    node: str
    rules: ProxyOptions = field(default_factory=ProxyOptions)
    min_sync_seconds: float = 1.0
    """The least time between two transactions."""
    full_sync_seconds: float = 3600.0
    """After so long all rules are written anew, in case somebody has changed them."""


class ServiceProxy:
    """Serves the cluster's Services on this node."""

    def __init__(self, client: ApiClient, options: ServiceProxyOptions) -> None:
        self._options = options
        self._services = Informer(client, SERVICES, transform=strip_managed_fields)
        self._slices = Informer(client, SLICES, transform=strip_managed_fields)
        self._changed = asyncio.Event()
        self._applied: dict[int, Ruleset] = {}
        self.ready = asyncio.Event()
        """Set once the rules were written for the first time."""

    async def run(self) -> None:
        """Follow the cluster until cancelled. The rules stay: connections go on while the proxy is restarted."""

        def note(*_: object) -> None:
            self._changed.set()

        for informer in (self._services, self._slices):
            informer.add_handler(note, note, note)
        tasks = [asyncio.create_task(informer.run()) for informer in (self._services, self._slices)]
        try:
            for informer in (self._services, self._slices):
                await informer.wait_synced()
            await self._follow()
        finally:
            await cancelled(*tasks)

    async def _follow(self) -> None:
        loop, backoff = asyncio.get_running_loop(), Backoff()
        renewed = loop.time()
        while True:
            self._changed.clear()
            if loop.time() - renewed >= self._options.full_sync_seconds:
                self._applied.clear()
                renewed = loop.time()
            try:
                await self.sync()
            except NftError as error:
                _log.warning("%s", error)
                self._applied.clear()
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self.ready.set()
            await asyncio.sleep(self._options.min_sync_seconds)
            try:
                async with asyncio.timeout(self._options.full_sync_seconds):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def sync(self) -> None:
        """Write what has changed since the last time, both families in one transaction. Raises `NftError`."""
        services, slices = list(self._services.store.values()), list(self._slices.store.values())
        wanted = {
            family: ruleset(service_ports(services, slices, self._options.node, family), family, self._options.rules)
            for family in FAMILIES
        }
        known = self._applied
        text = "".join(
            transaction(known[family], new) if family in known else full_transaction(new)
            for family, new in wanted.items()
        )
        if text:
            await run_nft(text)
        self._applied = wanted


async def clean_up() -> None:
    """Remove the rules of both families. Raises `NftError`."""
    await run_nft("".join(removal(family) for family in ("ip", "ip6")))


async def run_nft(text: str) -> None:
    """Have nftables carry out commands, all or none. Raises `NftError`."""
    try:
        process = await asyncio.create_subprocess_exec(
            "nft",
            "-f",
            "-",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise NftError(
            f"nft: {error.strerror}: install nftables (Debian's package nftables), and run as root"
        ) from error
    try:
        async with asyncio.timeout(_NFT_SECONDS):
            _, said = await process.communicate(text.encode())
    except TimeoutError:
        process.kill()
        await process.wait()
        raise NftError(f"nft: no answer within {_NFT_SECONDS:g} s") from None
    if process.returncode:
        raise NftError(f"nft: {said.decode(errors='replace').strip()[:1000]}")
