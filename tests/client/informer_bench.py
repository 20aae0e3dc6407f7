"""An informer of pods that waits for nothing, and what its handlers hear."""

import asyncio
import random
from contextlib import asynccontextmanager

from haru.client.backoff import Backoff
from haru.client.informer import Informer
from haru.kube import kinds

PODS = kinds.lookup("", "v1", "pods")
NODES = kinds.lookup("", "v1", "nodes")


def pod(name, **metadata):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", **metadata}}


class Heard:
    """Notes what handlers hear; `until` waits for an entry."""

    def __init__(self, informer):
        self.entries = []
        self.changed = asyncio.Event()
        informer.add_handler(
            lambda obj: self.note("add", obj),
            lambda old, new: self.note("update", new),
            lambda o: self.note("delete", o),
        )

    def note(self, what, obj):
        self.entries.append(f"{what} {obj['metadata']['name']}")
        self.changed.set()

    async def until(self, entry, count=1):
        async with asyncio.timeout(60):
            while self.entries.count(entry) < count:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def running(*informers):
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        for informer in informers:
            await asyncio.wait_for(informer.wait_synced(), 60)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def informer_of(client, pauses=None, **options):
    async def sleep(seconds):
        if pauses is not None:
            pauses.append(seconds)
        await asyncio.sleep(0)

    return Informer(client, PODS, backoff=Backoff(rng=random.Random(1), sleep=sleep), **options)
