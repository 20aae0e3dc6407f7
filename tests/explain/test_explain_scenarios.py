"""Scenarios as a table: where the devices stop, the typed reasons, and what would help, applied and asked again.

Together with the table of verdicts it covers every verdict, every stage of the funnel and every kind of remedy.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, get_args

import pytest
from engine_objects import (
    DRIVER,
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    node,
    pod,
    pod_group,
    resource_slice,
)
from explain_schema import REMEDIES, STAGES, check_explanation
from test_explain_verdicts import CASES, TAINTED, TEMPLATE, told

from haru.engine import REASON_TYPES, SchedulerCache
from haru.explain import Explanation, explain, to_json
from haru.explain.explanation import Verdict

ARCH, NUMA = f'device.attributes["{DRIVER}"].arch', f"{DRIVER}/numa"
CLASS = device_class("gpu", [f'device.driver == "{DRIVER}"'])
NIC_CLASS = device_class("nic", [f'device.attributes["{DRIVER}"].arch == "nic"'])
HELD = ["DevicesUnavailable"]


@dataclass
class Row:
    """`stages` are those that keep devices back; `helps` must be offered, and confirmed unless `unproven`."""

    name: str
    objects: list[Obj]
    verdict: str
    reasons: list[str]
    stages: list[str] = field(default_factory=list)
    helps: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    kind: str = "pod"
    subject: str = "p"


def gpu(name: str, arch: str = "H", **more: Any) -> Obj:
    return {"name": name, "attributes": {"arch": {"string": arch}}, **more}


def gpus(count: int, arch: str = "H", **more: Any) -> list[Obj]:
    return [gpu(f"gpu-{i}", arch, **more) for i in range(count)]


def numa(*places: int) -> list[Obj]:
    """Devices at these places."""
    return [
        {"name": f"gpu-{i}", "attributes": {"arch": {"string": "H"}, "numa": {"int": n}}} for i, n in enumerate(places)
    ]


def on(name: str, devices: list[Obj], **spec: Any) -> list[Obj]:
    return [node(name, **spec), resource_slice(name, devices)]


def ask(count: int = 1, *selectors: str, cls: str = "gpu", **more: Any) -> Obj:
    chosen = [{"cel": {"expression": s}} for s in selectors]
    return {"deviceClassName": cls, "allocationMode": "ExactCount", "count": count, "selectors": chosen, **more}


def wants(
    count: int = 1,
    *selectors: str,
    name: str = "p",
    group: str = "",
    spec: Obj | None = None,
    devices: Obj | None = None,
    **more: Any,
) -> list[Obj]:
    made = pod(name, group=group, claims=[("gpu", "tmpl", f"{name}-gpu")], **(spec or {}))
    asked = [{"name": "gpu", "exactly": ask(count, *selectors, **more)}]
    return [made, claim(f"{name}-gpu", owner=made, requests=asked, **(devices or {}))]


def choice(*asks: Obj) -> list[Obj]:
    made = pod("p", claims=[("gpu", "tmpl", "p-gpu")])
    ways = [{"name": f"way-{i}", **one} for i, one in enumerate(asks)]
    return [made, claim("p-gpu", owner=made, requests=[{"name": "gpu", "firstAvailable": ways}])]


def taken(where: str, *devices: str, name: str = "h", **more: Any) -> list[Obj]:
    user = pod(name, node=where, claims=[name], **more)
    return [user, allocated(claim(name, len(devices)), allocation(where, *devices), user)]


def owned_by_set(objects: list[Obj]) -> list[Obj]:
    """The pod belongs to a ReplicaSet, which would make another at once, with a claim from a template."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    user, held = objects
    user["metadata"]["ownerReferences"] = [owner]
    name = held["metadata"]["name"]
    user["spec"]["resourceClaims"] = [{"name": name, "resourceClaimTemplateName": "web"}]
    user["status"]["resourceClaimStatuses"] = [{"name": name, "resourceClaimName": name}]
    held["metadata"]["ownerReferences"] = claim(name, owner=user)["metadata"]["ownerReferences"]
    return objects


def of_deployment(objects: list[Obj]) -> list[Obj]:
    """The pod belongs to a ReplicaSet of a Deployment, with two replicas."""
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    made = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": {"replicas": 2}}
    meta = {"name": "web", "namespace": "default", "uid": "rs", "ownerReferences": [owner]}
    return [*owned_by_set(objects), {**made, "metadata": meta}]


def made_by(maker: str, objects: list[Obj], spec: Obj, above: str = "", **meta: Any) -> list[Obj]:
    """The pods belong to a StatefulSet, Job or JobSet, which somebody else may have made."""
    kind, name = maker.split("/")
    version = "batch/v1" if kind == "Job" else "apps/v1"
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": name, "controller": True}
    if above:
        head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": above.split("/")[0], "name": above.split("/")[1]}
        meta["ownerReferences"] = [{**head, "uid": above, "controller": True}]
    for user, held in zip(objects[::2], objects[1::2], strict=True):
        owned_by_set([user, held])
        user["metadata"]["ownerReferences"] = [owner]
        user["status"]["phase"] = "Running"
    made = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "uid": name, **meta},
    }
    return [*objects, {**made, "spec": spec}]


STORAGE: Obj = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "csi.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}
LOCAL_STORAGE = {**STORAGE, "metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner"}
LOCAL_CLAIM: Obj = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "scratch", "namespace": "default"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "local",
    },
}
VOLUMES = [{"name": "v", "persistentVolumeClaim": {"claimName": "scratch"}}]


def cut(where: str) -> list[Obj]:
    """A card that is given out whole or in two halves."""

    def part(name: str, amount: str) -> Obj:
        counters = {"memory": {"value": amount}}
        return gpu(name, consumesCounters=[{"counterSet": "card", "counters": counters}])

    devices = [part("whole", "2"), part("half-0", "1"), part("half-1", "1")]
    counters = resource_slice(where, [])
    counters["metadata"]["name"] = f"{where}-counters"
    counters["spec"].pop("devices")
    counters["spec"]["sharedCounters"] = [{"name": "card", "counters": {"memory": {"value": "2"}}}]
    found = [counters, resource_slice(where, devices)]
    for item in found:
        item["spec"]["pool"]["resourceSliceCount"] = 2
    return [node(where), *found]


SHARE = "a8b1a4d1-0b7f-4c3e-9d53-3f1d2c7a5e10"


def shared_nic(bandwidth: str, used: str = "") -> list[Obj]:
    nic = gpu("nic", allowMultipleAllocations=True, capacity={"bandwidth": {"value": bandwidth}})
    found = on("a", [nic])
    if used:
        given = allocation("a", "nic")
        given["devices"]["results"][0] |= {"shareID": SHARE, "consumedCapacity": {"bandwidth": used}}
        user = pod("h", node="a", claims=["h"])
        found += [user, allocated(claim("h"), given, user)]
    return found


def per_device(where: str) -> list[Obj]:
    """A pool whose devices say for themselves where they can be used: one here, one nowhere."""
    devices = [gpu("gpu-0", nodeName="a"), gpu("gpu-1", nodeName="elsewhere")]
    return [node(where), resource_slice("", devices, pool="fabric", perDeviceNodeSelection=True)]


BINDING = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
RULE: Obj = {
    "apiVersion": "resource.k8s.io/v1beta2",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "r"},
    "spec": {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "bad", "value": "x", "effect": "NoSchedule"}},
}
TAINT = [{"key": "bad", "value": "x", "effect": "NoSchedule"}]
NODE_TAINT = {"key": "maintenance", "value": "x", "effect": "NoSchedule"}
ALIGNED = {"constraints": [{"matchAttribute": NUMA}]}
SPREAD = {"constraints": [{"distinctAttribute": NUMA}]}
GATES = {"schedulingGates": [{"name": "quota"}]}

NEAR = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "cache"}}}
NEAR_CACHE = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR]}}


def labelled(obj: Obj, **labels: str) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}}


def labelled_host(name: str) -> Obj:
    made = node(name, cpu="4")
    return {**made, "metadata": {**made["metadata"], "labels": {"kubernetes.io/hostname": name}}}


ROWS = [
    # Names
    Row("a class with a typing error", [CLASS, *on("a", gpus(1)), *wants(cls="gpuu")], "FitsIf",
        ["DeviceClassMissing"], helps=["CorrectName"], unproven=["CreateDeviceClass"]),
    Row("a scheduler that nobody is", [CLASS, *on("a", gpus(1)), *wants(spec={"schedulerName": "volcano"})], "FitsIf",
        ["SchedulerUnknown"], helps=["UseScheduler"]),
    # Where devices stop
    Row("a volume claim that is nowhere", [node("a"), STORAGE, pod("p", volumes=VOLUMES)], "FitsIf", ["VolumeMissing"],
        helps=["CreateVolumeClaim"]),
    Row("a volume that nobody provisions", [node("a"), LOCAL_STORAGE, LOCAL_CLAIM, pod("p", volumes=VOLUMES)], "FitsIf",
        ["VolumeNoMatch", "NoProvisioner"], helps=["CreateVolume"]),
    Row("a Deployment's pod is in the way", [CLASS, *on("a", gpus(1)), *of_deployment(taken("a", "gpu-0")), *wants()],
        "FitsLater", [*HELD, "DevicesTaken"], ["free"], ["ScaleDown", "Evict"]),
    Row("no device at all", [CLASS, node("a"), *wants()], "NeverFits", [*HELD, "NoDevices"], helps=[]),
    Row("not of the class", [NIC_CLASS, *on("a", gpus(1)), *wants(cls="nic")], "NeverFits",
        [*HELD, "ClassMismatch"], ["class"]),
    Row("another class would do", [CLASS, NIC_CLASS, *on("a", gpus(1)), *wants(cls="nic")], "NeverFits",
        [*HELD, "ClassMismatch"], ["class"], ["AcceptAlternative"]),
    Row("a selector refuses all", [CLASS, *on("a", gpus(2, "A")), *wants(1, f'{ARCH} == "H"')], "NeverFits",
        [*HELD, "SelectorMismatch"], ["selector"], ["RelaxSelector"]),
    Row("one of two selectors refuses", [CLASS, *on("a", gpus(2, "A")),
                                         *wants(1, f'{ARCH} != "X"', f'{ARCH} == "H"')], "NeverFits",
        [*HELD, "SelectorMismatch"], ["selector"], ["RelaxSelector"]),
    Row("a selector that fails", [CLASS, *on("a", [{"name": "bare"}, gpu("gpu-1")]), *wants(1, f'{ARCH} == "H"')],
        "FitsIf", ["SelectorError", *HELD][:1], ["selector"], ["GuardSelectors"]),
    Row("a selector that fails on a full node, beside another full node",
        [CLASS, *on("a", [{"name": "bare"}], cpu="2"), pod("h", cpu="2", node="a"), *on("b", gpus(1), cpu="2"),
         pod("i", cpu="2", node="b", priority=1), *wants(1, f'{ARCH} == "H"')],
        "FitsLater", ["InsufficientResource", "DevicesScattered"], ["selector", "nodes"], ["Evict"]),
    Row("usable on another node only", [CLASS, *per_device("a"), *wants(2)], "NeverFits", [*HELD, "NoDevices"],
        ["node"], ["LowerCount"]),
    Row("less capacity than asked for", [CLASS, *shared_nic("10"), *wants(capacity={"requests": {"bandwidth": "20"}})],
        "NeverFits", [*HELD, "CapacityExceeded"], ["capacity"], ["AddNodes"][:0]),
    Row("capacity that others use", [CLASS, *shared_nic("10", "8"), *wants(capacity={"requests": {"bandwidth": "4"}})],
        "FitsLater", [*HELD, "CapacityExceeded"], ["capacity"], ["Evict", "AddNodes"]),
    Row("tainted by its driver", [CLASS, *on("a", gpus(1, taints=TAINT)), *wants()], "FitsIf",
        [*HELD, "DeviceTainted"], ["taints"], ["TolerateDevices", "RemoveDeviceTaint"]),
    Row("tainted by a rule", [CLASS, *on("a", gpus(1)), RULE, *wants()], "FitsIf", [*HELD, "DeviceTainted"],
        ["taints"], ["DeleteDeviceTaintRule", "TolerateDevices"]),
    Row("taken by a pod", [CLASS, *on("a", gpus(1)), *taken("a", "gpu-0", priority=7), *wants()], "FitsLater",
        [*HELD, "DevicesTaken"], ["free"], ["Evict", "AddNodes"]),
    Row("taken by a claim that nobody uses", [CLASS, *on("a", gpus(1)), allocated(claim("h"), allocation("a", "gpu-0")),
                                              *wants()], "FitsLater", [*HELD, "DevicesTaken"], ["free"], ["AddNodes"]),
    Row("a part of the card is taken", [CLASS, *cut("a"), *taken("a", "half-0"),
                                        *wants(1, "device.driver != ''", devices=None, name="p"),
                                        *wants(2, name="q")], "FitsLater", [*HELD, "CountersExhausted"],
        ["free", "counters"], ["Evict"], subject="q"),
    Row("free on a cordoned node", [CLASS, *on("a", gpus(1), unschedulable=True), *wants()], "FitsIf",
        ["NodeUnschedulable", "DevicesScattered"], ["nodes"], ["Uncordon"]),
    Row("free on a tainted node", [CLASS, *on("a", gpus(1), taints=[NODE_TAINT]), *wants()], "FitsIf",
        ["NodeTaints", "DevicesScattered"], ["nodes"], ["Untaint", "Tolerate"]),
    Row("free on a node that is not selected", [CLASS, *on("a", gpus(1)), *wants(spec={"nodeSelector": {"zone": "x"}})],
        "FitsIf", ["NodeAffinityMismatch", "DevicesScattered", "NodeLabelMissing"], ["nodes"], ["LabelNodes"]),
    Row("free where cpu is used up", [CLASS, *on("a", gpus(1), cpu="2"), pod("h", cpu="2", node="a"), *wants()],
        "FitsLater", ["InsufficientResource", "DevicesScattered"], ["nodes"], ["Evict", "AddNodes"]),
    Row("more cpu than any node has", [node("a", cpu="2"), pod("p", cpu="3")], "NeverFits", ["InsufficientResource"],
        helps=["LowerRequest"]),
    Row("a bit more cpu than is left", [node("a", cpu="4"), pod("h", cpu="1", node="a"), pod("p", cpu="4")],
        "FitsLater", ["InsufficientResource"], helps=["LowerRequest", "Evict", "AddNodes"]),
    Row("affinity to pods that are not there", [node("a"), pod("p", affinity=NEAR_CACHE)], "FitsIf",
        ["PodAffinity", "AffinityPodMissing"], helps=["DropConstraint"]),
    Row("beside a pod whose node is full", [
        *map(labelled_host, ("a", "b")), labelled(pod("cache", node="a"), app="cache"), pod("h", cpu="3", node="a"),
        pod("p", cpu="2", affinity=NEAR_CACHE)],
        "FitsLater", ["InsufficientResource", "PodAffinity"], helps=["Evict"]),
    Row("kept apart by a constraint", [CLASS, *on("a", numa(0, 1)), *wants(2, devices=ALIGNED)], "NeverFits",
        [*HELD, "ConstraintUnsatisfied"], ["constraints"], ["DropConstraint", "LowerCount"]),
    Row("too much alike for a constraint", [CLASS, *on("a", numa(0, 0)), *wants(2, devices=SPREAD)], "NeverFits",
        [*HELD, "ConstraintUnsatisfied"], ["constraints"], ["DropConstraint"]),
    Row("a constraint and who holds the rest", [CLASS, *on("a", numa(0, 0, 1)), *taken("a", "gpu-0"),
                                                *wants(2, devices=ALIGNED)], "FitsLater",
        [*HELD, "ConstraintUnsatisfied"], ["free", "constraints"], ["Evict", "DropConstraint"]),
    Row("two nodes with one each", [CLASS, *on("a", gpus(1)), *on("b", gpus(1)), *wants(2)], "NeverFits",
        [*HELD, "DevicesScattered"], ["scattered"], ["LowerCount"]),
    Row("one left on each of two nodes", [CLASS, *on("a", gpus(2)), *on("b", gpus(2)), *taken("a", "gpu-0", name="g"),
                                          *taken("b", "gpu-0"), *wants(2)], "FitsLater", [*HELD, "DevicesScattered"],
        ["free", "scattered"], ["MoveWork", "Evict", "LowerCount"]),
    Row("the same, with a controller behind", [CLASS, *on("a", gpus(2)), *on("b", gpus(2)),
                                               *owned_by_set(taken("a", "gpu-0", name="g")),
                                               *owned_by_set(taken("b", "gpu-0")), *wants(2)], "FitsLater",
        [*HELD, "DevicesScattered"], ["free", "scattered"], ["LowerCount"]),
    Row("all taken, with a controller behind", [CLASS, *on("a", gpus(2)), *owned_by_set(taken("a", "gpu-0", name="g")),
                                                *owned_by_set(taken("a", "gpu-1")), *wants(1)], "FitsLater",
        [*HELD, "DevicesTaken"], ["free"], ["Evict"]),
    Row("all taken by a stateful set", [CLASS, *on("a", gpus(2)), *made_by("StatefulSet/web", [
        *taken("a", "gpu-0", name="web-0"), *taken("a", "gpu-1", name="web-1")], {"replicas": 2}), *wants(1)],
        "FitsLater", [*HELD, "DevicesTaken"], ["free"], ["ScaleDown", "Evict"]),
    Row("all taken by a job", [CLASS, *on("a", gpus(2)), *made_by("Job/train", [
        *taken("a", "gpu-0", name="t-0"), *taken("a", "gpu-1", name="t-1")], {"parallelism": 2, "completions": 4}),
        *wants(1)], "FitsLater", [*HELD, "DevicesTaken"], ["free"], ["LowerParallelism", "Suspend", "Evict"]),
    Row("all taken by a job of one pod", [CLASS, *on("a", gpus(1)), *made_by("Job/train", taken("a", "gpu-0", name="t"),
        {"parallelism": 1, "completions": 1}), *wants(1)], "FitsLater", [*HELD, "DevicesTaken"], ["free"],
        ["Suspend", "Evict"]),
    Row("taken by a job that Kueue admits", [CLASS, *on("a", gpus(1)), *made_by("Job/train", taken(
        "a", "gpu-0", name="t"), {"parallelism": 1}, labels={"kueue.x-k8s.io/queue-name": "q"}), *wants(1)],
        "FitsLater", [*HELD, "DevicesTaken"], ["free"], ["Evict"]),
    Row("slices are missing", [CLASS, node("a"), {**(s := resource_slice("a", gpus(1))), "spec": {
        **s["spec"], "pool": {**s["spec"]["pool"], "resourceSliceCount": 2}}}, *wants()], "FitsLater",
        [*HELD, "NoDevices", "PoolIncomplete"]),
    # Alternatives
    Row("no alternative", [CLASS, *on("a", gpus(1, "A")), *choice(ask(1, f'{ARCH} == "H"'), ask(2))], "NeverFits",
        [*HELD, "AlternativesExhausted"], ["selector"], ["RelaxSelector", "LowerCount"][:1]),
    Row("both alternatives taken", [CLASS, *on("a", gpus(2)), *taken("a", "gpu-0", "gpu-1"), *choice(ask(2), ask(1))],
        "FitsLater", [*HELD, "AlternativesExhausted"], ["free"], ["Evict"]),
    # Several things at once
    Row("tainted node and tainted device", [CLASS, *on("a", [TAINTED], taints=[NODE_TAINT]), *wants()], "FitsIf",
        ["NodeTaints", "DeviceTainted"], ["taints"], ["Combination"]),
    Row("a cordon and a holder", [CLASS, *on("a", gpus(1), unschedulable=True), *taken("a", "gpu-0"), *wants()],
        "FitsIf", ["NodeUnschedulable", "DevicesTaken"], ["free"], ["Combination"][:0]),
    # Held before any attempt
    Row("gated, with room", [CLASS, *on("a", gpus(1)), *wants(spec=GATES)], "FitsIf", ["Gated"], [], ["RemoveGates"]),
    Row("gated, without room", [CLASS, *on("a", gpus(1)), *taken("a", "gpu-0"), *wants(spec=GATES)], "FitsIf",
        ["Gated", *HELD, "DevicesTaken"], ["free"], unproven=["RemoveGates"]),
    Row("no PodGroup", [CLASS, *on("a", gpus(1)), *wants(group="g")], "FitsIf", ["PodGroupMissing"], [],
        ["CreatePodGroup"]),
    Row("no claim", [CLASS, *on("a", gpus(1)), pod("p", claims=["c"])], "FitsIf", ["ClaimMissing"],
        unproven=["CreateClaim"]),
    Row("no template", [CLASS, *on("a", gpus(1)), pod("p", claims=[("gpu", "tmpl", "")])], "FitsIf",
        ["ClaimNotCreated"], unproven=["CreateClaimTemplate"]),
    Row("no class", [*on("a", gpus(1)), *wants()], "FitsIf", ["DeviceClassMissing"], unproven=["CreateDeviceClass"]),
    Row("its claim is on its way", [CLASS, TEMPLATE, *on("a", gpus(2)), pod("p", claims=[("gpu", "tmpl", "")])],
        "FitsLater", ["ClaimNotCreated"]),
    # Gangs
    Row("a member is missing", [CLASS, *on("a", gpus(2)), pod_group("g", 2), *wants(name="g0", group="g")], "FitsIf",
        ["TooFewMembers"], [], ["AddMembers", "LowerMinCount"], kind="podgroup", subject="g"),
    Row("one device short", [CLASS, *on("a", gpus(2)), *taken("a", "gpu-0"), pod_group("g", 2),
                             *wants(name="g0", group="g"), *wants(name="g1", group="g")], "FitsLater",
        ["Quorum", *HELD, "DevicesTaken"], ["free"], ["LowerMinCount", "Evict", "AddNodes"], kind="podgroup",
        subject="g"),
    Row("a gang that fits", [CLASS, *on("a", gpus(2)), pod_group("g", 2), *wants(name="g0", group="g"),
                             *wants(name="g1", group="g")], "Starting", ["Waiting"], kind="podgroup", subject="g"),
    Row("a gang with room on a cordoned node", [CLASS, *on("a", gpus(1)), *on("b", gpus(1), unschedulable=True),
                                                pod_group("g", 2), *wants(name="g0", group="g"),
                                                *wants(name="g1", group="g")], "FitsIf",
        ["Quorum", *HELD, "NodeUnschedulable", "DevicesScattered"], ["nodes"], ["Uncordon", "LowerMinCount"],
        kind="podgroup", subject="g"),
    Row("a gang that one node can never take", [CLASS, *on("a", gpus(2)), pod_group("g", 3),
                                                *(o for i in range(3) for o in wants(name=f"g{i}", group="g"))],
        "NeverFits", ["Quorum", *HELD, "NoDevices"], [], ["LowerMinCount", "AddNodes"], kind="podgroup", subject="g"),
    # Who runs
    Row("a pod that runs", [CLASS, *on("a", gpus(1)), *taken("a", "gpu-0", name="p")], "Runs", ["Running"]),
]  # fmt: skip


def answer_of(row: Row) -> Explanation:
    subject = next(o for o in row.objects if o["kind"].lower() == row.kind and o["metadata"]["name"] == row.subject)
    return explain(SchedulerCache.of(row.objects).snapshot(), row.kind, subject)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_scenario_has_expected_verdict_reasons_and_remedies(row: Row) -> None:
    answer = answer_of(row)
    check_explanation(to_json(answer))
    assert (answer.verdict, [r.type for r in answer.reasons]) == (row.verdict, row.reasons)
    stages = {s.stage for f in answer.requests for s in f.stages if s.dropped}
    assert stages >= set(row.stages), stages
    offered = {remedy.kind: remedy.confirmed for remedy in answer.remedies}
    assert all(offered.get(kind) is True for kind in row.helps), offered
    assert all(offered.get(kind) is False for kind in row.unproven), offered


def applied(objects: list[Obj], changes: list[Obj]) -> list[Obj]:
    """The objects with changes made as an API server makes them."""
    made = copy.deepcopy(objects)
    for change in changes:
        target = change.get("target") or change["object"]
        key = (target["kind"], target["metadata"]["name"], target["metadata"].get("namespace"))
        found = [o for o in made if (o["kind"], o["metadata"]["name"], o["metadata"].get("namespace")) == key]
        if change["action"] == "patch":
            for obj in found:
                merge(obj, change["patch"])
            continue
        made = [o for o in made if o not in found]
        if change["action"] == "delete" and key[0] == "Pod":
            made = [released(o, found[0]) for o in made]
        if change["action"] == "create":
            kept = change["object"]
            uid = {"uid": f"new-{key[1]}", **({"namespace": "default"} if key[0] != "Node" else {})}
            made.append({**kept, "metadata": {**uid, **kept["metadata"]}, "status": kept.get("status") or {}})
    return made


def merge(obj: Obj, patch: Obj) -> None:
    for name, value in patch.items():
        if value is None:
            obj.pop(name, None)
        elif isinstance(value, dict):
            merge(obj.setdefault(name, {}), value)
        else:
            obj[name] = value


def released(obj: Obj, gone: Obj) -> Obj:
    users = (obj.get("status") or {}).get("reservedFor") or []
    left = [user for user in users if user["uid"] != gone["metadata"]["uid"]]
    return {**obj, "status": {**obj["status"], "reservedFor": left} if left else {}} if left != users else obj


COST = "controller.kubernetes.io/pod-deletion-cost"


def surplus_of(maker: Obj, remedy: Any, objects: list[Obj]) -> list[Obj]:
    """The pods that a controller deletes, the first to go first."""
    scaled = (
        change["patch"]["spec"]
        for change in remedy.changes
        if change["action"] == "patch" and "spec" in change["patch"]
    )
    counts = [next(iter(spec.values())) for spec in scaled if {"replicas", "parallelism", "suspend"} & spec.keys()]
    owners = ((o, o["metadata"].get("ownerReferences") or [{}]) for o in objects if o["kind"] == "Pod")
    own = [o for o, (owner, *_) in owners if owner.get("uid") == maker["metadata"]["uid"]]
    own.sort(key=lambda o: int((o["metadata"].get("annotations") or {}).get(COST, 0)))
    if maker["kind"] == "StatefulSet":
        own.sort(key=lambda o: o["metadata"]["name"], reverse=True)
    return own[: len(own) - (0 if counts[0] is True else counts[0])] if counts else []


def driven(objects: list[Obj], before: list[Obj], remedy: Any) -> list[Obj]:
    """What drivers and controllers do: devices of new nodes, claims of new pods, taints that are a driver's."""
    slices = [o for o in before if o["kind"] == "ResourceSlice"]
    model = remedy.summary.partition(" like ")[2].partition(",")[0]
    known = {o["metadata"]["name"] for o in before if o["kind"] == "Node"}
    for obj in [o for o in objects if o["kind"] == "Node" and o["metadata"]["name"] not in known]:
        name = obj["metadata"]["name"]
        for number, item in enumerate(o for o in slices if o["spec"].get("nodeName") == model):
            fresh = copy.deepcopy(item)
            fresh["metadata"]["name"] = f"{name}-{number}"
            fresh["spec"]["pool"]["name"] = fresh["spec"]["nodeName"] = name
            objects.append(fresh)
    models = [o for o in before if o["kind"] == "ResourceClaim" and o["metadata"].get("ownerReferences")]
    for obj in [o for o in objects if o["kind"] == "Pod" and o["metadata"]["uid"].startswith("new-") and models]:
        entries = []
        for use in obj["spec"].get("resourceClaims") or ():
            made = claim(f"{obj['metadata']['name']}-{use['name']}-new", owner=obj)
            objects.append({**made, "spec": models[0]["spec"]})
            entries.append({"name": use["name"], "resourceClaimName": made["metadata"]["name"]})
        obj["status"] = {"phase": "Pending", "resourceClaimStatuses": entries}
    for maker in [o for o in objects if o["kind"] in ("ReplicaSet", "StatefulSet", "Job")]:
        surplus = surplus_of(maker, remedy, objects)
        objects = applied(objects, [{"action": "delete", "object": obj} for obj in surplus])
    by_driver = remedy.kind == "RemoveDeviceTaint" and not remedy.changes
    if by_driver or (remedy.kind == "Combination" and "remove device taint" in remedy.summary):
        for obj in objects:
            for device in obj["spec"].get("devices") or () if obj["kind"] == "ResourceSlice" else ():
                device.pop("taints", None)
    return objects


TABLE = [
    *((case.name, case.objects, case.kind, case.subject) for case in CASES),
    *((row.name, row.objects, row.kind, row.subject) for row in ROWS),
]


@pytest.mark.parametrize(("name", "objects", "kind", "subject"), TABLE, ids=[entry[0] for entry in TABLE])
def test_confirmed_remedy_makes_subject_fit(name: str, objects: list[Obj], kind: str, subject: str) -> None:
    answer = told(objects, kind, subject)
    for remedy in answer.remedies:
        if not remedy.confirmed:
            continue
        changed = driven(applied(objects, list(remedy.changes)), objects, remedy)
        if remedy.kind == "MoveWork":
            # What is moved comes back once the work has its place.
            moved = {c["object"]["metadata"]["name"] for c in remedy.changes if c["action"] == "create"}
            changed = [o for o in changed if o["kind"] != "Pod" or o["metadata"]["name"] not in moved]
        then = told(changed, kind, subject)
        # What controllers make from templates is not there yet.
        types = {reason.type for reason in then.reasons}
        made = ({"ClaimNotCreated"}, {"Unused", "Waiting"}, {"PodsMissing", "Waiting"})
        soon = then.verdict == "FitsLater" and types in made
        assert then.verdict in ("Starting", "Runs") or soon, (remedy, then)


def test_work_that_moves_waits_for_no_more_members_than_get_a_place() -> None:
    """What was ended for them would never be made again."""
    there = [CLASS, *on("a", gpus(2)), *on("b", gpus(2)), *taken("a", "gpu-0", name="g"), *taken("b", "gpu-0")]
    members = [obj for name in ("first", "second") for obj in wants(2, name=name, group="gang")]
    answer = told([*there, pod_group("gang", 1), *members], "podgroup", "gang")
    (moved,) = (remedy for remedy in answer.remedies if remedy.kind == "MoveWork")
    assert " --timeout=5m pod first -n default && kubectl create -f " in moved.command


@pytest.mark.parametrize(("beside", "found"), [("2", ["move h from a to b"]), ("1", [])])
def test_work_moves_where_devices_of_the_waiting_work_leave_cpu_for_it(beside: str, found: list[str]) -> None:
    """The device takes a core of its node: what ran there has no room beside it."""
    device = {"name": "gpu-0", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}
    asked = pod("p", cpu="2", claims=["c"])
    asked["spec"]["containers"][0]["resources"]["claims"] = [{"name": "c"}]
    holder = pod("h", cpu="2", node="a")
    there = [CLASS, node("a", cpu="4"), node("b", cpu=beside), resource_slice("a", [device]), holder]
    answer = told([*there, claim("c"), asked], "pod", "p")
    assert [remedy.summary for remedy in answer.remedies if remedy.kind == "MoveWork"] == found


def test_evict_names_the_job_set_that_makes_pods_of_its_job_again() -> None:
    job = {"parallelism": 1}
    held = made_by("Job/train-w-0", taken("a", "gpu-0", name="t"), job, above="JobSet/train")
    remedies = told([CLASS, *on("a", gpus(1)), *held, *wants(1)], "pod", "p").remedies
    assert [remedy.kind for remedy in remedies] == ["Evict", "AddNodes"]
    assert (
        remedies[0].costs
        == "1 running pod of priority 0 lost; jobset/train makes new ones that then wait, unless it is stopped"
    )


@pytest.mark.parametrize("maker", ["ReplicaSet/web", "StatefulSet/web", "Job/web"])
def test_replica_that_waits_for_others_of_its_workload_is_not_told_to_end_one(maker: str) -> None:
    """With fewer replicas the one that waits goes first, and one in place of another helps nobody."""
    asked = wants(1, name="web-2")
    running = [*taken("a", "gpu-0", name="web-0"), *taken("a", "gpu-1", name="web-1")]
    spec = (
        {"parallelism": 3, "completions": 9}
        if maker == "Job/web"
        else {"replicas": 3, "podManagementPolicy": "Parallel"}
    )
    *pods, owner = made_by(maker, [*running, *asked], spec)
    asked[0]["status"]["phase"] = "Pending"
    remedies = told([CLASS, *on("a", gpus(2)), *pods, owner], "pod", "web-2").remedies
    assert [remedy.kind for remedy in remedies] == ["AddNodes"]


def test_tables_cover_all_verdicts_reasons_stages_and_remedies() -> None:
    answers = [told(case.objects, case.kind, case.subject) for case in CASES] + [answer_of(row) for row in ROWS]
    assert len(answers) >= 80
    verdicts = {answer.verdict for answer in answers}
    stages = {s.stage for a in answers for f in a.requests for s in f.stages if s.dropped or s.stage == "devices"}
    kinds = {remedy.kind for answer in answers for remedy in answer.remedies}
    types = {reason.type for answer in answers for reason in answer.reasons}
    assert verdicts == set(get_args(Verdict))
    # Devices that a feature hides need options of their own, see below.
    assert stages == set(STAGES) - {"offered"}
    # A DaemonSet needs its pods on other nodes, see test_daemon_set_remedies; refused pods events, see
    # test_refused_creation; a class that provides a resource devices of a vendor, see situations_remedies.
    elsewhere = {"AddNodeSelector", "CreateServiceAccount", "CreatePriorityClass", "ProvideResource", "RaiseRequest"}
    assert kinds == set(REMEDIES) - elsewhere
    assert types <= set(REASON_TYPES)


def test_devices_hidden_by_feature_gate_are_dropped_at_stage_offered() -> None:
    from dataclasses import replace

    from haru.engine import Features
    from haru.explain.diagnosis.workload_unit import hypothetical_options

    objects = [CLASS, *on("a", gpus(1, **BINDING)), *wants()]
    options = replace(hypothetical_options(), features=Features(DeviceBindingAndStatus=False))
    subject = next(o for o in objects if o["kind"] == "Pod")
    answer = explain(SchedulerCache.of(objects).snapshot(), "pod", subject, options=options)
    assert {s.stage for f in answer.requests for s in f.stages if s.dropped} == {"offered"}
    assert "BindingConditionsDisabled" in {reason.type for reason in answer.reasons}


def test_verdict_and_reasons_are_equal_without_remedies() -> None:
    for row in ROWS:
        subject = next(o for o in row.objects if o["kind"].lower() == row.kind and o["metadata"]["name"] == row.subject)
        snapshot = SchedulerCache.of(row.objects).snapshot()
        alone = explain(snapshot, row.kind, subject, remedies=False)  # type: ignore[arg-type]
        assert (alone.verdict, [r.type for r in alone.reasons]) == (row.verdict, row.reasons), row.name
        assert not alone.remedies


def test_combination_scales_down_who_would_make_pods_again() -> None:
    held = made_by("StatefulSet/web", taken("a", "gpu-0", name="web-0"), {"replicas": 1})
    objects = [CLASS, *on("a", gpus(1), taints=[NODE_TAINT]), *held, *wants(1)]
    [remedy] = [remedy for remedy in told(objects, "pod", "p").remedies if remedy.kind == "Combination"]
    assert remedy.summary == "scale statefulset/web to 0 (frees 1 device), remove the taints of a"
    then = told(driven(applied(objects, list(remedy.changes)), objects, remedy), "pod", "p")
    assert then.verdict == "Starting", then
