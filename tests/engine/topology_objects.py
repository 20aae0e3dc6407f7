"""Racks of nodes for topology scenarios: with cpu, with devices, in use or not."""

from __future__ import annotations

from typing import Any

from engine_objects import (
    Obj,
    allocated,
    allocation,
    claim,
    member_with_claim,
    node,
    pod,
    pod_group,
    resource_slice,
)

from haru.engine.state.decision import Decision

RACK = "topology.kubernetes.io/rack"


def constraint(key: str = RACK) -> Obj:
    return {"topology": [{"key": key}]}


def rack(name: str | None, nodes: int, cpu: str = "4", devices: int = 0, **spec: Any) -> list[Obj]:
    """Nodes `<rack>-<i>`; None is for nodes without the label."""
    prefix = "loose" if name is None else name or "empty"
    found: list[Obj] = []
    for i in range(nodes):
        labels = {} if name is None else {RACK: name}
        found.append(node(f"{prefix}-{i}", cpu=cpu, labels=labels, **spec))
        if devices:
            found.append(resource_slice(f"{prefix}-{i}", devices))
    return found


def gang(name: str, size: int, min_count: int | None = -1, cpu: str = "1", key: str = RACK, **spec: Any) -> list[Obj]:
    """A group with a topology constraint; `min_count` is its size unless given, None for the basic policy."""
    group = pod_group(name, size if min_count == -1 else min_count, schedulingConstraints=constraint(key))
    return [group, *(pod(f"{name}-{i}", cpu=cpu, group=name, **spec) for i in range(size))]


def gpu_gang(name: str, size: int, count: int = 1, min_count: int | None = -1, **kwargs: Any) -> list[Obj]:
    """The same with a claim of its own for each member."""
    group = pod_group(name, size if min_count == -1 else min_count, schedulingConstraints=constraint())
    return [group, *(o for i in range(size) for o in member_with_claim(f"{name}-{i}", name, count, **kwargs))]


def runs(name: str, where: str, cpu: str = "1", **spec: Any) -> Obj:
    """A running pod."""
    return pod(name, cpu=cpu, node=where, **spec)


def holds(where: str, *devices: str, cpu: str = "0") -> list[Obj]:
    """A running pod that has devices of its node."""
    user = pod(f"user-{where}", cpu=cpu, node=where, claims=[f"held-{where}"])
    return [user, allocated(claim(f"held-{where}", len(devices)), allocation(where, *devices), user)]


def extended(objects: list[Obj], resource: str, amount: str) -> list[Obj]:
    """The same nodes, which advertise an extended resource too."""
    for obj in objects:
        if obj["kind"] == "Node":
            obj["status"]["allocatable"][resource] = amount
    return objects


def rack_of(name: str) -> str:
    return name.rpartition("-")[0]


def racks_of(decision: Decision) -> set[str]:
    """The racks in which members are placed."""
    return {rack_of(member.node or "") for member in decision.placed}
