"""Watch the objects of other projects that describe gangs, as far as the server serves them and they may be listed.

What is served is looked at when a CustomResourceDefinition changes, and once a minute where those may not be listed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from haru.client.api import ApiClient
from haru.client.definition_watch import DefinitionWatch
from haru.client.discovery import may_list, served_resources
from haru.client.informer import Informer
from haru.gangs import ADAPTERS as ALL
from haru.gangs import KUEUE_KINDS, ForeignKind, GangTranslator, Translated, adapters_for
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj

_log = logging.getLogger(__name__)


class ForeignGangs:
    """Run informers of other projects' kinds.

    `take` hears what a change comes to, `again` that all pods are to be shown anew.
    """

    def __init__(
        self,
        client: ApiClient,
        names: frozenset[str],
        translator: GangTranslator,
        take: Callable[[Translated], None],
        again: Callable[[], None],
    ) -> None:
        self._client = client
        self._names = names
        self._translator = translator
        self._take = take
        self._again = again
        self._running: dict[str, tuple[str, Informer, asyncio.Task[None]]] = {}
        self._refused: set[str] = set()
        self._looked = asyncio.Event()
        kinds = {kind.key: kind for name in names for kind in ALL[name].kinds if kind not in KUEUE_KINDS}
        self._kinds: Mapping[str, ForeignKind] = kinds

    async def run(self) -> None:
        """Keep the informers running until cancelled."""
        async with asyncio.TaskGroup() as group:
            await self._look(group, self._client.version.resources)
            definitions = DefinitionWatch(self._client)
            if self._kinds:
                group.create_task(definitions.run(), name="scheduler informer of CustomResourceDefinitions")
            while self._kinds:
                await definitions.changed()
                found = await self._served()
                if found is not None:
                    await self._look(group, found)

    async def wait_synced(self) -> None:
        """Wait for the first lists of what was served at the start."""
        await self._looked.wait()
        for _, informer, _ in list(self._running.values()):
            await informer.wait_synced()

    @property
    def active(self) -> tuple[str, ...]:
        """The names of the adapters that are on."""
        return tuple(adapter.name for adapter in self._adapters())

    def _adapters(self) -> tuple[Any, ...]:
        return adapters_for(self._names, [self._kinds[key] for key in self._running])

    async def _served(self) -> frozenset[tuple[str, str, str]] | None:
        try:
            found = await served_resources(self._client)
        except (OSError, StatusError) as error:
            _log.warning("discovery: %s", error)
            return None
        return frozenset((kind.group, kind.version, kind.plural) for kind in found)

    async def _look(self, group: asyncio.TaskGroup, resources: frozenset[tuple[str, str, str]]) -> None:
        """Start the informers of what has come to be served, end those of what has gone."""
        before = self.active
        for key, kind in self._kinds.items():
            version = kind.served_version(resources)
            if key in self._running and self._running[key][0] != version:
                self._end(key)
            if version and key not in self._running:
                await self._begin(group, kind, version)
        if self.active != before or not self._looked.is_set():
            self._translator.use(self._adapters())
            _log.info("gangs of other projects: %s", ", ".join(self.active) or "none")
            self._again()
        self._looked.set()

    async def _begin(self, group: asyncio.TaskGroup, kind: ForeignKind, version: str) -> None:
        served = kind.as_kind(version)
        if not await may_list(self._client, served):
            if kind.key not in self._refused:
                _log.warning("%s may not be listed: its gangs are not scheduled as such", served.group_resource)
            self._refused.add(kind.key)
            return
        self._refused.discard(kind.key)
        informer = self._informer(served)
        task = group.create_task(_run(informer), name=f"scheduler informer {served.group_resource}")
        self._running[kind.key] = (version, informer, task)

    def _informer(self, served: Kind) -> Informer:
        informer = Informer(self._client, served)
        changed = self._changed
        informer.add_handler(changed, lambda _, new: changed(new), lambda obj: self._take(self._translator.remove(obj)))
        return informer

    def _changed(self, obj: Obj) -> None:
        self._take(self._translator.apply(obj))

    def _end(self, key: str) -> None:
        _, informer, task = self._running.pop(key)
        task.cancel()
        for obj in list(informer.store.values()):
            self._take(self._translator.remove(obj))


async def _run(informer: Informer) -> None:
    with suppress(asyncio.CancelledError):
        await informer.run()
