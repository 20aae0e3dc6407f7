"""Writes a pod's status: what differs from what the API has.

An API that is slow, or away, holds nothing up: the write goes on, and so does the pod. One that has ended waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from haru.kube.errors import suppress_status
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj
from haru.kube.names import format_time
from haru.node.agent.context import Context
from haru.node.podworker.observed import SeenPod
from haru.node.status.container_status import StatusInputs
from haru.node.status.pod_status import pod_status, status_patch

PODS = known_kind("v1", "Pod")
_PATIENT_SECONDS: Final = 2.0


class StatusManager:
    """Writes the status of one pod, one write at a time; `wake` is called when a slow one is done."""

    def __init__(self, context: Context, wake: Callable[[], None]) -> None:
        self._context, self._wake = context, wake
        self._writing: asyncio.Task[Obj | None] | None = None

    async def update(self, pod: Obj, seen: SeenPod, known: StatusInputs) -> Obj | None:
        """Write a pod's status; the pod as the API has it then, None if nothing was written or there is no such pod.

        Raises `StatusError`, OSError; also where there is no answer yet for a pod that goes on.
        """
        earlier = await self._answer(known) if self._writing is not None else None
        pod = earlier or pod
        status = pod_status(pod, seen, known, format_time(datetime.now(UTC)))
        health = self._context.devices.status(pod)
        for one in status.get("containerStatuses", ()):
            if health.get(one["name"]):
                one["allocatedResourcesStatus"] = list(health[one["name"]])
        patch = status_patch(pod.get("status") or {}, status)
        if patch is None:
            return earlier
        self._writing = asyncio.create_task(self._write(pod["metadata"], patch), name="status of a pod")
        return await self._answer(known)

    async def _answer(self, known: StatusInputs) -> Obj | None:
        assert self._writing is not None
        await asyncio.wait([self._writing], timeout=None if known.is_over else _PATIENT_SECONDS)
        if not self._writing.done():
            self._writing.add_done_callback(lambda _: self._wake())
            raise TimeoutError("the API server has not answered yet")
        done, self._writing = self._writing, None
        return done.result()

    async def _write(self, meta: Obj, patch: Obj) -> Obj | None:
        body: Obj = {"metadata": {"uid": meta["uid"]}, "status": patch}
        with suppress_status(404, 409):
            return await self._context.client.patch(
                PODS, meta["name"], body, meta["namespace"], type="strategic", subresource="status"
            )
        return None

    def close(self) -> None:
        """Write nothing more."""
        if self._writing is not None:
            self._writing.cancel()
