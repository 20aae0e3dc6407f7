"""Objects of resource.k8s.io and scheduling.k8s.io with all that their schemas have: deep places for random changes.

A seed in four is about one of them, in one of the versions that are served, and reads it in the others, too.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from request_parts import Request, Resource
from sample_objects import sample

from haru.kube.conversion import convert
from haru.kube.kinds import by_kind

Obj = dict[str, Any]
_UID = "5d5a0d5c-1c1f-4c6a-9df5-2d8f0c2b1a11"
_RANGE = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}}
_VALUES = {"default": "1", "validValues": ["1", "2", "4"]}
_TERM = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
_TOLERATION = {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}
_SELECTORS = [{"cel": {"expression": "device.driver == 'x.y' && device.attributes['x.y'].a == 'x'"}}]
_OPAQUE = {"driver": "x.y", "parameters": {"apiVersion": "x.y/v1", "kind": "P", "a": [1]}}
_CONDITION: Obj = {
    "type": "Ready", "status": "True", "observedGeneration": 1, "lastTransitionTime": "2026-01-02T03:04:05Z",
    "reason": "R", "message": "m",
}  # fmt: skip
_EVERY: Obj = {
    "name": "d",
    "attributes": {
        "a": {"string": "x"}, "x.y/v": {"version": "1.2.3-a.1+b"}, "i": {"int": 1}, "o": {"bool": True},
        "is": {"ints": [1, 2]}, "os": {"bools": [True]}, "ss": {"strings": ["a", "b"]}, "vs": {"versions": ["1.0.0"]},
    },
    "capacity": {"m": {"value": "16Gi", "requestPolicy": _RANGE}, "x.y/c": {"value": "4", "requestPolicy": _VALUES}},
    "consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "1Gi"}, "c": {"value": "1"}}}],
    "taints": [{"key": "a", "value": "b", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"}],
    "bindsToNode": True, "bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"],
    "allowMultipleAllocations": True,
    "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "x.y/c", "allocationMultiplier": "2"}},
}  # fmt: skip
_POOL = {"name": "p/q", "generation": 2, "resourceSliceCount": 2}
_PLACED: list[Obj] = [{"nodeName": "n1"}, {"allNodes": True}, {"nodeSelector": {"nodeSelectorTerms": [_TERM]}}]
_ASKED: Obj = {
    "deviceClassName": "gpu", "selectors": _SELECTORS, "allocationMode": "ExactCount", "count": 2,
    "tolerations": [_TOLERATION], "capacity": {"requests": {"m": "2Gi", "x.y/c": "1"}},
}  # fmt: skip
_DEVICES = {
    "requests": [
        {"name": "r", "exactly": _ASKED},
        {"name": "f", "firstAvailable": [{"name": "s", **_ASKED}, {
            "name": "t", "deviceClassName": "g", "allocationMode": "All"}]},
        {"name": "m", "exactly": {"deviceClassName": "g", "adminAccess": True}},
    ],
    "constraints": [{"requests": ["r", "f/s"], "matchAttribute": "x.y/z"}, {"distinctAttribute": "x.y/w"}],
    "config": [{"requests": ["r", "f"], "opaque": _OPAQUE}, {"opaque": _OPAQUE}],
}  # fmt: skip
_RESULT = {
    "request": "r", "driver": "x.y", "pool": "p", "device": "d", "tolerations": [_TOLERATION], "shareID": _UID,
    "bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"], "consumedCapacity": {"m": "2Gi"},
}  # fmt: skip
_ALLOCATION = {
    "devices": {
        "results": [_RESULT, {"request": "f/s", "driver": "x.y", "pool": "p", "device": "e"}],
        "config": [{"source": "FromClaim", "requests": ["r"], "opaque": _OPAQUE}, {
            "source": "FromClass", "opaque": _OPAQUE}],
    },
    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]},
    "allocationTimestamp": "2026-01-02T03:04:05Z",
}  # fmt: skip
_CLAIM_STATUS = {
    "allocation": _ALLOCATION,
    "reservedFor": [{"resource": "pods", "name": "a", "uid": "u"}, {
        "apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "v"}],
    "devices": [
        {
            "driver": "x.y", "pool": "p", "device": "d", "shareID": _UID, "conditions": [_CONDITION], "data": {"a": 1},
            "networkData": {"interfaceName": "eth0", "ips": ["10.1.0.1/24"], "hardwareAddress": "00:11:22:33:44:55"},
        },
        {"driver": "x.y", "pool": "p", "device": "e"},
    ],
}  # fmt: skip
_GROUP: Obj = {
    "schedulingPolicy": {"gang": {"minCount": 2}},
    "schedulingConstraints": {"topology": [{"key": "x.y/rack"}]},
    "resourceClaims": [{"name": "c", "resourceClaimName": "a"}, {"name": "t", "resourceClaimTemplateName": "a"}],
    "disruptionMode": "PodGroup",
    "priorityClassName": "system-node-critical",
}
_POOL_STATUS = {
    "driver": "x.y", "poolName": "p", "nodeName": "n1", "totalDevices": 4, "allocatedDevices": 1,
    "availableDevices": 2, "unavailableDevices": 1, "resourceSliceCount": 1, "generation": 1,
}  # fmt: skip
_RESOURCE, _SCHEDULING = "resource.k8s.io/v1", "scheduling.k8s.io/v1alpha2"

FULL: list[Obj] = [
    sample(_RESOURCE, "ResourceSlice", "full", spec={
        "driver": "x.y", "pool": _POOL, "nodeName": "n1", "devices": [_EVERY, {"name": "e"}]}),
    sample(_RESOURCE, "ResourceSlice", "placed", spec={
        "driver": "x.y", "pool": _POOL, "perDeviceNodeSelection": True,
        "devices": [{"name": f"d{number}", **where} for number, where in enumerate(_PLACED)]}),
    sample(_RESOURCE, "ResourceSlice", "counters", spec={
        "driver": "x.y", "pool": _POOL, "nodeSelector": {"nodeSelectorTerms": [_TERM]},
        "sharedCounters": [{"name": "s", "counters": {"m": {"value": "8Gi"}}}, {
            "name": "t", "counters": {"c": {"value": "2"}}}]}),
    sample(_RESOURCE, "ResourceClaim", "full", spec={"devices": _DEVICES}, status=_CLAIM_STATUS),
    sample(_RESOURCE, "ResourceClaim", "plain", status=_CLAIM_STATUS, spec={
        "devices": {"requests": [{"name": "r", "exactly": _ASKED}, {"name": "f", "firstAvailable": [
            {"name": "s", "deviceClassName": "g"}]}]}}),
    sample(_RESOURCE, "ResourceClaimTemplate", "full", spec={
        "metadata": {"labels": {"a": "b"}, "annotations": {"k": "v"}}, "spec": {"devices": _DEVICES}}),
    sample(_RESOURCE, "DeviceClass", "full", spec={
        "selectors": _SELECTORS, "config": [{"opaque": _OPAQUE}], "extendedResourceName": "x.y/gpu"}),
    sample("resource.k8s.io/v1beta2", "DeviceTaintRule", "full", status={"conditions": [_CONDITION]}, spec={
        "deviceSelector": {"driver": "x.y", "pool": "p", "device": "d"},
        "taint": {"key": "a", "value": "b", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"}}),
    sample("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest", "full",
           spec={"driver": "x.y", "poolName": "p", "limit": 5},
           status={"pools": [_POOL_STATUS], "poolCount": 1, "conditions": [_CONDITION | {"type": "Complete"}]}),
    sample(_SCHEDULING, "Workload", "full", spec={
        "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "a"},
        "podGroupTemplates": [{"name": "t", **_GROUP}, {"name": "u", "schedulingPolicy": {"basic": {}}}]}),
    sample(_SCHEDULING, "PodGroup", "full", spec={
        "podGroupTemplateRef": {"workload": {"workloadName": "a", "podGroupTemplateName": "t"}}, **_GROUP},
        status={"conditions": [_CONDITION], "resourceClaimStatuses": [{"name": "t", "resourceClaimName": "a-t-x"}]}),
]  # fmt: skip
_VERSIONS = ("v1", "v1", "v1beta1", "v1beta2")


def in_version(obj: Obj, version: str) -> Obj:
    """The object in another version of its group, where that is served; itself otherwise."""
    group = obj["apiVersion"].partition("/")[0]
    target = by_kind(f"{group}/{version}", obj["kind"])
    return convert(copy.deepcopy(obj), target) if target else obj


_MAPS = ("attributes", "capacity", "counters", "nodeAllocatableResourceMappings", "consumedCapacity")


def _collections(value: Any) -> Iterator[Any]:
    """The lists and maps in a value that have something in them."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, list) and value:
        yield value
    for one in inner:
        yield from _collections(one)
    if isinstance(value, dict):
        yield from (value[name] for name in _MAPS if isinstance(value.get(name), dict) and value[name])


def _renamed(value: Any, number: int) -> Any:
    """A copy of an item that is another one, by its name or itself."""
    if isinstance(value, str):
        return f"{value}{number}"
    made = copy.deepcopy(value)
    for name in ("name", "device", "counterSet", "key"):
        if isinstance(made, dict) and isinstance(made.get(name), str):
            made[name] += str(number)
    return made


class Devices:
    """What a seed has of these objects, drawn from dice of its own."""

    def __init__(self, seed: int, namespace: str, only: str = "") -> None:
        self.dice = random.Random(f"devices {seed}")
        fitting = [one for one in FULL if only in ("", one["kind"])]
        self.resources: list[Resource] = []
        self.labels: dict[str, str] = {}
        """Of the namespace: without it nobody asks for admin access."""
        if not fitting or self.dice.random() > (0.8 if only else 0.25):
            return
        given = in_version(self.dice.choice(fitting), self.dice.choice(_VERSIONS))
        given["metadata"].pop("finalizers", None)
        of = Resource(given, namespace)
        if not of.is_namespaced:
            of.sample["metadata"]["name"] = f"{of.name}-{seed}"
        self.resources = [of] * 3
        if self.dice.random() < 0.5:
            self.labels = {"resource.kubernetes.io/admin-access": "true"}

    def status(self, obj: Obj) -> Any:
        """The status of its sample, half of the time; None otherwise."""
        fitting = [one.sample.get("status") for one in self.resources if one.sample["kind"] == obj.get("kind")]
        return copy.deepcopy(fitting[0]) if fitting and self.dice.random() < 0.5 else None

    def crowded(self, request: Request) -> Request:
        """The request, seldom with a list or map of its object that has about as many members as it may have."""
        of, body = [one.sample["kind"] for one in self.resources], request.body
        if not isinstance(body, dict) or body.get("kind") not in of or self.dice.random() > 0.12:
            return request
        made = copy.deepcopy(body)
        spec = {name: made[name] for name in ("spec", "status") if isinstance(made.get(name), dict)}
        found = list(_collections(spec))
        if not found:
            return request
        chosen, count = self.dice.choice(found), self.dice.choice([4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 257])
        if isinstance(chosen, list):
            chosen += [_renamed(chosen[0], number) for number in range(count - len(chosen))]
        else:
            first = next(iter(chosen.values()))
            chosen |= {f"k{number}": copy.deepcopy(first) for number in range(count - len(chosen))}
        return replace(request, body=made)

    def in_another_version(self, request: Request) -> Request | None:
        """The same object as another version shows it, sometimes."""
        if request.method != "GET" or "resource.k8s.io/v1" not in request.path or self.dice.random() > 0.5:
            return None
        version = self.dice.choice(_VERSIONS[1:])
        head, _, rest = request.path.partition("resource.k8s.io/")
        return Request(
            "GET", f"{head}resource.k8s.io/{version}/{rest.partition('/')[2]}", request.query, request.headers, None,
            request.resource,
        )  # fmt: skip
