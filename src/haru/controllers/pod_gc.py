"""pod-garbage-collector-controller: removes pods that no kubelet will ever finish.

These are pods of nodes that no longer exist, deleted pods that never reached a node, and terminated pods beyond a
number. Source: Kubernetes `podgc`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import NODES, PODS, by_node, is_terminal
from haru.controllers.pod_disruption import mark_disrupted_and_failed, mark_failed
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, is_being_deleted, name_of, node_of

_QUARANTINE_SECONDS = 40.0
_SWEEP_SECONDS = 60.0
_TERMINATED_THRESHOLD = 12500


class PodGcController(Controller):
    """Removes orphaned pods; a node that vanished is given a moment to come back."""

    name: ClassVar[str] = "pod-garbage-collector-controller"
    needs: ClassVar[tuple[Kind, ...]] = (NODES,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.pods = self.informer(PODS)
        self.nodes = self.informer(NODES)
        self.pods.add_index("node", by_node)
        self.quarantine = float(context.options.get("node-quarantine-seconds", _QUARANTINE_SECONDS))
        self.threshold = int(context.options.get("terminated-pod-gc-threshold", _TERMINATED_THRESHOLD))
        self._missing_since: dict[str, float] = {}
        self.pods.add_handler(self._pod_changed, lambda _, new: self._pod_changed(new))
        self.nodes.add_handler(on_delete=self._node_deleted)

    def background(self) -> Iterable[Callable[[], Any]]:
        """Terminated pods are counted now and then."""
        return (self._sweep,)

    def _pod_changed(self, pod: Obj) -> None:
        node = node_of(pod)
        if (node and self.nodes.has_synced and self.nodes.get(node) is None) or (not node and is_being_deleted(pod)):
            self.queue.add(object_key(pod))

    def _node_deleted(self, node: Obj) -> None:
        for pod in self.pods.by_index("node", name_of(node)):
            self.queue.add(object_key(pod))

    async def sync(self, key: str) -> float | None:
        """Remove one pod if nobody else will."""
        pod = self.pods.store.get(key)
        if pod is None:
            return None
        node = node_of(pod)
        if not node:
            if is_being_deleted(pod):
                # Whoever counts its pods by how they ended waits for an end, which no kubelet will report.
                await mark_failed(self, self.pods, pod)
                await self.delete(self.pods, pod, grace_period_seconds=0)
            return None
        if self.nodes.get(node) is not None:
            self._missing_since.pop(node, None)
            return None
        now = asyncio.get_running_loop().time()
        waited = now - self._missing_since.setdefault(node, now)
        if waited < self.quarantine:
            return self.quarantine - waited
        if await self.live(NODES, node) is not None:
            return self.quarantine
        if not is_terminal(pod):
            await mark_disrupted_and_failed(self, self.pods, pod, "DeletionByPodGC", "PodGC: node no longer exists")
        await self.delete(self.pods, pod, grace_period_seconds=0)
        return None

    async def _sweep(self) -> None:
        while True:
            for pod in list(self.pods.store.values()):  # pods that were there before their missing node was known
                self._pod_changed(pod)
            ended = [pod for pod in self.pods.store.values() if is_terminal(pod) and not is_being_deleted(pod)]
            surplus = len(ended) - self.threshold
            if self.threshold > 0 and surplus > 0:
                ended.sort(key=lambda pod: pod["metadata"].get("creationTimestamp") or "")
                for pod in ended[:surplus]:
                    await self.delete(self.pods, pod, grace_period_seconds=0)
            await asyncio.sleep(_SWEEP_SECONDS)
