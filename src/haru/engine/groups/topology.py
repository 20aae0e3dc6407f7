"""Topology of a group: all members on nodes with one value of a label, or none of them anywhere.

Every value of the label is a placement that is tried on its own; the one that takes the most members is kept, the
first by name among equals. Members that run already have settled the matter.
Source: KEP-5732, its required constraint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haru.engine.cluster import Snapshot
from haru.engine.decision import GroupKey, Obj


@dataclass(frozen=True, slots=True)
class Domain:
    """The nodes that have one value of the topology label."""

    key: str
    value: str
    nodes: tuple[str, ...]


def topology_key(group: Obj | None) -> str | None:
    """The label by which a group must stay together, if it must."""
    constraints = ((group or {}).get("spec") or {}).get("schedulingConstraints") or {}
    for constraint in constraints.get("topology") or ():
        return str(constraint["key"])
    return None


def domains(snapshot: Snapshot, key: GroupKey, label: str) -> Sequence[Domain]:
    """The placements of a group, by name; nodes without the label belong to none."""
    members: dict[str, list[str]] = {}
    for name in snapshot.node_names:
        value = snapshot.nodes[name].labels.get(label)
        if value is not None:
            members.setdefault(value, []).append(name)
    settled = {_value(snapshot, path, label) for path in snapshot.group_state(key).scheduled}
    if settled:
        members = {value: nodes for value, nodes in members.items() if settled == {value}}
    return [Domain(label, value, tuple(nodes)) for value, nodes in sorted(members.items())]


def _value(snapshot: Snapshot, path: str, label: str) -> str | None:
    node = snapshot.nodes.get(snapshot.pods[path].node)
    return node.labels.get(label) if node is not None else None


def refused_message(count: int, first: str) -> str:
    """Kubernetes' words for a group that no placement takes."""
    if not count:
        return "0/0 placements are available"
    return f"0/{count} placements are available, first placement status: {first}"
