"""Random devices that are attached on demand, pods that need them, and the controller that attaches them or fails to.

For `bindings_compared`. A seed makes the same scenario again; scenarios share a cluster, but no node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from manifests import HOST, Obj, claim_spec, device, device_class, exactly, expression, node, obj, slice_of
from random_clusters import Dice

SCENARIO = "example.com/scenario"
ATTACHABLE = "example.com/attachable"
"""An extended resource that stands for any of these devices."""
STORIES: tuple[tuple[str, ...], ...] = (
    *(("true",), ("late",), ("failed",), ("failed", "true"), ("tainted",), ("never",), ("never", "true"), ("false",)),
    *(("half", "true"), ("late failure", "true"), ("both", "true"), ("failed", "failed", "true"), ("gone",)),
)
"""What becomes of a device each time it is allocated; the last word is for all times that follow.

`tainted`: it fails, and its driver taints it. `gone`: it fails, and its driver publishes it no longer. `half`: only one
of its conditions is true. `both`: so is one of those that say that it failed.
"""
LATE_SECONDS = 2.0
MOMENTS = (0.3, 1.0, 3.0)
"""Seconds after the units are there: while they are decided, while their devices are attached, or later."""
VOLUMES = ("true", "true", "late", "never", "refused", "refused once")
"""What becomes of a volume that is to be made for a pod; `refused`: its driver asks for another node."""


@dataclass(frozen=True)
class Act:
    """What somebody else does to the cluster: `create`, `delete`, or `force` (a deletion without grace)."""

    at: float
    verb: str
    objects: tuple[Obj, ...]


@dataclass
class Scenario:
    """Objects, and what becomes of the devices: by pool and name, a word for each time that it is allocated."""

    seed: int
    objects: list[Obj] = field(default_factory=list)
    units: list[Obj] = field(default_factory=list)
    """What is made once the cluster is there: claims, groups and pods, in this order."""
    stories: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    acts: list[Act] = field(default_factory=list)
    volumes: str = ""
    """What becomes of the volumes that are made for its pods."""
    evicts: bool = False
    """Whether its later pods need the places of the earlier ones."""

    @property
    def ended(self) -> str:
        """The pod that is deleted while its devices are attached."""
        gone = (one for act in self.acts if act.verb != "create" for one in act.objects if one["kind"] == "Pod")
        return next((one["metadata"]["name"] for one in gone), "")

    @property
    def is_disturbed(self) -> bool:
        """Whether somebody deletes what a pod needs while it is being bound."""
        gone = (one for act in self.acts if act.verb != "create" for one in act.objects)
        return any(one["kind"] != "Pod" for one in gone)

    @property
    def prefix(self) -> str:
        """What its names begin with."""
        return f"b{self.seed}"

    @property
    def is_gang(self) -> bool:
        """Whether its pods are a gang."""
        return any(one["kind"] == "PodGroup" for one in self.units) and not self.evicts

    @property
    def fails(self) -> bool:
        """Whether any device, or volume, is not attached at last."""
        stories = {word for story in self.stories.values() for word in story}
        deleted = any(act.verb != "create" for act in self.acts)
        return not stories <= {"true", "late"} or self.volumes not in ("", "true", "late") or deleted

    @property
    def races(self) -> bool:
        """Whether pods with claims of their own look for devices that another one's failure frees for a moment."""
        return not self.is_gang and sum(one["kind"] == "ResourceClaim" for one in self.units) > 1

    def told(self) -> str:
        """The scenario in a line."""
        acts = [f"{a.verb} {', '.join(one['metadata']['name'] for one in a.objects)} at {a.at}" for a in self.acts]
        return "; ".join([str(self.stories), *acts, *([f"volumes {self.volumes}"] if self.volumes else [])])

    def owns(self, name: str) -> bool:
        """Whether an object of this name is one of its own."""
        return name.startswith(f"{self.prefix}-")


_OWN = {
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": "made",
    "resources": {"requests": {"storage": "1Gi"}},
}
_BUDGET = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}


def classes() -> list[Obj]:
    """The classes of all scenarios: of devices, and of volumes that are made for a node."""
    (made,) = device_class("attachable")
    assert isinstance(made, dict)
    made["spec"]["extendedResourceName"] = ATTACHABLE
    late = {"provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    return [made, obj("storage.k8s.io/v1", "StorageClass", "made", **late)]


def scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    return _Draw(seed).made


class _Draw:
    def __init__(self, seed: int) -> None:
        self.made = Scenario(seed)
        self._dice = Dice(Random(seed))
        names = [f"{self.made.prefix}-n{number}" for number in range(self._dice.pick(1, 1, 2))]
        for name in names:
            self.made.objects += self._node(name)
        if self._dice.one_in(4):
            self._crowd()
            return
        if self._dice.one_in(5):
            self._grow()
            return
        self._unit()
        if self._dice.one_in(4) and not self.made.volumes:
            self._disturb()

    def _disturb(self) -> None:
        """Delete a pod by force, or a claim or node, while a pod is being bound."""
        dice = self._dice
        found = [
            one for one in (*self.made.units, *self.made.objects) if one["kind"] in ("Pod", "ResourceClaim", "Node")
        ]
        chosen = dice.pick(*[one for one in found if one["kind"] == dice.pick("Pod", "Pod", one["kind"])] or found)
        self.made.acts.append(Act(dice.pick(*MOMENTS), "force" if chosen["kind"] == "Pod" else "delete", (chosen,)))

    def _node(self, name: str) -> Iterator[Obj]:
        (made,) = node(name, 8, {SCENARIO: self.made.prefix, HOST: name})
        assert isinstance(made, dict)
        yield made
        found = [self._device(name, f"d{number}") for number in range(self._dice.pick(2, 3))]
        (pool,) = slice_of(name, found, "p", nodeName=name)
        assert isinstance(pool, dict)
        yield pool

    def _device(self, where: str, name: str) -> Obj:
        dice, more = self._dice, dict[str, Any]()
        if not dice.one_in(4):
            more["bindingConditions"] = dice.pick(["attached"], ["attached"], ["attached", "configured"])
            more["bindingFailureConditions"] = dice.pick(["failed"], ["failed", "lost"])
            more |= {"bindsToNode": True} if dice.one_in(2) else {}
            self.made.stories[f"{where}-p", name] = dice.pick(*STORIES)
        if dice.one_in(4):
            more |= {"allowMultipleAllocations": True, "capacity": {"memory": "4"}}
        return device(name, **more)

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _unit(self) -> None:
        dice, prefix = self._dice, self.made.prefix
        kind = dice.pick("claim", "claim", "claim", "shared", "extended", "gang", "gang", "several", "volume")
        if kind == "volume":
            self.made.volumes = dice.pick(*VOLUMES)
        if kind == "gang":
            policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
            self.made.units.append(obj("scheduling.k8s.io/v1alpha2", "PodGroup", f"{prefix}-g", spec=policy))
        if kind == "shared":
            self._claim(f"{prefix}-c")
        for number in range(1 if kind in ("claim", "extended", "volume") else 2):
            amounts: Obj = {"cpu": "1"}
            if kind == "extended":
                amounts[ATTACHABLE] = dice.pick("1", "1", "2")
            pod = self._pod(f"{prefix}-p{number}", amounts)
            spec = pod["spec"]
            if kind != "extended" and (kind != "volume" or dice.one_in(2)):
                claim = f"{prefix}-c" if kind == "shared" else f"{prefix}-c{number}"
                spec["resourceClaims"] = [{"name": "c", "resourceClaimName": claim}]
                if kind != "shared":
                    self._claim(claim)
            if kind == "volume":
                spec["volumes"] = [{"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": _OWN}}}]
            if kind == "gang":
                spec["schedulingGroup"] = {"podGroupName": f"{prefix}-g"}
            self.made.units.append(pod)

    def _pod(self, name: str, amounts: Obj, chosen: str = "low", grace: int = 0) -> Obj:
        """A pod for the scenario's nodes."""
        resources = {"requests": amounts, "limits": amounts}
        spec: Obj = {"nodeSelector": {SCENARIO: self.made.prefix}, "terminationGracePeriodSeconds": grace}
        spec["affinity"] = {"nodeAffinity": _first(f"{self.made.prefix}-n0")}
        spec["containers"] = [{"name": "main", "image": "registry.example.com/work:1", "resources": resources}]
        return obj("v1", "Pod", name, spec={**spec, "priorityClassName": chosen})

    # -- gangs that wait ----------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        """A gang that lacks a member or devices, until a pod or a node comes."""
        dice, prefix, made = self._dice, self.made.prefix, self.made
        made.stories.clear()
        made.objects = list(self._plain_node(f"{prefix}-n0", dice.pick(1, 2, 3)))
        count = dice.pick(2, 2, 3)
        policy = dice.pick({"gang": {"minCount": count}}, {"gang": {"minCount": count}}, {"basic": {}})
        made.units.append(
            obj("scheduling.k8s.io/v1alpha2", "PodGroup", f"{prefix}-g", spec={"schedulingPolicy": policy})
        )
        pods, cpu = [], dice.pick("1", "1", "5")
        for number in range(count):
            claim = claim_spec(exactly("r", "attachable"))
            made.units.append(obj("resource.k8s.io/v1", "ResourceClaim", f"{prefix}-c{number}", spec=claim))
            pods.append(self._pod(f"{prefix}-p{number}", {"cpu": cpu}))
            pods[-1]["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": f"{prefix}-c{number}"}]
            pods[-1]["spec"]["schedulingGroup"] = {"podGroupName": f"{prefix}-g"}
        late = pods.pop() if dice.one_in(2) else None
        made.units += pods
        if late is not None:
            made.acts.append(Act(3.0, "create", (late,)))
        if dice.one_in(2):
            made.acts.append(Act(6.0, "create", tuple(self._plain_node(f"{prefix}-n1", 3))))

    def _plain_node(self, name: str, count: int) -> Iterator[Obj]:
        """A node with devices that need not be attached."""
        (made,) = node(name, 8, {SCENARIO: self.made.prefix, HOST: name})
        (pool,) = slice_of(name, [device(f"d{number}") for number in range(count)], "p", nodeName=name)
        assert isinstance(made, dict) and isinstance(pool, dict)
        yield made
        yield pool

    # -- evictions ----------------------------------------------------------------------------------------------------

    def _crowd(self) -> None:
        """Pods that fill the one node, some of them a group, and later a pod or gang that is more important."""
        dice, prefix, made = self._dice, self.made.prefix, self.made
        made.evicts = True
        made.objects = list(self._node(f"{prefix}-n0"))
        grouped, gang = dice.one_in(3), dice.one_in(3)
        if grouped:
            policy = dice.pick({"gang": {"minCount": dice.pick(1, 2)}}, {"basic": {}})
            mode = dice.pick("Pod", "PodGroup") if gang else "Pod"  # Haru keeps to it for a single pod, too
            spec = {"schedulingPolicy": policy, "disruptionMode": mode, "priorityClassName": "low"}
            made.units.append(obj("scheduling.k8s.io/v1alpha2", "PodGroup", f"{prefix}-v", spec=spec))
        for number, cpu in enumerate(dice.pick(("4", "4"), ("2", "3", "3"), ("3", "5"), ("8",))):
            pod = self._pod(
                f"{prefix}-r{number}", {"cpu": cpu}, "low" if grouped else dice.pick("low", "low", "mid"), 30
            )
            pod["metadata"]["labels"] = {"app": dice.pick("a", "b"), SCENARIO: prefix}
            if grouped:
                pod["spec"]["schedulingGroup"] = {"podGroupName": f"{prefix}-v"}
            made.units.append(pod)
        if dice.one_in(3):
            rule = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a", SCENARIO: prefix}}}
            made.objects.append(obj("policy/v1", "PodDisruptionBudget", f"{prefix}-b", spec=rule, status=_BUDGET))
        chosen, later = dice.pick("high", "high", "high", "mid", "polite"), list[Obj]()
        size = dice.pick(1, 1, 1, 2)
        if gang:
            policy = {"gang": {"minCount": size}}
            spec = {"schedulingPolicy": policy, "priorityClassName": chosen}
            later.append(obj("scheduling.k8s.io/v1alpha2", "PodGroup", f"{prefix}-g", spec=spec))
        for number in range(size if later else 1):
            pod = self._pod(f"{prefix}-p{number}", {"cpu": dice.pick("2", "3", "4", "7", "9")}, chosen)
            if later:
                pod["spec"]["schedulingGroup"] = {"podGroupName": f"{prefix}-g"}
            later.append(pod)
        made.acts.append(Act(4.0, "create", tuple(later)))

    def _claim(self, name: str) -> None:
        dice, more = self._dice, dict[str, Any]()
        if dice.one_in(4):
            more["capacity"] = {"requests": {"memory": dice.pick("1", "2")}}
        if dice.one_in(4):
            more["tolerations"] = [{"operator": "Exists"}]
        requests = [exactly("r", "attachable", count=dice.pick(1, 1, 2), **more)]
        self.made.units.append(obj("resource.k8s.io/v1", "ResourceClaim", name, spec=claim_spec(*requests)))


def _first(name: str) -> Obj:
    """A preference for a node: schedulers draw among equal ones."""
    here = {"matchExpressions": [expression(HOST, "In", name)]}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": here}]}


def conditions(word: str, result: Obj) -> Sequence[tuple[str, str]]:
    """The conditions, each with its status, that a controller writes of an allocated device."""
    wanted, failing = result["bindingConditions"], result["bindingFailureConditions"]
    if word == "never":
        return ()
    if word == "half":
        return [(wanted[0], "True")] if len(wanted) > 1 else ()
    if word == "false":
        return [(name, "False") for name in wanted]
    if word in ("true", "late"):
        return [(name, "True") for name in wanted]
    if word == "both":
        return [(name, "True") for name in (*wanted, failing[-1])]
    return [(failing[-1], "True")]


def without_device(pool: Obj, name: str, word: str) -> Obj:
    """The slice after a device has failed: it is tainted, or gone."""
    broken = {"taints": [{"key": "broken", "effect": "NoSchedule"}]}
    kept = [one for one in pool["spec"]["devices"] if word != "gone" or one["name"] != name]
    found = [one | broken if word == "tainted" and one["name"] == name else one for one in kept]
    return {**pool, "spec": {**pool["spec"], "devices": found}}
