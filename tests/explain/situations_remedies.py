"""Situations whose first remedy is what matters: typing errors, labels, topology, volumes, Kueue, cards per node."""

from __future__ import annotations

from typing import Any

from explain_world import Obj, cluster, gang, pod, template, workload
from situations import situation
from test_remedy_order import hoppers

from haru.api.snapshot import Snapshot
from haru.drivers.simulated.taints import TAINTS_ANNOTATION

RACK = "topology.haru.dev/rack"
HOSTNAME = "kubernetes.io/hostname"


def racks() -> Snapshot:
    """Eight nodes of eight cards in two racks."""
    return cluster(dgx_h100=8)


def labelled(**labels: str) -> Snapshot:
    """One node with cards that has these labels."""
    nodes = [o for o in hoppers() if o["kind"] == "Node" and o["metadata"]["name"] == "dgx-h100-0"]
    meta = nodes[0]["metadata"]
    node = {**nodes[0], "metadata": {**meta, "labels": {**meta["labels"], **labels}}}
    return Snapshot([*(o for o in hoppers() if o["metadata"]["name"] != "dgx-h100-0" or o["kind"] != "Node"), node])


def with_tainted_card() -> Snapshot:
    """Somebody has tainted one card by the annotation that the simulated driver follows."""
    return Snapshot.of(_with_taint(obj, "gpu-3") for obj in hoppers())


def _with_taint(obj: Obj, card: str) -> Obj:
    if obj["kind"] == "Node" and obj["metadata"]["name"] == "dgx-h100-0":
        notes = {TAINTS_ANNOTATION: f"{card}=fan=broken:NoSchedule"}
        return {**obj, "metadata": {**obj["metadata"], "annotations": notes}}
    if obj["kind"] != "ResourceSlice":
        return obj
    taints = {"taints": [{"key": "fan", "value": "broken", "effect": "NoSchedule"}]}
    devices = [{**device, **(taints if device["name"] == card else {})} for device in obj["spec"].get("devices") or ()]
    return {**obj, "spec": {**obj["spec"], "devices": devices}}


def partitioned() -> Snapshot:
    """A node whose cards can be partitioned."""
    return cluster(dgx_a100_80gb_mig=1)


def unprovided() -> Snapshot:
    """Nodes with cards, by a driver that was installed without a name for limits of pods."""
    return Snapshot.of(_without_resource(obj) for obj in hoppers())


def _without_resource(obj: Obj) -> Obj:
    kept = {key: value for key, value in (obj.get("spec") or {}).items() if key != "extendedResourceName"}
    return {**obj, "spec": kept} if obj["kind"] == "DeviceClass" else obj


def selecting(expression: str, count: int = 1) -> Obj:
    return template(count=count, selectors=[{"cel": {"expression": expression}}])


ARCHITECTURE = 'device.attributes["gpu.nvidia.com"].architecture'
HOST_PORT = [{"containerPort": 80, "hostPort": 8080}]


def serving(name: str, **spec: Any) -> Obj:
    """A pod with a host port."""
    made = pod(name, **spec)
    made["spec"]["containers"][0]["ports"] = HOST_PORT
    return made


def spreading(key: str) -> list[Obj]:
    rule = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}}}  # fmt: skip
    return [rule]


def together(key: str) -> Obj:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def in_one(key: str, members: list[Obj]) -> list[Obj]:
    """The gang with a required topology."""
    group, *pods = members
    constraints = {"topology": [{"key": key}]}
    return [{**group, "spec": {**group["spec"], "schedulingConstraints": constraints}}, *pods]


def pinned(members: list[Obj], key: str, domains: list[str]) -> list[Obj]:
    """Members with a nodeSelector each."""
    group, *pods = members
    selected = zip(pods, domains, strict=True)
    return [group, *({**p, "spec": {**p["spec"], "nodeSelector": {key: domain}}} for p, domain in selected)]


ON_CPU = {"key": "metadata.name", "operator": "In", "values": ["cpu-0"]}


def claiming(name: str, volume: str, template: str = "") -> Obj:
    """A pod with a volume."""
    made = pod(name, template)
    made["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": volume}}]
    return made


def volume_claim(name: str, storage_class: str = "") -> Obj:
    spec: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def storage_class(name: str, provisioner: str = "csi.example.com", *, default: bool = False) -> Obj:
    notes = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}} if default else {}
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name, **notes}}
    return {**made, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}


FAST = storage_class("fast", default=True)


def gated(name: str, *gates: str, **more: Any) -> Obj:
    return pod(name, schedulingGates=[{"name": gate} for gate in gates], **more)


def gated_member(name: str, size: int, **last: Any) -> list[Obj]:
    """A gang of which the second member has a gate, and the last is otherwise."""
    group, *members = gang(name, size)
    members[1]["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    members[-1]["spec"] |= last
    return [group, *members]


def without_template(name: str, size: int) -> list[Obj]:
    """A gang of which the last member names a template that is not there, and another scheduler."""
    group, *members = gang(name, size, template="gpu")
    members[-1] = pod(f"{name}-{size - 1}", "nowhere", group=name)
    members[1]["spec"] |= {"schedulerName": "volcano"}
    return [group, *members]


def of_kueue(**labels: str) -> Obj:
    made = gated("p", "kueue.x-k8s.io/admission")
    notes = {"kueue.x-k8s.io/workload": "w"}
    made["metadata"] = {"name": "p", "labels": {"kueue.x-k8s.io/queue-name": "team-a", **labels}, "annotations": notes}
    return made


def kueue(*conditions: Obj, active: bool = True, requeue: str = "") -> list[Obj]:
    status: Obj = {"conditions": list(conditions)}
    if requeue:
        status["requeueState"] = {"count": 2, "requeueAt": requeue}
    version = "kueue.x-k8s.io/v1beta2"
    spec = {"queueName": "team-a"} if active else {"queueName": "team-a", "active": False}
    held = {"apiVersion": version, "kind": "Workload", "metadata": {"name": "w", "namespace": "default"}}
    queue = {"apiVersion": version, "kind": "LocalQueue", "metadata": {"name": "team-a", "namespace": "default"}}
    return [{**held, "spec": spec, "status": status}, {**queue, "spec": {"clusterQueue": "all-cards"}}]


def condition(kind: str, status: str, message: str) -> Obj:
    return {"type": kind, "status": status, "message": message, "reason": kind}


NO_QUOTA = condition(
    "QuotaReserved", "False", "insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more needed"
)
EVICTED = condition("Evicted", "True", "Preempted to accommodate a workload of higher priority")
PREEMPTED = condition("Preempted", "True", "Preempted to accommodate a workload of higher priority")


GANG_OF_64 = gang("g", 8, template="gpu")

SITUATIONS = [
    situation(
        "a gang of 8 x 8 on two nodes", lambda: cluster(dgx_h100=2), template(count=8), *GANG_OF_64, about="podgroup/g"
    ),
    situation(
        "a gang of 8 x 8 beside partitions",
        lambda: cluster(dgx_h100=2, dgx_h100_mig_balanced=6),
        template(count=8),
        *GANG_OF_64,
        about="podgroup/g",
    ),
    situation("nine cards on nodes of eight", hoppers, template(count=9), pod("p", "gpu")),
    situation(
        "nine cards for each of two members",
        racks,
        template(count=9),
        *gang("g", 2, template="gpu"),
        about="podgroup/g",
    ),
    situation(
        "a host port in use on the node that is selected",
        hoppers,
        serving("web", nodeName="dgx-h100-0"),
        serving("p", nodeSelector={HOSTNAME: "dgx-h100-0"}),
    ),
    situation(
        "a host port in use on the only node", lambda: cluster(cpu=1), serving("web", nodeName="cpu-0"), serving("p")
    ),
    situation("a nodeSelector that no node has", hoppers, template(), pod("p", "gpu", nodeSelector={"gpu": "h100"})),
    situation(
        "a nodeSelector with another value",
        lambda: labelled(gpu="a100"),
        template(),
        pod("p", "gpu", nodeSelector={"gpu": "h200"}),
    ),
    situation(
        "a nodeSelector with a typing error in its value",
        lambda: labelled(pool="training"),
        template(),
        pod("p", "gpu", nodeSelector={"pool": "trainig"}),
    ),
    situation(
        "a nodeSelector with a typing error in its key",
        lambda: labelled(pool="training"),
        template(),
        pod("p", "gpu", nodeSelector={"pol": "training"}),
    ),
    situation(
        "two labels that no node has together",
        lambda: labelled(pool="training"),
        template(),
        pod("p", "gpu", nodeSelector={"pool": "training", HOSTNAME: "cpu-0"}),
    ),
    situation(
        "an affinity to a label that no node has",
        hoppers,
        template(),
        pod(
            "p",
            "gpu",
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100", "h200"]}]}
                        ]
                    }
                }
            },
        ),
    ),
    situation(
        "an instance type that no node has",
        hoppers,
        template(),
        pod("p", "gpu", nodeSelector={"node.kubernetes.io/instance-type": "p5.48xlarge"}),
    ),
    situation(
        "an attribute with a typing error",
        hoppers,
        selecting('device.attributes["gpu.nvidia.com"].architcture == "Hopper"'),
        pod("p", "gpu"),
    ),
    situation(
        "a domain with a typing error",
        hoppers,
        selecting('device.attributes["gpu.nvida.com"].architecture == "Hopper"'),
        pod("p", "gpu"),
    ),
    situation("a text with a typing error", hoppers, selecting(f'{ARCHITECTURE} == "Hoper"'), pod("p", "gpu")),
    situation(
        "a capacity with a typing error",
        hoppers,
        selecting('device.capacity["gpu.nvidia.com"].memoy.compareTo(quantity("40Gi")) >= 0'),
        pod("p", "gpu"),
    ),
    situation(
        "a capacity that is read as an attribute",
        hoppers,
        selecting('device.attributes["gpu.nvidia.com"].memory >= 40'),
        pod("p", "gpu"),
    ),
    situation("a partition that no class provides", partitioned, pod("p", limits={"nvidia.com/mig-3g.40gb": "1"})),
    situation("cards that no class provides", unprovided, pod("p", limits={"nvidia.com/gpu": "2"})),
    situation("cards of a vendor that is not there", hoppers, pod("p", limits={"amd.com/gpu": "2"})),
    situation(
        "an architecture that no card has", hoppers, selecting(f'{ARCHITECTURE} == "Blackwell"'), pod("p", "gpu")
    ),
    situation(
        "a constraint on an attribute with a typing error",
        hoppers,
        {
            **template(count=2),
            "spec": {
                "spec": {
                    "devices": {
                        "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}],
                        "constraints": [{"matchAttribute": "gpu.nvidia.com/architecure"}],
                    }
                }
            },
        },
        pod("p", "gpu"),
    ),
    situation(
        "a claim with a typing error",
        hoppers,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "shared-cards"},
            "spec": template()["spec"]["spec"],
        },
        pod("p", resourceClaims=[{"name": "gpu", "resourceClaimName": "shared-card"}]),
    ),
    situation(
        "a spread over a topology key with a typing error",
        hoppers,
        pod("p", topologySpreadConstraints=spreading("topology.kubernetes.io/zon")),
    ),
    situation(
        "a spread over a topology key that no node has",
        hoppers,
        pod("p", topologySpreadConstraints=spreading("example.com/row")),
    ),
    situation(
        "an affinity over a topology key that no node has", hoppers, pod("p", affinity=together("example.com/row"))
    ),
    situation(
        "a gang in one domain of a key with a typing error",
        racks,
        template(count=8),
        *in_one("topology.haru.dev/rck", gang("g", 2, template="gpu")),
        about="podgroup/g",
    ),
    situation(
        "a gang in one domain of a key that no node has",
        racks,
        template(count=8),
        *in_one("example.com/row", gang("g", 2, template="gpu")),
        about="podgroup/g",
    ),
    situation(
        "a gang in one rack, larger than any",
        racks,
        template(count=8),
        *in_one(RACK, gang("g", 5, template="gpu")),
        about="podgroup/g",
    ),
    situation(
        "a gang in one rack, of pods that no node takes",
        racks,
        *in_one(RACK, gang("g", 2, cpu="999")),
        about="podgroup/g",
    ),
    situation(
        "members pinned to two racks",
        racks,
        template(count=8),
        *in_one(RACK, pinned(gang("g", 2, template="gpu"), RACK, ["dgx-h100-rack-0", "dgx-h100-rack-1"])),
        about="podgroup/g",
    ),
    situation(
        "members pinned to nodes of two racks",
        racks,
        template(count=8),
        *in_one(RACK, pinned(gang("g", 2, template="gpu"), HOSTNAME, ["dgx-h100-0", "dgx-h100-7"])),
        about="podgroup/g",
    ),
    situation(
        "a missing volume claim with a close one",
        hoppers,
        FAST,
        volume_claim("datasets", "fast"),
        claiming("p", "dataset"),
    ),
    situation("a missing volume claim", hoppers, FAST, claiming("p", "scratch")),
    situation("a missing volume claim without a default class", hoppers, claiming("p", "scratch")),
    situation(
        "a storage class with a typing error", hoppers, FAST, volume_claim("data", "fasst"), claiming("p", "data")
    ),
    situation(
        "a storage class that does not exist", hoppers, FAST, volume_claim("data", "ceph"), claiming("p", "data")
    ),
    situation(
        "a storage class without provisioner",
        hoppers,
        storage_class("local", "kubernetes.io/no-provisioner"),
        volume_claim("data", "local"),
        claiming("p", "data"),
    ),
    situation(
        "a storage class without provisioner, beside one with",
        hoppers,
        FAST,
        storage_class("local", "kubernetes.io/no-provisioner"),
        volume_claim("data", "local"),
        claiming("p", "data"),
    ),
    situation("Kueue has no quota", hoppers, *kueue(NO_QUOTA), of_kueue()),
    situation(
        "Kueue evicted it and queues it again",
        hoppers,
        *kueue(EVICTED, PREEMPTED, NO_QUOTA, requeue="2026-11-20T12:05:00Z"),
        of_kueue(),
    ),
    situation("Kueue's Workload is deactivated", hoppers, *kueue(EVICTED, active=False), of_kueue()),
    situation(
        "Kueue has no quota, and no card is there either",
        lambda: cluster(cpu=1),
        *kueue(NO_QUOTA),
        template(),
        {**of_kueue(), "spec": {**pod("p", "gpu")["spec"], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}},
    ),
    situation("a gate of somebody else", hoppers, gated("p", "example.com/quota")),
    situation(
        "a gate of somebody else, and a label that no node has",
        hoppers,
        gated("p", "example.com/quota", nodeSelector={"pool": "a"}),
    ),
    situation("a gate of one member", hoppers, *gated_member("g", 3), about="pod/g-0"),
    situation(
        "a gate of one member, and a label that no node has",
        hoppers,
        *gated_member("g", 3, nodeSelector={"pool": "a"}),
        about="podgroup/g",
    ),
    situation(
        "a template that is nowhere, of one member", hoppers, template(), *without_template("g", 3), about="pod/g-0"
    ),
    situation("more memory than any node has", hoppers, pod("p", limits={"memory": "8Ti"})),
    situation(
        "more cpu than any node has, for each of two members", hoppers, *gang("g", 2, cpu="999"), about="podgroup/g"
    ),
    situation("a class of which no device is there", hoppers, template(of="tpu.google.com"), pod("p", "gpu")),
    situation(
        "a Job with a nodeSelector with a typing error",
        lambda: labelled(pool="training"),
        template(),
        workload("Job", "train", 1, template="gpu", nodeSelector={"pool": "trainig"}),
        about="job/train",
    ),
    situation(
        "a gang of ten on eight cards",
        lambda: cluster(dgx_h100=1),
        template(),
        *gang("g", 10, template="gpu"),
        about="podgroup/g",
    ),
    situation(
        "a Job's gang of ten on eight cards",
        lambda: cluster(dgx_h100=1),
        template(),
        workload("Job", "train", 10, indexed=True, template="gpu"),
        about="job/train",
    ),
    situation(
        "a Job's gang of ten for an architecture that no card has",
        lambda: cluster(dgx_h100=2),
        selecting(f'{ARCHITECTURE} == "Blackwell"'),
        workload("Job", "train", 10, indexed=True, template="gpu"),
        about="job/train",
    ),
    situation(
        "a gang of ten for an architecture that no card has",
        lambda: cluster(dgx_h100=2),
        selecting(f'{ARCHITECTURE} == "Blackwell"'),
        *gang("g", 10, template="gpu"),
        about="podgroup/g",
    ),
    situation(
        "a gang that no node takes whole",
        lambda: cluster(dgx_h100=2),
        template(),
        *in_one("kubernetes.io/hostname", gang("g", 10, template="gpu")),
        about="podgroup/g",
    ),
    situation("more cpu and more memory than any node has", hoppers, pod("p", cpu="300", limits={"memory": "3Ti"})),
    situation(
        "a volume on a node without cards",
        lambda: cluster(dgx_h100=2, cpu=1),
        template(),
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "v1"},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "local": {"path": "/data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [ON_CPU]}]}},
            },
        },
        {**volume_claim("data"), "spec": {**volume_claim("data", "local")["spec"], "volumeName": "v1"}},
        claiming("p", "data", template="gpu"),
    ),
    situation(
        "more memory of a card than any card has",
        lambda: cluster(dgx_h100=1),
        template(capacity={"requests": {"memory": "100Gi"}}),
        pod("p", "gpu"),
    ),
    situation("a card that the simulated driver taints", with_tainted_card, template(count=8), pod("p", "gpu")),
]
