"""disruption-controller: how many pods of each PodDisruptionBudget may be evicted now.

The eviction subresource notes a pod in `disruptedPods` and lowers `disruptionsAllowed`; here the numbers are computed
anew from the pods as they are. A pod noted there counts as gone until it is, or for two minutes.
Source: policy/v1 PodDisruptionBudget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, NamedTuple

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    is_active,
    is_ready,
    is_terminal,
)
from haru.controllers.rollout import scaled
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, controller_of, is_being_deleted, labels_of, name_of, namespace_of, set_condition, uid_of
from haru.kube.names import parse_time
from haru.kube.selectors import label_selector_from

_GIVEN_UP = timedelta(minutes=2)


class _NoScale(Exception):
    """Some pods have no controller that says how many there should be."""


class _Counts(NamedTuple):
    """The pods of a budget: how many are healthy, how many must be, and how many there should be."""

    healthy: int
    desired: int
    expected: int


class DisruptionController(Controller):
    """Keeps the status of PodDisruptionBudgets."""

    name: ClassVar[str] = "disruption-controller"
    needs: ClassVar[tuple[Kind, ...]] = (DISRUPTION_BUDGETS,)
    workers: ClassVar[int] = 2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.budgets = self.informer(DISRUPTION_BUDGETS)
        self.pods = self.informer(PODS)
        scalable = (REPLICA_SETS, REPLICATION_CONTROLLERS, DEPLOYMENTS, STATEFUL_SETS)
        self.scalable = {k.kind: self.informer(k) for k in scalable if context.serves(k)}
        self.pods.add_index("namespace", lambda pod: [namespace_of(pod)])
        self.budgets.add_index("namespace", lambda budget: [namespace_of(budget)])
        self.budgets.add_handler(self.enqueue, lambda _, new: self.enqueue(new))
        self.pods.add_handler(self._pod_changed, self._pod_updated, self._pod_changed)
        for informer in self.scalable.values():
            informer.add_handler(self._scalable_changed, lambda _, new: self._scalable_changed(new))

    def _pod_changed(self, pod: Obj) -> None:
        for budget in self.budgets.by_index("namespace", namespace_of(pod)):
            if _selector(budget).matches(labels_of(pod)):
                self.gather(object_key(budget), self.pods.count("namespace", namespace_of(pod)))

    def _pod_updated(self, old: Obj, new: Obj) -> None:
        if _counted(old) == _counted(new):
            return
        if labels_of(old) != labels_of(new):
            self._pod_changed(old)
        self._pod_changed(new)

    def _scalable_changed(self, obj: Obj) -> None:
        for budget in self.budgets.by_index("namespace", namespace_of(obj)):
            self.enqueue(budget)

    async def sync(self, key: str) -> float | None:
        """Compute one budget's status."""
        namespace, _, name = key.partition("/")
        budget = self.budgets.get(name, namespace)
        if budget is None:
            return None
        selector = _selector(budget)
        pods = [
            pod
            for pod in self.pods.by_index("namespace", namespace)
            if selector.matches(labels_of(pod)) and not is_terminal(pod)
        ]
        disrupted, again = self._still_disrupted(budget, pods)
        healthy = sum(is_ready(p) and is_active(p) and name_of(p) not in disrupted for p in pods)
        try:
            expected, desired = self._expected(budget, pods)
        except _NoScale as why:
            await self._write(budget, disrupted, _Counts(healthy, 0, 0), str(why))
            return again
        await self._write(budget, disrupted, _Counts(healthy, desired, expected), "")
        return again

    def _still_disrupted(self, budget: Obj, pods: Sequence[Obj]) -> tuple[dict[str, str], float | None]:
        noted = (budget.get("status") or {}).get("disruptedPods") or {}
        present = {name_of(pod): pod for pod in pods}
        kept: dict[str, str] = {}
        again: float | None = None
        for name, since in noted.items():
            pod = present.get(name)
            remaining = (parse_time(since) + _GIVEN_UP - self.now()).total_seconds()
            if pod is not None and not is_being_deleted(pod) and remaining > 0:
                kept[name] = since
                again = min(remaining, again) if again is not None else remaining
        return kept, again

    def _expected(self, budget: Obj, pods: Sequence[Obj]) -> tuple[int, int]:
        """How many pods there should be, and how many of them must be healthy."""
        spec = budget["spec"]
        if (allowed := spec.get("maxUnavailable")) is not None:
            expected = self._scale(pods)
            return expected, max(0, expected - scaled(allowed, expected, True))
        minimum = spec.get("minAvailable", 1)
        if isinstance(minimum, int):
            return len(pods), minimum
        expected = self._scale(pods)
        return expected, scaled(minimum, expected, True)

    def _scale(self, pods: Sequence[Obj]) -> int:
        sizes: dict[str, int] = {}
        for pod in pods:
            scalable = self._controller(pod, "pod")
            if (
                scalable["kind"] == REPLICA_SETS.kind
                and (controller_of(scalable) or {}).get("kind") == DEPLOYMENTS.kind
            ):
                scalable = self._controller(scalable, "ReplicaSet")
            sizes[uid_of(scalable)] = int(scalable["spec"].get("replicas", 1))
        return sum(sizes.values())

    def _controller(self, obj: Obj, what: str) -> Obj:
        owner = controller_of(obj)
        if owner is None:
            raise _NoScale(f"found no controller ref for {what} {name_of(obj)!r}")
        informer = self.scalable.get(owner["kind"])
        found = informer.get(owner["name"], namespace_of(obj)) if informer is not None else None
        if informer is None:
            raise _NoScale(f"{owner['kind']} {owner['name']!r} does not implement the scale subresource")
        if found is None or uid_of(found) != owner["uid"]:
            raise _NoScale(f"{owner['kind']} {owner['name']!r} of {what} {name_of(obj)!r} was not found")
        return found

    async def _write(self, budget: Obj, disrupted: Mapping[str, str], pods: _Counts, failure: str) -> None:
        old: Mapping[str, Any] = budget.get("status") or {}
        allowed = 0 if failure or pods.expected <= 0 else max(0, pods.healthy - pods.desired)
        reason = "SyncFailed" if failure else ("SufficientPods" if allowed else "InsufficientPods")
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "reason": reason,
            "message": failure,
            "observedGeneration": budget["metadata"].get("generation", 0),
        }
        status: Obj = {
            "currentHealthy": pods.healthy,
            "desiredHealthy": pods.desired,
            "disruptionsAllowed": allowed,
            "expectedPods": pods.expected,
            "observedGeneration": budget["metadata"].get("generation", 0),
            "conditions": set_condition(old.get("conditions"), condition, self.timestamp()),
        }
        if disrupted:
            status["disruptedPods"] = dict(disrupted)
        await self.update_status(self.budgets, budget, status)


def _counted(pod: Obj) -> tuple[object, ...]:
    """What of a pod matters to budgets."""
    return is_ready(pod), is_terminal(pod), is_being_deleted(pod), controller_of(pod), labels_of(pod)


def _selector(budget: Mapping[str, Any]) -> Any:
    return label_selector_from(budget["spec"].get("selector"))
