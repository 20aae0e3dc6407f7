"""What a pod leaves on the machine, and how it goes: devices, users, volumes, containers, control group, logs.

Before any of it is made the pod is noted on the disk, and the note goes last: whoever finds one of a pod that the API
does not know any more, after a crash, knows what to look for.
"""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

from haru.node.agent.context import Context
from haru.node.podworker.config import log_directory
from haru.node.podworker.observed import SeenPod
from haru.node.podworker.sandboxes import Sandboxes

Obj = dict[str, Any]


class PodCleanup:
    """Of one pod. Every step may be repeated until all are through."""

    def __init__(self, context: Context, sandboxes: Sandboxes, uid: str) -> None:
        self._context, self._sandboxes, self._uid = context, sandboxes, uid
        self._noted = False

    async def note(self, pod: Obj) -> None:
        """Write down whose things will be here. Raises OSError."""
        if not self._noted:
            await asyncio.to_thread(self._context.volumes.note, pod)
            self._noted = True

    async def give_back(self, pod: Obj | None) -> None:
        """Nothing of the pod runs: what it held goes, but its ended containers and their logs stay to be read.

        `pod` is None for one that the API does not know. Raises `DevicesError`, `CgroupError`, OSError.
        """
        await self._context.devices.unprepare(self._uid)
        await asyncio.to_thread(self._context.ranges.release, self._uid)
        await asyncio.to_thread(self._context.volumes.empty, self._uid)
        if pod := pod or await self._known():
            await self._sandboxes.remove_group(pod)

    async def remove(self, pod: Obj | None, seen: SeenPod) -> None:
        """Everything goes. Raises `DevicesError`, `CriError`, `CgroupError`, OSError."""
        await self.give_back(pod)
        for container in seen.containers:
            await self._context.runtime.remove_container(container.id)
        for sandbox in seen.sandboxes:
            await self._context.runtime.remove_sandbox(sandbox.id)
        if pod := pod or await self._known():
            logs = log_directory(str(self._context.options.logs), pod)
            await asyncio.to_thread(shutil.rmtree, logs, ignore_errors=True)
        await asyncio.to_thread(self._context.volumes.remove, self._uid)
        self._noted = False

    async def _known(self) -> Obj | None:
        """As much of the pod as was noted."""
        return await asyncio.to_thread(self._context.volumes.noted, self._uid)
