"""persistentvolume-binder-controller: binds claims and volumes, and follows both through their phases.

Keys are `claim:` and `volume:` plus the path. Whatever is written first, a crash in between leaves a state from which
the same rules go on: a volume that names its claim, then a claim that names its volume, then the phases. Claims of a
class that waits for its first consumer are left to the scheduler, until it has named a volume or a node. Volumes are
made and deleted by the provisioner of their class; nothing here does.
Source: Kubernetes 1.36, pkg/controller/volume/persistentvolume, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import PODS, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES, is_terminal
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, annotations_of, is_being_deleted, name_of, namespace_of, node_of, uid_of
from haru.kube.volume_binding import (
    BETA_STORAGE_PROVISIONER,
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    OfferedVolume,
    WantedVolume,
    class_of,
    is_reserved_for,
    provisioner_of,
    volume_for_claim,
    waits_for_consumer,
    with_annotations,
)

_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_ENDED = ("Released", "Failed")


def reserved_volume(claim: Obj, volumes: Iterable[Obj]) -> Obj | None:
    """The first of some volumes that is reserved for a claim and serves it."""
    wanted = WantedVolume.of(claim)
    for offered in sorted(map(OfferedVolume, volumes), key=lambda one: one.order):
        modes = wanted.access_modes <= offered.access_modes
        if modes and is_reserved_for(offered.obj, claim) and offered.suffices(wanted):
            return offered.obj
    return None


def free_volume(claim: Obj, volumes: Iterable[Obj]) -> Obj | None:
    """The free volume with the fewest access modes that serves a claim, and of these the smallest."""
    wanted = WantedVolume.of(claim)
    free = [offered for offered in map(OfferedVolume, volumes) if offered.is_free_for(wanted)]
    return min(free, key=lambda one: (len(one.access_modes), one.order)).obj if free else None


def mismatch(volume: Obj, claim: Obj) -> str:
    """Why a volume that a claim asks for by name cannot serve it; empty if it can."""
    wanted, offered = WantedVolume.of(claim), OfferedVolume(volume)
    if is_being_deleted(volume):
        return f'the volume is marked for deletion "{offered.name}"'
    if offered.capacity < wanted.size:
        return "requested PV is too small"
    if offered.class_name != wanted.class_name:
        return "storageClassName does not match"
    if (offered.spec.get("volumeAttributesClassName") or "") != wanted.attributes_class:
        return "volumeAttributesClassName does not match"
    if (offered.spec.get("volumeMode") or "Filesystem") != wanted.mode:
        return "incompatible volumeMode"
    if not wanted.access_modes <= offered.access_modes:
        return "incompatible accessMode"
    return ""


class VolumeBinderController(Controller):
    """Binds claims to volumes."""

    name: ClassVar[str] = "persistentvolume-binder-controller"
    component: ClassVar[str] = "persistentvolume-controller"
    needs: ClassVar[tuple[Kind, ...]] = (VOLUMES, VOLUME_CLAIMS, STORAGE_CLASSES)
    # One at a time: two claims never choose the same volume.
    workers: ClassVar[int] = 1

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.volumes = self.informer(VOLUMES)
        self.claims = self.informer(VOLUME_CLAIMS)
        self.classes = self.informer(STORAGE_CLASSES)
        self.pods = self.informer(PODS)
        self.volumes.add_index("class", lambda volume: [class_of(volume)])
        self.volumes.add_index("owner", lambda volume: [owner] if (owner := _owner(volume)) else [])
        self.claims.add_index("class", lambda claim: [class_of(claim)] if _is_open(claim) else [])
        self.pods.add_index("volume-claim", _claims_of)
        self.volumes.add_handler(self._volume_changed, lambda _, new: self._volume_changed(new), self._volume_gone)
        self.claims.add_handler(self._claim_changed, lambda _, new: self._claim_changed(new), self._claim_gone)
        self.classes.add_handler(self._class_changed, lambda _, new: self._class_changed(new))

    # -- events -------------------------------------------------------------------------------------------------------

    def _volume_changed(self, volume: Obj) -> None:
        self.queue.add(f"volume:{name_of(volume)}")
        owner = _owner(volume)
        if owner:
            self.queue.add(f"claim:{owner}")
            return
        for claim in self.claims.by_index("class", class_of(volume)):
            self.queue.add(f"claim:{object_key(claim)}")

    def _volume_gone(self, volume: Obj) -> None:
        owner = _owner(volume)
        if owner:
            self.queue.add(f"claim:{owner}")

    def _claim_changed(self, claim: Obj) -> None:
        self.queue.add(f"claim:{object_key(claim)}")

    def _claim_gone(self, claim: Obj) -> None:
        name = (claim.get("spec") or {}).get("volumeName")
        if name:
            self.queue.add(f"volume:{name}")
        for volume in self.volumes.by_index("owner", object_key(claim)):
            self.queue.add(f"volume:{name_of(volume)}")

    def _class_changed(self, storage_class: Obj) -> None:
        names = [name_of(storage_class), *([""] if _is_default(storage_class) else [])]
        for claim in (claim for name in names for claim in self.claims.by_index("class", name)):
            self.queue.add(f"claim:{object_key(claim)}")

    async def sync(self, key: str) -> float | None:
        """Bring one claim or volume into line."""
        kind, _, path = key.partition(":")
        if kind == "volume":
            volume = self.volumes.get(path)
            if volume is not None:
                await self._sync_volume(volume)
            return None
        namespace, _, name = path.partition("/")
        claim = self.claims.get(name, namespace)
        if claim is not None:
            await (self._sync_bound(claim) if BIND_COMPLETED in annotations_of(claim) else self._sync_open(claim))
        return None

    # -- claims -------------------------------------------------------------------------------------------------------

    async def _sync_open(self, claim: Obj) -> None:
        """A claim whose binding was never complete."""
        name = (claim.get("spec") or {}).get("volumeName")
        if name:
            await self._sync_named(claim, self.volumes.get(name))
            return
        storage_class = self.classes.get(class_of(claim))
        late = waits_for_consumer(storage_class)
        volume = reserved_volume(claim, self.volumes.by_index("owner", object_key(claim)))
        if volume is None and not late:
            volume = free_volume(claim, self.volumes.by_index("class", class_of(claim)))
        if volume is not None:
            await self._bind(volume, claim)
        elif not await self._give_default_class(claim):
            await self._await_volume(claim, storage_class, late=late)

    async def _sync_named(self, claim: Obj, volume: Obj | None) -> None:
        """A claim that asks for a volume by name."""
        if volume is None:
            await self._set_claim_phase(claim, "Pending")
        elif _owner(volume) and not is_reserved_for(volume, claim):
            text = f'volume "{name_of(volume)}" already bound to a different claim.'
            self.events.event(claim, "Warning", "FailedBinding", text)
            await self._set_claim_phase(claim, "Pending")
        elif not _owner(volume) and (why := mismatch(volume, claim)):
            text = f'Cannot bind to requested volume "{name_of(volume)}": {why}'
            self.events.event(claim, "Warning", "VolumeMismatch", text)
            await self._set_claim_phase(claim, "Pending")
        else:
            await self._bind(volume, claim)

    async def _await_volume(self, claim: Obj, storage_class: Obj | None, *, late: bool) -> None:
        """Say what a claim without a volume waits for; name the provisioner that is to make one."""
        if late and SELECTED_NODE not in annotations_of(claim):
            self._tell_of_consumer(claim)
        elif storage_class is not None and provisioner_of(storage_class):
            claim = await self._name_provisioner(claim, provisioner_of(storage_class))
        elif class_of(claim):
            text = f'storageclass.storage.k8s.io "{class_of(claim)}" not found'
            if storage_class is not None:
                text = "no volume plugin matched name: kubernetes.io/no-provisioner"
            self.events.event(claim, "Warning", "ProvisioningFailed", text)
        else:
            text = "no persistent volumes available for this claim and no storage class is set"
            self.events.event(claim, "Normal", "FailedBinding", text)
        await self._set_claim_phase(claim, "Pending")

    def _tell_of_consumer(self, claim: Obj) -> None:
        pods = [p for p in self.pods.by_index("volume-claim", object_key(claim)) if not (is_terminal(p) or node_of(p))]
        names = sorted(map(name_of, pods))
        if len(names) > 1:
            text = f"waiting for pods {','.join(names)} to be scheduled"
        else:
            text = f"waiting for pod {names[0]} to be scheduled" if names else ""
        if text:
            self.events.event(claim, "Normal", "WaitForPodScheduled", text)
        else:
            text = "waiting for first consumer to be created before binding"
            self.events.event(claim, "Normal", "WaitForFirstConsumer", text)

    async def _name_provisioner(self, claim: Obj, provisioner: str) -> Obj:
        if annotations_of(claim).get(STORAGE_PROVISIONER) != provisioner:
            named = {STORAGE_PROVISIONER: provisioner, BETA_STORAGE_PROVISIONER: provisioner}
            claim = await self.update(self.claims, with_annotations(claim, dict(named)))
        text = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
            "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
            "correctly registered."
        )
        self.events.event(claim, "Normal", "ExternalProvisioning", text)
        return claim

    async def _give_default_class(self, claim: Obj) -> bool:
        """A claim that says nothing of a class gets the default one, also if that comes later."""
        if (claim.get("spec") or {}).get("storageClassName") is not None or class_of(claim):
            return False
        default = [one for one in self.classes.store.values() if _is_default(one)]
        if not default:
            return False
        newest = max(default, key=lambda one: (one["metadata"].get("creationTimestamp") or "", name_of(one)))
        await self.update(self.claims, {**claim, "spec": {**claim["spec"], "storageClassName": name_of(newest)}})
        return True

    async def _sync_bound(self, claim: Obj) -> None:
        """A claim whose binding was complete once: from then on it has that volume, or has lost it."""
        name = (claim.get("spec") or {}).get("volumeName")
        volume = self.volumes.get(name) if name else None
        owner = ((volume or {}).get("spec") or {}).get("claimRef") or {}
        if volume is None:
            lost = "its PersistentVolume" if name else "reference to PersistentVolume"
            await self._lose(claim, "ClaimLost", f"Bound claim has lost {lost}. Data on the volume is lost!")
        elif not owner or owner.get("uid") == uid_of(claim):
            await self._bind(volume, claim)
        else:
            text = "Two claims are bound to the same volume, this one is bound incorrectly"
            await self._lose(claim, "ClaimMisbound", text)

    async def _lose(self, claim: Obj, reason: str, message: str) -> None:
        if (claim.get("status") or {}).get("phase") != "Lost":
            self.events.event(await self._set_claim_phase(claim, "Lost"), "Warning", reason, message)

    # -- volumes ------------------------------------------------------------------------------------------------------

    async def _sync_volume(self, volume: Obj) -> None:
        owner = (volume.get("spec") or {}).get("claimRef")
        if not owner or not owner.get("uid"):
            await self._set_volume_phase(volume, "Available")
            return
        claim = self.claims.get(owner.get("name", ""), owner.get("namespace", ""))
        if claim is None or uid_of(claim) != owner["uid"]:
            claim = await self.live(VOLUME_CLAIMS, owner.get("name", ""), owner.get("namespace", ""))
        if claim is None or uid_of(claim) != owner["uid"]:
            await self._release(volume)
        elif not claim["spec"].get("volumeName"):
            if WantedVolume.of(claim).mode == (volume["spec"].get("volumeMode") or "Filesystem"):
                self.queue.add(f"claim:{object_key(claim)}")
            else:
                self._tell_of_mode(volume, claim)
        elif claim["spec"]["volumeName"] == name_of(volume):
            await self._set_volume_phase(volume, "Bound")
        else:
            await self._unbind(volume)

    def _tell_of_mode(self, volume: Obj, claim: Obj) -> None:
        """A volume that is for this very claim is of a mode that the claim does not want."""
        why = "due to incompatible volumeMode."
        text = f'Cannot bind PersistentVolume to requested PersistentVolumeClaim "{name_of(claim)}" {why}'
        self.events.event(volume, "Warning", "VolumeMismatch", text)
        text = f'Cannot bind PersistentVolume "{name_of(volume)}" to requested PersistentVolumeClaim {why}'
        self.events.event(claim, "Warning", "VolumeMismatch", text)

    async def _unbind(self, volume: Obj) -> None:
        """The claim has another volume: this one is free again, or of no use to anybody."""
        annotations, spec = annotations_of(volume), volume["spec"]
        if PROVISIONED_BY in annotations and spec.get("persistentVolumeReclaimPolicy") == "Delete":
            await self._release(volume)
            return
        if BOUND_BY_CONTROLLER in annotations:
            changed = with_annotations(volume, {BOUND_BY_CONTROLLER: None})
            changed["spec"] = {name: value for name, value in spec.items() if name != "claimRef"}
        else:
            owner = {name: value for name, value in spec["claimRef"].items() if name != "uid"}
            changed = {**volume, "spec": {**spec, "claimRef": owner}}
        await self._set_volume_phase(await self.update(self.volumes, changed), "Available")

    async def _release(self, volume: Obj) -> None:
        """The claim is gone. Who provisioned the volume deletes it, or it is kept."""
        if (volume.get("status") or {}).get("phase") not in _ENDED:
            volume = await self._set_volume_phase(volume, "Released")
        policy, failed = volume["spec"].get("persistentVolumeReclaimPolicy"), volume["status"].get("phase") == "Failed"
        foreign = PROVISIONED_BY in annotations_of(volume) or "csi" in volume["spec"]
        if policy == "Recycle" and not failed:
            text = "No recycler plugin found for the volume!"
            self.events.event(await self._fail(volume, text), "Warning", "VolumeFailedRecycle", text)
        elif policy == "Delete" and not (foreign or failed):
            why = "no deletable volume plugin matched"
            text = f'error getting deleter volume plugin for volume "{name_of(volume)}": {why}'
            self.events.event(await self._fail(volume, text), "Warning", "VolumeFailedDelete", text)

    async def _fail(self, volume: Obj, message: str) -> Obj:
        return await self._set_volume_phase(volume, "Failed", message)

    # -- writes -------------------------------------------------------------------------------------------------------

    async def _bind(self, volume: Obj, claim: Obj) -> None:
        """Volume, its phase, claim, its phase: in this order, each only if it is not so already."""
        reserved = volume_for_claim(volume, claim)
        if reserved is not volume:
            volume = await self.update(self.volumes, reserved)
        volume = await self._set_volume_phase(volume, "Bound")
        bound = claim
        if claim["spec"].get("volumeName") != name_of(volume):
            bound = {**bound, "spec": {**bound["spec"], "volumeName": name_of(volume)}}
            bound = with_annotations(bound, {BOUND_BY_CONTROLLER: "yes"})
        if BIND_COMPLETED not in annotations_of(bound):
            bound = with_annotations(bound, {BIND_COMPLETED: "yes"})
        if bound is not claim:
            bound = await self.update(self.claims, bound)
        await self._set_claim_phase(bound, "Bound", volume)

    async def _set_claim_phase(self, claim: Obj, phase: str, volume: Obj | None = None) -> Obj:
        before = claim.get("status") or {}
        status = {**before, "phase": phase}
        for name in ("accessModes", "capacity", "currentVolumeAttributesClassName"):
            status.pop(name, None)
        if volume is not None:
            spec = volume["spec"]
            # What a bound claim says of its size is its own once it is bound: it may be growing.
            keep = before.get("phase") == phase and before.get("capacity")
            status["accessModes"] = spec.get("accessModes")
            status["capacity"] = before["capacity"] if keep else spec.get("capacity")
            if spec.get("volumeAttributesClassName"):
                status["currentVolumeAttributesClassName"] = spec["volumeAttributesClassName"]
        return await self.update_status(self.claims, claim, status)

    async def _set_volume_phase(self, volume: Obj, phase: str, message: str = "") -> Obj:
        before = volume.get("status") or {}
        if before.get("phase") == phase:
            return volume
        status = {**before, "phase": phase, "message": message}
        if not message:
            del status["message"]
        return await self.update_status(self.volumes, volume, status)


def _is_open(claim: Mapping[str, Any]) -> bool:
    return BIND_COMPLETED not in annotations_of(claim)


def _owner(volume: Mapping[str, Any]) -> str:
    owner = (volume.get("spec") or {}).get("claimRef")
    return f"{owner.get('namespace')}/{owner.get('name')}" if owner else ""


def _claims_of(pod: Mapping[str, Any]) -> Iterable[str]:
    return [f"{namespace_of(pod)}/{name}" for name in claim_names_of(pod)]


def claim_names_of(pod: Mapping[str, Any]) -> list[str]:
    """The names of the volume claims that a pod uses, those of generic ephemeral volumes included."""
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    named = [source.get("claimName", "") for volume in volumes if (source := volume.get("persistentVolumeClaim"))]
    return [*named, *(f"{name_of(pod)}-{volume['name']}" for volume in volumes if volume.get("ephemeral"))]


def _is_default(storage_class: Mapping[str, Any]) -> bool:
    return annotations_of(storage_class).get(_DEFAULT_CLASS) == "true"
