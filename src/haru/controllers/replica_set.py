"""Run the replicaset-controller and the replicationcontroller-controller: keep the number of pods of a template.

Pods that match and have no controller are adopted. Missing pods are created in growing batches; surplus pods are
deleted, the least useful first. A ReplicationController is a ReplicaSet in version v1 with a plain map as its selector.
Source: apps/v1 ReplicaSet and its documentation (the order of deletion is in haru.kube.pod_removal); Kubernetes
`pkg/controller/replication`, an adapter too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from haru.controllers.base import Context, slow_start
from haru.controllers.controller_refs import ClaimRule, claim
from haru.controllers.objects import (
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    available_in,
    by_controller,
    is_active,
    is_terminal,
)
from haru.controllers.pod_owner import PodOwnerController
from haru.errors import raise_first
from haru.event_loop import bounded
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import (
    Obj,
    controller_of,
    get_condition,
    is_being_deleted,
    labels_of,
    name_of,
    set_condition,
    uid_of,
)
from haru.kube.pod_removal import replica_removal_order
from haru.kube.pod_templates import pod_from_template
from haru.kube.selectors import LabelSelector, label_selector_from

BURST = 500


class ReplicaSetController(PodOwnerController):
    """Keeps the number of pods of each ReplicaSet, or of each object of another `kind` that is made alike."""

    name: ClassVar[str] = "replicaset-controller"
    needs: ClassVar[tuple[Kind, ...]] = (REPLICA_SETS,)
    kind: ClassVar[Kind] = REPLICA_SETS

    def __init__(self, context: Context) -> None:
        super().__init__(context, self.kind)
        self.sets.add_index("controller", by_controller)

    async def sync(self, key: str) -> float | None:
        """Bring one object into line."""
        namespace, _, name = key.partition("/")
        replica_set = self.sets.get(name, namespace)
        if replica_set is None:
            return None
        selector = self.selector_of(replica_set)
        if selector.empty:
            return None
        pods = await claim(self, self.sets, replica_set, self.pods, ClaimRule(selector, among=is_active))
        failures: list[Exception] = []
        if not is_being_deleted(replica_set):
            try:
                await self._manage(replica_set, pods)
            except (StatusError, OSError) as error:
                failures.append(error)
        pods = self.pods.by_index("controller", replica_set["metadata"]["uid"])
        replica_set = self.sets.get(name, namespace) or replica_set
        again = await self._write_status(replica_set, [pod for pod in pods if not is_terminal(pod)], failures)
        raise_first(failures)
        return again

    async def _manage(self, replica_set: Obj, active: Sequence[Obj]) -> None:
        wanted = replica_set["spec"].get("replicas", 1)
        if len(active) < wanted:
            body = pod_from_template(replica_set, self.kind, replica_set["spec"]["template"])

            async def create(_: int) -> None:
                await self._create(replica_set, body)

            await slow_start(min(wanted - len(active), BURST), create)
        elif len(active) > wanted:
            order = replica_removal_order(active, self._related(replica_set), self.now())
            await bounded(order[: min(len(active) - wanted, BURST)], lambda pod: self._delete(replica_set, pod))

    def _related(self, replica_set: Obj) -> Iterator[Obj]:
        """The active pods of all objects of its kind that its controller made; none where it has no controller."""
        owner = controller_of(replica_set)
        for each in self.sets.by_index("controller", owner["uid"]) if owner else ():
            yield from filter(is_active, self.pods.by_index("controller", uid_of(each)))

    async def _create(self, replica_set: Obj, body: Obj) -> None:
        try:
            created = await self.create(self.pods, body)
        except StatusError as error:
            self.events.event(replica_set, "Warning", "FailedCreate", f"Error creating: {error}")
            raise
        self.events.event(replica_set, "Normal", "SuccessfulCreate", f"Created pod: {name_of(created)}")

    async def _delete(self, replica_set: Obj, pod: Obj) -> None:
        if await self.delete(self.pods, pod):
            self.events.event(replica_set, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")

    async def _write_status(self, replica_set: Obj, pods: Sequence[Obj], failures: Sequence[Exception]) -> float | None:
        spec = replica_set["spec"]
        template_labels = ((spec["template"].get("metadata") or {}).get("labels") or {}).items()
        min_ready, now = spec.get("minReadySeconds") or 0, self.now()
        active = [pod for pod in pods if is_active(pod)]
        until_available = [available_in(pod, min_ready, now) for pod in active]
        waits = [wait for wait in until_available if wait]
        counts = {
            "fullyLabeledReplicas": sum(template_labels <= labels_of(pod).items() for pod in active),
            "readyReplicas": sum(wait is not None for wait in until_available),
            "availableReplicas": sum(wait == 0 for wait in until_available),
            "observedGeneration": replica_set["metadata"].get("generation", 0),
        }
        old = replica_set.get("status") or {}
        status: Obj = {"replicas": len(active), **{k: v for k, v in counts.items() if v}}
        conditions = [c for c in old.get("conditions") or () if c["type"] != "ReplicaFailure"]
        if failures:
            reason = "FailedCreate" if len(active) < spec.get("replicas", 1) else "FailedDelete"
            new = {"type": "ReplicaFailure", "status": "True", "reason": reason, "message": str(failures[0])}
            # The message names the pod that was refused: a new one each time would be a write that causes the next.
            known = get_condition(replica_set, "ReplicaFailure")
            conditions = (
                old["conditions"]
                if known and known.get("reason") == reason
                else set_condition(old.get("conditions"), new, self.timestamp())
            )
        if conditions:
            status["conditions"] = conditions
        if self.kind is REPLICA_SETS:
            status["terminatingReplicas"] = len(pods) - len(active)
        await self.update_status(self.sets, replica_set, status)
        return min(waits) if waits else None


class ReplicationControllerController(ReplicaSetController):
    """Keeps the number of pods of each ReplicationController."""

    name: ClassVar[str] = "replicationcontroller-controller"
    component: ClassVar[str] = "replication-controller"
    needs: ClassVar[tuple[Kind, ...]] = (REPLICATION_CONTROLLERS,)
    kind: ClassVar[Kind] = REPLICATION_CONTROLLERS

    def selector_of(self, owner: Obj) -> LabelSelector:
        """Which pods an object looks after."""
        return label_selector_from({"matchLabels": owner["spec"].get("selector") or {}})
