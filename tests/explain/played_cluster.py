"""A situation as a cluster in virtual time: what its remedies say is done there, and then the work has to run.

Nodes with a profile are a fleet's. What has no part in Haru is played: kubelets of other nodes, who provisions volumes,
and the owners and templates that the objects of a situation name without there being any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kubectl_shell import Shell
from situations import Situation
from whatif_world import CONTROLLERS, NODES, NS, PODS, PRIORITIES, REST_SECONDS, World

from haru.api.admission import settled
from haru.api.cluster_reader import list_objects
from haru.drivers.simulated.objects import PROFILE_LABEL
from haru.drivers.simulated.profiles import Profile, load_profile
from haru.engine import SchedulerCache
from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS
from haru.explain import Explanation, Remedy, explain
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.scheduler.settings import Fairness

Obj = dict[str, Any]
_ORDER = (
    "Namespace", "Node", "DeviceClass", "StorageClass", "ResourceClaimTemplate", "PersistentVolume",
    "PersistentVolumeClaim", "Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job", "PodGroup", "Pod",
    "ResourceQuota",
)  # fmt: skip
_OF_VOLUMES = ("persistentvolume-binder-controller", "persistentvolumeclaim-protection-controller")
_OF_KIND = {
    "Deployment": "deployment-controller",
    "Job": "job-controller",
    "ResourceQuota": "resourcequota-controller",
    "StatefulSet": "statefulset-controller",
}
_CLAIMS = known_kind("v1", "PersistentVolumeClaim")
_VOLUMES = known_kind("v1", "PersistentVolume")
_READY = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]


class PlayedCluster(World):
    """The cluster of a situation, with backfill as `haru up` has it."""

    fairness = Fairness(backfill=True)

    def __init__(self, one: Situation) -> None:
        super().__init__(1)
        base = list(one.base())
        self.about = one.about
        self.fleet = [obj for obj in base if obj["kind"] == "Node"]
        self.later = list(one.objects) if self.fleet else []
        # The driver leaves classes as they are that are there before it.
        classes = [obj for obj in base if obj["kind"] == "DeviceClass"]
        self.before = list(_completed(classes if self.fleet else one.objects))
        kinds = {obj["kind"] for obj in (*self.before, *self.later)}
        left_out = set() if self.fleet else {"node-lifecycle-controller"}
        self.controllers = [
            *(name for name in (*CONTROLLERS, *_OF_VOLUMES) if name not in left_out),
            *(_OF_KIND[kind] for kind in sorted(kinds & _OF_KIND.keys())),
        ]
        self._uids: dict[str, str] = {}

    async def begin(self) -> None:
        """Start it, and leave it alone for a while."""
        nodes: list[tuple[Profile, str]] = [
            (load_profile(node["metadata"]["labels"][PROFILE_LABEL]), node["metadata"]["name"]) for node in self.fleet
        ]
        await self.start(nodes)
        self._run("machines", self._play_others())
        for node in self.fleet:
            meta = {key: node["metadata"].get(key) for key in ("labels", "annotations")}
            body = {"metadata": meta, "spec": node.get("spec") or {}}
            await self.api.patch(NODES, node["metadata"]["name"], body)
        for obj in [*_owners(self.later), *self.later]:
            await self._put(obj)
        await asyncio.sleep(REST_SECONDS)

    async def carry_out(self, remedy: Remedy) -> None:
        """As a person does it: by the command, word by word."""
        await Shell(self.api, NS).run(remedy.command)
        word, _, name = self.about.partition("/")
        if word == "resourceclaim":
            await self._maybe_create(PODS, _user_of(name))
        await asyncio.sleep(2 * REST_SECONDS)

    async def answer(self) -> Explanation:
        word, _, name = self.about.partition("/")
        objects, _ = await list_objects(self.api, (*WATCHED_KINDS, *HELD_BACK_BY))
        subject = next(o for o in objects if o["kind"].lower() == word and o["metadata"]["name"] == name)
        return explain(SchedulerCache.of(settled(objects)).snapshot(), word, subject)  # type: ignore[arg-type]

    # -- what is there at the beginning --------------------------------------------------------------------------------

    async def prepare(self) -> None:
        for obj in sorted(self.before, key=lambda o: _ORDER.index(o["kind"]) if o["kind"] in _ORDER else len(_ORDER)):
            await self._put(obj, with_status=True)

    async def _put(self, obj: Obj, *, with_status: bool = False) -> None:
        """Create it as somebody submits it, a priority by a class of its own; then its status."""
        kind = known_kind(obj["apiVersion"], obj["kind"])
        obj = _of_job(await self._with_class(self._with_uids(obj)))
        left_out = ("uid", "resourceVersion") if kind.namespaced else ("uid", "resourceVersion", "namespace")
        meta = {key: value for key, value in obj["metadata"].items() if key not in left_out}
        made = await self.create(kind, {**obj, "metadata": meta, "status": {}})
        self._uids[obj["metadata"].get("uid", "")] = made["metadata"]["uid"]
        if kind.kind == "Node":
            made = await self.api.patch(kind, meta["name"], {"spec": {"taints": obj["spec"].get("taints") or []}})
            made["status"] = {**obj["status"], "capacity": obj["status"]["allocatable"], "conditions": _READY}
            await self.api.update_status(kind, made)
        elif with_status and obj.get("status"):
            await self.api.update_status(kind, {**made, "status": {**(made.get("status") or {}), **obj["status"]}})

    def _with_uids(self, value: Any) -> Any:
        """The same with the identities that the server gave."""
        if isinstance(value, dict):
            known = {"uid": self._uids.get(value["uid"], value["uid"])} if "uid" in value else {}
            return {**{key: self._with_uids(each) for key, each in value.items()}, **known}
        return [self._with_uids(each) for each in value] if isinstance(value, list) else value

    async def _with_class(self, obj: Obj) -> Obj:
        spec = obj.get("spec") or {}
        if obj["kind"] != "Pod" or "priority" not in spec:
            return obj
        level = int(spec["priority"])
        await self._maybe_create(PRIORITIES, {"metadata": {"name": f"p{level}"}, "value": level})
        kept = {key: value for key, value in spec.items() if key != "priority"}
        return {**obj, "spec": {**kept, "priorityClassName": f"p{level}"}}

    # -- who has no part in Haru ---------------------------------------------------------------------------------------

    async def _play_others(self) -> None:
        machines = {obj["metadata"]["name"] for obj in self.before if obj["kind"] == "Node"}
        while True:
            for pod in await self.pods():
                if pod["spec"].get("nodeName") in machines:
                    await self._play_kubelet(pod)
            for claim in (await self.api.list(_CLAIMS, NS))["items"]:
                if "volume.kubernetes.io/selected-node" in (claim["metadata"].get("annotations") or {}):
                    await self._maybe_create(_VOLUMES, _volume_for(claim))
            await asyncio.sleep(1)

    async def _play_kubelet(self, pod: Obj) -> None:
        name, phase = pod["metadata"]["name"], (pod.get("status") or {}).get("phase")
        try:
            if pod["metadata"].get("deletionTimestamp"):
                await self.api.delete(PODS, name, NS, grace_period_seconds=0)
            elif phase == "Pending":
                await self.api.patch(PODS, name, {"status": {"phase": "Running"}}, NS, subresource="status")
        except StatusError as error:
            if error.code not in (404, 409):
                raise


def _completed(objects: Iterable[Obj]) -> Iterator[Obj]:
    """The objects, and what they name: owners, and templates of the claims that were made from one."""
    bare = [_as_served(obj) for obj in objects]
    makers = ("ReplicaSet", "StatefulSet", "Job")
    there = [_with_template(obj, bare) if _lacks_template(obj, makers) else obj for obj in bare]
    yield from there
    yield from _owners(there)
    claims = {obj["metadata"]["name"]: obj for obj in there if obj["kind"] == "ResourceClaim"}
    known = {obj["metadata"]["name"] for obj in there if obj["kind"] == "ResourceClaimTemplate"}
    for pod in (obj for obj in there if obj["kind"] == "Pod"):
        made = {s["name"]: s["resourceClaimName"] for s in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
        for entry in pod["spec"].get("resourceClaims") or ():
            name, claim = entry.get("resourceClaimTemplateName"), claims.get(made.get(entry["name"], ""))
            if name and claim is not None and name not in known:
                known.add(name)
                version = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
                yield {**version, "metadata": {"name": name, "namespace": NS}, "spec": {"spec": claim["spec"]}}


def _as_served(obj: Obj) -> Obj:
    meta: Obj = {"namespace": NS, **obj["metadata"]}
    if (obj.get("status") or {}).get("allocation"):
        meta["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    return {"spec": {}, **obj, "metadata": meta}


def _owners(objects: Sequence[Obj]) -> Iterator[Obj]:
    """Those whom the objects name as their owners and who are not among them: each makes what it has."""
    there = {obj["metadata"].get("uid") for obj in objects}
    absent = {
        reference["uid"]: reference
        for obj in objects
        for reference in obj["metadata"].get("ownerReferences") or ()
        if reference["uid"] not in there
    }
    for uid, reference in absent.items():
        meta = {"name": reference["name"], "namespace": NS, "uid": uid}
        obj = {"apiVersion": "apps/v1", "kind": reference["kind"], "metadata": meta, "spec": {}}
        yield _with_template(obj, objects)


def _lacks_template(obj: Obj, kinds: Sequence[str]) -> bool:
    return obj["kind"] in kinds and "template" not in obj["spec"]


def _with_template(owner: Obj, objects: Sequence[Obj]) -> Obj:
    """A ReplicaSet, Deployment, StatefulSet, DaemonSet or Job that makes what it owns."""
    owned = [obj for obj in objects if owner["metadata"]["uid"] in _owners_of(obj)]
    first = owned[0]
    template = first["spec"].get("template") or {
        "metadata": {"labels": first["metadata"].get("labels") or {"app": owner["metadata"]["name"]}},
        "spec": {key: value for key, value in first["spec"].items() if key not in ("nodeName", "priority")},
    }
    spec = {"selector": {"matchLabels": template["metadata"]["labels"]}, "template": template}
    if owner["kind"] == "Job":
        spec = {"template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}}
    counted = (
        {"replicas": first["spec"].get("replicas", len(owned))} if owner["kind"] not in ("DaemonSet", "Job") else {}
    )
    return {**owner, "spec": {**counted, **owner["spec"], **spec}}


def _owners_of(obj: Obj) -> list[str]:
    return [reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ()]


def _of_job(obj: Obj) -> Obj:
    """A pod of a Job as the controller of Jobs makes it: by these labels it knows which are its own."""
    job = next((r for r in obj["metadata"].get("ownerReferences") or () if r["kind"] == "Job"), None)
    if obj["kind"] != "Pod" or job is None:
        return obj
    labels = {"batch.kubernetes.io/controller-uid": job["uid"], "batch.kubernetes.io/job-name": job["name"]}
    tracked = {"labels": labels, "finalizers": ["batch.kubernetes.io/job-tracking"]}
    return {**obj, "metadata": {**obj["metadata"], **tracked}}


def _user_of(claim: str) -> Obj:
    """A pod that needs the claim: without one nothing is allocated."""
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}
    return {"metadata": {"name": "user"}, "spec": spec}


def _volume_for(claim: Obj) -> Obj:
    meta = claim["metadata"]
    reference = {"kind": "PersistentVolumeClaim", "namespace": NS, "name": meta["name"], "uid": meta["uid"]}
    spec = {key: claim["spec"][key] for key in ("accessModes", "storageClassName")}
    amount = claim["spec"]["resources"]["requests"]
    source = {"csi": {"driver": "csi.example.com", "volumeHandle": meta["uid"]}}
    return {
        "metadata": {
            "name": f"pvc-{meta['uid']}",
            "annotations": {"pv.kubernetes.io/provisioned-by": "csi.example.com"},
        },
        "spec": {**spec, **source, "capacity": amount, "claimRef": reference},
    }
