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


@dataclass
class Scenario:
    """Objects, and what becomes of the devices: by pool and name, a word for each time that it is allocated."""

    seed: int
    objects: list[Obj] = field(default_factory=list)
    units: list[Obj] = field(default_factory=list)
    """What is made once the cluster is there: claims, groups and pods, in this order."""
    stories: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    ended: str = ""
    """A pod that is deleted while its devices are attached."""

    @property
    def prefix(self) -> str:
        """What its names begin with."""
        return f"b{self.seed}"

    @property
    def pods(self) -> list[str]:
        """The names of its pods."""
        return [one["metadata"]["name"] for one in self.units if one["kind"] == "Pod"]

    @property
    def is_gang(self) -> bool:
        """Whether its pods are a gang."""
        return any(one["kind"] == "PodGroup" for one in self.units)

    @property
    def races(self) -> bool:
        """Whether pods with claims of their own look for devices that another one's failure frees for a moment."""
        return not self.is_gang and sum(one["kind"] == "ResourceClaim" for one in self.units) > 1

    def owns(self, name: str) -> bool:
        """Whether an object of this name is one of its own."""
        return name.startswith(f"{self.prefix}-")


def classes() -> list[Obj]:
    """The device class of all scenarios."""
    (made,) = device_class("attachable")
    assert isinstance(made, dict)
    made["spec"]["extendedResourceName"] = ATTACHABLE
    return [made]


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
        self._unit()
        if self._dice.one_in(8):
            self.made.ended = self._dice.pick(*self.made.pods)

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
        kind = dice.pick("claim", "claim", "claim", "shared", "extended", "gang", "several")
        if kind == "gang":
            policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
            self.made.units.append(obj("scheduling.k8s.io/v1alpha2", "PodGroup", f"{prefix}-g", spec=policy))
        if kind == "shared":
            self._claim(f"{prefix}-c")
        for number in range(1 if kind in ("claim", "extended") else 2):
            name = f"{prefix}-p{number}"
            spec: Obj = {"nodeSelector": {SCENARIO: prefix}, "terminationGracePeriodSeconds": 0}
            spec["affinity"] = {"nodeAffinity": _first(f"{prefix}-n0")}
            amounts: Obj = {"cpu": "1"}
            if kind == "extended":
                amounts[ATTACHABLE] = dice.pick("1", "1", "2")
            else:
                claim = f"{prefix}-c" if kind == "shared" else f"{prefix}-c{number}"
                spec["resourceClaims"] = [{"name": "c", "resourceClaimName": claim}]
                if kind != "shared":
                    self._claim(claim)
            resources = {"requests": amounts, "limits": amounts}
            spec["containers"] = [{"name": "main", "image": "registry.example.com/work:1", "resources": resources}]
            if kind == "gang":
                spec["schedulingGroup"] = {"podGroupName": f"{prefix}-g"}
            self.made.units.append(obj("v1", "Pod", name, spec=spec))

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
