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
from haru.kube.kinds import Kind, by_kind
from haru.kube.meta import Obj, controller_of, is_being_deleted, labels_of, name_of, namespace_of, set_condition, uid_of
from haru.kube.names import names_text, parse_time
from haru.kube.selectors import label_selector_from, label_selector_struct

_GIVEN_UP = timedelta(minutes=2)
_UNMANAGED = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of "
    "the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please "
    'set ".spec.minAvailable" field of the PDB to an integer value.'
)


class _NoScale(Exception):
    """The controller of a pod does not say how many there should be."""


class _Counts(NamedTuple):
    """The pods of a budget: how many are healthy, how many must be, and how many there should be."""

    healthy: int
    desired: int
    expected: int


class DisruptionController(Controller):
    """Keeps the status of PodDisruptionBudgets."""

    name: ClassVar[str] = "disruption-controller"
    component: ClassVar[str] = "controllermanager"
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
        budgets = self.budgets.by_index("namespace", namespace_of(pod))
        own = [budget for budget in budgets if _selector(budget).matches(labels_of(pod))]
        for budget in own:
            self.gather(object_key(budget), self.pods.count("namespace", namespace_of(pod)))
        if len(own) > 1:
            text = f'Pod "{namespace_of(pod)}"/"{name_of(pod)}" matches multiple PodDisruptionBudgets: '
            self.events.event(pod, "Warning", "MultiplePodDisruptionBudgets", text + names_text([*map(name_of, own)]))

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
        if not pods:
            self.events.event(budget, "Normal", "NoPods", "No matching pods found")
        try:
            expected, desired = self._expected(budget, pods)
        except _NoScale as why:
            text = f"Failed to calculate the number of expected pods: {why}"
            self.events.event(budget, "Warning", "CalculateExpectedPodCountFailed", text)
            await self._write_failure(budget, str(why))
            return None
        if _counts_controllers(budget["spec"]) and any(controller_of(pod) is None for pod in pods):
            text = _UNMANAGED.format(label_selector_struct(budget["spec"].get("selector")))
            self.events.event(budget, "Warning", "UnmanagedPods", text)
        disrupted, again = self._still_disrupted(budget, pods)
        healthy = sum(is_ready(p) and is_active(p) and name_of(p) not in disrupted for p in pods)
        await self._write(budget, disrupted, _Counts(healthy, desired, expected))
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
        if not _counts_controllers(spec):
            return len(pods), spec.get("minAvailable", 1)
        expected = self._scale(pods)
        if (allowed := spec.get("maxUnavailable")) is not None:
            return expected, max(0, expected - scaled(allowed, expected, True))
        return expected, scaled(spec["minAvailable"], expected, True)

    def _scale(self, pods: Sequence[Obj]) -> int:
        """How many pods their controllers want. Those without one count only for an integer `minAvailable`."""
        sizes: dict[str, int] = {}
        for pod in (pod for pod in pods if controller_of(pod) is not None):
            scalable = self._controller(pod, pod)
            if (
                scalable["kind"] == REPLICA_SETS.kind
                and (controller_of(scalable) or {}).get("kind") == DEPLOYMENTS.kind
            ):
                scalable = self._controller(scalable, pod)
            sizes[uid_of(scalable)] = int(scalable["spec"].get("replicas", 1))
        return sum(sizes.values())

    def _controller(self, obj: Obj, pod: Obj) -> Obj:
        owner = controller_of(obj) or {}
        informer = self.scalable.get(owner["kind"])
        if informer is None:
            kind = by_kind(owner["apiVersion"], owner["kind"])
            named = str(kind.group_resource) if kind is not None else owner["kind"]
            raise _NoScale(f"{named} does not implement the scale subresource")
        found = informer.get(owner["name"], namespace_of(obj))
        if found is None or uid_of(found) != owner["uid"]:
            raise _NoScale(f'found no controllers for pod "{name_of(pod)}"')
        return found

    async def _write(self, budget: Obj, disrupted: Mapping[str, str], pods: _Counts) -> None:
        allowed = max(0, pods.healthy - pods.desired) if pods.expected > 0 else 0
        status: Obj = {
            "currentHealthy": pods.healthy,
            "desiredHealthy": pods.desired,
            "disruptionsAllowed": allowed,
            "expectedPods": pods.expected,
            "observedGeneration": budget["metadata"].get("generation", 0),
        }
        if disrupted:
            status["disruptedPods"] = dict(disrupted)
        await self._write_condition(budget, status, "SufficientPods" if allowed else "InsufficientPods")

    async def _write_failure(self, budget: Obj, failure: str) -> None:
        """Nothing may be evicted; the other numbers stay as they were."""
        none = {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
        status = {**none, **(budget.get("status") or {}), "disruptionsAllowed": 0}
        await self._write_condition(budget, status, "SyncFailed", failure)

    async def _write_condition(self, budget: Obj, status: Obj, reason: str, message: str = "") -> None:
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if status["disruptionsAllowed"] else "False",
            "reason": reason,
            "message": message,
            "observedGeneration": status.get("observedGeneration", 0),
        }
        old = (budget.get("status") or {}).get("conditions")
        conditions = set_condition(old, condition, self.timestamp())
        await self.update_status(self.budgets, budget, {**status, "conditions": conditions})


def _counts_controllers(spec: Mapping[str, Any]) -> bool:
    """Whether the controllers of the pods say how many there should be; an integer `minAvailable` counts pods."""
    return spec.get("maxUnavailable") is not None or not isinstance(spec.get("minAvailable", 1), int)


def _counted(pod: Obj) -> tuple[object, ...]:
    """What of a pod matters to budgets."""
    return is_ready(pod), is_terminal(pod), is_being_deleted(pod), controller_of(pod), labels_of(pod)


def _selector(budget: Mapping[str, Any]) -> Any:
    return label_selector_from(budget["spec"].get("selector"))
