"""The cluster of `decisions_compared`: what is written to it, and what kube-scheduler has made of it.

It has no controllers: claims of templates, conditions of devices and the ends of pods are written from here.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from decision_verdicts import devices_of, made_for, of_containers, of_node
from manifests import NAMESPACE, OTHERS, Obj, obj
from random_clusters import OVERHEAD, PRIORITIES
from random_volumes import BOUND, SELECTED, ephemeral_claims_of, provisioned, reference, volume_claims_of
from random_work import claims_of

from haru.client.api import ApiClient
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind

KINDS: Mapping[str, Kind] = {
    kind: known_kind(version, kind)
    for version, kinds in {
        "v1": (
            *("Pod", "Node", "Namespace", "ResourceQuota", "PersistentVolumeClaim", "PersistentVolume"),
            *("Service", "ReplicationController"),
        ),
        "apps/v1": ("ReplicaSet", "StatefulSet"),
        "resource.k8s.io/v1": ("ResourceClaim", "ResourceSlice", "DeviceClass", "ResourceClaimTemplate"),
        "scheduling.k8s.io/v1alpha2": ("PodGroup",),
        "scheduling.k8s.io/v1": ("PriorityClass",),
        "policy/v1": ("PodDisruptionBudget",),
        "node.k8s.io/v1": ("RuntimeClass",),
        "storage.k8s.io/v1": ("StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity"),
    }.items()
    for kind in kinds
}
_LASTING = ("Namespace", "PriorityClass", "RuntimeClass")
_KEPT = ("ResourceClaim", "PodGroup", "PersistentVolumeClaim", "PersistentVolume")
"""Kinds with finalizers."""
SEEN_SECONDS, SETTLED_SECONDS, MOST_SECONDS = 0.15, 0.4, 8.0
"""Until a scheduler has been told of an object; without a change; and until it has surely decided."""
_QUOTA = re.compile(r"(?:exceeded|failed) quota: ([^:,]+)")
EXTENDED = "resource.kubernetes.io/extended-resource-claim"


def name_of(one: Obj) -> str:
    """The name of an object."""
    name: str = one["metadata"]["name"]
    return name


def condition(pod: Obj) -> Obj:
    """The condition PodScheduled."""
    found = (pod.get("status") or {}).get("conditions") or ()
    return next((one for one in found if one["type"] == "PodScheduled"), {})


class DecidedCluster:
    """A cluster whose only other writer is a scheduler. `mirror`: a second server, whose refusals are compared."""

    def __init__(self, api: ApiClient, mirror: ApiClient | None = None) -> None:
        self._api = api
        self._mirror = mirror
        self._followed: set[str] = set()
        """The scheduler's own claims that the second server has, too."""
        self.other_answers: list[str] = []
        """Where the second server answered a creation in another way."""
        self.refusals = 0

    async def prepare(self) -> None:
        """Make what every seed needs."""
        label = {"resource.kubernetes.io/admin-access": "true"}
        classes = [obj("scheduling.k8s.io/v1", "PriorityClass", name, **spec) for name, spec in PRIORITIES.items()]
        classes.append(obj("node.k8s.io/v1", "RuntimeClass", "heavy", handler="heavy", **OVERHEAD))
        account = known_kind("v1", "ServiceAccount")
        for api in filter(None, (self._api, self._mirror)):
            others = obj("v1", "Namespace", OTHERS, labels={"team": "x"})
            for one in (obj("v1", "Namespace", NAMESPACE, labels=label), others, *classes):
                with suppress(StatusError):
                    await api.create(KINDS[one["kind"]], one)
            for namespace in (NAMESPACE, OTHERS):
                with suppress(StatusError):
                    await api.create(account, obj("v1", "ServiceAccount", "default"), namespace)

    # -- writing ------------------------------------------------------------------------------------------------------

    async def create(self, given: Obj) -> Obj | None:
        """The stored object with its status; None where a quota refuses it."""
        answers = [await _created(api, given) for api in (self._api, self._mirror) if api]
        refused = [str(answer) if isinstance(answer, StatusError) else "" for answer in answers]
        if not alike(refused):
            self.other_answers.append(f"{given['kind']} {name_of(given)}: {refused}")
        if isinstance(answers[0], StatusError):
            if " quota: " not in refused[0]:
                raise answers[0]
            self.refusals += 1
            return None
        return answers[0]

    async def update(self, one: Obj) -> None:
        """Replace an object, and a node's status; a claim loses its status."""
        kind = KINDS[one["kind"]]
        if kind.kind == "ResourceClaim":
            nothing = {"status": dict.fromkeys(("allocation", "reservedFor", "devices"))}
            await self._api.patch(kind, name_of(one), nothing, NAMESPACE, "merge", "status")
            return
        await self._api.update(kind, {key: value for key, value in one.items() if key != "status"} | _versionless(one))
        if kind.kind == "Node":
            await self._api.patch(kind, name_of(one), {"status": one["status"]}, "", "merge", "status")

    async def delete(self, one: Obj) -> None:
        """Delete an object at once."""
        await _deleted(self._api, one)

    async def end(self, pods: Sequence[Obj], frees: bool) -> None:
        """Delete pods; as a controller would, free and delete the claims that were made for them, if asked to."""
        for pod in pods:
            await self.delete(pod)
        uids = {pod["metadata"]["uid"] for pod in pods}
        for claim in await self.listed("ResourceClaim") if frees else ():
            if any(owner["uid"] in uids for owner in claim["metadata"].get("ownerReferences") or ()):
                await self.delete(claim)

    async def make_claims(self, pods: Sequence[Obj], templates: Mapping[str, Obj]) -> list[Obj] | None:
        """Do what the controllers of claims do for these pods.

        The claims for their own volumes, as stored; None if a quota does not let all of it be.
        """
        volumes = list[Obj]()
        for pod in pods:
            volumes += filter(None, [await self.create(one) for one in ephemeral_claims_of(pod)])
            entries = []
            for entry, claim in claims_of(pod, dict(templates)):
                if not await self.create(claim):
                    return None
                entries.append({"name": entry, "resourceClaimName": name_of(claim)})
            if entries:
                status = {"status": {"resourceClaimStatuses": entries}}
                await self._api.patch(KINDS["Pod"], name_of(pod), status, NAMESPACE, "merge", "status")
        return volumes

    async def release(self, pods: Sequence[Obj], more: Obj, nominated: str) -> None:
        """Nominate a node for pods, if there is one, and take their gates away, with more in their specs."""
        for pod in pods if nominated else ():
            status = {"status": {"nominatedNodeName": nominated}}
            await self._api.patch(KINDS["Pod"], name_of(pod), status, NAMESPACE, "merge", "status")
        await asyncio.sleep(SEEN_SECONDS)
        for pod in pods:
            body = {"spec": {"schedulingGates": None, **more}}
            await self._api.patch(KINDS["Pod"], name_of(pod), body, NAMESPACE, "merge")

    async def attach(self) -> None:
        """Say of each allocated device that has binding conditions that they are true, as its driver does."""
        for claim in await self.listed("ResourceClaim"):
            status = claim.get("status") or {}
            told = {_identity(one) for one in status.get("devices") or ()}
            found = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
            new = [one for one in found if one.get("bindingConditions") and _identity(one) not in told]
            if new:
                attached = {"type": "attached", "status": "True", "reason": "Attached", "message": ""}
                attached["lastTransitionTime"] = "2026-01-01T00:00:00Z"
                keys = ("driver", "pool", "device", "shareID")
                more = [{key: one[key] for key in keys if key in one} | {"conditions": [attached]} for one in new]
                body = {"status": {"devices": [*(status.get("devices") or ()), *more]}}
                with suppress(StatusError):
                    await self._api.patch(KINDS["ResourceClaim"], name_of(claim), body, NAMESPACE, "merge", "status")

    async def follow_claims(self) -> None:
        """Make the claims that the scheduler made on the second server, too: they count in quotas."""
        for claim in await self.listed("ResourceClaim") if self._mirror else ():
            meta = claim["metadata"]
            if EXTENDED in (meta.get("annotations") or {}) and meta["uid"] not in self._followed:
                self._followed.add(meta["uid"])
                kept = {key: meta[key] for key in ("name", "namespace", "annotations")}
                kept["ownerReferences"] = [await self._owner_there(one) for one in meta["ownerReferences"]]
                answer = await _created(self._mirror, {**claim, "metadata": kept, "status": None})
                if isinstance(answer, StatusError):
                    self.other_answers.append(f"ResourceClaim {name_of(claim)} of a scheduler: {answer}")

    async def _owner_there(self, owner: Obj) -> Obj:
        """The reference to a pod as the second server has it, by the same name: a quota asks whose a claim is."""
        if self._mirror is None:
            return owner
        with suppress(StatusError):
            return {**owner, "uid": (await self._mirror.get(KINDS["Pod"], owner["name"], NAMESPACE))["metadata"]["uid"]}
        return owner

    async def bind_volumes(self) -> None:
        """Do what the controller of volumes and the driver do: bind what names each other, make what has a node."""
        waiting = [one for one in await self.listed("PersistentVolumeClaim") if not one["spec"].get("volumeName")]
        volumes = await self.listed("PersistentVolume") if waiting else []
        for claim in waiting:
            named = (one for one in volumes if (one["spec"].get("claimRef") or {}).get("name") == name_of(claim))
            volume = next(named, None)
            if not volume and SELECTED in (claim["metadata"].get("annotations") or {}):
                volume = provisioned(claim)
                await self._api.create(KINDS["PersistentVolume"], volume)
            if volume:
                whose = {"spec": {"claimRef": reference(name_of(claim), claim["metadata"]["uid"])}}
                await self._api.patch(KINDS["PersistentVolume"], name_of(volume), whose, "")
                body = {"spec": {"volumeName": name_of(volume)}, "metadata": {"annotations": BOUND}}
                for part, one in (("", body), ("status", {"status": {"phase": "Bound"}})):
                    kind = KINDS["PersistentVolumeClaim"]
                    await self._api.patch(kind, name_of(claim), one, NAMESPACE, "merge", part)

    async def run(self, pods: Sequence[Obj], number: int) -> None:
        """Say that bound pods run, as a kubelet does: who has run for longer is the last to be a victim."""
        for index, pod in enumerate(pods):
            began = f"2026-01-02T{number:02d}:{index:02d}:00Z"
            status = {"status": {"phase": "Running", "startTime": began}}
            await self._api.patch(KINDS["Pod"], name_of(pod), status, NAMESPACE, "merge", "status")

    async def clean(self) -> None:
        """Leave nothing of a seed."""
        for api in filter(None, (self._api, self._mirror)):
            for kind in KINDS:
                if kind not in _LASTING:
                    for one in await _listed(api, kind):
                        await _deleted(api, one)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def listed(self, kind: str) -> list[Obj]:
        """All objects of a kind, in the one namespace that is used."""
        return await _listed(self._api, kind)

    async def world(self) -> list[Obj]:
        """All objects."""
        return [one for kind in KINDS for one in await self.listed(kind)]

    async def allocated(self, pods: Collection[str], claims: Collection[str]) -> dict[str, list[tuple[Any, ...]]]:
        """The devices of claims by name, and of the claims that the scheduler made for extended resources of pods."""
        found = {}
        for claim in await self.listed("ResourceClaim"):
            devices = devices_of((claim.get("status") or {}).get("allocation"))
            owners = claim["metadata"].get("ownerReferences") or [{}]
            if name_of(claim) in claims:
                found[name_of(claim)] = devices
            elif owners[0].get("name") in pods and EXTENDED in (claim["metadata"].get("annotations") or {}):
                found[f"extended {owners[0]['name']}"] = devices
        for pod in await self.listed("Pod"):
            if name_of(pod) in pods:
                found |= of_node(name_of(pod), pod["status"].get("nodeAllocatableResourceClaimStatuses") or ())
                extended = pod["status"].get("extendedResourceClaimStatus")
                found |= of_containers(name_of(pod), extended["requestMappings"]) if extended else {}
        return found

    async def placed_since(self, before: Sequence[Obj], pods: Sequence[Obj]) -> list[Obj]:
        """Those of the pods that had no node `before`, and their claims."""
        waited = {name_of(one) for one in before if one["kind"] == "Pod" and not one["spec"].get("nodeName")}
        found = [one for one in pods if name_of(one) in waited and one["spec"].get("nodeName")]
        uids = {one["metadata"]["uid"] for one in found}
        claims = await self.listed("ResourceClaim") if found else []
        return found + [one for one in claims if any(user["uid"] in uids for user in _users(one))]

    async def volumes(self, pods: Sequence[Obj], claims: Sequence[Obj]) -> dict[str, str]:
        """The volumes that these pods got for claims that had none, or for which nodes some were made."""
        waited = {name_of(one) for one in claims if not one["spec"].get("volumeName")}
        used = {name for pod in pods for name in volume_claims_of(pod)}
        found = {}
        for claim in await self.listed("PersistentVolumeClaim"):
            volume = claim["spec"].get("volumeName", "")
            if volume and name_of(claim) in waited & used:
                node = (claim["metadata"].get("annotations") or {}).get(SELECTED, "")
                found[name_of(claim)] = made_for(node) if volume == name_of(provisioned(claim)) else volume
        return found

    async def decided(self, names: Collection[str], since: Mapping[str, Obj] | None = None) -> dict[str, Obj]:
        """All pods once these have a node or a message, and nothing has changed for a while.

        With `since` (the pods as they were) only so long as a scheduler takes that was woken.
        """
        began, last, seen = time.monotonic(), "", 0.0
        async for pods in self._looks():
            mine = [pods[name] for name in names if name in pods]
            state = json.dumps([[one["spec"].get("nodeName"), _told(one)] for one in pods.values()])
            now = time.monotonic()
            if state != last:
                last, seen = state, now
            done = all(one["spec"].get("nodeName") or _is_refused(one, since) for one in mine)
            quiet = SETTLED_SECONDS
            if since is not None and all(_told(one) == _told(since[name_of(one)]) for one in mine):
                quiet = 2.5  # longer than any backoff
            if (done and now - seen > quiet) or now - began > MOST_SECONDS:
                return pods
        raise AssertionError("unreachable")

    async def _looks(self) -> AsyncIterator[dict[str, Obj]]:
        while True:
            await self.attach()
            await self.follow_claims()
            await self.bind_volumes()
            yield {name_of(one): one for one in await self.listed("Pod")}
            await asyncio.sleep(0.05)


def alike(refused: Sequence[str]) -> bool:
    """Whether refusals are the same, or name different quotas: where several are exceeded, kube-apiserver names any."""
    quotas = {found[1] if (found := _QUOTA.search(text)) else "" for text in refused}
    return len(set(refused)) == 1 or (len(quotas) == len(refused) and "" not in quotas)


def _is_refused(pod: Obj, since: Mapping[str, Obj] | None) -> bool:
    """Whether a pod has a refusal. One that is nominated and has no other than before is being bound."""
    if since and pod["status"].get("nominatedNodeName") and condition(pod) == condition(since[name_of(pod)]):
        return False
    return condition(pod).get("status") == "False" and condition(pod).get("reason") != "SchedulingGated"


def _told(pod: Obj) -> list[Any]:
    told, meta = condition(pod), pod["metadata"]
    status = pod.get("status") or {}
    return [
        told.get("status"),
        told.get("message"),
        status.get("nominatedNodeName"),
        meta.get("deletionTimestamp"),
        pod["spec"].get("nodeName"),
    ]


def _users(claim: Obj) -> Sequence[Obj]:
    return (claim.get("status") or {}).get("reservedFor") or ()


def _identity(device: Obj) -> tuple[str, str, str]:
    return device["pool"], device["device"], device.get("shareID", "")


def _versionless(one: Obj) -> Obj:
    return {"metadata": {key: value for key, value in one["metadata"].items() if key != "resourceVersion"}}


def _namespace(kind: Kind, one: Obj) -> str:
    return one["metadata"].get("namespace") or NAMESPACE if kind.namespaced else ""


async def _listed(api: ApiClient, kind: str) -> list[Obj]:
    of = KINDS[kind]
    found = (await api.list(of, NAMESPACE if of.namespaced else ""))["items"]
    if kind == "Pod":
        found = [*found, *(await api.list(of, OTHERS))["items"]]
    return [{**one, "kind": kind, "apiVersion": of.api_version} for one in found]


async def _created(api: ApiClient, given: Obj) -> Obj | StatusError:
    one, kind = deepcopy(given), KINDS[given["kind"]]
    # A node is there with its status at once, or a scheduler would look at it in between.
    status = one.pop("status", None) if kind.kind != "Node" else None
    try:
        made = await api.create(kind, one, _namespace(kind, one))
        if status:
            made = await api.patch(kind, name_of(one), {"status": status}, _namespace(kind, one), "merge", "status")
    except StatusError as error:
        return error
    return {**made, "kind": kind.kind, "apiVersion": kind.api_version}


async def _deleted(api: ApiClient, one: Obj) -> None:
    """Without waiting for anybody: finalizers are taken away before and after."""
    kind, name = KINDS[one["kind"]], name_of(one)
    keeps = kind.kind in _KEPT
    for again in range(2 if keeps else 1):
        with suppress(StatusError):
            if keeps:
                await api.patch(kind, name, {"metadata": {"finalizers": None}}, _namespace(kind, one))
            if again == 0:
                grace = 0 if kind.kind == "Pod" else None
                await api.delete(kind, name, _namespace(kind, one), grace_period_seconds=grace)
