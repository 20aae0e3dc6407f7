"""daemonset-controller: one pod on every node that the template fits.

A pod names its node by affinity and is bound by the scheduler. Nodes that come get theirs, nodes that no longer fit
lose it. A new template replaces pods one after the other within `maxUnavailable` or `maxSurge`, or waits until they are
deleted by hand (OnDelete).
Source: apps/v1 DaemonSet, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context, slow_start
from haru.controllers.controller_refs import ClaimRule, add_ownership_indexes, claim
from haru.controllers.daemon_nodes import daemon_pod, may_stay, node_of_daemon, should_run
from haru.controllers.objects import DAEMON_SETS, NODES, available_in, is_active, is_ready, is_terminal
from haru.controllers.pod_owner import PodOwnerController
from haru.controllers.revisions import REVISIONS, forget_old, hash_of, owned_revisions, present_revision, revision_of
from haru.controllers.rollout import scaled
from haru.errors import raise_first
from haru.event_loop import bounded
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, is_being_deleted, labels_of, name_of
from haru.kube.selectors import label_selector_from

BURST = 250


class DaemonSetController(PodOwnerController):
    """Keeps one pod of each DaemonSet on each node."""

    name: ClassVar[str] = "daemonset-controller"
    needs: ClassVar[tuple[Kind, ...]] = (DAEMON_SETS, REVISIONS)

    def __init__(self, context: Context) -> None:
        super().__init__(context, DAEMON_SETS)
        self.nodes = self.informer(NODES)
        self.revisions = self.informer(REVISIONS)
        add_ownership_indexes(self.revisions)
        self.follow(self.revisions)
        self.nodes.add_handler(self._all, self._node_updated, self._all)

    def _all(self, _: Obj) -> None:
        for daemon_set in self.sets.store.values():
            self.gather(object_key(daemon_set), len(self.nodes.store))

    def size_of(self, uid: str) -> int:
        """How many objects a look at a DaemonSet has to look at: every node."""
        return len(self.nodes.store)

    def _node_updated(self, old: Obj, new: Obj) -> None:
        """Heartbeats change nothing about where pods belong."""
        before, after = old.get("spec") or {}, new.get("spec") or {}
        if labels_of(old) != labels_of(new) or before.get("taints") != after.get("taints"):
            self._all(new)

    async def sync(self, key: str) -> float | None:
        """Bring one DaemonSet into line."""
        namespace, _, name = key.partition("/")
        daemon_set = self.sets.get(name, namespace)
        if daemon_set is None or is_being_deleted(daemon_set):
            return None
        selector = label_selector_from(daemon_set["spec"].get("selector"))
        if selector.empty:
            return None
        await claim(self, self.sets, daemon_set, self.revisions, ClaimRule(selector))
        pods = await claim(self, self.sets, daemon_set, self.pods, ClaimRule(selector))
        revision = await present_revision(self, self.revisions, daemon_set, DAEMON_SETS)
        failures: list[Exception] = []
        try:
            await self._manage(daemon_set, pods, hash_of(revision))
        except (StatusError, OSError) as error:
            failures.append(error)
        pods = self.pods.by_index("controller", daemon_set["metadata"]["uid"])
        again = await self._write_status(self.sets.get(name, namespace) or daemon_set, pods, hash_of(revision))
        present = {hash_of(revision), *map(revision_of, pods)}
        used = [name_of(old) for old in owned_revisions(self.revisions, daemon_set) if hash_of(old) in present]
        await forget_old(self, self.revisions, daemon_set, used)
        raise_first(failures)
        return again

    # --- pods

    async def _manage(self, daemon_set: Obj, pods: Sequence[Obj], digest: str) -> None:
        by_node = _by_node(pods)
        missing: list[str] = []
        surplus: list[Obj] = []
        for node in list(self.nodes.store.values()):
            own = by_node.pop(name_of(node), [])
            ended = [pod for pod in own if is_terminal(pod) and not is_being_deleted(pod)]
            active = [pod for pod in own if is_active(pod)]
            if should_run(daemon_set, node):
                surplus += ended
                surplus += _superfluous(active, digest)
                if not active and not ended and not any(is_being_deleted(pod) for pod in own):
                    missing.append(name_of(node))
            elif not may_stay(daemon_set, node):
                surplus += [pod for pod in own if not is_being_deleted(pod)]
        surplus += [pod for pods in by_node.values() for pod in pods if not is_being_deleted(pod)]
        replaced, surging = self._update(daemon_set, pods, digest)
        gone = {pod["metadata"]["uid"]: pod for pod in (*surplus, *replaced)}
        await bounded(list(gone.values()), lambda pod: self._delete(daemon_set, pod))
        wanted = [*missing, *surging][:BURST]
        await slow_start(len(wanted), lambda index: self._create(daemon_set, wanted[index], digest))

    def _update(self, daemon_set: Obj, pods: Sequence[Obj], digest: str) -> tuple[list[Obj], list[str]]:
        """The pods of old templates that may go now, and the nodes that get a second pod beside theirs."""
        strategy = daemon_set["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return [], []
        rolling = strategy.get("rollingUpdate") or {}
        nodes = {name_of(node) for node in self.nodes.store.values() if should_run(daemon_set, node)}
        surge = scaled(rolling.get("maxSurge"), len(nodes), round_up=True)
        by_node = {node: own for node, own in _by_node(pods).items() if node in nodes}
        if surge:
            return self._surge(daemon_set, by_node, digest, surge)
        allowed = max(scaled(rolling.get("maxUnavailable", 1), len(nodes), round_up=True), 1)
        available, old = 0, []
        for own in by_node.values():
            active = [pod for pod in own if is_active(pod)]
            available += any(self._is_available(daemon_set, pod) for pod in active)
            old += [pod for pod in active if revision_of(pod) != digest]
        # A pod that is not available is missed by nobody: it goes without counting.
        idle = [pod for pod in old if not self._is_available(daemon_set, pod)]
        room = max(0, allowed - (len(nodes) - available))
        return idle + [pod for pod in old if pod not in idle][:room], []

    def _surge(
        self, daemon_set: Obj, by_node: Mapping[str, Sequence[Obj]], digest: str, surge: int
    ) -> tuple[list[Obj], list[str]]:
        going: list[Obj] = []
        waiting: list[str] = []
        surging = 0
        for node, own in by_node.items():
            active = [pod for pod in own if is_active(pod)]
            old = [pod for pod in active if revision_of(pod) != digest]
            new = [pod for pod in active if revision_of(pod) == digest]
            if not old:
                continue
            if any(self._is_available(daemon_set, pod) for pod in new):
                going += old
            elif new:
                surging += 1
            elif not any(self._is_available(daemon_set, pod) for pod in old):
                going += old
            else:
                waiting.append(node)
        return going, waiting[: max(0, surge - surging)]

    async def _create(self, daemon_set: Obj, node: str, digest: str) -> None:
        try:
            created = await self.create(self.pods, daemon_pod(daemon_set, node, digest))
        except StatusError as error:
            self.events.event(daemon_set, "Warning", "FailedCreate", f"Error creating: {error}")
            raise
        self.events.event(daemon_set, "Normal", "SuccessfulCreate", f"Created pod: {name_of(created)}")

    async def _delete(self, daemon_set: Obj, pod: Obj) -> None:
        if is_terminal(pod) and (pod.get("status") or {}).get("phase") == "Failed":
            text = f"Found failed daemon pod {object_key(pod)} on node {node_of_daemon(pod)}, will try to kill it"
            self.events.event(daemon_set, "Warning", "FailedDaemonPod", text)
        if await self.delete(self.pods, pod):
            self.events.event(daemon_set, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")

    # --- status

    async def _write_status(self, daemon_set: Obj, pods: Sequence[Obj], digest: str) -> float | None:
        by_node = _by_node([pod for pod in pods if not is_being_deleted(pod)])
        counts: dict[str, int] = dict.fromkeys(
            ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
        )
        available = updated = 0
        waits: list[float] = []
        for node in list(self.nodes.store.values()):
            own = by_node.get(name_of(node), [])
            if not should_run(daemon_set, node):
                counts["numberMisscheduled"] += bool(own)
                continue
            counts["desiredNumberScheduled"] += 1
            if not own:
                continue
            counts["currentNumberScheduled"] += 1
            counts["numberReady"] += any(map(is_ready, own))
            times = [available_in(pod, daemon_set["spec"].get("minReadySeconds") or 0, self.now()) for pod in own]
            available += 0 in times
            updated += any(revision_of(pod) == digest for pod in own)
            waits += [time for time in times if time]
        missing = counts["desiredNumberScheduled"] - available
        optional: Obj = {
            "numberAvailable": available,
            "numberUnavailable": missing,
            "updatedNumberScheduled": updated,
            "observedGeneration": daemon_set["metadata"].get("generation", 0),
        }
        status = {**counts, **{name: value for name, value in optional.items() if value}}
        kept = {
            name: v for name, v in (daemon_set.get("status") or {}).items() if name in ("collisionCount", "conditions")
        }
        await self.update_status(self.sets, daemon_set, {**kept, **status})
        return min(waits) if waits else None


def _by_node(pods: Sequence[Obj]) -> dict[str, list[Obj]]:
    found: dict[str, list[Obj]] = {}
    for pod in pods:
        found.setdefault(node_of_daemon(pod), []).append(pod)
    return found


def _superfluous(active: Sequence[Obj], digest: str) -> list[Obj]:
    """Of several pods of one template on a node all but the best: bound, ready, old."""

    def rank(pod: Obj) -> Any:
        return (not (pod["spec"].get("nodeName")), not is_ready(pod), pod["metadata"].get("creationTimestamp") or "")

    sorts: dict[bool, list[Obj]] = {}
    for pod in active:
        sorts.setdefault(revision_of(pod) == digest, []).append(pod)
    return [pod for alike in sorts.values() for pod in sorted(alike, key=rank)[1:]]
