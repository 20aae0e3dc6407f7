"""Small objects for scenarios: as a person would write them, defaults filled in."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import Any

from haru.engine import Options
from haru.engine.framework import PreemptionOptions, SchedulerGates, SearchBudgets
from haru.engine.podgroup import decide
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision

Obj = dict[str, Any]
DRIVER = "gpu.example.com"


def node(name: str, cpu: str = "8", labels: Obj | None = None, taints: list[Obj] | None = None, **spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": taints or [], **spec},
        "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"}},
    }


def pod(
    name: str, cpu: str = "1", group: str = "", node: str = "", claims: list[Any] | None = None, **spec: Any
) -> Obj:
    """`claims`: names of claims, or (entry, template, generated claim)."""
    obj: Obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": name}},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
            **spec,
        },
        "status": {"phase": "Running" if node else "Pending"},
    }
    if group:
        obj["spec"]["schedulingGroup"] = {"podGroupName": group}
    if node:
        obj["spec"]["nodeName"] = node
    for entry in claims or ():
        if isinstance(entry, str):
            obj["spec"].setdefault("resourceClaims", []).append({"name": entry, "resourceClaimName": entry})
        else:
            name_, template, generated = entry
            obj["spec"].setdefault("resourceClaims", []).append({"name": name_, "resourceClaimTemplateName": template})
            if generated:
                obj["status"].setdefault("resourceClaimStatuses", []).append(
                    {"name": name_, "resourceClaimName": generated}
                )
    return obj


def pod_group(name: str, min_count: int | None, claims: list[Obj] | None = None, **spec: Any) -> Obj:
    policy: Obj = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-group-{name}"},
        "spec": {"schedulingPolicy": policy, "resourceClaims": claims or [], **spec},
    }


def device_class(name: str = "gpu", expressions: list[str] | None = None, **spec: Any) -> Obj:
    selectors = [{"cel": {"expression": e}} for e in expressions or ()]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def resource_slice(node: str, devices: int | list[Obj], pool: str = "", **spec: Any) -> Obj:
    """Devices on one node, or (with `nodeSelector`, `allNodes` in `spec`) elsewhere."""
    if isinstance(devices, int):
        devices = [{"name": f"gpu-{i}"} for i in range(devices)]
    pool = pool or node
    body: Obj = {
        "driver": DRIVER,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
        **spec,
    }
    if node and not {"nodeSelector", "allNodes", "perDeviceNodeSelection"} & spec.keys():
        body["nodeName"] = node
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-{pool}"},
        "spec": body,
    }


def claim(
    name: str, count: int = 1, owner: Obj | None = None, requests: list[Obj] | None = None, **devices: Any
) -> Obj:
    if requests is None:
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
        requests = [{"name": "gpu", "exactly": exactly}]
    meta: Obj = {"name": name, "namespace": "default", "uid": f"uid-claim-{name}", "resourceVersion": "1"}
    if owner is not None:
        reference = {"kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        meta["ownerReferences"] = [{"apiVersion": owner["apiVersion"], "controller": True, **reference}]
    spec = {"devices": {"requests": requests, **devices}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta, "spec": spec}


def allocation(node: str, *devices: str, pool: str = "") -> Obj:
    results = [{"request": "gpu", "driver": DRIVER, "pool": pool or node, "device": d} for d in devices]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}


def allocated(obj: Obj, to: Obj, *users: Obj) -> Obj:
    reserved = [{"resource": "pods", "name": u["metadata"]["name"], "uid": u["metadata"]["uid"]} for u in users]
    return {**obj, "status": {"allocation": to, "reservedFor": reserved}}


def member_with_claim(name: str, group: str, count: int = 1, node: str = "", **kwargs: Any) -> list[Obj]:
    """A pod with a claim of its own, made from a template."""
    member = pod(name, group=group, node=node, claims=[("gpu", "tmpl", f"{name}-gpu")], **kwargs)
    return [member, claim(f"{name}-gpu", count, owner=member)]


SECTIONS = {"gates": SchedulerGates, "budgets": SearchBudgets, "preemption": PreemptionOptions}


def options(**kwargs: Any) -> Options:
    """Options with seed 1 and numbered shares; gates, budgets and preemption by the names of their fields."""
    numbers = itertools.count(1)
    given: dict[str, Any] = {"seed": 1, "new_share_id": lambda: f"share-{next(numbers)}", **kwargs}
    for name, section in SECTIONS.items():
        own = {field.name: given.pop(field.name) for field in fields(section) if field.name in given}
        if own:
            given[name] = section(**own)
    return Options(**given)


def decide_all(objects: list[Obj], group: str = "", only: list[Obj] | None = None, **kwargs: Any) -> Decision:
    """Decide the pods of a group (or those without one, as one basic unit), or only some pods."""
    snapshot = SchedulerCache.of(objects).snapshot()
    pods = only or [
        o
        for o in objects
        if o["kind"] == "Pod" and (o["spec"].get("schedulingGroup") or {}).get("podGroupName", "") == group
    ]
    named = snapshot.pod_groups.get(f"default/{group}") if group else None
    return decide(snapshot, pods, group=named, options=options(**kwargs))
