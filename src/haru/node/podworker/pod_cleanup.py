"""Cleanup after a pod: devices, user ranges, volumes, containers, cgroup, logs.

Before any of it is made the pod is noted on the disk, and the note goes last: whoever finds one of a pod that the API
does not know any more, after a crash, knows what to look for.
"""

from __future__ import annotations

import asyncio
import shutil

from haru.kube.meta import Obj
from haru.node.agent.context import Context
from haru.node.podworker.config import log_directory
from haru.node.podworker.observed import SeenPod
from haru.node.podworker.sandboxes import Sandboxes


class PodCleanup:
    """Cleans up after one pod; every step may be repeated."""

    def __init__(self, context: Context, sandboxes: Sandboxes, uid: str) -> None:
        self._context, self._sandboxes, self._uid = context, sandboxes, uid
        self._noted = False

    async def note(self, pod: Obj) -> None:
        """Note the pod on the disk before anything of it is made. Raises OSError."""
        if not self._noted:
            await asyncio.to_thread(self._context.volumes.note, pod)
            self._noted = True

    async def give_back(self, pod: Obj | None) -> None:
        """Release what a pod without running containers held; ended containers and logs stay.

        `pod` is None for one that the API does not know. Raises `DevicesError`, `CgroupError`, OSError.
        """
        await self._context.devices.unprepare(self._uid)
        await asyncio.to_thread(self._context.ranges.release, self._uid)
        await asyncio.to_thread(self._context.volumes.empty, self._uid)
        if pod := pod or await self._known():
            await self._sandboxes.remove_group(pod)

    async def remove(self, pod: Obj | None, seen: SeenPod) -> None:
        """Remove everything of the pod. Raises `DevicesError`, `CriError`, `CgroupError`, OSError."""
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
