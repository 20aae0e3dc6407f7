"""Controllers that write down what stands behind Services: which Service has to be looked at again, and when.

Source: kube-controller-manager's endpoint controllers; that busy Services are looked at in turns is our own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import PODS, SERVICES
from haru.controllers.service_pods import face, selects
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, get_condition, labels_of, name_of, namespace_of


class ChangeTimes:
    """When what changes a Service's endpoints came about (endpointslice's TriggerTimeTracker)."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, str]] = {}

    def since_last(self, service: Obj, pods: Iterable[Obj]) -> str:
        """The earliest time that is new since the last call: of a pod's readiness, at first of the Service's creation.

        Empty where there is none, as after another selector.
        """
        created = service["metadata"].get("creationTimestamp") or ""
        times = {name_of(pod): (get_condition(pod, "Ready") or {}).get("lastTransitionTime") or "" for pod in pods}
        before = self._seen.get(object_key(service))
        self._seen[object_key(service)] = times
        if before is None:
            return created
        return min((time for name, time in times.items() if time > before.get(name, "")), default="")

    def forget(self, service: Obj) -> None:
        """The Service is gone."""
        self._seen.pop(object_key(service), None)


class ServiceFollower(Controller):
    """Keys of its queue are those of Services."""

    needs: ClassVar[tuple[Kind, ...]] = (SERVICES, PODS)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.services = self.informer(SERVICES)
        self.pods = self.informer(PODS)
        self.change_times = ChangeTimes()
        for informer in (self.services, self.pods):
            informer.add_index("namespace", lambda obj: [namespace_of(obj)])
        self.services.add_handler(self.enqueue, lambda _, new: self.enqueue(new), self.service_gone)
        self.pods.add_handler(self._pod_changed, self._pod_updated, self._pod_changed)

    def service_gone(self, service: Obj) -> None:
        """A Service was deleted."""
        self.change_times.forget(service)
        self.enqueue(service)

    def _pod_changed(self, pod: Obj) -> None:
        labels = labels_of(pod)
        for service in self.services.by_index("namespace", namespace_of(pod)):
            if selects(service, labels):
                self.gather(object_key(service), self.pods.count("namespace", namespace_of(pod)))

    def _pod_updated(self, old: Obj, new: Obj) -> None:
        if face(old) == face(new):
            return
        if labels_of(old) != labels_of(new):
            self._pod_changed(old)
        self._pod_changed(new)

    def pods_of(self, service: Obj) -> list[Obj]:
        """The pods that a Service selects."""
        return [
            pod for pod in self.pods.by_index("namespace", namespace_of(service)) if selects(service, labels_of(pod))
        ]
