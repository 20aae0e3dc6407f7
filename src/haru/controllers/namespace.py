"""namespace-controller: empties a namespace that is being deleted, then lets it go.

Everything in it is deleted; what still stands (finalizers, pods that end gracefully) is reported in conditions and
looked at again. Only when nothing is left the namespace's own finalizer goes.
Source: Kubernetes `namespace-controller`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from haru.client.discovery import served_kinds
from haru.controllers.base import Context, Controller
from haru.controllers.objects import NAMESPACES, PODS
from haru.event_loop import bounded
from haru.kube.errors import StatusError, suppress_status
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, is_being_deleted, name_of, set_condition, uid_of

FINALIZER = "kubernetes"
_GRACE_SECONDS = 1.0
"""Whoever deletes a namespace with what is in it, as `kubectl delete -f` does, is to find that, too."""
_LOOK_AGAIN_SECONDS = 2.0
_KINDS_SECONDS = 30.0
# Condition -> reason when it is True, reason and message when it is False.
_REASONS = {
    "NamespaceDeletionDiscoveryFailure": (
        "DiscoveryFailed",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "GroupVersionParsingFailed",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeletionFailed",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": (
        "SomeResourcesRemain",
        "ContentRemoved",
        "All content successfully removed",
    ),
    "NamespaceFinalizersRemaining": (
        "SomeFinalizersRemain",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}


class NamespaceController(Controller):
    """Finalizes namespaces."""

    name: ClassVar[str] = "namespace-controller"
    needs: ClassVar[tuple[Kind, ...]] = (NAMESPACES,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.namespaces = self.informer(NAMESPACES)
        self.namespaces.add_handler(self._changed, lambda _, new: self._changed(new))
        self._kinds: list[Kind] = []
        self._kinds_at = float("-inf")

    def _changed(self, namespace: Obj) -> None:
        if is_being_deleted(namespace):
            self.queue.add_after(name_of(namespace), _GRACE_SECONDS)

    async def sync(self, key: str) -> float | None:
        """Empty one namespace a bit more, or let it go."""
        namespace = self.namespaces.get(key)
        if namespace is None or not is_being_deleted(namespace):
            return None
        if FINALIZER not in ((namespace.get("spec") or {}).get("finalizers") or ()):
            return None
        failures: dict[str, str] = {}
        remaining: dict[str, list[Obj]] = {}
        try:
            kinds = await self._namespaced_kinds()
        except (StatusError, OSError) as error:
            await self._report(namespace, {"NamespaceDeletionDiscoveryFailure": str(error)}, {})
            raise
        # Pods first, and nothing else until they are gone: what they use must not vanish under them (KEP-5080).
        for kind in sorted(kinds, key=lambda kind: kind.group_resource != PODS.group_resource):
            try:
                if left := await self._empty(key, kind):
                    remaining[kind.group_resource] = left
            except StatusError as error:
                if error.code not in (404, 405):
                    failures["NamespaceDeletionContentFailure"] = f"Failed to delete all resource types: {error}"
            if kind.group_resource == PODS.group_resource and (remaining or failures):
                break
        if not remaining and not failures:
            await self._finalize(namespace)
            return None
        await self._report(namespace, failures, remaining)
        return _LOOK_AGAIN_SECONDS

    async def _namespaced_kinds(self) -> list[Kind]:
        now = asyncio.get_running_loop().time()
        if now - self._kinds_at > _KINDS_SECONDS:
            served = await served_kinds(self.client)
            wanted = {"list", "delete"}
            self._kinds = [k for k in served if k.namespaced and wanted <= set(k.verbs) and k.group != "events.k8s.io"]
            self._kinds_at = now
        return self._kinds

    async def _empty(self, namespace: str, kind: Kind) -> list[Obj]:
        """Ask for the deletion of all objects of a kind; what stands afterwards."""
        items = (await self.client.list(kind, namespace))["items"]
        if not items:
            return []
        await bounded([item for item in items if not is_being_deleted(item)], lambda item: self._delete(kind, item))
        left: list[Obj] = (await self.client.list(kind, namespace))["items"]
        return left

    async def _delete(self, kind: Kind, item: Obj) -> None:
        with suppress_status(404, 409):
            await self.client.delete(
                kind, name_of(item), item["metadata"]["namespace"], uid=uid_of(item), propagation_policy="Background"
            )

    async def _finalize(self, namespace: Obj) -> None:
        spec = namespace.get("spec") or {}
        kept = [finalizer for finalizer in spec.get("finalizers") or () if finalizer != FINALIZER]
        with suppress_status(404):
            await self.update(self.namespaces, {**namespace, "spec": {**spec, "finalizers": kept}}, "finalize")

    async def _report(self, namespace: Obj, failures: Mapping[str, str], remaining: Mapping[str, list[Obj]]) -> None:
        messages = dict(failures)
        if remaining:
            # A name of the core group ends with the dot before its empty group, as in Kubernetes.
            names = {what if "." in what else f"{what}.": len(left) for what, left in remaining.items()}
            listed = ", ".join(sorted(f"{what} has {count} resource instances" for what, count in names.items()))
            messages["NamespaceContentRemaining"] = f"Some resources are remaining: {listed}"
        finalizers = Counter(
            f for left in remaining.values() for obj in left for f in obj["metadata"].get("finalizers") or ()
        )
        if finalizers:
            listed = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
            messages["NamespaceFinalizersRemaining"] = (
                f"Some content in the namespace has finalizers remaining: {listed}"
            )
        status: dict[str, Any] = dict(namespace.get("status") or {})
        conditions = status.get("conditions") or []
        for type_, (bad, good, fine) in _REASONS.items():
            failed = type_ in messages
            condition = {
                "type": type_,
                "status": "True" if failed else "False",
                "reason": bad if failed else good,
                "message": messages.get(type_, fine),
            }
            conditions = set_condition(conditions, condition, self.timestamp())
        await self.update_status(self.namespaces, namespace, {**status, "conditions": conditions})
