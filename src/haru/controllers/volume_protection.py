"""Volumes, volume claims and volume attributes classes stay while they are in use; one controller each.

Admission gives new objects a finalizer, the controller gives it to those that lack it, and takes it off one that is
being deleted once nobody uses it: a claim is used by pods that may still run, a volume while it is bound, a class by
the volumes and claims that name it.
Source: Kubernetes 1.36, pkg/controller/volume/pvprotection, pvcprotection and vacprotection, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from haru.client.informer import Informer, object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import PODS, VOLUME_ATTRIBUTES_CLASSES, VOLUME_CLAIMS, VOLUMES, is_terminal
from haru.controllers.volume_binder import claim_names_of
from haru.kube.finalizers import VOLUME_ATTRIBUTES_CLASS_PROTECTION, VOLUME_CLAIM_PROTECTION, VOLUME_PROTECTION
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, has_finalizer, is_being_deleted, name_of, namespace_of, node_of


class _ProtectionController(Controller):
    """Keeps a finalizer on objects that are not being deleted, and on those in use."""

    finalizer: ClassVar[str]

    def protect(self, informer: Informer) -> None:
        """Look at each object of this informer."""
        self.protected = informer
        informer.add_handler(self._changed, lambda _, new: self._changed(new))

    def in_use(self, obj: Obj) -> bool:
        """Whether an object that is being deleted has to stay."""
        raise NotImplementedError

    def _changed(self, obj: Obj) -> None:
        if is_being_deleted(obj) == has_finalizer(obj, self.finalizer):
            self.queue.add(object_key(obj))

    async def sync(self, key: str) -> float | None:
        """Put the finalizer on an object, or take it off."""
        obj = self.protected.store.get(key)
        if obj is None:
            return None
        has, finalizers = has_finalizer(obj, self.finalizer), obj["metadata"].get("finalizers") or []
        if not is_being_deleted(obj) and not has:
            metadata = {**obj["metadata"], "finalizers": [*finalizers, self.finalizer]}
            await self.update(self.protected, {**obj, "metadata": metadata})
        elif is_being_deleted(obj) and has and not self.in_use(obj):
            rest = [one for one in finalizers if one != self.finalizer]
            without = {**obj, "metadata": {**obj["metadata"], "finalizers": rest}}
            updated = await self.client.update(self.protected.kind, without)
            if rest:
                self.protected.observe(updated)
            else:
                self.protected.observe_deleted(obj)
        return None


class VolumeProtectionController(_ProtectionController):
    """Lets deleted volumes go once they are not bound."""

    name: ClassVar[str] = "persistentvolume-protection-controller"
    needs: ClassVar[tuple[Kind, ...]] = (VOLUMES,)
    finalizer: ClassVar[str] = VOLUME_PROTECTION

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.protect(self.informer(VOLUMES))

    def in_use(self, obj: Obj) -> bool:
        """Whether the volume is bound."""
        return (obj.get("status") or {}).get("phase") == "Bound"


class VolumeClaimProtectionController(_ProtectionController):
    """Lets deleted claims go once no pod on a node uses them."""

    name: ClassVar[str] = "persistentvolumeclaim-protection-controller"
    needs: ClassVar[tuple[Kind, ...]] = (VOLUME_CLAIMS,)
    finalizer: ClassVar[str] = VOLUME_CLAIM_PROTECTION

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.pods = self.informer(PODS)
        self.pods.add_index("uses-claim", _used_by)
        self.protect(self.informer(VOLUME_CLAIMS))
        self.pods.add_handler(None, lambda _, new: self._pod_changed(new), self._pod_gone)

    def in_use(self, obj: Obj) -> bool:
        """Whether a pod that has a node uses the claim."""
        return bool(self.pods.by_index("uses-claim", object_key(obj)))

    def _pod_changed(self, pod: Obj) -> None:
        if is_terminal(pod):
            self._pod_gone(pod)

    def _pod_gone(self, pod: Obj) -> None:
        for name in claim_names_of(pod):
            self.queue.add(f"{namespace_of(pod)}/{name}")


def _used_by(pod: Mapping[str, Any]) -> Iterable[str]:
    """A pod without a node does not count: it will find that its claim is being deleted."""
    if is_terminal(pod) or not node_of(pod):
        return []
    return [f"{namespace_of(pod)}/{name}" for name in claim_names_of(pod)]


class VolumeAttributesClassProtectionController(_ProtectionController):
    """Lets deleted volume attributes classes go once no volume and no claim names them."""

    name: ClassVar[str] = "volumeattributesclass-protection-controller"
    needs: ClassVar[tuple[Kind, ...]] = (VOLUME_ATTRIBUTES_CLASSES,)
    finalizer: ClassVar[str] = VOLUME_ATTRIBUTES_CLASS_PROTECTION

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.users = (self.informer(VOLUMES), self.informer(VOLUME_CLAIMS))
        for informer in self.users:
            informer.add_index("attributes-class", _classes_of)
            informer.add_handler(None, self._released, lambda old: self._released(old, {}))
        self.protect(self.informer(VOLUME_ATTRIBUTES_CLASSES))

    def in_use(self, obj: Obj) -> bool:
        """Whether a volume or a claim names the class, has it or is to get it."""
        return any(informer.by_index("attributes-class", name_of(obj)) for informer in self.users)

    def _released(self, old: Obj, new: Mapping[str, Any]) -> None:
        for name in _classes_of(old) - _classes_of(new):
            self.queue.add(name)


def _classes_of(obj: Mapping[str, Any]) -> set[str]:
    """The volume attributes classes that a volume or a claim has to do with."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    target = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    names = (spec.get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"), target)
    return {name for name in names if name}
