"""taint-eviction-controller: deletes pods from nodes whose NoExecute taints they do not (or no longer) tolerate.

Source: Kubernetes `taint-eviction-controller` (KEP-3902).
"""

from __future__ import annotations

from typing import ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import NODES, PODS, by_node, is_terminal
from haru.controllers.pod_disruption import mark_disrupted
from haru.engine.plugins import eviction_time, no_execute_taints
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, is_being_deleted, name_of, node_of
from haru.kube.names import format_time

_Taint = tuple[str, str]
"""The key and the value."""
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
        self._first_seen: dict[str, dict[_Taint, str]] = {}
        self.nodes.add_handler(self._node_added, self._node_updated, self._node_deleted)
        self.pods.add_handler(self._pod_changed, lambda _, new: self._pod_changed(new))

    def _node_added(self, node: Obj) -> None:
        self._note_taints(node)
        if no_execute_taints(node):
            for pod in self.pods.by_index("node", name_of(node)):
                self.queue.add(object_key(pod))

    def _node_updated(self, old: Obj, new: Obj) -> None:
        if no_execute_taints(old) != no_execute_taints(new):
            self._node_added(new)

    def _node_deleted(self, node: Obj) -> None:
        self._first_seen.pop(name_of(node), None)

    def _note_taints(self, node: Obj) -> None:
        """Users' taints do not tell since when they are there: what is tolerated for a while counts from now on."""
        undated = [_identity(taint) for taint in no_execute_taints(node) if not taint.get("timeAdded")]
        known = self._first_seen.pop(name_of(node), {})
        if undated:
            now = format_time(self.now())
            self._first_seen[name_of(node)] = {taint: known.get(taint, now) for taint in undated}

    def _dated_taints(self, node: Obj) -> list[Obj]:
        seen = self._first_seen.get(name_of(node), {})
        return [{"timeAdded": seen.get(_identity(taint)), **taint} for taint in no_execute_taints(node)]

    def _pod_changed(self, pod: Obj) -> None:
        node = self.nodes.get(node_of(pod)) if node_of(pod) else None
        if node is not None and no_execute_taints(node):
            self.queue.add(object_key(pod))

    async def sync(self, key: str) -> float | None:
        """Delete one pod if its time on its node is over."""
        pod = self.pods.store.get(key)
        if pod is None or is_being_deleted(pod) or is_terminal(pod):
            return None
        node = self.nodes.get(node_of(pod))
        now = self.now()
        due = eviction_time(pod, self._dated_taints(node), now) if node is not None else None
        if due is None:
            return None
        remaining = (due - now).total_seconds()
        if remaining > 0:
            return remaining
        self.events.event(pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {key}")
        await mark_disrupted(self, self.pods, pod, "DeletionByTaintManager", _MESSAGE)
        await self.delete(self.pods, pod)
        return None


def _identity(taint: Obj) -> _Taint:
    return taint["key"], taint.get("value") or ""
