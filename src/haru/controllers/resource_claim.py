"""resourceclaim-controller: claims from templates, reservations of pods bound by hand, release of what nobody uses.

Keys are `pod:`, `claim:` and `podgroup:` plus namespace/name. Generating comes before recording: after a crash in
between the claim is found again by its owner and annotation. A claim's allocation is cleared in the same update that
removes its last consumer; only then the finalizer goes.
Source: KEP-4381, KEP-5729.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from cachetools import FIFOCache
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from haru.client.informer import Informer, object_key
from haru.controllers import claim_names
from haru.controllers.base import Context, Controller
from haru.controllers.claim_names import DELETE_PROTECTION, MAX_RESERVED
from haru.controllers.objects import CLAIM_TEMPLATES, CLAIMS, POD_GROUPS, PODS, by_controller, is_terminal
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import (
    Obj,
    controller_of,
    has_finalizer,
    is_being_deleted,
    name_of,
    namespace_of,
    node_of,
    podgroup_of,
    uid_of,
)

FIELD_MANAGER = "ResourceClaimController"
_REMEMBERED_DELETIONS = 500


def is_done(pod: Mapping[str, Any]) -> bool:
    """The pod uses no claim (any more): it has ended, or is being deleted and never reached a node."""
    return is_terminal(pod) or (is_being_deleted(pod) and not node_of(pod))


def _needs_of(obj: Mapping[str, Any]) -> tuple[object, ...]:
    """What of a pod or group decides about its claims."""
    status = obj.get("status") or {}
    return claim_names.entries_of(obj), status.get("resourceClaimStatuses"), node_of(obj), is_done(obj)


def _reservable(claim: Mapping[str, Any]) -> bool:
    """Whether a pod on a node could have itself entered as a consumer."""
    return claim_names.is_allocated(claim) and len(claim_names.reserved_for(claim)) < MAX_RESERVED


def _templates_of(obj: Mapping[str, Any]) -> Iterable[str]:
    names = (entry.get("resourceClaimTemplateName") for entry in claim_names.entries_of(obj))
    return [f"{namespace_of(obj)}/{name}" for name in names if name]


def _group_of(pod: Mapping[str, Any]) -> Iterable[str]:
    name = podgroup_of(pod)
    return [f"{namespace_of(pod)}/{name}"] if name and claim_names.entries_of(pod) else []


def _consumers_of(claim: Mapping[str, Any]) -> Iterable[str]:
    return [entry["uid"] for entry in claim_names.reserved_for(claim)]


class ResourceClaimController(Controller):
    """Generates, reserves and releases ResourceClaims."""

    name: ClassVar[str] = "resourceclaim-controller"
    component: ClassVar[str] = "resource_claim"
    needs: ClassVar[tuple[Kind, ...]] = (CLAIMS, CLAIM_TEMPLATES)
    workers: ClassVar[int] = 20

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._deleted_pods: FIFOCache[str, None] = FIFOCache(_REMEMBERED_DELETIONS)
        self.pods = self.informer(PODS)
        self.claims = self.informer(CLAIMS)
        self.templates = self.informer(CLAIM_TEMPLATES)
        self.groups: Informer | None = None
        self._creates: Counter[tuple[str, str]] = Counter()
        self.pods.add_index("claim", claim_names.claim_keys)
        self.pods.add_index("claim-template", _templates_of)
        self.claims.add_index("consumer", _consumers_of)
        self.claims.add_index("controller", by_controller)
        self.pods.add_handler(self._pod_changed, self._pod_updated, self._pod_deleted)
        self.claims.add_handler(self._claim_changed, self._claim_updated, self._claim_deleted)
        self.templates.add_handler(self._template_added)
        if context.gates.enabled("DRAWorkloadResourceClaims") and context.serves(POD_GROUPS):
            self.groups = self.informer(POD_GROUPS)
            self.groups.add_index("claim-template", _templates_of)
            self.pods.add_index("claims-of-group", _group_of)
            self.groups.add_handler(self._group_changed, self._group_updated, self._consumer_gone)

    def metrics(self) -> Iterable[Metric]:
        """How many claims were made, and which there are."""
        creates = CounterMetricFamily(
            "resourceclaim_controller_creates", "Claims made from templates.", labels=("status", "admin_access")
        )
        for labels, count in sorted(self._creates.items()):
            creates.add_metric(labels, count)
        yield creates
        kinds = Counter(claim_names.classify(claim) for claim in self.claims.store.values())
        for name in ("resourceclaim_controller_resource_claims", "dynamic_resource_allocation_resource_claims"):
            gauge = GaugeMetricFamily(name, "Claims there are.", labels=("allocated", "admin_access", "source"))
            for kind, count in sorted(kinds.items()):
                gauge.add_metric(kind, count)
            yield gauge

    # -- what happened ------------------------------------------------------------------------------------------------

    def _pod_changed(self, pod: Obj) -> None:
        if claim_names.entries_of(pod) and not is_done(pod):
            self.queue.add(f"pod:{object_key(pod)}")
        if is_done(pod):
            self._consumer_gone(pod)

    def _pod_updated(self, old: Obj, new: Obj) -> None:
        if _needs_of(old) != _needs_of(new):
            self._pod_changed(new)

    def _pod_deleted(self, pod: Obj) -> None:
        self._deleted_pods[uid_of(pod)] = None
        self._consumer_gone(pod)

    def _consumer_gone(self, consumer: Obj) -> None:
        for index in ("consumer", "controller"):
            for claim in self.claims.by_index(index, uid_of(consumer)):
                self.queue.add(f"claim:{object_key(claim)}")

    def _claim_changed(self, claim: Obj) -> None:
        self.queue.add(f"claim:{object_key(claim)}")
        for pod in self.pods.by_index("claim", object_key(claim)):
            if node_of(pod):  # it may wait for its reservation
                self.queue.add(f"pod:{object_key(pod)}")

    def _claim_updated(self, old: Obj, new: Obj) -> None:
        if is_being_deleted(old) != is_being_deleted(new) or _reservable(old) != _reservable(new):
            self._claim_changed(new)
        elif claim_names.reserved_for(old) != claim_names.reserved_for(new):
            self.queue.add(f"claim:{object_key(new)}")

    def _claim_deleted(self, claim: Obj) -> None:
        for pod in self.pods.by_index("claim", object_key(claim)):
            self._pod_changed(pod)
        owner = controller_of(claim)
        if owner is not None and owner.get("kind") == POD_GROUPS.kind:
            self.queue.add(f"podgroup:{namespace_of(claim)}/{owner['name']}")

    def _template_added(self, template: Obj) -> None:
        for pod in self.pods.by_index("claim-template", object_key(template)):
            self._pod_changed(pod)
        if self.groups is not None:
            for group in self.groups.by_index("claim-template", object_key(template)):
                self._group_changed(group)

    def _group_changed(self, group: Obj) -> None:
        if claim_names.entries_of(group):
            self.queue.add(f"podgroup:{object_key(group)}")
        # Members without an equal entry wait for the group too: only now it is known that their claims are their own.
        for pod in self.pods.by_index("claims-of-group", object_key(group)):
            self._pod_changed(pod)

    def _group_updated(self, old: Obj, new: Obj) -> None:
        if is_being_deleted(old) != is_being_deleted(new) or _needs_of(old) != _needs_of(new):
            self._group_changed(new)

    async def sync(self, key: str) -> float | None:
        """Bring one pod, claim or group into line."""
        kind, _, path = key.partition(":")
        namespace, _, name = path.partition("/")
        if kind == "pod":
            await self._sync_pod(namespace, name)
        elif kind == "claim":
            await self._sync_claim(namespace, name)
        else:
            await self._sync_group(namespace, name)
        return None

    # -- pods ---------------------------------------------------------------------------------------------------------

    async def _sync_pod(self, namespace: str, name: str) -> None:
        pod = self.pods.get(name, namespace)
        if pod is None or is_being_deleted(pod) or is_done(pod):
            return
        group: Obj | None = None
        if self.groups is not None and (of := podgroup_of(pod)):
            group = self.groups.get(of, namespace)
            if group is None:  # its coming brings the pod back
                return
        recorded = claim_names.recorded_names(pod)
        names = dict(recorded)
        try:
            for entry in claim_names.entries_of(pod):
                if not entry.get("resourceClaimTemplateName"):
                    continue
                if entry["name"] in recorded and recorded[entry["name"]] is None:
                    continue
                if group is not None and claim_names.matches_group(group, entry):
                    generated = self._group_claim(group, entry["name"])
                else:
                    generated = await self._claim_for(pod, PODS, entry, recorded)
                if generated is not None:
                    names[entry["name"]] = generated
        finally:
            if names != recorded:
                await self._record(self.pods, pod, names)
        if node_of(pod):
            await self._reserve(pod, names, group)

    def _group_claim(self, group: Obj, entry: str) -> str | None:
        """The group's generated claim, once it exists."""
        name = claim_names.recorded_names(group).get(entry)
        claim = self.claims.get(name, namespace_of(group)) if name else None
        return name if claim is not None and claim_names.is_owned_by(claim, group) else None

    async def _claim_for(self, owner: Obj, kind: Kind, entry: Obj, recorded: Mapping[str, str | None]) -> str:
        """The name of the claim generated for an entry of a pod or group; generates it where there is none."""
        namespace = namespace_of(owner)
        if name := recorded.get(entry["name"]):
            claim = self.claims.get(name, namespace) or await self.live(CLAIMS, name, namespace)
            if claim is not None and claim_names.is_owned_by(claim, owner):
                return name
        for claim in self.claims.by_index("controller", uid_of(owner)):
            if claim_names.entry_of(claim) == entry["name"] and not is_being_deleted(claim):
                return name_of(claim)
        template_name = entry["resourceClaimTemplateName"]
        template = self.templates.get(template_name, namespace) or await self.templates.fetch(template_name, namespace)
        if template is None:
            missing = f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            message = f'resource claim template "{template_name}": {missing}'
            self._failed(owner, entry, message)
            raise StatusError(404, "NotFound", f"{kind.kind} {object_key(owner)}: {message}")
        body = claim_names.generated_claim(owner, kind, entry["name"], template)
        admin = str(claim_names.has_admin_access(body)).lower()
        try:
            created = await self.create(self.claims, body)
        except StatusError as error:
            self._creates["failure", admin] += 1
            self._failed(owner, entry, f"create resource claim: {error}")
            raise
        self._creates["success", admin] += 1
        return name_of(created)

    def _failed(self, owner: Obj, entry: Obj, why: str) -> None:
        prefix = "PodResourceClaim" if owner.get("kind") == PODS.kind else "PodGroupResourceClaim"
        self.events.event(owner, "Warning", "FailedResourceClaimCreation", f"{prefix} {entry['name']}: {why}")

    async def _record(self, informer: Informer, owner: Obj, names: Mapping[str, str | None]) -> None:
        statuses = [{"name": n, "resourceClaimName": c} if c else {"name": n} for n, c in sorted(names.items())]
        metadata = {"name": name_of(owner), "namespace": namespace_of(owner)}
        kind = informer.kind
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        await self.patch(
            informer,
            owner,
            {**body, "status": {"resourceClaimStatuses": statuses}},
            type="apply",
            subresource="status",
            field_manager=FIELD_MANAGER,
            force=True,
        )

    async def _reserve(self, pod: Obj, generated: Mapping[str, str | None], group: Obj | None) -> None:
        """A pod that came to its node past the scheduler still needs its reservations."""
        for entry in claim_names.entries_of(pod):
            name = entry.get("resourceClaimName") or generated.get(entry["name"])
            claim = self.claims.get(name, namespace_of(pod)) if name else None
            if claim is None or not claim_names.is_allocated(claim) or is_being_deleted(claim):
                continue
            if entry.get("resourceClaimTemplateName") and not any(
                claim_names.is_owned_by(claim, owner) for owner in (pod, group) if owner is not None
            ):
                continue
            consumer = claim_names.consumer(pod, PODS)
            if group is not None and claim_names.matches_group(group, entry):
                consumer = claim_names.consumer(group, POD_GROUPS)
            reserved = claim_names.reserved_for(claim)
            known = {entry["uid"] for entry in reserved}
            if consumer["uid"] in known or uid_of(pod) in known or len(reserved) >= MAX_RESERVED:
                continue
            status = {**claim["status"], "reservedFor": [*reserved, consumer]}
            await self.update_status(self.claims, claim, status)

    # -- groups -------------------------------------------------------------------------------------------------------

    async def _sync_group(self, namespace: str, name: str) -> None:
        group = self.groups.get(name, namespace) if self.groups is not None else None
        if self.groups is None or group is None or is_being_deleted(group):
            return
        recorded = claim_names.recorded_names(group)
        names = dict(recorded)
        try:
            for entry in claim_names.entries_of(group):
                if entry.get("resourceClaimTemplateName"):
                    names[entry["name"]] = await self._claim_for(group, POD_GROUPS, entry, recorded)
        finally:
            if names != recorded:
                await self._record(self.groups, group, names)

    # -- claims -------------------------------------------------------------------------------------------------------

    async def _sync_claim(self, namespace: str, name: str) -> None:
        claim = self.claims.get(name, namespace)
        if claim is None:
            return
        reserved = claim_names.reserved_for(claim)
        valid = [entry for entry in reserved if await self._still_uses(namespace, entry)]
        if len(valid) < len(reserved):
            claim = await self._release(claim, valid)
        elif not valid and is_being_deleted(claim) and has_finalizer(claim, DELETE_PROTECTION):
            if claim_names.is_allocated(claim):
                claim = await self.update_status(self.claims, claim, _deallocated(claim["status"]))
            await self._unprotect(claim)
        if not valid:
            await self._delete_unneeded(claim)

    async def _still_uses(self, namespace: str, entry: Mapping[str, Any]) -> bool:
        group, resource, uid = entry.get("apiGroup") or "", entry["resource"], entry["uid"]
        if (group, resource) == (PODS.group, PODS.plural):
            if uid in self._deleted_pods:
                return False
            pod = self.pods.get(entry["name"], namespace)
            if pod is None or uid_of(pod) != uid:  # our copy may be late
                pod = await self.live(PODS, entry["name"], namespace)
            return pod is not None and uid_of(pod) == uid and not is_done(pod)
        if (group, resource) == (POD_GROUPS.group, POD_GROUPS.plural) and self.groups is not None:
            found = self.groups.get(entry["name"], namespace)
            if found is None or uid_of(found) != uid:
                found = await self.live(POD_GROUPS, entry["name"], namespace)
            return found is not None and uid_of(found) == uid
        raise ValueError(f"claim in {namespace}: consumer {resource}.{group} {entry['name']} is of an unknown kind")

    async def _release(self, claim: Obj, valid: Sequence[Obj]) -> Obj:
        status = {**claim["status"], "reservedFor": list(valid)}
        if not valid:
            del status["reservedFor"]
            if has_finalizer(claim, DELETE_PROTECTION):
                status = _deallocated(status)
        claim = await self.update_status(self.claims, claim, status)
        if not valid:
            await self._unprotect(claim)
        return claim

    async def _unprotect(self, claim: Obj) -> None:
        if not has_finalizer(claim, DELETE_PROTECTION):
            return
        kept = [f for f in claim["metadata"]["finalizers"] if f != DELETE_PROTECTION]
        await self.update(self.claims, {**claim, "metadata": {**claim["metadata"], "finalizers": kept}})

    async def _delete_unneeded(self, claim: Obj) -> None:
        """A generated claim goes with the end of its pod, though the pod object may live on; not so with a group."""
        owner = controller_of(claim)
        of = {PODS.kind: self.pods, POD_GROUPS.kind: self.groups}.get(owner["kind"]) if owner is not None else None
        if owner is None or of is None or is_being_deleted(claim):
            return
        found = of.get(owner["name"], namespace_of(claim))
        if found is None:  # the garbage collector's work
            return
        replaced = uid_of(found) != owner["uid"]
        over = of is self.pods and (replaced or is_done(found))
        if over or (not replaced and self._is_surplus(claim, found)):
            await self.delete(self.claims, claim)

    def _is_surplus(self, claim: Obj, owner: Obj) -> bool:
        """Another claim is recorded for this entry of the owner: this one was generated twice, and not used."""
        name = claim_names.recorded_names(owner).get(claim_names.entry_of(claim) or "")
        if not name or name == name_of(claim) or claim_names.is_allocated(claim):
            return False
        other = self.claims.get(name, namespace_of(claim))
        return other is not None and claim_names.is_owned_by(other, owner)


def _deallocated(status: Mapping[str, Any]) -> Obj:
    return {key: value for key, value in status.items() if key not in ("allocation", "devices", "reservedFor")}
