"""Read a group's topology constraint: all members on nodes with one value of a label, or none anywhere.

Members that already run fix the domain; if they are in different domains, the decision is an error.
Source: KEP-5732, its required constraint; the messages are kube-scheduler 1.36's.
"""

from __future__ import annotations

from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import GroupKey, Obj, Reason


def topology_key(group: Obj | None) -> str | None:
    """Return the label of the group's required topology constraint, if there is one."""
    constraints = ((group or {}).get("spec") or {}).get("schedulingConstraints") or {}
    for constraint in constraints.get("topology") or ():
        return str(constraint["key"])
    return None


def fixed_domain(snapshot: Snapshot, key: GroupKey, label: str) -> str | Reason | None:
    """Return the domain of the placed members, None without any, or the reason why it is unknown."""
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


def no_placement_message(count: int, first: str) -> str:
    """Return Kubernetes' message for a group that no placement takes."""
    if not count:
        return "0/0 placements are available"
    return f"0/{count} placements are available, first placement status: {first}"
