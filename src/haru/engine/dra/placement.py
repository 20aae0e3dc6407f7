"""Where slices and devices can be used: matching a placement against one node, and the node selector of a result.

Source: KEP-4381 (node selection of slices), KEP-4815 (per-device node selection), KEP-5007 (`bindsToNode`).
"""

from __future__ import annotations

from collections.abc import Iterable

from haru.engine.dra.errors import AllocationError
from haru.engine.dra.model.model import Device, NodeView, Placement, Slice
from haru.kube.meta import Obj
from haru.kube.selectors import node_selector_matches

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def matches_node(placement: Placement, node: NodeView) -> bool:
    """Whether something placed so can be used on the node. AllocationError if its selector cannot be understood."""
    if placement.node_name:
        return placement.node_name == node.name
    if placement.all_nodes:
        return True
    if placement.selector is None:
        return False
    _check(placement.selector)
    return node_selector_matches(placement.selector, node.name, node.labels)


def usable_on(device: Device, node: NodeView) -> bool:
    """Tell whether a device can be used on the node, as far as it says so itself. Raises AllocationError."""
    return device.placement is None or matches_node(device.placement, node)


def _check(selector: Obj) -> None:
    for term in selector.get("nodeSelectorTerms") or ():
        for requirement in (*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ())):
            if requirement.get("operator") not in _OPERATORS:
                operator = requirement.get("operator")
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
            return only_on(node)
        if placement.selector is not None:
            terms = placement.selector.get("nodeSelectorTerms") or []
            if len(terms) != 1:
                raise AllocationError(f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms")
            for member, requirements in merged.items():
                for requirement in terms[0].get(member) or ():
                    if not any(_same(requirement, known) for known in requirements):
                        requirements.append(_copy(requirement))
    term = {member: requirements for member, requirements in merged.items() if requirements}
    return {"nodeSelectorTerms": [term]} if term else None


def _copy(requirement: Obj) -> Obj:
    return {key: list(value) if isinstance(value, list) else value for key, value in requirement.items()}


def only_on(node: NodeView) -> Obj:
    """The node selector of an allocation that can be used on one node."""
    return {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}]}


def _same(left: Obj, right: Obj) -> bool:
    return (left.get("key"), left.get("operator"), set(left.get("values") or ())) == (
        right.get("key"),
        right.get("operator"),
        set(right.get("values") or ()),
    )
