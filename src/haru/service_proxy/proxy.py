"""Watch Services and EndpointSlices, and keep the node's nftables as they want them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from haru.client.api import ApiClient
from haru.client.backoff import Backoff
from haru.client.informer import Informer, Selection
from haru.clock import utc_now
from haru.event_loop import cancelled
from haru.exposition import Labels
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj
from haru.service_proxy.change_tracker import FAMILIES, ChangeTracker
from haru.service_proxy.conntrack import delete_stale_flows
from haru.service_proxy.health import ProxyHealth
from haru.service_proxy.health_checks import HealthChecks
from haru.service_proxy.nftables import NftError, names_in_table, run_nft
from haru.service_proxy.ruleset import ProxyOptions, Rules, base_rules
from haru.service_proxy.services import Place, place_of
from haru.service_proxy.table import Table

_log = logging.getLogger(__name__)
SERVICES = known_kind("v1", "Service")
SLICES = known_kind("discovery.k8s.io/v1", "EndpointSlice")
NODES = known_kind("v1", "Node")
CIDRS = known_kind("networking.k8s.io/v1", "ServiceCIDR")


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
        own = Selection(field_selector=f"metadata.name={options.node}")
        self._services = Informer(client, SERVICES)
        self._slices = Informer(client, SLICES)
        self._nodes = Informer(client, NODES, own)
        self._cidrs = Informer(client, CIDRS)
        self._tracker = ChangeTracker(utc_now())
        self.health = ProxyHealth()
        self._health_checks = HealthChecks(lambda: self.health.is_well)
        self.health.metrics.no_local_endpoints.read = self._no_local_endpoints
        self._place = Place(options.node)
        self._changed = asyncio.Event()
        self._tables: dict[str, Table] = {}
        self._keeps_tables = True
        """Whether a full sync keeps what stands in the tables of clients' affinities."""
        self.ready = asyncio.Event()
        """Set once the rules were written for the first time."""

    async def run(self) -> None:
        """Follow the cluster until cancelled. The rules stay: connections go on while the proxy is restarted."""

        def follow(informer: Informer, note: Callable[[Obj | None, Obj | None], None], what: str = "") -> None:
            def noted(old: Obj | None, new: Obj | None) -> None:
                note(old, new)
                self._changed.set()
                if what:
                    self.health.metrics.changed(what)
                    self.health.queued()

            informer.add_handler(lambda new: noted(None, new), noted, lambda old: noted(old, None))

        follow(self._services, self._tracker.note_service, "service")
        follow(self._slices, self._tracker.note_slice, "endpoint")
        follow(self._nodes, self._note_node)
        follow(self._cidrs, self._tracker.note_cidrs)
        informers = (self._services, self._slices, self._nodes)
        # Nobody waits for ServiceCIDRs: servers before 1.33 have none.
        tasks = [asyncio.create_task(informer.run()) for informer in (*informers, self._cidrs)]
        try:
            for informer in informers:
                await informer.wait_synced()
            await self._follow()
        finally:
            self._health_checks.close()
            await cancelled(*tasks)

    def _note_node(self, _: Obj | None, new: Obj | None) -> None:
        self.health.node = new
        place = place_of(self._options.node, new)
        if place != self._place:
            self._place = place
            self._tracker.note_all()

    async def _follow(self) -> None:
        loop, backoff = asyncio.get_running_loop(), Backoff()
        renewed = loop.time()
        while True:
            self._changed.clear()
            if loop.time() - renewed >= self._options.full_sync_seconds:
                self._tables.clear()
                renewed = loop.time()
            try:
                await self.sync()
            except NftError as error:
                _log.warning("%s", error)
                self.health.metrics.failed()
                self._tables.clear()
                self._keeps_tables = False
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
        loop, full = asyncio.get_running_loop(), not self._tables
        began = loop.time()
        self.health.metrics.taken()
        times = self._tracker.take_times()
        await (self._sync_all() if full else self._sync_changes())
        for family, at in times:
            self.health.metrics.programmed((utc_now() - at).total_seconds(), family)
        self.health.synced(loop.time() - began, full=full)

    def _no_local_endpoints(self) -> Mapping[Labels, float]:
        return {
            (policy, f"IPv{FAMILIES[family]}"): count
            for family, table in self._tables.items()
            for policy, count in table.no_local_endpoints().items()
        }

    async def _delete_rested(self, now: float) -> None:
        """Delete the chains that are not used any more; where nftables refuses, they stay until the next time."""
        commands = {family: table.delete_rested(now) for family, table in self._tables.items()}
        try:
            await run_nft(line for lines in commands.values() for line in lines)
        except NftError as error:
            _log.warning("chains that are not used any more stay: %s", error)
            self.health.metrics.failed(cleanup=True)
            for family, table in self._tables.items():
                table.rest_again(commands[family], now)

    async def _sync_changes(self) -> None:
        now = asyncio.get_running_loop().time()
        await self._delete_rested(now)
        changed = self._tracker.take()
        rules = self._tracker.rules(changed, self._place, self._options.rules)
        lines = [line for family, table in self._tables.items() for line in table.update(rules[family], now)]
        await run_nft(lines)
        await self._after_sync(changed, rules, whole=False)

    async def _sync_all(self) -> None:
        services = self._tracker.everything()
        rules = self._tracker.rules(services, self._place, self._options.rules)
        tables, lines = {}, list[str]()
        for family in FAMILIES:
            left = await names_in_table(family) if self._keeps_tables else None
            tables[family] = Table(family, base_rules(family, self._options.rules))
            lines += tables[family].create(rules[family], left)
        await run_nft(lines)
        self._tables, self._keeps_tables = tables, True
        await self._after_sync(services, rules, whole=True)

    async def _after_sync(self, services: set[str], rules: Mapping[str, Mapping[str, Rules]], *, whole: bool) -> None:
        """Follow the new rules with what is no rule: answers to load balancers, flows that have begun."""
        await self._health_checks.update(self._tracker.health_checks(services, self._place), whole=whole)
        for family, version in FAMILIES.items():
            served = {key: found for one in rules[family].values() for key, found in one.flows.items()}
            if served:
                began = asyncio.get_running_loop().time()
                try:
                    deleted = await asyncio.to_thread(delete_stale_flows, version, served)
                except OSError as error:
                    _log.warning("flows of UDP to endpoints that have gone were not deleted: %s", error)
                    continue
                seconds = asyncio.get_running_loop().time() - began
                self.health.metrics.reconciled(seconds, deleted, f"IPv{version}")
