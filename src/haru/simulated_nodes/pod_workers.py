"""Take the pods of simulated nodes from bound to ended, as the pod workers of kubelets do.

For each pod that is bound to a node of the fleet: check its claims and prepare them, set it running, end and restart it
as its annotations say, and finish its deletion. There is no state but the API objects: after a restart the pods'
statuses say when they end, and what runs is not started again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.client.informer import Informer, Selection
from haru.client.workqueue import WorkQueue
from haru.clock import Clock
from haru.drivers.simulated.device_health import state_of
from haru.kube import pod_resize as resize
from haru.kube.claim_uses import health_status, with_health
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.kubelet_admission import KubeletView, admission
from haru.kube.meta import (
    Obj,
    get_condition,
    is_being_deleted,
    key_of,
    name_of,
    namespace_of,
    node_of,
    phase_of,
    uid_of,
)
from haru.kube.names import format_time
from haru.kube.node_admission import Shortage
from haru.kube.node_preemption import MESSAGE, PREEMPTING
from haru.kube.pod_claims import FAILED_PREPARE, NotPrepared, claim_keys
from haru.kube.simulated_containers.container_scripts import Script
from haru.kube.simulated_containers.files import PodSources, volume_problem
from haru.simulated_nodes import containers
from haru.simulated_nodes import pods as podlib
from haru.simulated_nodes.addresses import PodAddresses
from haru.simulated_nodes.claim_preparation import ClaimPreparation
from haru.simulated_nodes.claims import PreparedClaims
from haru.simulated_nodes.deferred_resizes import DeferredResizes
from haru.simulated_nodes.events import PodEvents
from haru.simulated_nodes.network import NodeNetwork
from haru.simulated_nodes.nodes import SimulatedNode
from haru.simulated_nodes.pod_scripts import scripts_of
from haru.simulated_nodes.preemptions import Preemptions, preempted_status
from haru.simulated_nodes.sources import SourceReader, mount_pause
from haru.simulated_nodes.stops import takes_time
from haru.simulated_nodes.terminations import Terminations

COMPONENT: Final = "simulated-kubelet"
WORKERS: Final = 16
_BY_NODE: Final = "node"
_BY_CLAIM: Final = "claim"
_RETRY_SECONDS: Final = 10.0
_PREPARING: Final = "Failed to prepare dynamic resources: "
PODS: Final = known_kind("v1", "Pod")


class PodWorkers:
    """Act for the pods on these nodes. `client` watches for all; `as_node(name)` writes for one node."""

    def __init__(
        self,
        client: ApiClient,
        as_node: Callable[[str], ApiClient],
        nodes: Mapping[str, SimulatedNode],
        clock: Clock,
        recorder: EventRecorder,
        *,
        with_claims: bool = True,
    ) -> None:
        self._as_node = as_node
        self._nodes = nodes
        self._clock = clock.now
        self._recorder = recorder
        self._events = PodEvents(recorder, clock.monotonic)
        self._queue: WorkQueue[str] = WorkQueue(COMPONENT)
        self._addresses = PodAddresses()
        self._admitted: set[str] = set()
        self._began: dict[str, datetime] = {}
        self._runs: dict[str, containers.PodRuns] = {}
        self._terminations = Terminations(clock.now, self._events)
        self._preemptions = Preemptions(clock.now)
        self._allocations = resize.Allocations()
        self._deferred = DeferredResizes()
        self._claims = ClaimPreparation(client, as_node)
        self._pods = Informer(client, PODS, Selection(field_selector="spec.nodeName!="))
        self._pods.add_index(_BY_NODE, lambda pod: (node_of(pod),))
        self._pods.add_index(_BY_CLAIM, claim_keys)
        self._pods.add_handler(self._pod_added, lambda old, new: self._pod_added(new), self._pod_deleted)
        self.network = NodeNetwork(client, self._pods, clock.now, self._queue.add)
        self._sources = SourceReader(as_node, self.network, clock.now)
        self._with_claims = with_claims
        self._claims.claims.add_handler(self._claim_changed, lambda old, new: self._claim_changed(new))

    @property
    def prepared(self) -> PreparedClaims:
        """Which claims are prepared, and where."""
        return self._claims.prepared

    @property
    def informers(self) -> tuple[Informer, ...]:
        """Return the informers of pods and claims, which the fleet runs."""
        return (self._pods, self._claims.claims) if self._with_claims else (self._pods,)

    async def run(self) -> None:
        """Sync pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.network.run(), name=f"{COMPONENT} network")
            group.create_task(self._queue.run(self.sync, WORKERS), name=f"{COMPONENT} pods")

    def sync_node(self, name: str) -> None:
        """Queue all pods of a node that has just come up."""
        for pod in self._pods.by_index(_BY_NODE, name):
            self._count_anew(pod)
            self._queue.add(key_of(pod))

    # -- what has changed ---------------------------------------------------------------------------------------------

    def _pod_added(self, pod: Obj) -> None:
        if not _uses_host_network(pod):
            self._addresses.observe(pod)
        if node_of(pod) in self._nodes:
            self._count_anew(pod)
            self._queue.add(key_of(pod))

    def _pod_deleted(self, pod: Obj) -> None:
        """The object is gone: whatever was still held for it is given back."""
        self._ended(pod)
        self._addresses.release(pod)

    def _claim_changed(self, claim: Obj) -> None:
        for pod in self._pods.by_index(_BY_CLAIM, key_of(claim)):
            if node_of(pod) in self._nodes and phase_of(pod) == "Pending":
                self._queue.add(key_of(pod))

    def _count_anew(self, pod: Obj) -> None:
        if (node := self._nodes.get(node_of(pod))) is not None:
            node.usage.note(uid_of(pod), key_of(pod))

    def _ended(self, pod: Obj) -> None:
        self._count_anew(pod)
        self._admitted.discard(uid_of(pod))
        self._began.pop(uid_of(pod), None)
        self._terminations.forget(pod)
        self._runs.pop(uid_of(pod), None)
        self._allocations.forget(uid_of(pod))
        self._sources.ended(pod)
        self._deferred.note(node_of(pod), key_of(pod), waits=False)
        for key in self._preemptions.forget(pod):
            self._queue.add(key)
        self._claims.prepared.release(uid_of(pod))
        self._retry_resizes(node_of(pod))

    # -- one pod ------------------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> float | None:
        """Take a pod as far as it can go now; after how many seconds to look again, if anything is due."""
        pod = self._pods.store.get(key)
        node = self._nodes.get(node_of(pod)) if pod is not None else None
        if pod is None or node is None or not node.acts:
            return None
        try:
            return await self._step(pod, node)
        finally:
            last = self._pods.store.get(key)
            if last is None or uid_of(last) != uid_of(pod):
                self._pod_deleted(pod)  # it went meanwhile: what was done for it since is given back, too

    async def _step(self, pod: Obj, node: SimulatedNode) -> float | None:
        if is_being_deleted(pod):
            return await self._finish_deletion(self._allocations.allocated(pod))
        phase = phase_of(pod)
        if phase in podlib.TERMINAL:
            self._ended(pod)
            return None
        if (ending := self._preemptions.ending(pod)) is not None:
            return await self._end_preempted(ending)
        deadline, now = podlib.deadline_of(pod), self._clock()
        if deadline is not None and deadline <= now:
            return await self._end_overdue(pod, deadline, format_time(now))
        due = await (self._keep_running(pod, node) if phase == "Running" else self._start(pod, node))
        left = [] if deadline is None else [(deadline - now).total_seconds()]
        return min([*left, *([] if due is None else [due])], default=None)

    async def _start(self, pod: Obj, node: SimulatedNode) -> float | None:
        began = self._clock()
        now = format_time(began)
        if uid_of(pod) not in self._admitted:
            problem = self._admit(pod, node)
            if problem is not None:
                self._recorder.event(pod, "Warning", *problem)
                await self._write(pod, podlib.rejected_status(pod, now, *problem))
                return None
        if left := self._preemptions.seconds_left(pod):
            return left
        pod = self._allocations.allocated(pod)
        try:
            await self._claims.prepare(pod, node)
        except NotPrepared as obstacle:
            self._recorder.event(pod, "Warning", FAILED_PREPARE, f"{_PREPARING}{obstacle}")
            if not (pod.get("status") or {}).get("containerStatuses"):
                await self._write(pod, podlib.creating_status(pod, now, node.internal_ip))
            return _RETRY_SECONDS
        sources = await self._sources.of(pod, node)
        if unmounted := volume_problem(pod, sources):
            self._recorder.event(pod, "Warning", "FailedMount", unmounted)
            if not (pod.get("status") or {}).get("containerStatuses"):
                await self._write(pod, podlib.creating_status(pod, now, node.internal_ip))
            return mount_pause(pod, began)
        address = node.internal_ip if _uses_host_network(pod) else self._addresses.address_of(pod)
        running = podlib.running_status(pod, now, node.internal_ip, address)
        scripts = self._scripts({**pod, "status": {**(pod.get("status") or {}), **running}}, sources)
        if scripts is not None:
            return await self._start_scripted(pod, node, running, scripts)
        written = await self._write(pod, running)
        if written is None:
            return None
        self._events.started(pod)
        self._began[uid_of(pod)] = began  # what is written is cut to seconds
        return None  # it is queued again by what was written

    def _scripts(self, pod: Obj, sources: PodSources) -> Mapping[str, Script] | None:
        """The scripts of the pod's containers; none while its annotations are malformed."""
        try:
            return scripts_of(pod, sources)
        except ValueError as error:
            self._recorder.event(pod, "Warning", "InvalidAnnotation", str(error))
            return None

    async def _start_scripted(
        self, pod: Obj, node: SimulatedNode, running: Obj, scripts: Mapping[str, Script]
    ) -> float | None:
        """Begin with the containers that may start; others wait for their images or for init containers."""
        given = ("startTime", "hostIP", "hostIPs", "podIP", "podIPs", "resources", "allocatedResources")
        begun = {key: running[key] for key in given if key in running}
        before = pod.get("status") or {}
        begun["startTime"] = before.get("startTime") or running["startTime"]
        return await self._advance({**pod, "status": {**before, **begun}}, node, scripts, begun)

    async def _advance(
        self, pod: Obj, node: SimulatedNode, scripts: Mapping[str, Script], more: Obj | None = None
    ) -> float | None:
        """Take the containers of a pod with scripts on; seconds until something is due."""
        runs = self._runs.setdefault(uid_of(pod), containers.PodRuns())
        status, events, due = containers.advance(pod, scripts, runs, self._clock(), await self._sources.of(pod, node))
        if status is None:
            return due
        self._events.tell(pod, events)
        if status["phase"] in podlib.TERMINAL:
            self._ended({**pod, "status": {**(pod.get("status") or {}), **status}})
        written = await self._write(pod, podlib.observed(pod, {**(more or {}), **status}))
        if written is None or status["phase"] in podlib.TERMINAL:
            return None
        return due

    def _admit(self, pod: Obj, node: SimulatedNode) -> tuple[str, str] | None:
        """Take a pod that has come to the node, or say why not; a critical one may need the room of others."""
        missing = list(self._shortages(pod, node))
        features = (node.stored.get("status") or {}).get("declaredFeatures") or ()
        view = KubeletView(node.stored, features, node.usage.ports_beside(uid_of(pod)))
        found = admission(pod, view, missing, lambda: self._beside(pod, node))
        if found.problem is not None:
            return found.problem
        self._take(pod)
        self._allocations.allocate(pod)
        for one in self._preemptions.begin(pod, found.victims) if found.victims else ():
            self._recorder.event(one, "Warning", PREEMPTING, MESSAGE)
            self._queue.add(key_of(one))
        return None

    def _take(self, pod: Obj) -> None:
        self._admitted.add(uid_of(pod))
        self._count_anew(pod)

    def _shortages(self, pod: Obj, node: SimulatedNode) -> Iterator[Shortage]:
        """What the node has too little of for the pod beside those that take room there already."""
        node.usage.refresh(self._holder)
        return node.usage.shortages(pod, node.allocatable)

    def _beside(self, pod: Obj, node: SimulatedNode) -> list[Obj]:
        """The other pods that take room on the node."""
        found = map(self._holder, map(key_of, self._pods.by_index(_BY_NODE, node.name)))
        return [one for one in found if one is not None and uid_of(one) != uid_of(pod)]

    def _holder(self, key: str) -> Obj | None:
        """The pod, with what it was allocated, if it takes room on its node."""
        pod = self._pods.store.get(key)
        if pod is None or phase_of(pod) in podlib.TERMINAL:
            return None
        if uid_of(pod) not in self._admitted and phase_of(pod) != "Running":
            return None
        return self._allocations.allocated(pod)

    async def _keep_running(self, pod: Obj, node: SimulatedNode) -> float | None:
        if uid_of(pod) not in self._admitted:  # it ran before this process did
            self._take(pod)
            await self._recall_claims(pod, node)
        now = self._clock()
        pod = await self._resize(pod, node, format_time(now))
        scripts = self._scripts(pod, await self._sources.of(pod, node))
        if scripts is None:
            for change in (podlib.joined_status(pod, format_time(now)), podlib.newly_observed(pod)):
                if change is not None:
                    pod = await self._write(pod, change) or pod
        return await self._until_its_end(pod, node, now, scripts)

    async def _end_overdue(self, pod: Obj, deadline: datetime, now: str) -> float | None:
        """End a pod whose time is over; seconds until its next container ends."""
        if not self._terminations.has_begun(pod):
            self._recorder.event(pod, "Normal", "DeadlineExceeded", podlib.OVERDUE)
        pod = self._allocations.allocated(pod)
        if phase_of(pod) == "Running" and not takes_time(pod):
            self._events.stopped(pod)
            status: Obj | None = podlib.overdue_status(pod, now)
            left = None
        else:
            status, left = self._terminations.step(podlib.as_stopped(pod, deadline))
            status = podlib.with_deadline(status or {}) if left is None else status
        if left is None:
            self._ended(pod)
        if status is not None:
            await self._write(pod, status)
        return left

    async def _resize(self, pod: Obj, node: SimulatedNode, now: str) -> Obj:
        """The pod as it was allocated: as its spec asks, once there is room for that."""
        stored = self._pods.store.get(key_of(pod))
        if stored is not None and uid_of(stored) == uid_of(pod):
            pod = stored  # what it was written from may already be as allocated
        before, reason, problem = self._allocations.allocated(pod), "", ""
        if before is not pod:
            missing = next(self._shortages(resize.unheld(pod), node), None)
            if missing is None:
                self._allocations.allocate(pod)
                self._count_anew(pod)
            else:
                reason, problem = missing.problem
        after = before if problem else pod
        self._deferred.note(node.name, key_of(pod), waits=bool(problem))
        status = resize.resize_status(pod, after, now, problem)
        if status is None:
            return after
        written = await self._write(pod, status)
        if problem and resize.is_news(pod):
            self._events.resize_deferred(pod, reason, problem)
        elif not problem and before is not pod:
            self._events.resized(pod)
            self._retry_resizes(node.name)
        return written or after

    def _retry_resizes(self, node: str) -> None:
        """Room may have come about on the node: have its deferred resizes looked at again, in their turn."""
        waiting = (pod for key in self._deferred.of(node) if (pod := self._pods.store.get(key)))
        for pod in resize.in_turn(waiting):
            self._queue.add(key_of(pod))

    async def _until_its_end(
        self, pod: Obj, node: SimulatedNode, now: datetime, scripts: Mapping[str, Script] | None
    ) -> float | None:
        left: list[float] = []
        ending = self._final_ending(pod)
        if ending is not None:
            began = self._began.get(uid_of(pod)) or podlib.started_at(pod) or now
            due = began + timedelta(seconds=ending.after_seconds)
            if due <= now:
                self._ended(pod)
                await self._write(pod, podlib.ended_status(pod, format_time(now), ending))
                return None
            left.append((due - now).total_seconds())
        if scripts is None:
            await self._refresh_readiness(pod, format_time(now))
        elif (next_step := await self._advance(pod, node, scripts)) is not None:
            left.append(next_step)
        await self._refresh_health(pod)
        return min(left, default=None)

    def _final_ending(self, pod: Obj) -> podlib.Ending | None:
        """The end after which no container is restarted."""
        try:
            ending = podlib.ending_of(pod)
        except ValueError:
            return None
        if ending is None or ending.phase == "Succeeded" or pod["spec"].get("restartPolicy", "Always") == "Never":
            return ending
        return None

    async def _recall_claims(self, pod: Obj, node: SimulatedNode) -> None:
        """Claims of a pod that already runs count as prepared; one that was taken from it does not stop it."""
        try:
            await self._claims.prepare(pod, node)
        except NotPrepared as obstacle:
            self._recorder.event(pod, "Warning", FAILED_PREPARE, f"{_PREPARING}{obstacle}")

    def _health(self, pod: Obj) -> dict[str, list[Obj]]:
        """Container -> `allocatedResourcesStatus`, as far as the annotation of its node says how devices are."""
        node = self._nodes.get(node_of(pod))
        told = node.device_health if node is not None else None
        if node is None or told is None:
            return {}
        devices = partial(self._claims.prepared.devices_of, node.name)
        return health_status(pod, devices, lambda _driver, _pool, device: state_of(device, told))

    async def _refresh_health(self, pod: Obj) -> None:
        """Tell how the devices of a running pod are, if that has changed."""
        live = self._pods.store.get(key_of(pod)) if pod["spec"].get("resourceClaims") else None
        if live is None or uid_of(live) != uid_of(pod) or phase_of(live) != "Running":
            return
        statuses = live["status"].get("containerStatuses") or []
        if with_health(statuses, self._health(live)) != statuses:
            await self._write(live, {"containerStatuses": statuses})

    async def _refresh_readiness(self, pod: Obj, now: str) -> None:
        if not (pod.get("spec") or {}).get("readinessGates"):
            return
        wanted = podlib.ready_condition(pod, now)
        present = get_condition(pod, "Ready") or {}
        if any(present.get(field) != wanted.get(field) for field in ("status", "reason", "message")):
            await self._write(pod, {"conditions": [wanted]})

    async def _finish_deletion(self, pod: Obj) -> float | None:
        """Stop what runs, unprepare, tell the end, then let the object go; seconds until the next container ends."""
        left = await self._stop(pod) if phase_of(pod) not in podlib.TERMINAL else None
        if left is not None:
            return left
        self._ended(pod)
        await self._delete(pod)
        return None

    async def _stop(self, pod: Obj) -> float | None:
        """Tell which containers have ended by now; seconds until the next one does, None if all have."""
        status, left = self._terminations.step(pod)
        if status is not None:
            await self._write(pod, status)
        return left

    async def _end_preempted(self, pod: Obj) -> float | None:
        """Stop a pod that goes for a critical one; seconds until its next container ends."""
        status, left = self._terminations.step(self._allocations.allocated(pod))
        if status is not None:
            await self._write(pod, status if left is not None else preempted_status(pod, status, self._clock()))
        return left

    async def _delete(self, pod: Obj) -> None:
        if pod["metadata"].get("deletionGracePeriodSeconds") == 0:
            return  # only finalizers keep it
        try:
            answer = await self._as_node(node_of(pod)).delete(
                PODS, name_of(pod), namespace_of(pod), uid=uid_of(pod), grace_period_seconds=0
            )
        except StatusError as error:
            if error.code not in (404, 409):
                raise
        else:
            self._pods.observe_deleted(pod, answer)

    async def _write(self, pod: Obj, status: Obj) -> Obj | None:
        """Patch the status of this very pod; None if it is gone."""
        if "containerStatuses" in status and pod["spec"].get("resourceClaims"):
            status = {**status, "containerStatuses": with_health(status["containerStatuses"], self._health(pod))}
        patch = {"metadata": {"uid": uid_of(pod)}, "status": status}
        try:
            written = await self._as_node(node_of(pod)).patch(
                PODS, name_of(pod), patch, namespace_of(pod), type="strategic", subresource="status"
            )
        except StatusError as error:
            if error.code == 404:
                return None
            raise
        self._pods.observe(written)
        return self._allocations.allocated(written)


def _uses_host_network(pod: Obj) -> bool:
    return bool((pod.get("spec") or {}).get("hostNetwork"))
