"""Controllers that write down what stands behind Services: which Service has to be looked at again, and when.

Source: kube-controller-manager's endpoint controllers; that busy Services are looked at in turns is our own.
"""

from __future__ import annotations

from typing import ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import PODS, SERVICES
from haru.controllers.service_pods import face, selects
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, labels_of, namespace_of


class ServiceFollower(Controller):
    """Keys of its queue are those of Services."""

    needs: ClassVar[tuple[Kind, ...]] = (SERVICES, PODS)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.services = self.informer(SERVICES)
        self.pods = self.informer(PODS)
        for informer in (self.services, self.pods):
            informer.add_index("namespace", lambda obj: [namespace_of(obj)])
        self.services.add_handler(self.enqueue, lambda _, new: self.enqueue(new), self.service_gone)
        self.pods.add_handler(self._pod_changed, self._pod_updated, self._pod_changed)

    def service_gone(self, service: Obj) -> None:
        """A Service was deleted."""
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
