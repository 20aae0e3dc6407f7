"""Random volumes and claims for `decisions_compared`: of nodes and zones, bound, waiting for a pod, limited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from manifests import HOST, NAMESPACE, ZONE, Obj, expression, obj
from random_clusters import ClusterDraw

CSI = "csi.example.com"
SELECTED = "volume.kubernetes.io/selected-node"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
_MODES = (["ReadWriteOnce"], ["ReadWriteOnce"], ["ReadWriteMany"], ["ReadWriteOncePod"])


class VolumeDraw:
    """Volumes of a random cluster; `drained` are those that were drawn since it was last asked."""

    def __init__(self, cluster: ClusterDraw) -> None:
        self._cluster = cluster
        self._dice = cluster.dice
        self._names: list[str] = []
        self._sole: set[str] = set()
        """Claims that one pod at a time may use: never two bound ones."""
        self._count = 0
        self._made: list[Obj] = []

    def drained(self) -> list[Obj]:
        """What was made for pods, once."""
        made, self._made = self._made, []
        return made

    # -- before there are pods ----------------------------------------------------------------------------------------

    def offered(self) -> Iterator[Obj]:
        """Classes, limits and capacities of the driver, and some volumes that nobody has."""
        if "volumes" not in self._cluster.dimensions:
            return
        dice = self._dice
        if not dice.one_in(3):
            spec = {"attachRequired": True, "storageCapacity": dice.one_in(2)}
            yield obj("storage.k8s.io/v1", "CSIDriver", CSI, spec=spec)
        for name in self._cluster.names:
            if not dice.one_in(3):
                driver = {"name": CSI, "nodeID": name, "topologyKeys": [ZONE]}
                driver["allocatable"] = {"count": dice.pick(1, 2, 3)}
                yield obj("storage.k8s.io/v1", "CSINode", name, spec={"drivers": [driver]})
        terms = [{"matchLabelExpressions": [{"key": ZONE, "values": [dice.pick("z0", "z1")]}]}]
        yield _class("wait", CSI, **({"allowedTopologies": terms} if dice.one_in(3) else {}))
        yield _class("static", "kubernetes.io/no-provisioner")
        yield _class("now", CSI, volumeBindingMode="Immediate")
        for number in range(dice.pick(0, 0, 1, 2)):
            found = {"storageClassName": "wait", "nodeTopology": {"matchLabels": {ZONE: f"z{number}"}}}
            found["capacity"] = dice.pick("1Gi", "4Gi", "100Gi")
            yield obj("storage.k8s.io/v1", "CSIStorageCapacity", f"{self._cluster.prefix}-cap{number}", **found)
        for number in range(dice.random.randrange(6)):
            where = dice.pick("static", "static", "static", "wait", "")
            yield self._volume(f"{self._cluster.prefix}-pv{number}", where)

    def _where(self) -> Obj:
        dice, key = self._dice, self._dice.pick("", ZONE, HOST, HOST)
        if not key:
            return {}
        value = dice.pick("z0", "z1") if key == ZONE else dice.pick(*self._cluster.names)
        terms = [{"matchExpressions": [expression(key, "In", value)]}]
        return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}

    def _volume(self, name: str, storage_class: str, claim: str = "", modes: list[str] | None = None) -> Obj:
        dice, where = self._dice, self._where()
        labels = {ZONE: dice.pick("z0", "z1", "z0__z1")} if dice.one_in(5) else {}
        if dice.one_in(3):
            labels["kind"] = dice.pick("a", "b")
        source: Obj = {"csi": {"driver": CSI, "volumeHandle": name}}
        if where and dice.one_in(2):
            source = {"local": {"path": f"/x/{name}"}}
        elif not where and dice.one_in(6):
            source = {"hostPath": {"path": f"/x/{name}"}}
        spec: Obj = {"capacity": {"storage": dice.pick("1Gi", "2Gi", "5Gi")}, "storageClassName": storage_class}
        spec |= {"accessModes": modes or dice.pick(*_MODES), "persistentVolumeReclaimPolicy": "Retain", **where}
        if dice.one_in(12):
            spec["volumeMode"] = "Block"
        if claim:
            spec["claimRef"] = reference(claim)
        status = {"phase": "Bound" if claim else "Available"}
        return obj("v1", "PersistentVolume", name, labels=labels, spec={**spec, **source}, status=status)

    # -- for pods -----------------------------------------------------------------------------------------------------

    def mount(self, spec: Obj, *, bound: bool) -> None:
        """Give the pod one or two claims: of others, bound, waiting for it, or missing. Those of a `bound` pod are."""
        names = list(dict.fromkeys(self._claim(bound=bound) for _ in range(self._dice.pick(1, 1, 2))))
        spec["volumes"] = [
            {"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}} for number, name in enumerate(names)
        ]
        if self._dice.one_in(5):
            spec["volumes"].append({"name": "disk", **self._disk()})
        if not bound and self._dice.one_in(5):
            self._ephemeral(spec)

    def _disk(self) -> Obj:
        """A disk without a claim: of one of the kinds that may not be shared, or of the driver."""
        dice, read_only = self._dice, {"readOnly": True} if self._dice.one_in(2) else {}
        return dice.pick(
            {"gcePersistentDisk": {"pdName": dice.pick("a", "b"), **read_only}},
            {"awsElasticBlockStore": {"volumeID": dice.pick("a", "b"), **read_only}},
            {
                "iscsi": {
                    "targetPortal": dice.pick("10.0.0.1", "10.0.0.2"),
                    "iqn": "iqn.2020-01.com.example:a",
                    "lun": 0,
                    **read_only,
                }
            },
            {"rbd": {"monitors": dice.pick(["a", "b"], ["b"], ["c"]), "image": "x", "pool": "rbd", **read_only}},
            {"csi": {"driver": CSI}},
        )

    def _ephemeral(self, spec: Obj) -> None:
        """A volume of the pod's own, for which its claim is made while a gate holds the pod."""
        kind = self._dice.pick("static", "wait", "wait")
        (mode, size) = self._dice.pick(*_MODES), self._dice.pick("1Gi", "2Gi")
        claim = {"accessModes": mode, "storageClassName": kind, "resources": {"requests": {"storage": size}}}
        spec["volumes"].append({"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}})
        spec["schedulingGates"] = [{"name": "example.com/hold"}]

    def _claim(self, *, bound: bool) -> str:
        dice = self._dice
        shared = [one for one in self._names if not bound or one not in self._sole]
        if shared and dice.one_in(4 if bound else 3):
            return dice.pick(*shared)
        self._count += 1
        name = f"{self._cluster.prefix}-vc{self._count}"
        if not bound and dice.one_in(16):
            return name  # there is none
        self._names.append(name)
        if bound or dice.one_in(3):
            self._made += self._bound(name)
        else:
            kind = "now" if dice.one_in(16) else dice.pick("static", "static", "wait")
            self._made.append(self._waiting(name, kind, dice.pick(*_MODES), dice.pick("1Gi", "1Gi", "2Gi", "4Gi")))
        return name

    def _waiting(self, name: str, storage_class: str, modes: list[str], size: str) -> Obj:
        spec: Obj = {"accessModes": modes, "resources": {"requests": {"storage": size}}}
        spec["storageClassName"] = storage_class
        if "ReadWriteOncePod" in modes:
            self._sole.add(name)
        if self._dice.one_in(6):
            spec["selector"] = {"matchLabels": {"kind": self._dice.pick("a", "b")}}
        return obj("v1", "PersistentVolumeClaim", name, spec=spec)

    def _bound(self, name: str) -> list[Obj]:
        modes = self._dice.pick(*_MODES)
        volume = self._volume(f"{name}-v", self._dice.pick("static", "wait", "now", ""), name, modes)
        size, storage_class = volume["spec"]["capacity"]["storage"], volume["spec"]["storageClassName"]
        claim = self._waiting(name, storage_class, modes, size)
        claim["spec"].pop("selector", None)
        claim["spec"]["volumeName"] = f"{name}-v"
        claim["metadata"]["annotations"] = BOUND
        claim["status"] = {"phase": "Bound"}
        return [claim] if self._dice.one_in(25) else [volume, claim]


def _class(name: str, provisioner: str, **more: Any) -> Obj:
    fields = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", **more}
    return obj("storage.k8s.io/v1", "StorageClass", name, **fields)


def volume_claims_of(pod: Obj) -> list[str]:
    """The names of the claims for volumes that a pod uses."""
    volumes = pod["spec"].get("volumes") or ()
    named = (one.get("persistentVolumeClaim") for one in volumes)
    own = (f"{pod['metadata']['name']}-{one['name']}" for one in volumes if "ephemeral" in one)
    return [*(one["claimName"] for one in named if one), *own]


def ephemeral_claims_of(pod: Obj) -> list[Obj]:
    """The claims that the controller of ephemeral volumes makes for a stored pod."""
    found, meta = [], pod["metadata"]
    for one in pod["spec"].get("volumes") or ():
        if "ephemeral" in one:
            template = one["ephemeral"]["volumeClaimTemplate"]
            made = obj("v1", "PersistentVolumeClaim", f"{meta['name']}-{one['name']}", spec=template["spec"])
            owner = {"apiVersion": "v1", "kind": "Pod", "controller": True, "blockOwnerDeletion": True}
            made["metadata"]["ownerReferences"] = [owner | {"name": meta["name"], "uid": meta["uid"]}]
            found.append(made)
    return found


def reference(claim: str, uid: str = "") -> Obj:
    """The reference of a volume to its claim."""
    found = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": NAMESPACE, "name": claim}
    return {**found, "uid": uid} if uid else found


def provisioned(claim: Obj) -> Obj:
    """The volume that the driver makes for a claim."""
    name = claim["metadata"]["name"]
    spec: Obj = {"capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]}}
    spec |= {key: claim["spec"][key] for key in ("accessModes", "storageClassName")}
    spec |= {"persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": CSI, "volumeHandle": name}}
    spec["claimRef"] = reference(name, claim["metadata"]["uid"])
    return obj("v1", "PersistentVolume", f"pvc-{name}", spec=spec)
