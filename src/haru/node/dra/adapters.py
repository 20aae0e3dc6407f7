"""Runs dynamic resources beside a node agent: it knows the pods, and writes their status when health changes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from haru.event_loop import cancelled
from haru.kube.meta import Obj
from haru.node.agent.agent import Agent
from haru.node.dra.node_devices import NodeDevices


class AgentPods:
    """The pods of an agent that may not be there yet."""

    def __init__(self) -> None:
        self.agent: Agent | None = None

    def __call__(self) -> Collection[Obj] | None:
        """All pods that are bound to the node, None while they are not known."""
        informer = self.agent.pods if self.agent is not None else None
        return list(informer.store.values()) if informer is not None and informer.has_synced else None


async def run_with_devices(agent: Agent, devices: NodeDevices) -> None:
    """Until cancelled, or one of both ends: its error is raised."""
    works = [agent.run(), devices.run(), _follow(agent, devices)]
    tasks = [asyncio.create_task(work, name=f"haru node {number}") for number, work in enumerate(works)]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        await cancelled(*tasks)


async def _follow(agent: Agent, devices: NodeDevices) -> None:
    """Let a pod's status be written anew when its devices' health changed."""
    while True:
        worker = agent.worker(await devices.pod_to_update())
        if worker is not None:
            worker.wake()
