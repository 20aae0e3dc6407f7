"""`kubectl logs -f` of a simulated container: what it has printed, then each line when it is due, until it ends."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final

from haru.apiserver.registry.subresources.simulated_logs import ContainerRun, LogText, container_run, end_of_run
from haru.apiserver.registry.subresources.simulated_sources import SimulatedPods
from haru.apiserver.registry.watch import close_when_gone
from haru.apiserver.request.call import Call
from haru.apiserver.request.http import Request
from haru.apiserver.streams import OpenStreams
from haru.kube.meta import Obj, annotations_of, is_being_deleted, uid_of
from haru.kube.simulated_containers.cluster_network import asks_network
from haru.kube.simulated_containers.executed import EXECUTED
from haru.storage import Compacted

SEND_SECONDS: Final = 60.0
"""How long a client may take to read what was sent."""
_LOOK_SECONDS: Final = 60.0
"""The watch is read at least so often, so that its history is not compacted away."""


class SimulatedLogStream:
    """Follows one run of a container, in the pod as it is from the revision `since` on."""

    def __init__(
        self,
        call: Call,
        simulated: SimulatedPods,
        streams: OpenStreams,
        since: int,
        pod: Obj,
        container: str,
        run: ContainerRun,
    ) -> None:
        self._call, self._simulated, self._streams = call, simulated, streams
        self._pod, self._container, self._run = pod, container, run
        self._seen: datetime | None = None
        """When it was seen that the pod goes."""
        self._clock = call.objects.clock
        self._text = LogText(call.request.param, self._clock())
        prefix = call.resource.prefix(call.namespace) + call.name
        self._watch = streams.follow(call.objects.store.watch(prefix, since))

    async def run(self, request: Request) -> None:
        """Until the container ends, the client goes, or the server stops. Raises TimeoutError."""
        gone = asyncio.create_task(close_when_gone(request, self._watch))
        try:
            now = self._clock()
            await self._send(request, self._text.first(self._run.printed(now, most=self._text.tail)))
            await self._follow(request, now)
        except Compacted:
            return
        finally:
            gone.cancel()
            self._watch.close()
            self._streams.leave(self._watch)

    async def _follow(self, request: Request, told: datetime) -> None:
        """Send the lines after those that are told, each when it is due."""
        while not self._watch.closed and not self._text.is_full:
            self._watch.pending()
            pod = await self._call.objects.peek("", "pods", self._call.namespace, self._call.name)
            same = pod if pod is not None and uid_of(pod) == uid_of(self._pod) else None
            await self._look_again(same)
            now = self._clock()
            ended = end_of_run(same, self._container, self._run.restarts, now)
            until = ended or now
            await self._send(request, self._text.more(self._run.printed(until, told)))
            told = max(told, until)
            if ended is not None:
                return
            left = self._run.seconds_to_next(now)
            await self._watch.wait(_LOOK_SECONDS if left is None else min(left, _LOOK_SECONDS))

    async def _look_again(self, pod: Obj | None) -> None:
        """What the network answers, what others write, and when the container is stopped is not known before."""
        goes = self._seen is None and (pod is None or is_being_deleted(pod))
        self._seen = self._clock() if goes else self._seen
        before, self._pod = self._pod, pod or self._pod
        is_told = annotations_of(before).get(EXECUTED) != annotations_of(self._pod).get(EXECUTED)
        if not goes and not is_told and (pod is None or not (asks_network(pod) or self._run.script.awaits_input)):
            return
        run = container_run(self._pod, self._container, await self._simulated.sources(self._pod), seen=self._seen)
        if run is not None and run.restarts == self._run.restarts:
            self._run = run

    async def _send(self, request: Request, body: bytes) -> None:
        if body:
            async with asyncio.timeout(SEND_SECONDS):
                await request.send({"type": "http.response.body", "body": body, "more_body": True})
