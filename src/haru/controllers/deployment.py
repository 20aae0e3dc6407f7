"""deployment-controller: one ReplicaSet for each template, sized so that the newest takes over within the limits.

The ReplicaSet of the present template is found by comparing templates; its name carries a hash of the template, so a
second creation after a crash meets the first one. Revisions are numbered for `kubectl rollout undo`.
Source: apps/v1 Deployment.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from haru.controllers import deployment_status, rollout
from haru.controllers.base import Context, Controller
from haru.controllers.controller_refs import ClaimRule, add_ownership_indexes, claim
from haru.controllers.objects import DEPLOYMENTS, PODS, REPLICA_SETS, ConditionText, by_controller, is_terminal
from haru.controllers.rollout import Limits, replicas_of, status_of
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import (
    Obj,
    annotations_of,
    controller_of,
    get_condition,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from haru.kube.names import short_hash
from haru.kube.selectors import label_selector_from

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_HISTORY = "deployment.kubernetes.io/revision-history"
_NOT_INHERITED = {
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    _HISTORY,
    rollout.DESIRED,
    rollout.MAXIMUM,
    "deprecated.deployment.rollback.to",
}


def _inherited(deployment: Obj) -> dict[str, str]:
    """The annotations of a Deployment that the ReplicaSet of its template gets, too."""
    return {k: v for k, v in annotations_of(deployment).items() if k not in _NOT_INHERITED}


def template_hash(template: Mapping[str, Any], collisions: int) -> str:
    """A stable hash of a pod template."""
    return short_hash(json.dumps([template, collisions], sort_keys=True))


def template_of(replica_set: Mapping[str, Any]) -> Obj:
    """The pod template as the Deployment had it: without the hash label."""
    template: Obj = copy.deepcopy(replica_set["spec"].get("template") or {})
    labels = (template.get("metadata") or {}).get("labels")
    if labels:
        labels.pop(HASH_LABEL, None)
    return template


def _comparable(template: Obj) -> Obj:
    metadata = {k: v for k, v in (template.get("metadata") or {}).items() if v}
    return {**template, "metadata": metadata}


def revision_of(obj: Mapping[str, Any]) -> int:
    """The revision that an object's annotation notes."""
    noted = annotations_of(obj).get(REVISION, "0")
    return int(noted) if noted.isdigit() else 0


def find_new(deployment: Obj, replica_sets: Sequence[Obj]) -> Obj | None:
    """The (oldest) ReplicaSet of the present template."""
    wanted = _comparable(deployment["spec"]["template"])
    matching = [rs for rs in replica_sets if _comparable(template_of(rs)) == wanted]
    return min(matching, key=lambda rs: rs["metadata"].get("creationTimestamp") or "", default=None)


class DeploymentController(Controller):
    """Rolls Deployments out."""

    name: ClassVar[str] = "deployment-controller"
    needs: ClassVar[tuple[Kind, ...]] = (DEPLOYMENTS, REPLICA_SETS)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.deployments = self.informer(DEPLOYMENTS)
        self.sets = self.informer(REPLICA_SETS)
        self.pods = self.informer(PODS)
        add_ownership_indexes(self.sets)
        self.pods.add_index("controller", by_controller)
        self.deployments.add_index("namespace", lambda obj: [namespace_of(obj)])
        self.deployments.add_handler(self.enqueue, lambda _, new: self.enqueue(new))
        self.sets.add_handler(self._set_changed, self._set_updated, self._set_changed)
        self.pods.add_handler(on_delete=self._pod_deleted)

    def _set_changed(self, replica_set: Obj) -> None:
        owner = controller_of(replica_set)
        if owner is not None:
            if owner.get("kind") == DEPLOYMENTS.kind:
                self.queue.add(f"{namespace_of(replica_set)}/{owner['name']}")
            return
        for deployment in self.deployments.by_index("namespace", namespace_of(replica_set)):
            if label_selector_from(deployment["spec"].get("selector")).matches(labels_of(replica_set)):
                self.enqueue(deployment)

    def _set_updated(self, old: Obj, new: Obj) -> None:
        if controller_of(old) != controller_of(new):
            self._set_changed(old)
        self._set_changed(new)

    def _pod_deleted(self, pod: Obj) -> None:
        """Recreate waits for the old pods to be gone."""
        owner = controller_of(pod)
        replica_set = self.sets.get(owner["name"], namespace_of(pod)) if owner else None
        if replica_set is not None:
            self._set_changed(replica_set)

    async def sync(self, key: str) -> float | None:
        """Bring one Deployment into line."""
        namespace, _, name = key.partition("/")
        deployment = self.deployments.get(name, namespace)
        if deployment is None:
            return None
        selector = label_selector_from(deployment["spec"].get("selector"))
        if selector.empty:
            return None
        replica_sets = await claim(self, self.deployments, deployment, self.sets, ClaimRule(selector))
        new = find_new(deployment, replica_sets)
        if not is_being_deleted(deployment):
            new = await self._reconcile(deployment, new, replica_sets)
        deployment = self.deployments.get(name, namespace) or deployment
        replica_sets = self.sets.by_index("controller", uid_of(deployment))
        new = self.sets.get(name_of(new), namespace) if new is not None else None
        return await self._write_status(deployment, new, replica_sets)

    async def _reconcile(self, deployment: Obj, new: Obj | None, replica_sets: list[Obj]) -> Obj | None:
        old = [rs for rs in replica_sets if new is None or uid_of(rs) != uid_of(new)]
        limits = Limits.of(deployment)
        rolling = (deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate") != "Recreate"
        paused = bool(deployment["spec"].get("paused"))
        if paused or rollout.was_rescaled(replica_sets, limits.wanted):
            if new is not None and not paused:
                new = await self._number(deployment, new, old)
            await self._rescale(deployment, new, old, limits, rolling)
        elif rolling:
            new = await self._ensure_new(deployment, new, old)
            new = await self._resize(deployment, new, rollout.new_size(new, old, limits, True), limits)
            sizes = rollout.old_sizes(new, old, limits)
            for replica_set in old:
                await self._resize(deployment, replica_set, sizes[name_of(replica_set)], limits)
        else:
            for replica_set in old:
                await self._resize(deployment, replica_set, 0, limits)
            if self._old_pods_run(old):
                return new
            new = await self._ensure_new(deployment, new, old)
            new = await self._resize(deployment, new, limits.wanted, limits)
        if not paused:
            await self._clean_up(deployment, new, old)
        return new

    async def _rescale(
        self, deployment: Obj, new: Obj | None, old: Sequence[Obj], limits: Limits, rolling: bool
    ) -> None:
        replica_sets = [*old, *([new] if new is not None else [])]
        active = [rs for rs in replica_sets if replicas_of(rs) > 0]
        if len(active) <= 1:
            only = active[0] if active else new
            if only is None and old:
                only = max(old, key=revision_of)
            if only is not None:
                await self._resize(deployment, only, limits.wanted, limits)
        elif new is not None and status_of(new, "availableReplicas") == replicas_of(new) == limits.wanted:
            for replica_set in old:
                await self._resize(deployment, replica_set, 0, limits)
        elif rolling:
            sizes = rollout.proportional_sizes(replica_sets, limits)
            for replica_set in active:
                await self._resize(deployment, replica_set, sizes[name_of(replica_set)], limits)

    def _old_pods_run(self, old: Sequence[Obj]) -> bool:
        pods = (pod for rs in old for pod in self.pods.by_index("controller", uid_of(rs)))
        return any(not is_terminal(pod) for pod in pods)

    # -- the new ReplicaSet -------------------------------------------------------------------------------------------

    async def _ensure_new(self, deployment: Obj, new: Obj | None, old: Sequence[Obj]) -> Obj:
        if new is not None:
            return await self._number(deployment, new, old)
        collisions = (deployment.get("status") or {}).get("collisionCount") or 0
        body = self._new_body(deployment, old, collisions)
        try:
            created = await self.create(self.sets, body)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                text = f'Failed to create new replica set "{body["metadata"]["name"]}": {error}'
                await self._note_failure(deployment, "ReplicaSetCreateError", text)
                raise
            live = await self.live(REPLICA_SETS, body["metadata"]["name"], namespace_of(deployment))
            owner = controller_of(live) if live is not None else None
            if live is not None and owner is not None and owner["uid"] == uid_of(deployment):
                if find_new(deployment, [live]) is not None:
                    return live
            elif live is None:
                raise
            status = {**(deployment.get("status") or {}), "collisionCount": collisions + 1}
            await self.update_status(self.deployments, deployment, status)
            raise
        if replicas_of(created):
            text = f"Scaled up replica set {name_of(created)} from 0 to {replicas_of(created)}"
            self.events.event(deployment, "Normal", "ScalingReplicaSet", text)
        condition = ConditionText(
            "Progressing", "True", "NewReplicaSetCreated", f'Created new replica set "{name_of(created)}"'
        )
        await self._note_revision(deployment, revision_of(created), condition)
        return created

    def _new_body(self, deployment: Obj, old: Sequence[Obj], collisions: int) -> Obj:
        spec = deployment["spec"]
        hash_ = template_hash(spec["template"], collisions)
        template = copy.deepcopy(spec["template"])
        template.setdefault("metadata", {}).setdefault("labels", {})[HASH_LABEL] = hash_
        selector = copy.deepcopy(spec["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: hash_}
        limits = Limits.of(deployment)
        annotations = _inherited(deployment)
        annotations |= {REVISION: str(max(map(revision_of, old), default=0) + 1), **_sizes_noted(limits)}
        body: Obj = {
            "apiVersion": REPLICA_SETS.api_version,
            "kind": REPLICA_SETS.kind,
            "metadata": {
                "name": f"{name_of(deployment)}-{hash_}",
                "namespace": namespace_of(deployment),
                "labels": dict(template["metadata"]["labels"]),
                "annotations": annotations,
                "ownerReferences": [owner_reference(deployment, DEPLOYMENTS)],
            },
            "spec": {"selector": selector, "template": template},
        }
        rolling = (spec.get("strategy") or {}).get("type", "RollingUpdate") != "Recreate"
        empty: Obj = {"metadata": {"name": ""}, "spec": {"replicas": 0}}
        body["spec"]["replicas"] = rollout.new_size(empty, old, limits, rolling)
        if spec.get("minReadySeconds"):
            body["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        return body

    async def _number(self, deployment: Obj, new: Obj, old: Sequence[Obj]) -> Obj:
        """The present template has the highest revision, also when it is an earlier one that came back."""
        revision = max(map(revision_of, old), default=0) + 1
        patch: Obj = {}
        annotations = {k: v for k, v in _inherited(deployment).items() if annotations_of(new).get(k) != v}
        if revision_of(new) < revision:
            annotations[REVISION] = str(revision)
            if revision_of(new):
                earlier = annotations_of(new).get(_HISTORY, "")
                annotations[_HISTORY] = ",".join(part for part in (earlier, str(revision_of(new))) if part)
        if annotations:
            patch["metadata"] = {"annotations": annotations}
        min_ready = deployment["spec"].get("minReadySeconds") or 0
        if (new["spec"].get("minReadySeconds") or 0) != min_ready:
            patch["spec"] = {"minReadySeconds": min_ready}
        if patch:
            new = await self._patch_set(new, patch)
        known = get_condition(deployment, "Progressing") is not None
        text = f'Found new replica set "{name_of(new)}"'
        found = None if known else ConditionText("Progressing", "True", "FoundNewReplicaSet", text)
        await self._note_revision(deployment, revision_of(new), found)
        return new

    async def _note_failure(self, deployment: Obj, reason: str, text: str) -> None:
        """Say why the rollout does not go on."""
        self.events.event(deployment, "Warning", reason, text)
        await self._note_revision(
            deployment, revision_of(deployment), ConditionText("Progressing", "False", reason, text)
        )

    async def _note_revision(self, deployment: Obj, revision: int, progress: ConditionText | None = None) -> None:
        """Write down the revision, and what is said of progress to who waits for it."""
        noted = deployment
        if revision_of(deployment) != revision:
            # By way of the status: annotations of a Deployment count in its generation.
            annotations = {**annotations_of(deployment), REVISION: str(revision)}
            noted = {**deployment, "metadata": {**deployment["metadata"], "annotations": annotations}}
        if progress is not None and deployment_status.has_deadline(deployment):
            status = deployment.get("status") or {}
            before = status.get("conditions") or []
            conditions = deployment_status.with_condition(before, progress, self.timestamp())
            if conditions != before:
                noted = {**noted, "status": {**status, "conditions": conditions}}
        if noted is not deployment:
            await self.update(self.deployments, noted, "status")

    # -- sizes --------------------------------------------------------------------------------------------------------

    async def _resize(self, deployment: Obj, replica_set: Obj, size: int, limits: Limits) -> Obj:
        noted = _sizes_noted(limits)
        current = replicas_of(replica_set)
        annotations = annotations_of(replica_set)
        if current == size and (size == 0 or all(annotations.get(k) == v for k, v in noted.items())):
            return replica_set
        patch = {"metadata": {"annotations": noted}, "spec": {"replicas": size}}
        resized = await self._patch_set(replica_set, patch)
        if current != size:
            direction = "up" if size > current else "down"
            message = f"Scaled {direction} replica set {name_of(replica_set)} from {current} to {size}"
            self.events.event(deployment, "Normal", "ScalingReplicaSet", message)
        return resized

    async def _patch_set(self, replica_set: Obj, patch: Obj) -> Obj:
        metadata = {**(patch.get("metadata") or {}), "resourceVersion": replica_set["metadata"]["resourceVersion"]}
        await self.patch(self.sets, replica_set, {**patch, "metadata": metadata})
        return self.sets.get(name_of(replica_set), namespace_of(replica_set)) or replica_set

    async def _clean_up(self, deployment: Obj, new: Obj | None, old: Sequence[Obj]) -> None:
        """Old templates are kept for `rollout undo`, up to the limit."""
        limit = deployment["spec"].get("revisionHistoryLimit")
        if (
            limit is None
            or new is None
            or not deployment_status.is_complete(deployment, deployment.get("status") or {})
        ):
            return
        kept = [rs for rs in old if not is_being_deleted(rs)]
        surplus = sorted(kept, key=revision_of)[: max(0, len(kept) - limit)]
        for replica_set in surplus:
            current = replicas_of(replica_set) or status_of(replica_set, "replicas")
            if not current and replica_set["metadata"].get("generation", 0) <= status_of(
                replica_set, "observedGeneration"
            ):
                await self.delete(self.sets, replica_set, propagation_policy="Background")

    async def _write_status(self, deployment: Obj, new: Obj | None, replica_sets: Sequence[Obj]) -> float | None:
        status = deployment_status.counts(deployment, new, replica_sets)
        conditions, due = deployment_status.conditions(deployment, status, new, replica_sets, self.now())
        await self.update_status(self.deployments, deployment, {**status, "conditions": conditions})
        return None if due is None else due + 1


def _sizes_noted(limits: Limits) -> dict[str, str]:
    return {rollout.DESIRED: str(limits.wanted), rollout.MAXIMUM: str(limits.wanted + limits.max_surge)}
