"""taint-eviction-controller: deletes pods from nodes whose NoExecute taints they do not (or no longer) tolerate.

Source: Kubernetes `taint-eviction-controller` (KEP-3902).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import NODES, PODS, by_node, is_terminal
from haru.controllers.pod_disruption import mark_disrupted
from haru.engine.plugins import eviction_time, no_execute_taints
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, is_being_deleted, name_of, node_of
from haru.kube.names import format_micro_time, parse_time

_Taint = tuple[str, str, str]
"""The key, the value and the time."""
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
        self._since: dict[str, dict[_Taint, float]] = {}
        self._pending: set[str] = set()
        self.nodes.add_handler(self._node_added, self._node_updated, self._node_deleted)
        self.pods.add_handler(self._pod_changed, lambda _, new: self._pod_changed(new), self._pod_deleted)

    def _node_added(self, node: Obj) -> None:
        self._note_taints(node)
        is_tainted = bool(no_execute_taints(node))
        for key in map(object_key, self.pods.by_index("node", name_of(node))):
            if is_tainted or key in self._pending:
                self.queue.add(key)

    def _node_updated(self, old: Obj, new: Obj) -> None:
        if no_execute_taints(old) != no_execute_taints(new):
            self._node_added(new)

    def _node_deleted(self, node: Obj) -> None:
        self._since.pop(name_of(node), None)

    def _note_taints(self, node: Obj) -> None:
        """What is tolerated for a while counts since the taint says that it is there, else since it was first seen.

        That is looked up once: whatever the clock shows later, the time goes on as it does.
        """
        known, moment, now = self._since.pop(name_of(node), {}), self.context.monotonic(), self.now()
        since = {}
        for taint in no_execute_taints(node):
            added = parse_time(taint["timeAdded"]) if taint.get("timeAdded") else now
            age = max((now - added).total_seconds(), 0.0)
            since[_identity(taint)] = known.get(_identity(taint), moment - age)
        if since:
            self._since[name_of(node)] = since

    def _dated_taints(self, node: Obj, now: datetime) -> list[Obj]:
        since, moment = self._since.get(name_of(node), {}), self.context.monotonic()
        return [
            {**taint, "timeAdded": format_micro_time(now - timedelta(seconds=moment - since[_identity(taint)]))}
            for taint in no_execute_taints(node)
        ]

    def _pod_changed(self, pod: Obj) -> None:
        node = self.nodes.get(node_of(pod)) if node_of(pod) else None
        if node is not None and no_execute_taints(node):
            self.queue.add(object_key(pod))

    def _pod_deleted(self, pod: Obj) -> None:
        self._pending.discard(object_key(pod))

    async def sync(self, key: str) -> float | None:
        """Delete one pod if its time on its node is over."""
        pod = self.pods.store.get(key)
        if pod is None or is_being_deleted(pod) or is_terminal(pod):
            self._pending.discard(key)
            return None
        node = self.nodes.get(node_of(pod))
        now = self.now()
        due = eviction_time(pod, self._dated_taints(node, now), now) if node is not None else None
        if due is None:
            if key in self._pending:
                self._pending.discard(key)
                self.events.event(pod, "Normal", "TaintManagerEviction", f"Cancelling deletion of Pod {key}")
            return None
        self._pending.add(key)
        remaining = (due - now).total_seconds()
        if remaining > 0:
            return remaining
        self.events.event(pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {key}")
        await mark_disrupted(self, self.pods, pod, "DeletionByTaintManager", _MESSAGE)
        await self.delete(self.pods, pod)
        return None


def _identity(taint: Obj) -> _Taint:
    return taint["key"], taint.get("value") or "", taint.get("timeAdded") or ""
