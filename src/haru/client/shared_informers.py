"""The informers of one process: those who look at the same objects share one list, one watch and one copy.

Source: client-go `informers` (SharedInformerFactory), as behaviour.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping

from haru.client.api import ApiClient
from haru.client.backoff import Backoff
from haru.client.informer import Informer, Selection, metadata_informer
from haru.kube.kinds import Kind
from haru.kube.meta import Obj


class SharedInformers:
    """One informer for each kind, shared by all that ask in this process.

    `transforms` says what is kept of kinds whose objects are too large to be kept whole.
    """

    def __init__(
        self,
        client: ApiClient,
        rng: random.Random | None = None,
        transforms: Mapping[Kind, Callable[[Obj], Obj]] | None = None,
    ) -> None:
        self._client = client
        self._rng = rng or random.Random()
        self._transforms = dict(transforms or {})
        self._informers: dict[tuple[str, str, str, str], Informer] = {}
        self._running: dict[Informer, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    def get(self, kind: Kind, namespace: str = "", label_selector: str = "", field_selector: str = "") -> Informer:
        """The informer for this selection; one that is asked for after the start is started at once."""
        key = (f"{kind.api_version}/{kind.plural}", namespace, label_selector, field_selector)
        informer = self._informers.get(key)
        if informer is None:
            transform = self._transforms.get(kind)
            selection = Selection(namespace, label_selector, field_selector)
            informer = Informer(self._client, kind, selection, transform=transform, backoff=Backoff(rng=self._rng))
            self._informers[key] = informer
            if self._group is not None:
                self._start(informer)
        return informer

    def metadata(self, kind: Kind) -> Informer:
        """The informer of a kind for one who needs only metadata: the full one if there is one, else a slim one."""
        full = self._informers.get((f"{kind.api_version}/{kind.plural}", "", "", ""))
        if full is not None:
            return full
        key = (f"{kind.api_version}/{kind.plural}", "", "metadata", "")
        informer = self._informers.get(key)
        if informer is None:
            informer = metadata_informer(self._client, kind, backoff=Backoff(rng=self._rng))
            self._informers[key] = informer
            if self._group is not None:
                self._start(informer)
        return informer

    def drop_unserved(self, used: dict[tuple[str, str], Informer], served: Iterable[Kind]) -> list[Informer]:
        """Take out what is watched for its metadata in a version that is served no longer, and end it; which ones.

        Who shares such an informer has to take it out, too: one that is ended is not started again.
        """
        there, known = {(kind.api_version, kind.plural) for kind in served}, set(self._informers.values())
        slim = {informer for key, informer in self._informers.items() if key[2] == "metadata"}
        gone = {
            key: informer
            for key, informer in used.items()
            if informer not in known
            or (informer in slim and (informer.kind.api_version, informer.kind.plural) not in there)
        }
        for key, informer in gone.items():
            del used[key]
            self._informers = {key: other for key, other in self._informers.items() if other is not informer}
            if (task := self._running.pop(informer, None)) is not None:
                task.cancel()
        return list(gone.values())

    def _start(self, informer: Informer) -> None:
        assert self._group is not None
        run = self._group.create_task(informer.run(), name=f"informer {informer.kind.plural}")
        self._running[informer] = run

    async def run(self) -> None:
        """Keep all informers running until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for informer in self._informers.values():
                    self._start(informer)
                await asyncio.Event().wait()
            finally:
                self._group = None

    async def wait_synced(self) -> None:
        """Wait until every informer asked for so far has its first list."""
        for informer in list(self._informers.values()):
            await informer.wait_synced()
