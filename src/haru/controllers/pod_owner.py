"""What controllers have in common whose objects own pods that a selector finds.

A pod that changes wakes its owner; one that nobody owns wakes every object of its namespace that would have it.
"""

from __future__ import annotations

from haru.client.informer import Informer, object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import PODS, Obj, available_in
from haru.controllers.ownership import add_ownership_indexes
from haru.kube.kinds import Kind
from haru.kube.meta import controller_of, labels_of, namespace_of
from haru.kube.selectors import label_selector_from


class PodOwnerController(Controller):
    """A controller of objects with `spec.selector` over pods; its keys are those objects'."""

    def __init__(self, context: Context, kind: Kind) -> None:
        super().__init__(context)
        self.sets: Informer = self.informer(kind)
        self.pods: Informer = self.informer(PODS)
        add_ownership_indexes(self.pods)
        self.sets.add_index("namespace", lambda obj: [namespace_of(obj)])
        self.sets.add_handler(self._changed, lambda _, new: self._changed(new))
        self.pods.add_handler(self._pod_changed, self._pod_updated, self._pod_changed)

    def _changed(self, owner: Obj) -> None:
        self.queue.add(object_key(owner))

    def _pod_changed(self, pod: Obj) -> None:
        owner = controller_of(pod)
        if owner is not None:
            if owner.get("kind") == self.sets.kind.kind:
                self.queue.add(f"{namespace_of(pod)}/{owner['name']}")
            return
        for candidate in self.sets.by_index("namespace", namespace_of(pod)):
            selector = label_selector_from(candidate["spec"].get("selector"))
            if not selector.empty and selector.matches(labels_of(pod)):
                self._changed(candidate)

    def _pod_updated(self, old: Obj, new: Obj) -> None:
        if controller_of(old) != controller_of(new):
            self._pod_changed(old)
        self._pod_changed(new)

    def _is_available(self, owner: Obj, pod: Obj) -> bool:
        """Whether a pod has been ready for as long as its owner wants."""
        return available_in(pod, owner["spec"].get("minReadySeconds") or 0, self.now()) == 0
