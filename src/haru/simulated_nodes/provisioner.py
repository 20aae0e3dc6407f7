"""Provision volumes for simulated nodes: PersistentVolumes that exist in the API only.

A claim whose StorageClass names this provisioner gets a volume as soon as the volume binder has named it in the claim's
annotation `volume.kubernetes.io/storage-provisioner`; where the class waits for the first consumer, once the scheduler
has selected a node. The volume can be reached from the nodes that have the selected node's value of the label in the
class's parameter `topologyKey` (the host name; empty: from all nodes). A volume that is released is deleted if its
reclaim policy says so.

The annotation `simulated.haru.dev/fail-provisioning: MESSAGE` on a Node, a claim or a StorageClass lets provisioning
fail there. As provisioners do, this one then takes the selected node off the claim, and the scheduler chooses again.
Source: the external provisioner of CSI, as behaviour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.client.informer import Informer, object_key
from haru.client.workqueue import WorkQueue
from haru.clock import SYSTEM, Clock
from haru.drivers.simulated.objects import PROFILE_LABEL
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, annotations_of, is_being_deleted, labels_of, name_of, uid_of
from haru.kube.simulated_containers.found_files import PROVISIONER
from haru.kube.volume_binding import (
    PROVISIONED_BY,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    claim_ref,
    class_of,
    waits_for_consumer,
    with_annotations,
)

STORAGE_CLASS: Final = "simulated"
FAIL: Final = "simulated.haru.dev/fail-provisioning"
TOPOLOGY_KEY: Final = "topologyKey"
_HOSTNAME: Final = "kubernetes.io/hostname"
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_RETRY_SECONDS: Final = 10.0
_WORKERS: Final = 4

VOLUMES: Final = known_kind("v1", "PersistentVolume")
VOLUME_CLAIMS: Final = known_kind("v1", "PersistentVolumeClaim")
NODES: Final = known_kind("v1", "Node")
STORAGE_CLASSES: Final = known_kind("storage.k8s.io/v1", "StorageClass")


class ProvisioningError(Exception):
    """Raised where a volume can not be provisioned; the text is for the claim's event."""


async def install_storage_class(client: ApiClient) -> None:
    """Create the StorageClass unless it exists; it is the default one if there is no other."""
    known = (await client.list(STORAGE_CLASSES))["items"]
    if any(name_of(one) == STORAGE_CLASS for one in known):
        return
    other = any(annotations_of(one).get(_DEFAULT_CLASS) == "true" for one in known)
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS, "annotations": {} if other else {_DEFAULT_CLASS: "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    try:
        await client.create(STORAGE_CLASSES, storage_class)
    except StatusError as error:
        if error.code != 409:
            raise


def provisioned_volume(claim: Obj, storage_class: Obj, node: Obj | None) -> Obj:
    """The volume for a claim. Raises ProvisioningError."""
    name, spec = f"pvc-{uid_of(claim)}", claim["spec"]
    volume: Obj = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "accessModes": spec.get("accessModes") or [],
            "capacity": {"storage": ((spec.get("resources") or {}).get("requests") or {}).get("storage", "0")},
            "claimRef": claim_ref(claim),
            "csi": {"driver": PROVISIONER, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
            "storageClassName": name_of(storage_class),
            "volumeMode": spec.get("volumeMode") or "Filesystem",
        },
    }
    if spec.get("volumeAttributesClassName"):
        volume["spec"]["volumeAttributesClassName"] = spec["volumeAttributesClassName"]
    if storage_class.get("mountOptions"):
        volume["spec"]["mountOptions"] = storage_class["mountOptions"]
    key = (storage_class.get("parameters") or {}).get(TOPOLOGY_KEY, _HOSTNAME)
    if node is not None and key:
        value = labels_of(node).get(key)
        if value is None:
            raise ProvisioningError(f"node {name_of(node)} has no label {key}")
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return volume


class SimulatedProvisioner:
    """Make and delete the volumes of one provisioner's StorageClasses; `run` until cancelled."""

    def __init__(self, client: ApiClient, clock: Clock = SYSTEM, recorder: EventRecorder | None = None) -> None:
        self._client = client
        self._recorder = recorder or EventRecorder(client, PROVISIONER, now=clock.now, monotonic=clock.monotonic)
        self._queue: WorkQueue[str] = WorkQueue(PROVISIONER, max_delay=_RETRY_SECONDS)
        self._claims = Informer(client, VOLUME_CLAIMS)
        self._volumes = Informer(client, VOLUMES)
        self._classes = Informer(client, STORAGE_CLASSES)
        self._nodes = Informer(client, NODES)
        self._claims.add_handler(self._claim_changed, lambda _, new: self._claim_changed(new))
        self._volumes.add_handler(self._volume_changed, lambda _, new: self._volume_changed(new))
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Watch and work."""
        informers = (self._classes, self._nodes, self._volumes, self._claims)
        try:
            async with asyncio.TaskGroup() as group:
                for informer in informers:
                    group.create_task(informer.run(), name=f"{PROVISIONER} {informer.kind.plural}")
                for informer in informers:
                    await informer.wait_synced()
                self.ready.set()
                group.create_task(self._queue.run(self._sync, _WORKERS), name=PROVISIONER)
        finally:
            await self._recorder.close()

    def _claim_changed(self, claim: Obj) -> None:
        if annotations_of(claim).get(STORAGE_PROVISIONER) == PROVISIONER and not claim["spec"].get("volumeName"):
            self._queue.add(f"claim:{object_key(claim)}")

    def _volume_changed(self, volume: Obj) -> None:
        if _is_to_delete(volume):
            self._queue.add(f"volume:{name_of(volume)}")

    async def _sync(self, key: str) -> float | None:
        kind, _, path = key.partition(":")
        if kind == "volume":
            await self._delete(path)
            return None
        claim = self._claims.store.get(path)
        if claim is None or claim["spec"].get("volumeName") or is_being_deleted(claim):
            return None
        storage_class = self._classes.get(class_of(claim))
        if storage_class is None or storage_class.get("provisioner") != PROVISIONER:
            return None
        selected = annotations_of(claim).get(SELECTED_NODE)
        if waits_for_consumer(storage_class) and not selected:
            return None
        return await self._provision(claim, storage_class, selected)

    async def _provision(self, claim: Obj, storage_class: Obj, selected: str | None) -> float | None:
        """Make the volume of a claim, or say why not; return when to try again."""
        try:
            volume = provisioned_volume(claim, storage_class, self._checked_node(claim, storage_class, selected))
        except ProvisioningError as error:
            text = f'failed to provision volume with StorageClass "{name_of(storage_class)}": {error}'
            self._recorder.event(claim, "Warning", "ProvisioningFailed", text)
            if not selected:
                return _RETRY_SECONDS
            without = with_annotations(claim, {SELECTED_NODE: None})
            self._claims.observe(await self._client.update(VOLUME_CLAIMS, without))
            return None
        try:
            self._volumes.observe(await self._client.create(VOLUMES, volume))
        except StatusError as error:
            if error.code != 409:
                raise
            return None
        text = f"Successfully provisioned volume {name_of(volume)}"
        self._recorder.event(claim, "Normal", "ProvisioningSucceeded", text)
        return None

    def _checked_node(self, claim: Obj, storage_class: Obj, selected: str | None) -> Obj | None:
        """The selected node, if there is one. Raises ProvisioningError where provisioning is to fail."""
        node = self._nodes.get(selected) if selected else None
        if selected and node is None:
            raise ProvisioningError(f'node "{selected}" not found')
        if node is not None and PROFILE_LABEL not in labels_of(node):
            raise ProvisioningError(f"node {selected} is not simulated: nobody could mount the volume there")
        for obj in (node, claim, storage_class):
            if obj is not None and (message := annotations_of(obj).get(FAIL)) is not None:
                raise ProvisioningError(message)
        return node

    async def _delete(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is None or not _is_to_delete(volume):
            return
        try:
            await self._client.delete(VOLUMES, name, uid=uid_of(volume))
        except StatusError as error:
            if error.code != 404:
                raise


def _is_to_delete(volume: Mapping[str, Any]) -> bool:
    return (
        annotations_of(volume).get(PROVISIONED_BY) == PROVISIONER
        and (volume.get("status") or {}).get("phase") == "Released"
        and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        and not is_being_deleted(volume)
    )
