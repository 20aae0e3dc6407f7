"""The aggregation layer of one server, from its start until it stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from haru.apiserver.aggregation.authorities import publish
from haru.apiserver.aggregation.changes import ObjectChanges
from haru.apiserver.aggregation.client import ExtensionClient
from haru.apiserver.aggregation.expected import ExpectedServices
from haru.apiserver.aggregation.local import CustomServices, register_built_in
from haru.apiserver.aggregation.options import AggregationOptions
from haru.apiserver.aggregation.proxy import ExtensionProxy, unavailable
from haru.apiserver.aggregation.remote import CHECK_SECONDS, RemoteServices, is_available
from haru.apiserver.encoding.objects import shared
from haru.apiserver.registry.loopback import Loopback
from haru.apiserver.registry.store_reflector import StoreReflector
from haru.apiserver.request.http import Request, Response
from haru.apiserver.streams import OpenStreams
from haru.event_loop import cancelled
from haru.kube.api_services import GROUP, PLURAL, GroupVersion, by_preference, group_version_of, is_remote
from haru.kube.custom import definitions
from haru.kube.discovery_remote import aggregated_version
from haru.kube.errors import StatusError, no_such_path
from haru.kube.meta import Obj
from haru.storage import Record, StoreError

IDLE_SECONDS = 3600.0
RETRY_SECONDS = 1.0
SETTLE_SECONDS = 0.02
"""Between looks: what changes at once is looked at once."""
_BEHIND = (("", "services"), ("discovery.k8s.io", "endpointslices"))
_LOG = logging.getLogger("haru.apiserver")


class Aggregator:
    """Keeps the APIServices of one server, and leads to extension API servers."""

    def __init__(self, loopback: Loopback, streams: OpenStreams, options: AggregationOptions | None) -> None:
        self._loopback, self._streams = loopback, streams
        objects = self._objects = loopback.objects
        self._options = options or AggregationOptions()
        self._client = ExtensionClient(objects, self._options)
        self._proxy = ExtensionProxy(streams, self._client)
        self._remotes = RemoteServices(loopback, self._client)
        self._expected = ExpectedServices(self._options.expected, self._lead)
        self._changes = ObjectChanges(objects, (GROUP, PLURAL), (definitions.GROUP, definitions.PLURAL))
        self._custom = CustomServices(objects)
        self._followed = StoreReflector(objects, GROUP, (PLURAL,), self._heard)
        self._remote: dict[str, Obj] = {}
        self._services: Mapping[GroupVersion, Obj] = {}
        self._counted = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Write what is served here and who this server is, and follow what changes."""
        if self._objects.served.find(GROUP, PLURAL) is None:
            return
        await register_built_in(self._objects)
        await publish(self._loopback, self._options)
        self._expected.start()
        self._lead()
        await self._followed.start()
        await self._custom.start()
        self._changes.start()
        self._task = asyncio.create_task(self._keep(), name="haru apiserver: aggregation")

    async def stop(self) -> None:
        """End the work and close the connections."""
        if self._task is not None:
            await cancelled(self._task)
        self._expected.stop()
        self._changes.stop()
        await self._client.stop()

    async def refresh(self) -> None:
        """Take in what has changed; every request does so before it is routed."""
        await self._followed.take_in()

    # --- what is served elsewhere

    @property
    def generation(self) -> int:
        """Counts the changes of what discovery has to tell."""
        return self._counted + self._remotes.generation

    def at(self, path: str) -> Obj | None:
        """The remote APIService that a path below /apis/ belongs to; None: it is this server's own."""
        if not self._services or not path.startswith("/apis/"):
            return None
        parts = path.split("/", 4)
        return self._services.get((parts[2], parts[3])) if len(parts) > 3 else None

    def versions(self) -> list[GroupVersion]:
        """The remote group versions, in the order in which clients prefer them."""
        return [version for version in self._services if version not in self._expected]

    def documents(self) -> list[tuple[str, Obj]]:
        """Each remote group version as the aggregated document of discovery tells of it, with its group."""
        found = []
        for group, version in self.versions():
            offer, stale = self._remotes.offer((group, version))
            found.append((group, aggregated_version(group, version, offer.resources, stale=stale)))
        return found

    def openapi_paths(self) -> dict[str, Obj]:
        """The entries of remote group versions in the index of OpenAPI v3."""
        offers = {f"apis/{g}/{v}": self._remotes.offer((g, v))[0] for g, v in self._services}
        return {path: {"serverRelativeURL": offer.openapi} for path, offer in offers.items() if offer.openapi}

    async def openapi(self, request: Request, version: GroupVersion) -> Response | None:
        """The OpenAPI v3 of a remote group version, from its server; None: it has told of none."""
        service = self._services.get(version)
        if service is None or not self._remotes.offer(version)[0].openapi:
            return None
        return await self.pass_on(request, service, endless=False)

    async def pass_on(self, request: Request, service: Obj, *, endless: bool) -> Response:
        """The extension API server's answer; the user's right to it is judged before."""
        version = group_version_of(service)
        if version in self._expected:
            await self._expected.wait(version)
            if (found := self._services.get(version)) is None:
                raise no_such_path()
            service = found
        if self._streams.stopping:
            return unavailable()
        return await self._proxy.pass_on(request, service, endless=endless)

    def _heard(self, _: str, old: Record | None, new: Record | None) -> None:
        """Take in a change of an APIService; requests are led by the remote ones alone."""
        record = new or old
        assert record is not None
        before = self._remote.pop(record.key, None)
        if new is not None and is_remote(shared(new)):
            self._remote[record.key] = shared(new)
        elif before is None:
            return
        self._lead()

    def _lead(self) -> None:
        """Lead requests to the remote APIServices that there are, and to those that are expected."""
        there = {group_version_of(each): each for each in by_preference(self._remote.values())}
        self._services = {**self._expected.placeholders(), **there}
        self._counted += 1

    def _is_served(self, version: GroupVersion) -> bool:
        """Whether its extension API server has answered this server; what is stored may be of an earlier start."""
        return is_available(self._services[version]) and not self._remotes.offer(version)[1]

    # --- what is kept up to date

    async def _keep(self) -> None:
        while True:
            try:
                await self._objects.store.progress()
                await self._custom.settle()
                await self.refresh()
                seconds = await self._look()
                self._expected.settle(self._is_served)
            except (StoreError, StatusError) as error:
                _LOG.warning("the APIServices could not be brought up to date: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except Exception:
                # One odd APIService must not end the work for all others.
                _LOG.exception("the APIServices could not be brought up to date")
                await asyncio.sleep(CHECK_SECONDS)
                continue
            await asyncio.sleep(SETTLE_SECONDS)
            await self._changes.wait(seconds)

    async def _look(self) -> float:
        """Look at remote APIServices; Services and endpoints are followed only while there are any."""
        if not self._remote:
            self._changes.leave(*_BEHIND)
            await self._remotes.look(())
            return IDLE_SECONDS
        self._changes.follow(*_BEHIND)
        return await self._remotes.look(self._remote.values())
