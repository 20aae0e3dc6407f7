"""taint-eviction-controller: deletes pods from nodes whose NoExecute taints they do not (or no longer) tolerate.

Source: Kubernetes `taint-eviction-controller` (KEP-3902).
"""

from __future__ import annotations

from typing import ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import NODES, PODS, Obj, by_node, is_terminal, node_of
from haru.controllers.pod_disruption import mark_disrupted
from haru.engine.nodes.eviction import eviction_time, no_execute_taints
from haru.kube.kinds import Kind
from haru.kube.meta import is_being_deleted, name_of

_MESSAGE = "Taint manager: deleting due to NoExecute taint"


class TaintEvictionController(Controller):
    """Evicts pods from tainted nodes."""

    name: ClassVar[str] = "taint-eviction-controller"
    needs: ClassVar[tuple[Kind, ...]] = (NODES,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.nodes = self.informer(NODES)
        self.pods = self.informer(PODS)
        self.pods.add_index("node", by_node)
        self.nodes.add_handler(self._node_added, self._node_updated)
        self.pods.add_handler(self._pod_changed, lambda _, new: self._pod_changed(new))

    def _node_added(self, node: Obj) -> None:
        if no_execute_taints(node):
            for pod in self.pods.by_index("node", name_of(node)):
                self.queue.add(object_key(pod))

    def _node_updated(self, old: Obj, new: Obj) -> None:
        if no_execute_taints(old) != no_execute_taints(new):
            self._node_added(new)

    def _pod_changed(self, pod: Obj) -> None:
        node = self.nodes.get(node_of(pod)) if node_of(pod) else None
        if node is not None and no_execute_taints(node):
            self.queue.add(object_key(pod))

    async def sync(self, key: str) -> float | None:
        """Delete one pod if its time on its node is over."""
        namespace, _, name = key.partition("/")
        pod = self.pods.get(name, namespace)
        if pod is None or is_being_deleted(pod) or is_terminal(pod):
            return None
        node = self.nodes.get(node_of(pod))
        now = self.now()
        due = eviction_time(pod, no_execute_taints(node), now) if node is not None else None
        if due is None:
            return None
        remaining = (due - now).total_seconds()
        if remaining > 0:
            return remaining
        self.events.event(pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {key}")
        await mark_disrupted(self, self.pods, pod, "DeletionByTaintManager", _MESSAGE)
        await self.delete(self.pods, pod)
        return None
