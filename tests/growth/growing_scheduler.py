"""A scheduler's informers, cache and queue in a cluster of any size; events are heard as a watch brings them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import foreign_objects as foreign
from engine_objects import allocated, allocation, claim, device_class, node, pod, pod_group, resource_slice
from fake_api import FakeApi

from haru.client.api import ApiClient
from haru.client.event_series import SeriesRecorder
from haru.client.informer import Informer
from haru.engine import SchedulerCache
from haru.gangs import ADAPTERS, adapters_for
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from haru.scheduler.config import scheduler_config
from haru.scheduler.events.informers import OPTIONAL, REQUIRED, Watchers
from haru.scheduler.metrics import QueueMetrics, SchedulerMetrics
from haru.scheduler.queue.scheduling_queue import SchedulingQueue
from haru.scheduler.scheduling_cycle import SchedulingCycle
from haru.scheduler.shared import SchedulerState

Obj = dict[str, Any]
NOW = 100.0
DEVICES = "resource.k8s.io/v1"
STORAGE = "storage.k8s.io/v1"
FINISHED = "Pod that has succeeded"


def named(api: str, kind: str, name: str, namespace: str = "", **rest: Any) -> Obj:
    metadata: Obj = {"name": name, "uid": f"uid-{kind}-{name}"}
    if namespace:
        metadata["namespace"] = namespace
    metadata.update(rest.pop("metadata", {}))
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def running(n: int) -> Obj:
    return pod(f"running-{n}", node=f"node-{n}", claims=[f"held-{n}"])


def volume_claim(n: int) -> Obj:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": f"class-{n}", "volumeName": f"volume-{n}"}
    return named("v1", "PersistentVolumeClaim", f"data-{n}", "default", spec=spec)


def volume(n: int) -> Obj:
    spec = {"csi": {"driver": "csi", "volumeHandle": f"{n}"}, "accessModes": ["ReadWriteOnce"]}
    return named("v1", "PersistentVolume", f"volume-{n}", spec=spec)


def selecting(api: str, kind: str) -> Callable[[int], Obj]:
    def made(n: int) -> Obj:
        selector: Obj = {"app": f"a{n}"}
        if kind in ("ReplicaSet", "StatefulSet"):
            selector = {"matchLabels": selector}
        template: Obj = {"metadata": {}, "spec": {"containers": []}}
        spec = {"selector": selector, **({} if kind == "Service" else {"template": template, "replicas": 0})}
        return named(api, kind, f"owner-{n}", "default", spec=spec)

    return made


def budget(n: int) -> Obj:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": f"running-{n}"}}}
    status = {"disruptionsAllowed": 1}
    return named("policy/v1", "PodDisruptionBudget", f"budget-{n}", "default", spec=spec, status=status)


def taint_rule(n: int) -> Obj:
    selector = {"driver": "gpu.example.com", "pool": f"node-{n}", "device": "gpu-0"}
    spec = {"deviceSelector": selector, "taint": {"key": "broken", "effect": "NoSchedule"}}
    return named("resource.k8s.io/v1beta2", "DeviceTaintRule", f"rule-{n}", spec=spec)


def attachment(n: int) -> Obj:
    spec = {"attacher": "csi", "nodeName": f"node-{n}", "source": {"persistentVolumeName": f"volume-{n}"}}
    return named(STORAGE, "VolumeAttachment", f"attached-{n}", spec=spec)


def finished_member(n: int) -> Obj:
    obj = pod(f"finished-{n}", group=f"group-{n}")
    return {**obj, "status": {"phase": "Succeeded"}}


def job(n: int) -> Obj:
    """A Job with a deadline that makes no pods now."""
    spec = {"activeDeadlineSeconds": 60, "parallelism": 0, "template": {"spec": {"containers": []}}}
    return named("batch/v1", "Job", f"job-{n}", "default", spec=spec)


MAKERS: dict[str, Callable[[int], Obj]] = {
    "Node": lambda n: node(f"node-{n}"),
    "ResourceSlice": lambda n: resource_slice(f"node-{n}", 2),
    "CSINode": lambda n: named(STORAGE, "CSINode", f"node-{n}", spec={"drivers": [{"name": "csi"}]}),
    "Namespace": lambda n: named("v1", "Namespace", f"space-{n}", metadata={"labels": {"team": f"t{n}"}}),
    "PersistentVolume": volume,
    "PersistentVolumeClaim": volume_claim,
    "StorageClass": lambda n: named(STORAGE, "StorageClass", f"class-{n}", provisioner="csi"),
    "CSIDriver": lambda n: named(STORAGE, "CSIDriver", f"csi-{n}", spec={"storageCapacity": True}),
    "CSIStorageCapacity": lambda n: named(
        STORAGE, "CSIStorageCapacity", f"room-{n}", "default", storageClassName=f"class-{n}", nodeTopology={},
        capacity="1Gi",
    ),
    "VolumeAttachment": attachment,
    "Service": selecting("v1", "Service"),
    "ReplicationController": selecting("v1", "ReplicationController"),
    "ReplicaSet": selecting("apps/v1", "ReplicaSet"),
    "StatefulSet": selecting("apps/v1", "StatefulSet"),
    "PodDisruptionBudget": budget,
    "DeviceClass": lambda n: device_class(f"class-{n}", ["true"]),
    "DeviceTaintRule": taint_rule,
    "PodGroup": lambda n: pod_group(f"group-{n}", 2),
    "ResourceClaim": lambda n: allocated(claim(f"held-{n}"), allocation(f"node-{n}", "gpu-0"), running(n)),
    "Pod": running,
    "Job": job,
    FINISHED: finished_member,
    "PodGroup.scheduling.x-k8s.io": lambda n: foreign.coscheduling(f"cosched-{n}", 2),
    "JobSet": lambda n: foreign.job_set(f"set-{n}", foreign.replicated_job("work", 1, 2)),
    "LeaderWorkerSet": lambda n: foreign.leader_worker_set(f"lws-{n}", 2),
    "RayCluster": lambda n: foreign.ray_cluster(f"ray-{n}", {"replicas": 1, "minReplicas": 1}),
    "MPIJob": lambda n: foreign.mpi_job(f"mpi-{n}", 1),
    "PyTorchJob": lambda n: foreign.training_job("PyTorchJob", f"torch-{n}", "pytorchReplicaSpecs", {"Worker": 2}),
    "TFJob": lambda n: foreign.training_job("TFJob", f"tf-{n}", "tfReplicaSpecs", {"Worker": 2}),
    "XGBoostJob": lambda n: foreign.training_job("XGBoostJob", f"xgb-{n}", "xgbReplicaSpecs", {"Worker": 2}),
    "PaddleJob": lambda n: foreign.training_job("PaddleJob", f"paddle-{n}", "paddleReplicaSpecs", {"Worker": 2}),
    "JAXJob": lambda n: foreign.training_job("JAXJob", f"jax-{n}", "jaxReplicaSpecs", {"Worker": 2}),
}  # fmt: skip
"""An object of each watched kind by its number; those of one number belong together."""


def changed(obj: Obj) -> Obj:
    """The object after a change that the scheduler looks at."""
    new = copy.deepcopy(obj)
    new["metadata"].setdefault("labels", {})["changed"] = "yes"
    spec = new.get("spec") or {}
    if obj["kind"] == "Node":
        new["status"]["allocatable"]["cpu"] = "4"
    elif obj["kind"] == "ResourceSlice":
        spec["pool"]["generation"] += 1
        spec["devices"].append({"name": "gpu-9"})
    elif obj["kind"] == "PodDisruptionBudget":
        new["status"]["disruptionsAllowed"] = 0
    elif obj["kind"] == "ResourceClaim":
        new["status"] = {}
    elif "selector" in spec and "deviceSelector" not in spec:
        spec["selector"] = (
            {"other": "x"} if obj["kind"] in ("Service", "ReplicationController") else {"matchLabels": {}}
        )
    elif obj["kind"] == "PodGroup" and "schedulingPolicy" in spec:
        new["status"] = {"conditions": [{"type": "X", "status": "True"}]}
    elif obj["kind"] == "Pod":
        new["status"]["phase"] = "Failed"
    return new


class GrowingScheduler:
    """`size` objects of each kind, as many pods that are held for a claim, and as many parked for a volume claim."""

    def __init__(self, size: int) -> None:
        gates, monotonic = FeatureGates.accelerator_defaults(), lambda: NOW
        client = ApiClient.in_process(FakeApi())
        config = scheduler_config(gates, ["default-scheduler"], gang_adapters=frozenset(ADAPTERS), monotonic=monotonic)
        metrics, self.cluster = SchedulerMetrics(monotonic), SchedulerCache()
        self.queue = SchedulingQueue(metrics=QueueMetrics(metrics))
        self.state = SchedulerState(config, self.cluster, self.queue, metrics)
        self.cycle = SchedulingCycle(client, self.state, SeriesRecorder(client, "default-scheduler"))
        kinds = {name: known_kind(api, name) for api, name in (*REQUIRED, *OPTIONAL, ("batch/v1", "Job"))}
        self.watchers = Watchers(client, kinds, self.cluster, self.cycle.handlers, config, QueueMetrics(metrics))
        self.state.objects.informers = self.watchers.informers
        self.state.ready.set()
        self._revision = 0
        self.informers = dict(self._informers())
        self.size = size
        self._fill()

    def _informers(self) -> Iterator[tuple[str, Informer]]:
        """Every informer of the scheduler under the name of what it watches, those of other projects included."""
        yield from self.watchers.informers.items()
        assert self.watchers._finished is not None
        yield FINISHED, self.watchers._finished.informer
        gangs = self.watchers.foreign
        own = {*self.watchers.informers}
        for kind in gangs._kinds.values():
            served = kind.as_kind(kind.versions[0])
            informer = Informer(gangs._client, served)
            informer.add_handler(
                gangs._changed,
                lambda _, new: gangs._changed(new),
                lambda obj: gangs._take(gangs._translator.remove(obj)),
            )
            yield (kind.kind if kind.kind not in own else f"{kind.kind}.{kind.group}"), informer
        gangs._translator.use(adapters_for(frozenset(ADAPTERS), list(gangs._kinds.values())))

    def _fill(self) -> None:
        for name, make in MAKERS.items():
            for number in range(self.size):
                self.hear(name, "ADDED", make(number))
        for number in range(self.size):
            self.hear("Pod", "ADDED", pod(f"held-{number}", claims=[f"missing-{number}"]))
            volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": f"missing-{number}"}}]
            self.hear("Pod", "ADDED", pod(f"parked-{number}", volumes=volumes))
        while (unit := self.queue.pop(NOW)) is not None:
            self.queue.reject(unit, {f"default/{next(iter(unit.pods))}"}, NOW)

    def hear(self, name: str, type_: str, obj: Obj) -> None:
        """Hear an event as the watch brings it, and take the snapshot that the next decision is made on."""
        self._revision += 1
        obj["metadata"]["resourceVersion"] = str(self._revision)
        obj["metadata"].setdefault("uid", f"uid-{obj['kind']}-{obj['metadata']['name']}")
        self.informers[name]._hear(type_, obj)
        self.cluster.snapshot()
