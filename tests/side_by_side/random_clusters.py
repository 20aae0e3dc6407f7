"""Random nodes, devices, running pods and quotas for `decisions_compared`.

Whatever is drawn is valid: an API server takes it, but for what a quota refuses. A seed makes the same cluster again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, TypeVar

from manifests import (
    DRIVER,
    HOST,
    OTHERS,
    ZONE,
    Obj,
    device,
    device_class,
    expression,
    node,
    obj,
    slice_of,
    taint,
)

T = TypeVar("T")
PRIORITIES: dict[str, Obj] = {
    "low": {"value": 0},
    "mid": {"value": 5},
    "high": {"value": 10},
    "polite": {"value": 10, "preemptionPolicy": "Never"},
}
GPU, BIG = "example.com/gpu", "example.com/big"
"""Extended resources that stand for device classes."""
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"
NIC = "example.com/nic"
LINKS = "links"
"""An attribute that may have several values, of which no selector asks."""
NET = "net.example.com"
"""The other driver; its class is `net`."""
ROOT = "resource.kubernetes.io/pcieRoot"
_POLICIES: list[Obj] = [
    {"default": "1", "validValues": ["1", "2", "4"]},
    {"default": "2", "validRange": {"min": "1", "step": "1"}},
    {"default": "1", "validRange": {"min": "1", "max": "4"}},
    {"default": "2", "validRange": {"min": "2", "max": "4", "step": "2"}},
]
DIMENSIONS = (
    *("constraints", "devices", "extended", "conditions", "gangs", "templates", "quotas", "changes"),
    *("fabric", "errors", "volumes", "kubelets", "gates", "namespaces", "profiles", "services", "sharing", "drivers"),
)
"""What a cluster may have beside nodes and pods.

`extended`, `conditions`, `fabric` (devices of several nodes, and of several counters) and `errors` (of selectors,
classes and pools) are about devices; `kubelets` is about what only nodes know: images, features, sizes of pods that
differ from their specs.
`gates`: pods are held for a while, and meanwhile get selectors or are nominated by somebody else. `namespaces`: pods
run in another one. `profiles`: pods choose another profile of the scheduler. `services`: pods belong to services and
controllers, for which they are spread by default. `sharing`: pods name claims of earlier units.
`drivers`: there are devices of another driver beside those of the first, on the same roots.
"""
ALPHA_DIMENSIONS = ("allocatable", "lists")
"""Behind alpha gates: devices that take of their node's resources, and attributes with several values."""
_OF_DEVICES = {"extended", "conditions", "templates", "quotas", "fabric", "errors", "sharing", "drivers"}
_OF_DEVICES |= {*ALPHA_DIMENSIONS}
FEATURE = "RestartAllContainersOnContainerExits"
OVERHEAD = {"overhead": {"podFixed": {"cpu": "500m"}}, "scheduling": {"nodeSelector": {"disk": "ssd"}}}
IMAGES = ("registry.example.com/work:1", "registry.example.com/init:1")


class Dice:
    """Draws of a seed."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def one_in(self, count: int) -> bool:
        """True once in so many draws."""
        return self.random.randrange(count) == 0

    def pick(self, *choices: T) -> T:
        """One of the choices, each as likely as how often it is given."""
        return self.random.choice(choices)


def drawn_dimensions(random: Random, alpha: bool = False) -> frozenset[str]:
    """The dimensions of a cluster: few at a time, so that a difference has few causes."""
    found = {name for name in DIMENSIONS if random.random() < 0.4}
    found |= {name for name in ALPHA_DIMENSIONS if alpha and random.random() < 0.6}
    if found & _OF_DEVICES:
        found.add("devices")
    return frozenset(found)


class ClusterDraw:
    """A random cluster of these dimensions; its names begin with `prefix`."""

    def __init__(self, random: Random, dimensions: frozenset[str], prefix: str) -> None:
        self.dice = Dice(random)
        self.dimensions = dimensions
        self.prefix = prefix
        self.names: list[str] = []
        self.running_groups: list[tuple[str, str]] = []

    # -- nodes --------------------------------------------------------------------------------------------------------

    def nodes(self) -> list[Obj]:
        """One to four nodes."""
        return [self.node() for _ in range(self.dice.pick(1, 2, 3, 3, 4))]

    def node(self) -> Obj:
        """A node more."""
        dice, number = self.dice, len(self.names)
        name = f"{self.prefix}-n{number}"
        self.names.append(name)
        more = {NIC: dice.pick(1, 2)} if dice.one_in(3) else {}
        if "extended" in self.dimensions and dice.one_in(4):
            more[GPU] = dice.pick(1, 2)
        amounts = {"memory": "8Gi", "pods": dice.pick(2, 3, 6, 20), "ephemeral_storage": "10Gi"}
        (made,) = node(name, dice.pick(2, 4, 8), self.node_labels(number), self.taints(), more=more, **amounts)
        assert isinstance(made, dict)
        made["metadata"]["labels"][HOST] = name
        made["spec"] = {"taints": made["spec"]["taints"], "unschedulable": dice.one_in(8)}
        made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        if "kubelets" in self.dimensions:
            # Of one size everywhere: kube-scheduler believes the node that told it first.
            sizes = zip(IMAGES, (300 << 20, 900 << 20), strict=True)
            made["status"]["images"] = [{"names": [name], "sizeBytes": size} for name, size in sizes if dice.one_in(2)]
            made["status"]["declaredFeatures"] = [FEATURE] if dice.one_in(2) else []
        return made

    def node_labels(self, number: int) -> dict[str, str]:
        """A zone for most, and what selectors of pods look at."""
        dice = self.dice
        labels = {} if dice.one_in(5) else {ZONE: f"z{number % 2}"}
        if dice.one_in(3):
            labels["disk"] = dice.pick("ssd", "ssd", "hdd")
        if dice.one_in(2):
            labels["size"] = dice.pick("2", "8")
        return labels

    def taints(self) -> list[Obj]:
        """Mostly none."""
        if not self.dice.one_in(5):
            return []
        effect = self.dice.pick("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")
        return [taint("t", self.dice.pick("x", "y"), effect)]

    # -- devices ------------------------------------------------------------------------------------------------------

    def devices(self) -> Iterator[Obj]:
        """Classes, and a pool for each node and perhaps one for all of them."""
        if "devices" not in self.dimensions:
            return
        for name, selectors in (("gpu", ()), ("big", (f'device.attributes["{DRIVER}"].?size.orValue(0) > 1',))):
            (made,) = device_class(name, *selectors)
            assert isinstance(made, dict)
            if self.dice.one_in(3):
                made["spec"]["config"] = [opaque(f"class-{name}")]
            if "extended" in self.dimensions and (name == "gpu" or self.dice.one_in(2)):
                made["spec"]["extendedResourceName"] = {"gpu": GPU, "big": BIG}[name]
            yield made
        if "drivers" in self.dimensions:
            selectors = [{"cel": {"expression": f'device.driver == "{NET}"'}}]
            yield obj("resource.k8s.io/v1", "DeviceClass", "net", spec={"selectors": selectors})
        for name in self.names:
            yield from self.pool(name, self.dice.random.randrange(5), nodeName=name)
            if "drivers" in self.dimensions:
                yield from self.pool(f"{name}-net", self.dice.random.randrange(4), nodeName=name, driver=NET)
        yield from self.pool(f"{self.prefix}-net", self.dice.pick(0, 0, 1, 2), allNodes=True)
        if "fabric" in self.dimensions:
            yield from self.pool(f"{self.prefix}-rack", self.dice.random.randrange(4), nodeSelector=_in_zone("z0"))
            yield from self.pool(f"{self.prefix}-mix", self.dice.random.randrange(5), perDeviceNodeSelection=True)

    def place(self) -> Obj:
        """Where a device is, in a pool that leaves it to the device."""
        one = {"nodeName": self.dice.pick(*self.names)}
        return self.dice.pick(one, one, {"allNodes": True}, {"nodeSelector": _in_zone(self.dice.pick("z0", "z1"))})

    def pool(self, name: str, count: int, **where: Any) -> list[Obj]:
        """A pool of one to three slices; nothing for a count of 0."""
        dice, counted = self.dice, self.dice.one_in(3)
        found = [self.device(f"d{number}", counted) for number in range(count)]
        if where.get("perDeviceNodeSelection"):
            found = [one | self.place() for one in found]
        contents: list[tuple[list[Obj], Obj]] = []
        if counted:
            sets = [{"name": "cs", "counters": {"mem": {"value": dice.pick("2", "4")}}}]
            if "fabric" in self.dimensions:
                sets[0]["counters"]["slots"] = {"value": "3"}
                sets.append({"name": "ds", "counters": {"mem": {"value": dice.pick("2", "3")}}})
            contents.append(([], {"sharedCounters": sets}))
        halves = (found[:1], found[1:]) if dice.one_in(4) else (found,)
        contents += [(half, where) for half in halves if half]
        if not found:
            return []
        slices, lacking = [], int("errors" in self.dimensions and dice.one_in(10))
        if "errors" in self.dimensions and dice.one_in(12):
            contents.append(([dict(found[0])], where))  # a device of this name again: the pool is invalid
        for number, (some, more) in enumerate(contents):
            (made,) = slice_of(name, some, "p", of=len(contents) + lacking, **{**where, **more})
            assert isinstance(made, dict)
            made["metadata"]["name"] = f"{name}-s{number}"
            if not some:
                del made["spec"]["devices"]
            slices.append(made)
        if "errors" in self.dimensions and dice.one_in(6):
            slices.append(self._of_another_generation(name, where))
        return slices

    def _of_another_generation(self, pool: str, where: Obj) -> Obj:
        """A slice that a driver has left, or the first one of those that replace the others."""
        one = self.device(self.dice.pick("d0", "e0"), counted=False)
        one |= self.place() if where.get("perDeviceNodeSelection") else {}
        (made,) = slice_of(pool, [one], "p", of=self.dice.pick(1, 1, 2), **where)
        assert isinstance(made, dict)
        made["metadata"]["name"] = f"{pool}-o"
        made["spec"]["pool"]["generation"] = self.dice.pick(0, 2)
        return made

    def device(self, name: str, counted: bool) -> Obj:
        """A device that is whole, shared by capacity, or partitioned (`counted`), tainted or bound by conditions."""
        dice, more = self.dice, dict[str, Any]()
        attributes: Obj = {"size": {"int": dice.pick(1, 2)}}
        if not dice.one_in(4):
            attributes["numa"] = {"int": dice.pick(0, 1)}
        if "drivers" in self.dimensions and not dice.one_in(5):
            attributes[ROOT] = {"string": dice.pick("r0", "r0", "r1")}
        if dice.one_in(3):
            more["allowMultipleAllocations"] = True
        if counted and dice.one_in(2):
            consumed = {"counterSet": "cs", "counters": {"mem": {"value": dice.pick("1", "2", "3")}}}
            more["consumesCounters"] = [consumed]
            if "fabric" in self.dimensions:
                consumed["counters"] |= {"slots": {"value": "1"}} if dice.one_in(2) else {}
                other = {"counterSet": "ds", "counters": {"mem": {"value": "1"}}}
                more["consumesCounters"] = dice.pick([consumed], [other], [consumed, other])
        if dice.one_in(6):
            effect = dice.pick("NoSchedule", "NoExecute", "None")
            more["taints"] = [{"key": "broken", "effect": effect}]
        if "conditions" in self.dimensions and dice.one_in(3):
            more |= {"bindingConditions": ["attached"], "bindingFailureConditions": ["failed"]}
            more |= {"bindsToNode": True} if dice.one_in(2) else {}
        if "lists" in self.dimensions and not dice.one_in(4):
            attributes["racks"] = dice.pick(*[{"strings": [*some]} for some in ("x", "xy", "yz", "z")])
            attributes[LINKS] = dice.pick({"int": 1}, {"ints": [1, 2]}, {"ints": [2, 3]}, {"string": "1"})
        made = device(name, dice.pick("a", "b"), attributes, **more)
        if more.get("allowMultipleAllocations"):
            policy = {"requestPolicy": dice.pick(*_POLICIES)} if dice.one_in(2) else {}
            made["capacity"] = {"memory": {"value": dice.pick("4", "8"), **policy}}
            if "fabric" in self.dimensions and dice.one_in(3):
                few = {"default": "1", "validValues": ["1", "2"]}
                made["capacity"]["slots"] = {"value": dice.pick("2", "3"), "requestPolicy": few}
        elif dice.one_in(2):
            made["capacity"] = {"memory": {"value": dice.pick("2", "4")}}
        if "allocatable" in self.dimensions and not dice.one_in(3):
            made["nodeAllocatableResourceMappings"] = self.mappings(made)
        return made

    def mappings(self, one: Obj) -> Obj:
        """What a device takes of its node: for each device, or for each unit of its capacity that is consumed."""
        dice = self.dice
        by_device = ({"cpu": dice.pick("500m", "1", "2")}, {"memory": "3Gi"}, {"cpu": "1", "memory": "1Gi"})
        found = {name: {"allocationMultiplier": amount} for name, amount in dice.pick(*by_device).items()}
        if one.get("allowMultipleAllocations") and dice.one_in(2):
            found["memory"] = {"capacityKey": "memory", "allocationMultiplier": dice.pick("1Gi", "2Gi")}
        return found

    # -- what runs already --------------------------------------------------------------------------------------------

    def running(self, spec: Any) -> Iterator[Obj]:
        """Bound pods of the given specs, some of them in groups, and perhaps a budget."""
        dice = self.dice
        yield from self._groups()
        for number in range(dice.random.randrange(7)):
            made = spec()
            chosen = dice.pick("low", "low", "mid", "high")
            if self.running_groups and dice.one_in(2):
                group, chosen = dice.pick(*self.running_groups)
                made["schedulingGroup"] = {"podGroupName": group}
            made |= {"nodeName": dice.pick(*self.names), "priorityClassName": chosen}
            began = f"2026-01-01T{dice.random.randrange(8, 20):02d}:{number:02d}:00Z"
            status: Obj = {"phase": "Running", "startTime": began}
            if "kubelets" in self.dimensions and dice.one_in(2):
                status |= _resized(
                    made["containers"][0]["name"], dice.pick("1", "2", "4"), dice.pick("Deferred", "Infeasible")
                )
            pod = obj("v1", "Pod", f"{self.prefix}-r{number}", labels=self.labels(), spec=made, status=status)
            self.owned(pod)
            if "namespaces" in self.dimensions and dice.one_in(2) and not {"schedulingGroup", "volumes"} & made.keys():
                pod["metadata"]["namespace"] = OTHERS
            yield pod
        for number in range(dice.pick(0, 0, 0, 1, 2)):
            allowed = {"disruptionsAllowed": dice.pick(0, 1, 1, 2), "currentHealthy": 1, "desiredHealthy": 1}
            rule = {"selector": {"matchLabels": self.labels()}, "minAvailable": 1}
            rule["unhealthyPodEvictionPolicy"] = dice.pick("AlwaysAllow", "IfHealthyBudget")
            yield obj(
                "policy/v1", "PodDisruptionBudget", f"b{number}", spec=rule, status={**allowed, "expectedPods": 1}
            )

    def _groups(self) -> Iterator[Obj]:
        if "gangs" not in self.dimensions:
            return
        for number in range(self.dice.random.randrange(3)):
            name, chosen = f"{self.prefix}-rg{number}", self.dice.pick("low", "mid", "high")
            self.running_groups.append((name, chosen))
            spec: Obj = {"schedulingPolicy": {"gang": {"minCount": self.dice.pick(1, 2)}}, "priorityClassName": chosen}
            spec["disruptionMode"] = self.dice.pick("Pod", "PodGroup")
            yield obj("scheduling.k8s.io/v1alpha2", "PodGroup", name, spec=spec)

    # -- services and controllers -------------------------------------------------------------------------------------

    def services(self) -> Iterator[Obj]:
        """Services and controllers whose selectors may be those of pods, or of none."""
        if "services" not in self.dimensions:
            return
        for number in range(self.dice.pick(0, 1, 1, 2)):
            chosen = self.dice.pick(self.labels(), {"app": "a"}, {"app": "c"}, {})
            spec = {"clusterIP": "None", "ports": [{"port": 80}], **({"selector": chosen} if chosen else {})}
            yield obj("v1", "Service", f"{self.prefix}-svc{number}", spec=spec)
        plain, revised = {"app": "a"}, {"app": "a", "rev": "1"}
        fields = {"replicas": 0, "template": _template(plain)}
        yield obj(
            "v1", "ReplicationController", f"{self.prefix}-replicationcontroller", spec={"selector": plain, **fields}
        )
        for kind in ("ReplicaSet", "StatefulSet"):
            operator = self.dice.pick("Exists", "DoesNotExist")
            rule = {"matchLabels": plain, "matchExpressions": [expression("rev", operator)]}
            fields = {"replicas": 0, "template": _template(revised if operator == "Exists" else plain)}
            fields |= {"serviceName": "x"} if kind == "StatefulSet" else {}
            yield obj("apps/v1", kind, f"{self.prefix}-{kind.lower()}", spec={"selector": rule, **fields})

    def owned(self, pod: Obj) -> None:
        """Perhaps say whose the pod is: any controller's, whatever its labels; or that of one that is gone."""
        if "services" not in self.dimensions or self.dice.one_in(2):
            return
        version, kind = self.dice.pick(
            ("v1", "ReplicationController"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("batch/v1", "Job")
        )
        name = self.dice.pick(*4 * [f"{self.prefix}-{kind.lower()}"], "gone")
        owner = {"apiVersion": version, "kind": kind, "name": name, "uid": name, "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]

    def labels(self) -> dict[str, str]:
        """Labels of a pod."""
        return {"app": self.dice.pick("a", "b"), **self.dice.pick({}, {"rev": "1"}, {"rev": "2"})}

    # -- quotas -------------------------------------------------------------------------------------------------------

    def quotas(self) -> Iterator[Obj]:
        """One or two quotas that a controller has measured: nothing is used yet."""
        if "quotas" not in self.dimensions:
            return
        names: Sequence[str] = (
            "gpu.deviceclass.resource.k8s.io/devices",
            "big.deviceclass.resource.k8s.io/devices",
            f"requests.{GPU}",
            f"requests.{IMPLICIT}",
            "count/resourceclaims.resource.k8s.io",
            "count/pods",
            "pods",
            "requests.cpu",
        )
        for number in range(self.dice.pick(1, 1, 2)):
            hard = {name: self.dice.pick("0", "1", "2", "3", "5") for name in names if self.dice.one_in(3)}
            if not hard:
                continue
            status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
            yield obj("v1", "ResourceQuota", f"{self.prefix}-q{number}", spec={"hard": hard}, status=status)


class ChangeDraw:
    """A random change of what waiting pods wait for."""

    def __init__(self, cluster: ClusterDraw) -> None:
        self.cluster = cluster

    def change(self, world: Sequence[Obj]) -> tuple[str, Obj]:
        """`create`, `delete` or `update`, and the object as it is to be (to be deleted: as it is)."""
        dice = self.cluster.dice
        nodes = [one for one in world if one["kind"] == "Node"]
        bound = [one for one in world if one["kind"] == "Pod" and one["spec"].get("nodeName")]
        slices = [one for one in world if one["kind"] == "ResourceSlice" and one["spec"].get("devices")]
        stale = [one for one in world if one["kind"] == "ResourceClaim" and _is_stale(one, bound)]
        if stale and dice.one_in(2):
            return "update", {**dice.pick(*stale), "status": {}}
        what = dice.pick("node", "node", "label", "label", "taint", "taint", "allocatable", "gone", "pod", "slice")
        if what == "pod" and bound:
            return "delete", dice.pick(*bound)
        if what == "slice" and slices:
            return "delete" if dice.one_in(3) else "update", self._healthy(dice.pick(*slices))
        if what == "node" or not nodes:
            return "create", self.cluster.node()
        chosen = dice.pick(*nodes)
        return ("delete", chosen) if what == "gone" else ("update", self._changed(chosen, what))

    def _changed(self, node: Obj, what: str) -> Obj:
        dice, meta, spec = self.cluster.dice, node["metadata"], node["spec"]
        if what == "label":
            labels = {HOST: meta["name"], **self.cluster.node_labels(dice.pick(0, 1))}
            return {**node, "metadata": {**meta, "labels": labels}}
        if what == "taint":
            return {**node, "spec": {**spec, "taints": self.cluster.taints(), "unschedulable": dice.one_in(8)}}
        room = {**node["status"]["allocatable"], "cpu": dice.pick("2", "4", "8"), "pods": dice.pick("2", "6", "20")}
        return {**node, "status": {**node["status"], "allocatable": room, "capacity": room}}

    def _healthy(self, some: Obj) -> Obj:
        """The slice without taints, with a device more."""
        found = [{key: value for key, value in one.items() if key != "taints"} for one in some["spec"]["devices"]]
        where = self.cluster.place() if some["spec"].get("perDeviceNodeSelection") else {}
        found.append(self.cluster.device(f"e{len(found)}", counted=False) | where)
        return {**some, "spec": {**some["spec"], "devices": found}}


def _template(labels: Obj) -> Obj:
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": IMAGES[0]}]}}


def opaque(name: str) -> Obj:
    """A configuration that a driver is to read."""
    return {"opaque": {"driver": DRIVER, "parameters": {"kind": name}}}


def _is_stale(claim: Obj, bound: Sequence[Obj]) -> bool:
    """Whether a claim is allocated though all its users are gone: its controller would deallocate it."""
    status, there = claim.get("status") or {}, {one["metadata"]["uid"] for one in bound}
    return bool(status.get("allocation")) and all(one["uid"] not in there for one in status.get("reservedFor") or ())


def _in_zone(zone: str) -> Obj:
    return {"nodeSelectorTerms": [{"matchExpressions": [expression(ZONE, "In", zone)]}]}


def _resized(container: str, cpu: str, why: str) -> Obj:
    """The status of a pod whose node has not given it what its spec says by now, or will not."""
    amounts = {"cpu": cpu, "memory": "10Mi"}
    told = {"name": container, "ready": True, "restartCount": 0, "image": IMAGES[0], "imageID": "x"}
    told |= {"allocatedResources": amounts, "resources": {"requests": amounts}}
    pending = {"type": "PodResizePending", "status": "True", "reason": why}
    return {"containerStatuses": [told], "conditions": [pending]}


def selector(dice: Dice, labels: dict[str, str]) -> Obj:
    """A selector of pods."""
    return dice.pick(
        {"matchLabels": labels},
        {"matchExpressions": [expression("app", dice.pick("In", "NotIn"), "a")]},
        {"matchExpressions": [expression("rev", dice.pick("Exists", "DoesNotExist"))]},
        {},
    )
