"""podgroup-protection-controller: a PodGroup stays while a pod that may still run refers to it.

Admission adds the finalizer when a group is created; this controller only ever removes it.
Source: KEP-4671.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import POD_GROUPS, PODS, is_terminal
from haru.kube.errors import suppress_status
from haru.kube.finalizers import POD_GROUP_PROTECTION
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, has_finalizer, is_being_deleted, namespace_of, podgroup_of


def _group_of(pod: Mapping[str, Any]) -> Iterable[str]:
    name = podgroup_of(pod)
    return [f"{namespace_of(pod)}/{name}"] if name and not is_terminal(pod) else []


class PodGroupProtectionController(Controller):
    """Lets deleted PodGroups go once no pod needs them."""

    name: ClassVar[str] = "podgroup-protection-controller"
    needs: ClassVar[tuple[Kind, ...]] = (POD_GROUPS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.groups = self.informer(POD_GROUPS)
        self.pods = self.informer(PODS)
        self.pods.add_index("running-in-group", _group_of)
        self.groups.add_handler(self._group_changed, lambda _, new: self._group_changed(new))
        self.pods.add_handler(None, self._pod_updated, self._pod_gone)

    @classmethod
    def enabled(cls, context: Context) -> bool:
        """Only where the API exists and its gate is on."""
        return context.gates.enabled("GenericWorkload") and super().enabled(context)

    def _group_changed(self, group: Obj) -> None:
        if is_being_deleted(group) and has_finalizer(group, POD_GROUP_PROTECTION):
            self.queue.add(object_key(group))

    def _pod_updated(self, old: Obj, new: Obj) -> None:
        if is_terminal(new) and not is_terminal(old):
            self._pod_gone(new)

    def _pod_gone(self, pod: Obj) -> None:
        if name := podgroup_of(pod):
            self.queue.add(f"{namespace_of(pod)}/{name}")

    async def sync(self, key: str) -> float | None:
        """Take the finalizer off a deleted group that no pod needs."""
        group = self.groups.store.get(key)
        if group is None or not is_being_deleted(group) or not has_finalizer(group, POD_GROUP_PROTECTION):
            return None
        if self.pods.count("running-in-group", key):
            return None
        # Replaced as a whole: the role of 1.36 has no right to patch.
        rest = [one for one in group["metadata"]["finalizers"] if one != POD_GROUP_PROTECTION]
        without = {**group, "metadata": {**group["metadata"], "finalizers": rest}}
        with suppress_status(404):
            await self.client.update(POD_GROUPS, without)
        return None
