"""taint-eviction-controller: deletes pods from nodes whose NoExecute taints they do not (or no longer) tolerate.

A toleration with `tolerationSeconds` counts from when the taint was added; the shortest one decides.
Source: Kubernetes `taint-eviction-controller` (KEP-3902).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import NODES, PODS, Obj, by_node, is_terminal, node_of
from haru.controllers.pod_disruption import mark_disrupted
from haru.kube.kinds import Kind
from haru.kube.meta import is_being_deleted, name_of, toleration_matches
from haru.kube.names import parse_time

_MESSAGE = "Taint manager: deleting due to NoExecute taint"


def no_execute_taints(node: Mapping[str, Any]) -> list[Obj]:
    """The node's taints that drive pods away."""
    return [t for t in (node.get("spec") or {}).get("taints") or () if t.get("effect") == "NoExecute"]


def eviction_time(pod: Mapping[str, Any], taints: Sequence[Obj], now: datetime) -> datetime | None:
    """When the pod must go; None: it tolerates all the taints for ever."""
    due: list[datetime] = []
    tolerations = (pod.get("spec") or {}).get("tolerations") or ()
    for taint in taints:
        matching = [toleration for toleration in tolerations if toleration_matches(toleration, taint)]
        if not matching:
            return now
        seconds = [t["tolerationSeconds"] for t in matching if t.get("tolerationSeconds") is not None]
        if seconds:
            added = parse_time(taint["timeAdded"]) if taint.get("timeAdded") else now
            due.append(added + timedelta(seconds=max(0, min(seconds))))
    return min(due, default=None)


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
