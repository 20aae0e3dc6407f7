"""Where slices and devices can be used: matching a placement against one node, and the node selector of a result.

Source: KEP-4381 (node selection of slices), KEP-4815 (per-device node selection), KEP-5007 (`bindsToNode`).
"""

from __future__ import annotations

from collections.abc import Iterable

from haru.engine.devices.errors import AllocationError
from haru.engine.devices.model import Device, NodeView, Obj, Placement, Slice


def matches_node(placement: Placement, node: NodeView) -> bool:
    """Whether something placed so can be used on the node."""
    if placement.node_name:
        return placement.node_name == node.name
    if placement.all_nodes:
        return True
    if placement.selector is None:
        return False
    return any(_term_matches(term, node) for term in placement.selector.get("nodeSelectorTerms") or ())


def _term_matches(term: Obj, node: NodeView) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_holds(e, node.labels.get(e.get("key", ""))) for e in expressions) and all(
        _holds(f, node.name if f.get("key") == "metadata.name" else None) for f in fields
    )


def _holds(requirement: Obj, actual: str | None) -> bool:
    operator, values = requirement.get("operator"), requirement.get("values") or []
    if operator == "In":
        return actual is not None and actual in values
    if operator == "NotIn":
        return actual is None or actual not in values
    if operator == "Exists":
        return actual is not None
    if operator == "DoesNotExist":
        return actual is None
    if operator in ("Gt", "Lt") and len(values) == 1:
        try:
            left, right = int(actual or ""), int(values[0])
        except ValueError:
            return False
        return left > right if operator == "Gt" else left < right
    raise AllocationError(f"invalid node selector: {operator!r} is not a valid node selector operator")


def relevant(item: Slice, node: NodeView, partitionable: bool) -> bool:
    """Whether a slice has to be looked at for the node. Slices with counters concern every node."""
    if not partitionable and (item.per_device or item.counter_sets):
        return False
    if item.counter_sets:
        return True
    if item.per_device:
        return any(d.placement is not None and matches_node(d.placement, node) for d in item.devices)
    return matches_node(item.placement, node)


def result_selector(chosen: Iterable[tuple[Slice, Device]], node: NodeView) -> Obj | None:
    """The node selector of an allocation: where all of its devices can be used; None means everywhere."""
    merged: dict[str, list[Obj]] = {"matchFields": [], "matchExpressions": []}
    for item, device in chosen:
        placement = device.placement if device.placement is not None else item.placement
        if placement.node_name or (device.binding is not None and device.binding.binds_to_node):
            return {"nodeSelectorTerms": [{"matchFields": [_requirement(node.name)]}]}
        if placement.selector is not None:
            terms = placement.selector.get("nodeSelectorTerms") or []
            if len(terms) != 1:
                raise AllocationError(f"unsupported number of node selector terms: {len(terms)}; there must be one")
            for member, requirements in merged.items():
                for requirement in terms[0].get(member) or ():
                    if not any(_same(requirement, known) for known in requirements):
                        requirements.append(requirement)
    term = {member: requirements for member, requirements in merged.items() if requirements}
    return {"nodeSelectorTerms": [term]} if term else None


def _requirement(name: str) -> Obj:
    return {"key": "metadata.name", "operator": "In", "values": [name]}


def _same(left: Obj, right: Obj) -> bool:
    return (left.get("key"), left.get("operator"), set(left.get("values") or ())) == (
        right.get("key"),
        right.get("operator"),
        set(right.get("values") or ()),
    )
