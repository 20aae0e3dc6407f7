"""A small cluster that changes at random, in every way that a scheduling decision can depend on."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from generated_pods import HOSTNAME, ZONE, GeneratedPods

from haru.engine import SchedulerCache

Obj = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GROUP = "scheduling.k8s.io/v1alpha2"
DRIVER, CSI = "gpu.example.com", "csi.example.com"
NODES, PODS, CLAIMS = ("n0", "n1", "n2"), ("a0", "a1", "a2", "a3"), ("c0", "c1")
IN_Z0 = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z0"]}]}]
ONE_DEVICE: Obj = {
    "devices": {
        "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]
    }
}
Key = tuple[str, str]


def obj(kind: str, name: str, api: str = "v1", namespaced: bool = True, **rest: Any) -> Obj:
    metadata: Obj = {"name": name, "uid": f"uid-{kind}-{name}"}
    if namespaced:
        metadata["namespace"] = "default"
    metadata.update(rest.pop("metadata", {}))
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def key_of(made: Obj) -> Key:
    return made["kind"], made["metadata"]["name"]


class ChangingCluster:
    """The objects by key, the engine's index of them, and a random change at a time."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.parts = GeneratedPods(random)
        self.objects: dict[Key, Obj] = {}
        self.cluster = SchedulerCache()
        for whole in self.whole():
            self.take(whole["kind"], None, whole)
        for _ in range(random.randrange(2, 14)):
            self.change()

    def whole(self) -> list[Obj]:
        """A cluster in which almost everything fits."""
        room = {"cpu": "4", "memory": "8Gi", "pods": "4"}
        made = []
        for number, name in enumerate(NODES):
            metadata = {"labels": {HOSTNAME: name, ZONE: f"z{number % 2}"}}
            status = {"allocatable": room, "declaredFeatures": ["UserNamespacesHostNetworkSupport"]}
            made.append(obj("Node", name, namespaced=False, metadata=metadata, spec={}, status=status))
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            devices = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": [{"name": "d0"}]}
            made.append(obj("ResourceSlice", name, "resource.k8s.io/v1", False, spec=devices))
        for claim, volume in zip(CLAIMS, ("v0", "v1"), strict=True):
            bound = {"accessModes": ["ReadWriteOnce"], "volumeName": volume}
            made.append(obj("PersistentVolumeClaim", claim, spec=bound))
            csi = {"csi": {"driver": CSI, "volumeHandle": volume}}
            made.append(obj("PersistentVolume", volume, namespaced=False, spec=csi))
        policy = {"gang": {"minCount": self.random.choice((2, 3))}}
        made.append(obj("PodGroup", "theirs", GROUP, spec={"schedulingPolicy": policy}, metadata={"owned": True}))
        made.append(obj("DeviceClass", "gpu", "resource.k8s.io/v1", False, spec={}))
        return made

    def change(self) -> tuple[str, Obj | None, Obj | None]:
        """Makes one change and tells kind, old and new."""
        makers = (
            self.node, self.node, self.pod, self.pod, self.pod, self.member, self.theirs, self.volume,
            self.device, self.promised_claim, self.other, self.remove,
        )  # fmt: skip
        while True:
            made = self.random.choice(makers)()
            if made is None:
                continue
            self.take(*made)
            return made

    def take(self, kind: str, old: Obj | None, new: Obj | None) -> None:
        """What a watch would do."""
        if new is not None:
            self.objects[kind, new["metadata"]["name"]] = new
            self.cluster.apply(new)
        elif old is not None:
            del self.objects[key_of(old)]
            self.cluster.remove(old)

    def put(self, new: Obj) -> tuple[str, Obj | None, Obj | None]:
        return new["kind"], self.objects.get(key_of(new)), new

    def remove(self) -> tuple[str, Obj | None, Obj | None] | None:
        if not self.objects:
            return None
        old = self.objects[self.random.choice(sorted(self.objects))]
        return (old["kind"], old, None) if not old["metadata"].get("owned") else None

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    # -- nodes

    def node(self) -> tuple[str, Obj | None, Obj | None] | None:
        """A node that is new, or differs from what it was in one respect."""
        name = self.random.choice(NODES)
        old = self.objects.get(("Node", name))
        new = obj("Node", name, namespaced=False, spec={}, status={"allocatable": self.room()})
        new["metadata"]["labels"] = {HOSTNAME: name}
        if old is not None:
            new = {**old, "metadata": dict(old["metadata"]), "spec": dict(old["spec"]), "status": dict(old["status"])}
        aspect = self.random.randrange(6)
        if aspect == 0:
            zone = self.random.choice([{}, {ZONE: "z0"}, {ZONE: "z1"}])
            new["metadata"]["labels"] = {HOSTNAME: name, **zone}
        elif aspect == 1:
            effect = self.random.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])
            new["spec"]["taints"] = self.random.choice([[], [{"key": "a", "effect": effect}]])
        elif aspect == 2:
            new["spec"]["unschedulable"] = self.chance(2)
        elif aspect == 3:
            new["status"]["allocatable"] = self.room()
        elif aspect == 4:
            declared = ["UserNamespacesHostNetworkSupport"]
            new["status"]["declaredFeatures"] = self.random.choice([[], declared])
        else:
            new["status"]["conditions"] = [{"type": "Ready", "status": self.random.choice(["True", "False"])}]
        return self.put(new)

    def room(self) -> Obj:
        return {"cpu": str(self.random.randrange(1, 5)), "memory": "8Gi", "pods": str(self.random.randrange(1, 5))}

    # -- pods

    def spec(self, *, gang: bool = False) -> Obj:
        """What a pod asks for, one or two things of many."""
        spec: Obj = {**self.parts.containers(self.random.randrange(0, 4)), "schedulerName": "default-scheduler"}
        container: Obj = spec["containers"][0]
        for _ in range(self.random.randrange(0, 3)):
            aspect = self.random.randrange(8 if gang else 12)
            if aspect == 0:
                spec["nodeSelector"] = {ZONE: self.random.choice(["z0", "z1"])}
            elif aspect == 1:
                spec["tolerations"] = [{"key": "a", "operator": "Exists"}]
            elif aspect in (2, 3):
                kind = "podAffinity" if aspect == 2 else "podAntiAffinity"
                spec.setdefault("affinity", {})[kind] = {REQUIRED: [self.parts.term()]}
            elif aspect == 4:
                spec["topologySpreadConstraints"] = self.parts.spread()
            elif aspect == 5:
                container["ports"] = [{"containerPort": 80, "hostPort": 80}]
            elif aspect == 6:
                spec.update(hostNetwork=True, hostUsers=False)
            elif aspect == 7:
                claim = {"claimName": self.random.choice(CLAIMS)}
                spec["volumes"] = [{"name": "v", "persistentVolumeClaim": claim}]
            else:
                spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
        return spec

    def plain_spec(self) -> Obj:
        """A pod that asks for nothing but a device, or a volume."""
        spec: Obj = {"containers": [{"name": "c"}], "schedulerName": "default-scheduler"}
        if self.chance(2):
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
        else:
            claim = {"claimName": self.random.choice(CLAIMS)}
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": claim}]
        return spec

    def app(self) -> str:
        return self.parts.app()

    def pod(self) -> tuple[str, Obj | None, Obj | None] | None:
        """A pod of somebody else: made on a node or promised one, or one that is there changes."""
        name = self.random.choice(PODS)
        old = self.objects.get(("Pod", name))
        if old is None:
            return self.put(self._other_pod(name))
        new = {**old, "metadata": dict(old["metadata"]), "spec": dict(old["spec"]), "status": dict(old["status"])}
        aspect = self.random.randrange(6)
        if aspect == 0:
            new["metadata"]["labels"] = self.parts.labels()
        elif aspect == 1 and not new["spec"].get("nodeName") and not new["spec"].get("resourceClaims"):
            new["spec"]["nodeName"] = self.random.choice(NODES)
        elif aspect == 2 and not new["spec"].get("nodeName"):
            new["status"]["nominatedNodeName"] = self.random.choice(["", *NODES])
        elif aspect == 3:
            new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        elif aspect == 4:
            new["spec"], new["status"] = self.parts.resize(old)
        else:
            new["status"]["phase"] = self.random.choice(["Running", "Succeeded"])
        return self.put(new)

    def _other_pod(self, name: str) -> Obj:
        """One on a node, or promised one; with a claim of its own only the latter."""
        spec = {**self.spec(), "schedulerName": "somebody", "priority": self.random.choice((5, 5, 0, 10))}
        spec.pop("resourceClaims", None)
        new = obj("Pod", name, spec=spec, status={"phase": "Running"}, metadata={"labels": self.parts.labels()})
        elsewhere = self.chance(5)
        if elsewhere:
            new["metadata"]["namespace"] = "other"
        if self.chance(3):
            new["status"] = {"phase": "Pending", "nominatedNodeName": self.random.choice(NODES)}
            if self.chance(2) and not elsewhere:
                spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"for-{name}"}]
        else:
            spec["nodeName"] = self.random.choice(NODES)
        return new

    def member(self) -> tuple[str, Obj | None, Obj | None]:
        """One of a gang of somebody else comes or goes: one is on a node, one promised another, one has no place."""
        name = self.random.choice(("m0", "m1", "m2"))
        old = self.objects.get(("Pod", name))
        if old is not None:
            return "Pod", old, None
        spec = {**self.parts.containers(self.random.randrange(4)), "schedulingGroup": {"podGroupName": "theirs"}}
        status = {"phase": "Pending"}
        if name == "m0":
            spec["nodeName"] = self.random.choice(NODES)
        elif name == "m1":
            status["nominatedNodeName"] = self.random.choice(NODES)
        return self.put(obj("Pod", name, spec=spec, status=status))

    def theirs(self) -> tuple[str, Obj | None, Obj | None]:
        """That gang needs more members, or fewer: as the quorum of a gang does that is translated."""
        policy = {"gang": {"minCount": self.random.randrange(1, 5)}}
        return self.put(obj("PodGroup", "theirs", GROUP, spec={"schedulingPolicy": policy}, metadata={"owned": True}))

    def promised_claim(self) -> tuple[str, Obj | None, Obj | None]:
        """The claim of a pod that may be promised a node: there or not, and allocated for it or not yet."""
        pod, node = self.random.choice(PODS), self.random.choice(NODES)
        made = obj("ResourceClaim", f"for-{pod}", "resource.k8s.io/v1", spec=ONE_DEVICE, status={})
        if self.chance(3):
            user = {"resource": "pods", "name": pod, "uid": f"uid-Pod-{pod}"}
            made["status"] = {"allocation": _allocation(node), "reservedFor": [user] if self.chance(2) else []}
        return self.put(made)

    # -- volumes, devices, the rest

    def volume(self) -> tuple[str, Obj | None, Obj | None]:
        name = self.random.choice(CLAIMS)
        aspect = self.random.randrange(6)
        if aspect in (0, 1):
            modes = [self.random.choice(["ReadWriteOnce", "ReadWriteOncePod"])]
            bound = {"volumeName": self.random.choice(["v0", "v1"])} if not self.chance(3) else {}
            asked = {"accessModes": modes, "storageClassName": "late", "resources": {"requests": {"storage": "1"}}}
            claim = obj("PersistentVolumeClaim", name, spec={**asked, **bound})
            if not bound and self.chance(4):
                claim["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": self.random.choice(NODES)}
            return self.put(claim)
        if aspect in (2, 3):
            at = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [self.random.choice(["z0", "z1"])]}]}
            affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [at]}}} if self.chance(2) else {}
            handle = self.random.choice(["v0", "v1"])
            spec = {"csi": {"driver": CSI, "volumeHandle": handle}, **affinity}
            if self.chance(2):
                spec |= {"storageClassName": "late", "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]}
                spec["capacity"] = {"storage": "1"}
            if self.chance(3):
                spec["claimRef"] = {"namespace": "default", "name": name}
            labels = self.random.choice([{}, {ZONE: "z0"}])
            return self.put(obj("PersistentVolume", handle, namespaced=False, spec=spec, metadata={"labels": labels}))
        if aspect == 4:
            node = self.random.choice(NODES)
            drivers = [{"name": CSI, "allocatable": {"count": self.random.randrange(0, 2)}}]
            return self.put(obj("CSINode", node, "storage.k8s.io/v1", False, spec={"drivers": drivers}))
        source = {"persistentVolumeName": self.random.choice(["v0", "v1"])}
        spec = {"attacher": CSI, "nodeName": self.random.choice(NODES), "source": source}
        return self.put(obj("VolumeAttachment", "attachment", "storage.k8s.io/v1", False, spec=spec))

    def device(self) -> tuple[str, Obj | None, Obj | None]:
        api = "resource.k8s.io/v1"
        aspect = self.random.randrange(3)
        if aspect == 0:
            expression = self.random.choice(["true", "false"])
            selectors = [{"cel": {"expression": expression}}]
            return self.put(obj("DeviceClass", "gpu", api, False, spec={"selectors": selectors}))
        node = self.random.choice(NODES)
        if aspect == 1:
            old = self.objects.get(("ResourceSlice", node))
            generation = old["spec"]["pool"]["generation"] + 1 if old else 1
            pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
            taints = [{"key": "broken", "effect": "NoSchedule"}] if self.chance(3) else []
            devices = [{"name": "d0", "taints": taints}] if not self.chance(4) else []
            spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
            return self.put(obj("ResourceSlice", node, api, False, spec=spec))
        taken = obj("ResourceClaim", f"of-{node}", api, spec=ONE_DEVICE, status={})
        if self.chance(2):
            taken["status"] = {"allocation": _allocation(node)}
        return self.put(taken)

    def other(self) -> tuple[str, Obj | None, Obj | None]:
        makers: tuple[Callable[[], Obj], ...] = (
            lambda: obj("Namespace", "default", namespaced=False, metadata={"labels": {"team": self.app()}}),
            lambda: obj("Namespace", "default", namespaced=False, metadata={"labels": {"team": "a"}}),
            lambda: obj("Namespace", "other", namespaced=False, metadata={"labels": {"team": "a"}}),
            lambda: obj("Namespace", "other", namespaced=False, metadata={"labels": {"team": "b"}}),
            lambda: obj(
                "PodDisruptionBudget", self.random.choice(["b0", "b1"]), "policy/v1",
                spec={"selector": {"matchLabels": {"app": self.app()}}},
                status={"disruptionsAllowed": self.random.randrange(2)},
            ),
            lambda: obj("Service", "s", spec={"selector": {"app": self.app()}}),
            lambda: obj(
                "StorageClass", "late", "storage.k8s.io/v1", False,
                volumeBindingMode=self.random.choice(["Immediate", "WaitForFirstConsumer"]),
                provisioner=self.random.choice(["kubernetes.io/no-provisioner", CSI]),
                allowedTopologies=self.random.choice([[], IN_Z0]),
            ),
            lambda: obj(
                "CSIDriver", CSI, "storage.k8s.io/v1", False,
                spec={"storageCapacity": self.random.choice([True, False])},
            ),
            lambda: obj(
                "CSIStorageCapacity", "capacity", "storage.k8s.io/v1",
                storageClassName="late", nodeTopology={}, capacity=self.random.choice(["0", "1Gi"]),
            ),
        )  # fmt: skip
        return self.put(self.random.choice(makers)())


def _allocation(node: str) -> Obj:
    """Of the only device of a node."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = {"request": "r", "driver": DRIVER, "pool": node, "device": "d0"}
    return {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
