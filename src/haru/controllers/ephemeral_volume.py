"""ephemeral-volume-controller: makes the claims of generic ephemeral volumes, which go with their pods.

Source: Kubernetes 1.36, pkg/controller/volume/ephemeral (KEP-1698), as behaviour.
"""

from __future__ import annotations

from typing import ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import PODS, VOLUME_CLAIMS, is_terminal
from haru.controllers.volume_binder import claim_names_of
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, controller_of, is_being_deleted, name_of, namespace_of, owner_reference, uid_of


class EphemeralVolumeController(Controller):
    """Makes the claims of generic ephemeral volumes."""

    name: ClassVar[str] = "ephemeral-volume-controller"
    component: ClassVar[str] = "ephemeral_volume"
    needs: ClassVar[tuple[Kind, ...]] = (VOLUME_CLAIMS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.pods = self.informer(PODS)
        self.claims = self.informer(VOLUME_CLAIMS)
        self.pods.add_index("volume-claim-names", lambda pod: [f"{namespace_of(pod)}/{n}" for n in claim_names_of(pod)])
        self.pods.add_handler(self._pod_changed, lambda _, new: self._pod_changed(new))
        self.claims.add_handler(None, None, self._claim_gone)

    def _pod_changed(self, pod: Obj) -> None:
        if any(volume.get("ephemeral") for volume in (pod.get("spec") or {}).get("volumes") or ()):
            self.queue.add(object_key(pod))

    def _claim_gone(self, claim: Obj) -> None:
        for pod in self.pods.by_index("volume-claim-names", object_key(claim)):
            self._pod_changed(pod)

    async def sync(self, key: str) -> float | None:
        """Make what is missing of a pod's claims."""
        namespace, _, name = key.partition("/")
        pod = self.pods.get(name, namespace)
        if pod is None or is_terminal(pod) or is_being_deleted(pod):
            return None
        for volume in pod["spec"].get("volumes") or ():
            if volume.get("ephemeral"):
                await self._make_claim(pod, volume)
        return None

    async def _make_claim(self, pod: Obj, volume: Obj) -> None:
        name = f"{name_of(pod)}-{volume['name']}"
        known = self.claims.get(name, namespace_of(pod))
        if known is not None:
            if (controller_of(known) or {}).get("uid") != uid_of(pod):
                why = f"PVC {object_key(known)} was not created for pod {object_key(pod)} (pod is not owner)"
                text = f"ephemeral volume {volume['name']}: {why}"
                self.events.event(pod, "Warning", "FailedBinding", text)
            return
        template = volume["ephemeral"].get("volumeClaimTemplate") or {}
        metadata = template.get("metadata") or {}
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "namespace": namespace_of(pod),
                "labels": metadata.get("labels") or {},
                "annotations": metadata.get("annotations") or {},
                "ownerReferences": [owner_reference(pod, PODS)],
            },
            "spec": template.get("spec") or {},
        }
        await self.create(self.claims, claim)
