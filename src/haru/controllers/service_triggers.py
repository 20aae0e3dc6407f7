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

_MANY = 500
_PAUSE = 0.5
"""Seconds to gather the changes of a Service with many pods."""


class ServiceFollower(Controller):
    """Keys of its queue are those of Services."""

    needs: ClassVar[tuple[Kind, ...]] = (SERVICES, PODS)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.services = self.informer(SERVICES)
        self.pods = self.informer(PODS)
        self._sizes: dict[str, int] = {}
        for informer in (self.services, self.pods):
            informer.add_index("namespace", lambda obj: [namespace_of(obj)])
        self.services.add_handler(self.enqueue, lambda _, new: self.enqueue(new), self._gone)
        self.pods.add_handler(self._pod_changed, self._pod_updated, self._pod_changed)

    def _gone(self, service: Obj) -> None:
        self._sizes.pop(object_key(service), None)
        self.enqueue(service)

    def _pod_changed(self, pod: Obj) -> None:
        labels = labels_of(pod)
        for service in self.services.by_index("namespace", namespace_of(pod)):
            if selects(service, labels):
                key = object_key(service)
                if self._sizes.get(key, 0) < _MANY:
                    self.queue.add(key)
                else:
                    self.queue.add_after(key, _PAUSE)

    def _pod_updated(self, old: Obj, new: Obj) -> None:
        if face(old) == face(new):
            return
        if labels_of(old) != labels_of(new):
            self._pod_changed(old)
        self._pod_changed(new)

    def pods_of(self, service: Obj) -> list[Obj]:
        """The pods that a Service selects."""
        found = [
            pod for pod in self.pods.by_index("namespace", namespace_of(service)) if selects(service, labels_of(pod))
        ]
        self._sizes[object_key(service)] = len(found)
        return found
