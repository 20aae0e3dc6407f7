"""Topology of a group: all members on nodes with one value of a label, or none of them anywhere.

Members that run already have settled the matter; where they contradict each other nothing can be decided.
Source: KEP-5732, its required constraint; the messages are kube-scheduler 1.36's.
"""

from __future__ import annotations

from haru.engine.cluster import Snapshot
from haru.engine.decision import GroupKey, Obj, Reason


def topology_key(group: Obj | None) -> str | None:
    """The label by which a group must stay together, if it must."""
    constraints = ((group or {}).get("spec") or {}).get("schedulingConstraints") or {}
    for constraint in constraints.get("topology") or ():
        return str(constraint["key"])
    return None


def settled_domain(snapshot: Snapshot, key: GroupKey, label: str) -> str | Reason | None:
    """The domain that the members with a place are in; None if there are none; why it cannot be told."""
    found: dict[str, str] = {}
    for path in sorted(snapshot.group_state(key).scheduled):
        name = snapshot.pods[path].node
        node = snapshot.nodes.get(name)
        if node is None or not node.present:
            text = f'getting node for pod {path}: nodeinfo not found for node name "{name}"'
            return Reason("TopologyDomain", text, {"topologyKey": label, "pod": path, "node": name})
        value = node.labels.get(label)
        if value is None:
            text = f"no topology domain found for pod {path}"
            return Reason("TopologyDomain", text, {"topologyKey": label, "pod": path, "node": name})
        found.setdefault(value, path)
    if len(found) > 1:
        text = f"more than 1 domain found for pod group: {', '.join(sorted(found))}"
        return Reason("TopologyDomain", text, {"topologyKey": label, "domains": sorted(found)})
    return next(iter(found), None)


def refused_message(count: int, first: str) -> str:
    """Kubernetes' words for a group that no placement takes."""
    if not count:
        return "0/0 placements are available"
    return f"0/{count} placements are available, first placement status: {first}"
