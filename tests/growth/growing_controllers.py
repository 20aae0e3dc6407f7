"""Controllers beside a cluster of any size; events are heard as a watch brings them, and writes answered at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from haru.client.api import ApiClient
from haru.client.informer import Informer, object_key
from haru.client.server_version import AS_WRITTEN
from haru.client.shared_informers import SharedInformers
from haru.clock import Clock
from haru.controllers.base import Context, Controller
from haru.controllers.certificate_authority import ClusterSigning
from haru.controllers.manager import CONTROLLERS
from haru.controllers.objects import PODS
from haru.event_loop import cancelled
from haru.kube.errors import not_found_error
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind
from haru.kube.patch.merge_patch import apply_merge_patch

Obj = dict[str, Any]
GATES = FeatureGates(
    {
        **dict.fromkeys(("GenericWorkload", "GangScheduling", "WorkloadWithJob", "DRAWorkloadResourceClaims"), True),
        **dict.fromkeys(("DRADeviceTaints", "DRADeviceTaintRules", "DRAResourcePoolStatus"), True),
    }
)


def owned(kind: Kind, n: int | str, api: str = "batch/v1", owner: str = "Job") -> Obj:
    """A reference to object `n` of the owner's kind."""
    return {"apiVersion": api, "kind": owner, "name": f"{owner.lower()}-{n}", "uid": f"{owner}-{n}", "controller": True}


def named(kind: Kind, n: int | str, namespace: int | str | None = None, **rest: Any) -> Obj:
    """Object `n` of a kind, with its own number as label, in the namespace of its number."""
    where = n if namespace is None else namespace
    metadata: Obj = {
        "name": f"{kind.kind.lower()}-{n}",
        "uid": f"{kind.kind}-{n}",
        "resourceVersion": "1",
        "generation": 1,
        "labels": {"app": f"{where}"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    if kind.namespaced:
        metadata["namespace"] = f"namespace-{where}"
    metadata.update(rest.pop("metadata", {}))
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **rest}


def pod(kind: Kind, n: int | str, owner: Obj | None = None, namespace: int | str | None = None, node: str = "") -> Obj:
    """A bound pod with a claim of its own, which a Job owns if nobody else does."""
    spec = {
        "nodeName": node or f"node-{n}",
        "containers": [{"name": "main", "image": "work"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "template"}],
        "schedulingGroup": {"podGroupName": f"podgroup-{n if namespace is None else namespace}"},
    }
    status = {
        "phase": "Pending",
        "podIP": "10.0.0.1",
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"resourceclaim-{n}"}],
    }
    metadata = {"ownerReferences": [owner or owned(kind, n)], "finalizers": ["batch.kubernetes.io/job-tracking"]}
    annotations = {"batch.kubernetes.io/job-completion-index": str(n)}
    return named(kind, n, namespace, metadata={**metadata, "annotations": annotations}, spec=spec, status=status)


def claim(kind: Kind, n: int | str, namespace: int | str | None = None) -> Obj:
    """An allocated claim that was generated for a pod of its number."""
    result = {"driver": "gpu.example.com", "pool": f"node-{n}", "device": "gpu-0", "request": "gpu"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": f"pod-{n}", "uid": f"Pod-{n}"}],
    }
    metadata = {
        "ownerReferences": [owned(kind, n, "v1", "Pod")],
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    return named(kind, n, namespace, metadata=metadata, spec={"devices": {}}, status=status)


def _template(n: int | str) -> Obj:
    spec = {"containers": [{"name": "main", "image": "work"}], "restartPolicy": "Never"}
    return {"metadata": {"labels": {"app": f"{n}"}}, "spec": spec}


def _selecting(kind: Kind, n: int | str, **spec: Any) -> Obj:
    chosen = {"selector": {"matchLabels": {"app": f"{n}"}}, "template": _template(n), **spec}
    return named(kind, n, spec=chosen, status={"observedGeneration": 1})


def job(kind: Kind, n: int | str, size: int = 1) -> Obj:
    """An Indexed Job of so many pods that has started."""
    counts = {"completionMode": "Indexed", "completions": size, "parallelism": size, "backoffLimit": 6}
    return {**_selecting(kind, n, **counts), "status": {"startTime": "2026-01-01T00:00:00Z"}}


def resource_slice(kind: Kind, n: int | str) -> Obj:
    """A slice of one device, the whole pool of a node."""
    pool = {"name": f"node-{n}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": f"node-{n}", "devices": [{"name": "gpu-0"}]}
    return named(kind, n, spec=spec)


def _node(kind: Kind, n: int | str) -> Obj:
    return named(kind, n, spec={}, status={"conditions": [{"type": "Ready", "status": "True"}]})


def _spec(**spec: Any) -> Callable[[Kind, int | str], Obj]:
    return lambda kind, n: named(kind, n, spec=spec, status={})


def _rule(kind: Kind, n: int | str) -> Obj:
    selector = {"driver": "gpu.example.com", "pool": f"node-{n}", "device": "gpu-0"}
    return named(kind, n, spec={"deviceSelector": selector, "taint": {"key": "k", "effect": "NoExecute"}})


def _volume(kind: Kind, n: int | str) -> Obj:
    reference = {
        "namespace": f"namespace-{n}",
        "name": f"persistentvolumeclaim-{n}",
        "uid": f"PersistentVolumeClaim-{n}",
    }
    spec = {"storageClassName": f"c{n}", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    return named(kind, n, spec={**spec, "claimRef": reference}, status={"phase": "Bound"})


def _volume_claim(kind: Kind, n: int | str) -> Obj:
    spec = {"storageClassName": f"c{n}", "accessModes": ["ReadWriteOnce"], "volumeName": f"persistentvolume-{n}"}
    resources = {"resources": {"requests": {"storage": "1Gi"}}}
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    return named(kind, n, metadata=bound, spec={**spec, **resources}, status={"phase": "Bound"})


def _autoscaler(kind: Kind, n: int | str) -> Obj:
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"replicaset-{n}"}
    metrics = [{"type": "Resource", "resource": cpu}]
    return named(kind, n, spec={"maxReplicas": 9, "scaleTargetRef": target, "metrics": metrics}, status={})


def _group(kind: Kind, n: int | str) -> Obj:
    return named(
        kind, n, metadata={"ownerReferences": [owned(kind, n)]}, spec={"schedulingPolicy": {"gang": {"minCount": 2}}}
    )


IN_USE = {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}
MAKERS: dict[str, Callable[[Kind, int | str], Obj]] = {
    "pods": pod,
    "nodes": _node,
    "resourceclaims": claim,
    "resourceclaimtemplates": _spec(spec={"devices": {}}),
    "resourceslices": resource_slice,
    "devicetaintrules": _rule,
    "podgroups": _group,
    "workloads": _spec(),
    "jobs": job,
    "replicasets": lambda kind, n: _selecting(kind, n, replicas=1),
    "replicationcontrollers": lambda kind, n: _selecting(kind, n, replicas=1, selector={"app": f"{n}"}),
    "horizontalpodautoscalers": _autoscaler,
    "deployments": lambda kind, n: _selecting(kind, n, replicas=1, strategy={"type": "RollingUpdate"}),
    "statefulsets": lambda kind, n: _selecting(kind, n, replicas=1, serviceName="s"),
    "daemonsets": lambda kind, n: _selecting(kind, n),
    "cronjobs": _spec(schedule="0 0 1 1 *", jobTemplate={"spec": {"template": _template(0)}}),
    "services": lambda kind, n: named(kind, n, spec={"selector": {"app": f"{n}"}, "ports": [{"port": 80}]}),
    "servicecidrs": lambda kind, n: named(kind, n, spec={"cidrs": [f"fd00:{int(n):x}::/112"]}),
    "ipaddresses": lambda kind, n: named(kind, n, metadata={"name": f"fd00:{int(n):x}::5", "labels": IN_USE}),
    "resourcequotas": _spec(hard={"pods": "10"}),
    "poddisruptionbudgets": lambda kind, n: _selecting(kind, n, minAvailable=1),
    "persistentvolumes": _volume,
    "persistentvolumeclaims": _volume_claim,
    "resourcepoolstatusrequests": _spec(driver="gpu.example.com"),
    "leases": lambda kind, n: named(kind, n, metadata={"name": f"node-{n}", "namespace": "kube-node-lease"}, spec={}),
    "certificatesigningrequests": _spec(request="", signerName="kubernetes.io/kube-apiserver-client-kubelet"),
    "namespaces": lambda kind, n: named(kind, n, spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"}),
    "clusterroles": lambda kind, n: named(kind, n, rules=[]),
}


def make(kind: Kind, n: int | str) -> Obj:
    """Object `n` of a kind."""
    return MAKERS.get(kind.plural, named)(kind, n)


def changed(obj: Obj) -> Obj:
    """A later version of an object: a pod runs, a node is tainted, anything else has another label."""
    metadata = {**obj["metadata"], "resourceVersion": "1000000"}
    if obj["kind"] == "Pod":
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        status = {**obj.get("status", {}), "phase": "Running", "conditions": ready}
        return {**obj, "metadata": metadata, "status": status}
    if obj["kind"] == "Node":
        taints = [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]
        return {**obj, "metadata": metadata, "spec": {"taints": taints}}
    if obj["kind"] == "ResourceClaim":
        return {**obj, "metadata": metadata, "status": {**obj.get("status", {}), "reservedFor": []}}
    return {**obj, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), "new": "yes"}}}


FEW = ("daemonsets", "clusterroles", "deviceclasses")


class Answers(ApiClient):
    """An API server that takes every write, and tells the informers nothing of it."""

    def __init__(self) -> None:
        self.version = AS_WRITTEN
        self.user_agent = "growth"
        self.informers: SharedInformers
        self.writes: list[tuple[str, str]] = []

    def hasty(self, timeout: float) -> ApiClient:
        return self

    def metadata_only(self) -> ApiClient:
        return self

    def _known(self, kind: Kind, name: str, namespace: str) -> Obj:
        found = self.informers.get(kind).get(name, namespace if kind.namespaced else "")
        if found is None:
            raise not_found_error(kind.group, kind.plural, name)
        return found

    def _written(self, verb: str, kind: Kind, obj: Obj) -> Obj:
        self.writes.append((verb, kind.plural))
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(1000001 + len(self.writes))}}

    async def get(self, kind: Kind, name: str, namespace: str = "", subresource: str = "") -> Obj:
        if subresource == "scale":
            status = {"replicas": 1, "selector": f"app={name.rpartition('-')[2]}"}
            return {"metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": 1}, "status": status}
        return self._known(kind, name, namespace)

    async def raw(self, method: str, path: str, **options: Any) -> tuple[int, Mapping[str, str], bytes]:
        """What the group `apps` has, and what the pods of a namespace use."""
        version = {"groupVersion": "apps/v1", "version": "v1"}
        usage = {"timestamp": "2026-01-01T00:00:00Z", "window": "15s"}
        used = [{"name": "main", "usage": {"cpu": "1"}}]
        found: Obj = {
            "/apis": {"groups": [{"name": "apps", "versions": [version], "preferredVersion": version}]},
            "/apis/apps/v1": {"resources": [{"name": "replicasets", "kind": "ReplicaSet", "namespaced": True}]},
        }
        name = f"pod-{path.rpartition('/pods')[0].rpartition('-')[2]}"
        metrics = {"items": [{"metadata": {"name": name}, "containers": used, **usage}]}
        return 200, {}, orjson.dumps(found.get(path, metrics))

    async def list(self, kind: Kind, namespace: str = "", *selectors: Any, **options: Any) -> Obj:
        name = str(options.get("field_selector", "")).removeprefix("metadata.name=")
        found = self.informers.get(kind).get(name, namespace) if name else None
        return {"metadata": {"resourceVersion": "1"}, "items": [found] if found is not None else []}

    async def create(self, kind: Kind, obj: Obj, *_: Any, **options: Any) -> Obj:
        metadata = obj["metadata"]
        name = metadata.get("name") or f"{metadata['generateName']}{len(self.writes)}"
        whole = {**metadata, "name": name, "uid": f"{kind.kind}-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        return self._written("create", kind, {**obj, "metadata": whole})

    async def update(self, kind: Kind, obj: Obj, subresource: str = "", **options: Any) -> Obj:
        return self._written("update", kind, obj)

    async def patch(self, kind: Kind, name: str, patch: Any, namespace: str = "", **options: Any) -> Obj:
        return self._written("patch", kind, apply_merge_patch(self._known(kind, name, namespace), patch))

    async def delete(self, kind: Kind, name: str, namespace: str = "", **options: Any) -> Obj:
        self.writes.append(("delete", kind.plural))
        return {"kind": "Status", "status": "Success"}


async def _signed(claims: Obj) -> str:
    return "token"


class GrowingController:
    """One controller, and what it keeps of a cluster with `size` objects of each kind that it watches.

    Of the kinds in `FEW` there is one object: each of them is about all nodes, all roles, or all devices.
    """

    def __init__(self, name: str, size: int, clock: Clock) -> None:
        self.size = size
        self.client = Answers()
        self.informers = SharedInformers(self.client)
        self.client.informers = self.informers
        signing = ClusterSigning(Path("ca.crt"), Path("ca.key"))
        options = {"root-ca": "pem", "cluster-signing": signing, "secret-tokens": _signed}
        context = Context(self.client, self.informers, GATES, clock.now, options=options, monotonic=clock.monotonic)
        self.controller: Controller = CONTROLLERS[name](context)

    def fill(self) -> None:
        """Have the controller hear of all objects, and forget what it would look at for that."""
        for informer in self.watched:
            informer._synced.set()
            count = 1 if informer.kind.plural in FEW else self.size
            for n in range(count):
                informer._apply(make(informer.kind, n))
        self.forget()

    @property
    def watched(self) -> list[Informer]:
        """The informers of the controller, each once."""
        collected = getattr(self.controller, "_informers", {}).values()
        return list(dict.fromkeys((*self.controller._used, *collected)))

    def forget(self) -> None:
        """Look at nothing of what waits."""
        queue = self.controller.queue
        queue._waiting.clear()
        for timer in queue._timers.values():
            timer.cancel()
        queue._timers.clear()

    async def hear(self, informer: Informer, type_: str, obj: Obj) -> None:
        """Have the controller hear of an object, and look at what it wants to look at because of it at once."""
        informer._hear(type_, obj)
        for _ in range(100):
            if not self.controller.queue._waiting:
                return
            key = next(iter(self.controller.queue._waiting))
            del self.controller.queue._waiting[key]
            await self.controller.sync(key)


def events_of(growing: GrowingController) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
    """What can happen to an object of each kind that the controller watches: it comes, changes and goes."""
    for informer in growing.watched:
        old = make(informer.kind, 0)
        if object_key(old) not in informer.store:  # an earlier event led to its deletion
            informer._apply({**old, "metadata": {**old["metadata"], "uid": "another"}})
        old = informer.store[object_key(old)]
        new = changed(old)
        added = make(informer.kind, growing.size + 1)
        for what, type_, obj in (("new", "ADDED", added), ("changed", "MODIFIED", new), ("deleted", "DELETED", new)):
            name = f"{growing.controller.name}: {what} {informer.kind.plural}"
            yield name, lambda informer=informer, type_=type_, obj=obj: growing.hear(informer, type_, obj)


async def settle() -> None:
    """Let other tasks have their turns."""
    for _ in range(20):
        await asyncio.sleep(0)


class Steady:
    """Events of the pods of one namespace, one every 5 ms, beside a controller that works on its queue."""

    def __init__(self, name: str, size: int, clock: Clock) -> None:
        self.size = size
        self.growing = GrowingController(name, size, clock)
        self.pods = self.growing.informers.get(PODS)

    def fill(self, owner: Kind | None) -> None:
        """One object of each kind that is about all of the pods, and the pods; one Job has them if nobody else does."""
        for informer in self.growing.watched:
            informer._synced.set()
            kind = informer.kind
            if kind.plural == "jobs":
                informer._apply(job(kind, "all", self.size))
            elif kind.plural not in ("pods", "resourceclaims", "nodes"):
                obj = make(kind, "all")
                spec = {**obj.get("spec", {}), **({"replicas": self.size} if "replicas" in obj.get("spec", {}) else {})}
                informer._apply({**obj, "spec": spec})
        reference = owned(owner, "all", owner.api_version, owner.kind) if owner is not None else owned(PODS, "all")
        for n in range(self.size):
            self.pods._hear("ADDED", pod(PODS, n, reference, "all"))
        self.growing.forget()

    async def play(self) -> None:
        """Have every pod run, one after the other, and wait until all of it has been looked at."""
        queue = self.growing.controller.queue
        working = asyncio.create_task(queue.run(self.growing.controller.sync, 2))
        for known in list(self.pods.store.values()):
            self.pods._hear("MODIFIED", changed(known))
            await asyncio.sleep(0.005)
        await asyncio.sleep(5)
        await cancelled(working)
