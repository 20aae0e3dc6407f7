"""What controllers have in common whose objects own pods that a selector finds.

A pod that changes wakes its owner; one that nobody owns wakes every object of its namespace that would have it.
"""

from __future__ import annotations

from haru.client.informer import Informer, object_key
from haru.controllers.base import Context, Controller
from haru.controllers.controller_refs import add_ownership_indexes
from haru.controllers.objects import PODS, available_in
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, controller_of, labels_of, namespace_of, uid_of
from haru.kube.selectors import LabelSelector, label_selector_from


class PodOwnerController(Controller):
    """A controller of objects with `spec.selector` over pods; its keys are those objects'."""

    def __init__(self, context: Context, kind: Kind) -> None:
        super().__init__(context)
        self.sets: Informer = self.informer(kind)
        self.pods: Informer = self.informer(PODS)
        add_ownership_indexes(self.pods)
        self.sets.add_index("namespace", lambda obj: [namespace_of(obj)])
        self.sets.add_handler(self.enqueue, lambda _, new: self.enqueue(new))
        self.follow(self.pods)

    def follow(self, informer: Informer) -> None:
        """Let changes of what these objects own wake them."""
        informer.add_handler(self._dependent_changed, self._dependent_updated, self._dependent_changed)

    def size_of(self, uid: str) -> int:
        """How many objects a look at an owner has to look at."""
        return self.pods.count("controller", uid)

    def selector_of(self, owner: Obj) -> LabelSelector:
        """Which pods an object looks after."""
        return label_selector_from(owner["spec"].get("selector"))

    def _dependent_changed(self, obj: Obj) -> None:
        owner = controller_of(obj)
        if owner is not None:
            if owner.get("kind") == self.sets.kind.kind:
                self.gather(f"{namespace_of(obj)}/{owner['name']}", self.size_of(owner["uid"]))
            return
        for candidate in self.sets.by_index("namespace", namespace_of(obj)):
            selector = self.selector_of(candidate)
            if not selector.empty and selector.matches(labels_of(obj)):
                self.gather(object_key(candidate), self.size_of(uid_of(candidate)))

    def _dependent_updated(self, old: Obj, new: Obj) -> None:
        before, after = (each["metadata"].get("ownerReferences") for each in (old, new))
        # Mostly one list: versions of an object share what did not change.
        if before is not after and controller_of(old) != controller_of(new):
            self._dependent_changed(old)
        self._dependent_changed(new)

    def _is_available(self, owner: Obj, pod: Obj) -> bool:
        """Whether a pod has been ready for as long as its owner wants."""
        return available_in(pod, owner["spec"].get("minReadySeconds") or 0, self.now()) == 0
