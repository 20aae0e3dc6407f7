"""node-lifecycle-controller: what a node's silence and conditions mean for its pods.

A kubelet renews a Lease and its status. A node heard from neither for the grace period gets its conditions set to
Unknown. Conditions become taints: not-ready and unreachable also as NoExecute, from which the taint-eviction controller
acts. While *all* nodes are silent the fault is more likely here: then nothing is driven away. A node of which nothing
has been heard yet is not judged before its time to start is over: it keeps the taint that it was created with.
Silence is measured by this process's clock from when it last saw a change, never from timestamps of others. Time in
which this process was blocked or cut off from the API server is nobody's silence, and before a node is given up its
Lease is read from the server: the watch may lag.
Source: Kubernetes `node-lifecycle-controller`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from haru.controllers.base import Context, Controller
from haru.controllers.objects import LEASES, NODES, PODS, by_node, is_ready, is_terminal
from haru.event_loop import bounded
from haru.kube.errors import suppress_status
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, get_condition, name_of


class ObservedTime:
    """Seconds of a clock, without those in which the observer did not look, or could not have seen anything.

    The observer calls `look` again and again. Between two looks at most `longest` seconds count, and none where
    `can_see` says no at the second one.
    """

    def __init__(self, clock: Callable[[], float], longest: float, can_see: Callable[[], bool]) -> None:
        self._clock = clock
        self._longest = longest
        self._can_see = can_see
        self._counted = 0.0
        self._looked = clock()
        self.looks = 0
        """How often the observer has looked."""

    def __call__(self) -> float:
        """The seconds so far."""
        return self._counted + min(self._clock() - self._looked, self._longest)

    def look(self) -> None:
        """The observer looks."""
        if self._can_see():
            self._counted = self()
        self._looked = self._clock()
        self.looks += 1


LEASE_NAMESPACE = "kube-node-lease"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_PRESSURE = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_EVICTING = {(NOT_READY, "NoExecute"), (UNREACHABLE, "NoExecute")}
_MANAGED = _EVICTING | {(key, "NoSchedule") for key in (NOT_READY, UNREACHABLE, _UNSCHEDULABLE, *_PRESSURE.values())}
_SILENT_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_PERIOD_SECONDS = 5.0
_GRACE_SECONDS = 50.0
_STARTUP_GRACE_SECONDS = 60.0


def ready_status(node: Mapping[str, Any]) -> str:
    """The Ready condition: True, False or Unknown (also when there is none)."""
    condition = get_condition(node, "Ready")
    return str(condition["status"]) if condition is not None else "Unknown"


def has_spoken(node: Mapping[str, Any]) -> bool:
    """The node's Ready condition is there, by its kubelet or (after too long a silence) on its behalf."""
    return get_condition(node, "Ready") is not None


def wanted_taints(node: Mapping[str, Any], evict: bool) -> list[tuple[str, str]]:
    """The taints (key, effect) that follow from a node's conditions."""
    keys: list[tuple[str, str]] = []
    ready = ready_status(node)
    if ready != "True" and has_spoken(node):
        key = NOT_READY if ready == "False" else UNREACHABLE
        keys.append((key, "NoSchedule"))
        if evict:
            keys.append((key, "NoExecute"))
    for type_, key in _PRESSURE.items():
        condition = get_condition(node, type_)
        if condition is not None and condition["status"] == "True":
            keys.append((key, "NoSchedule"))
    if (node.get("spec") or {}).get("unschedulable"):
        keys.append((_UNSCHEDULABLE, "NoSchedule"))
    return keys


def retainted(node: Mapping[str, Any], evict: bool, now: str) -> list[Obj] | None:
    """The node's taints with ours brought into line; None if they are."""
    current: Sequence[Obj] = (node.get("spec") or {}).get("taints") or []
    wanted = wanted_taints(node, evict)
    if ready_status(node) != "True" and not evict:
        # Nothing new is driven away, but a time that runs already goes on.
        wanted += [(t["key"], t["effect"]) for t in current if (t["key"], t["effect"]) in _EVICTING]
    if not has_spoken(node):
        wanted += [(t["key"], t["effect"]) for t in current if t["key"] in (NOT_READY, UNREACHABLE)]
    kept = [t for t in current if (t["key"], t["effect"]) not in _MANAGED or (t["key"], t["effect"]) in wanted]
    present = {(t["key"], t["effect"]) for t in kept}
    added = [{"key": k, "effect": e, "timeAdded": now} for k, e in dict.fromkeys(wanted) if (k, e) not in present]
    taints = kept + added
    return None if taints == list(current) else taints


class NodeLifecycleController(Controller):
    """Watches over nodes."""

    name: ClassVar[str] = "node-lifecycle-controller"
    component: ClassVar[str] = "node-controller"
    needs: ClassVar[tuple[Kind, ...]] = (NODES, LEASES)
    workers: ClassVar[int] = 8

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.nodes = self.informer(NODES)
        self.pods = self.informer(PODS)
        self.leases = self.informer(LEASES)
        self.pods.add_index("node", by_node)
        self.grace = float(context.options.get("node-monitor-grace-period", _GRACE_SECONDS))
        self.startup_grace = float(context.options.get("node-startup-grace-period", _STARTUP_GRACE_SECONDS))
        self.period = float(context.options.get("node-monitor-period", _PERIOD_SECONDS))
        longest = max(2 * self.period, self.grace / 5)
        self.observed = ObservedTime(context.monotonic, longest, self._can_see)
        self._heard: dict[str, float] = {}
        self._held_back: set[str] = set()
        """Nodes that were judged while none spoke."""
        self._speaker = ""
        """A node that spoke when one was last looked for."""
        self._nobody_speaks = False
        self.nodes.add_handler(self._node_added, self._node_updated, self._node_deleted)
        self.leases.add_handler(self._lease_renewed, self._lease_changed)

    def background(self) -> Iterable[Callable[[], Any]]:
        """Silence is no event: somebody has to look."""
        return (self._monitor,)

    def _node_added(self, node: Obj) -> None:
        self._heard.setdefault(name_of(node), self.observed())
        self._node_changed(node)

    def _node_updated(self, old: Obj, new: Obj) -> None:
        if _spoke(old, new):
            self._heard[name_of(new)] = self.observed()
        self._node_changed(new)

    def _node_changed(self, node: Obj) -> None:
        self._nobody_speaks = False
        self.queue.add(name_of(node))

    def _node_deleted(self, node: Obj) -> None:
        self._heard.pop(name_of(node), None)
        self._held_back.discard(name_of(node))

    def _lease_changed(self, old: Obj, new: Obj) -> None:
        if _renewed_at(old) != _renewed_at(new):
            self._lease_renewed(new)

    def _lease_renewed(self, lease: Obj) -> None:
        if lease["metadata"].get("namespace") == LEASE_NAMESPACE:
            self._nobody_speaks = False
            self._heard[name_of(lease)] = self.observed()

    def _can_see(self) -> bool:
        return not (self.nodes.interrupted or self.leases.interrupted)

    async def _monitor(self) -> None:
        while True:
            self.observed.look()
            for name in list(self.nodes.store):
                if self._is_silent(name):
                    self.queue.add(name)
            await asyncio.sleep(self.period)

    def _is_silent(self, name: str) -> bool:
        node = self.nodes.get(name)
        grace = self.grace if node is None or has_spoken(node) else self.startup_grace
        now = self.observed()
        return now - self._heard.setdefault(name, now) > grace

    async def sync(self, key: str) -> float | None:
        """Bring one node's conditions, taints and pods into line."""
        node = self.nodes.get(key)
        if node is None:
            return None
        if self._is_silent(key) and ready_status(node) != "Unknown":
            await self.leases.fetch(key, LEASE_NAMESPACE)
        if self._is_silent(key):
            node = await self._silence(node)
        ready = ready_status(node)
        evict = self._some_node_speaks()
        taints = retainted(node, evict, self.timestamp())
        if taints is not None:
            metadata = {"resourceVersion": node["metadata"]["resourceVersion"]}
            await self.patch(self.nodes, node, {"metadata": metadata, "spec": {"taints": taints or None}})
        if ready != "True":
            if has_spoken(node):
                await bounded(self.pods.by_index("node", key), self._mark_not_ready)
            if not evict:
                self._held_back.add(key)
        if evict:  # others may have waited for one node to speak again
            for name in self._held_back:
                self.queue.add(name)
            self._held_back.clear()
        return None

    def _some_node_speaks(self) -> bool:
        """Whether any node is ready and heard from; all are looked at only if one was heard since the last time."""
        if self._speaks(self._speaker):
            return True
        if not self._nobody_speaks:
            self._speaker = next(filter(self._speaks, self.nodes.store), "")
            self._nobody_speaks = not self._speaker
        return not self._nobody_speaks

    def _speaks(self, name: str) -> bool:
        node = self.nodes.get(name)
        return node is not None and ready_status(node) == "True" and not self._is_silent(name)

    async def _silence(self, node: Obj) -> Obj:
        """Say on the node's behalf that nothing is known of it any more."""
        status = node.get("status") or {}
        now = self.timestamp()
        conditions = {c["type"]: c for c in status.get("conditions") or ()}
        for type_ in _SILENT_CONDITIONS:
            old = conditions.get(type_)
            if old is not None and old["status"] == "Unknown":
                continue
            never = "NodeStatusNeverUpdated", "Kubelet never posted node status."
            stopped = "NodeStatusUnknown", "Kubelet stopped posting node status."
            reason, message = never if old is None else stopped
            fresh = {"type": type_, "status": "Unknown", "reason": reason, "message": message}
            beat = old.get("lastHeartbeatTime") if old is not None else node["metadata"].get("creationTimestamp")
            conditions[type_] = {**fresh, "lastHeartbeatTime": beat or now, "lastTransitionTime": now}
        if list(conditions.values()) == (status.get("conditions") or []):
            return node
        updated = await self.update_status(self.nodes, node, {**status, "conditions": list(conditions.values())})
        self.events.event(node, "Normal", "NodeNotReady", f"Node {name_of(node)} status is now: NodeNotReady")
        return updated

    async def _mark_not_ready(self, pod: Obj) -> None:
        """Nobody can say that a pod on such a node serves."""
        if is_terminal(pod) or not is_ready(pod):
            return
        condition = {"type": "Ready", "status": "False", "lastTransitionTime": self.timestamp()}
        with suppress_status(404):
            await self.patch(
                self.pods, pod, {"status": {"conditions": [condition]}}, type="strategic", subresource="status"
            )
        self.events.event(pod, "Warning", "NodeNotReady", "Node is not ready")


def _renewed_at(lease: Mapping[str, Any]) -> Any:
    return (lease.get("spec") or {}).get("renewTime")


def _spoke(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """The kubelet itself wrote the status: a condition that it knows has a new heartbeat or another status."""

    def known(node: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
        conditions = (node.get("status") or {}).get("conditions") or ()
        return {c["type"]: (c["status"], c.get("lastHeartbeatTime")) for c in conditions if c["status"] != "Unknown"}

    before = known(old)
    return any(before.get(type_) != said for type_, said in known(new).items())
