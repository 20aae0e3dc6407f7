"""Tell whether two partitions share devices, from what they say and from what is published. Pure.

Two partitions are apart if no node, no pool, no driver or no device class can be in both. Devices decide: schedulers
that share nodes but no devices may run side by side, and the kubelets refuse what does not fit.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Iterator

from haru.engine import Snapshot
from haru.engine.dra import DeviceId, Pool, Selection, compiled_selector_of
from haru.engine.state import Partition
from haru.kube.selectors import LabelSelector, Requirement


def partitions_overlap(one: Partition, other: Partition) -> bool:
    """Tell whether, by what they say, a device may be in both."""
    named = ((one.pools, other.pools), (one.drivers, other.drivers), (one.device_classes, other.device_classes))
    if any(left and right and left.isdisjoint(right) for left, right in named):
        return False
    return nodes_overlap(one, other)


def nodes_overlap(one: Partition, other: Partition) -> bool:
    """Tell whether a node may be in both. A taint tells nodes apart only from one with another value."""
    if _contradict(one.node_selector, other.node_selector):
        return False
    left, right = one.node_taint, other.node_taint
    if left is None or right is None or left.key != right.key:
        return True
    # A node has one taint of a key and an effect.
    return not (left.value and right.value and left.value != right.value and left.effect == right.effect != "")


def _contradict(one: LabelSelector, other: LabelSelector) -> bool:
    """Tell whether no labels can match both."""
    if one.nothing or other.nothing:
        return True
    by_key: dict[str, list[Requirement]] = {}
    for requirement in (*one.requirements, *other.requirements):
        by_key.setdefault(requirement.key, []).append(requirement)
    return any(map(_is_impossible, by_key.values()))


def _is_impossible(requirements: list[Requirement]) -> bool:
    """Tell whether no value of one label meets all requirements; bounds are taken to be met."""
    operators = {requirement.operator for requirement in requirements}
    if "!" in operators:
        return bool(operators & {"in", "exists", "gt", "lt"})
    allowed: frozenset[str] | None = None
    for requirement in requirements:
        if requirement.operator == "in":
            allowed = requirement.values if allowed is None else allowed & requirement.values
    if allowed is None:
        return False
    return not any(all(r.matches({r.key: value}) for r in requirements) for value in allowed)


def shared_devices(snapshot: Snapshot, one: Partition, other: Partition) -> Iterator[DeviceId]:
    """Yield published devices that are in both of two partitions.

    A device is in a partition by its pool, by the nodes that see it, and by the classes that select it.
    """
    classes = one.device_classes, other.device_classes
    for pool in snapshot.devices.pools.values():
        if all(p.has_pool(*pool.key) and _is_seen(snapshot, pool, p) for p in (one, other)):
            for item in pool.slices:
                for device in item.devices:
                    if all(not names or any(_selects(snapshot, n, device.shape) for n in names) for names in classes):
                        yield DeviceId(*pool.key, device.name)


def _is_seen(snapshot: Snapshot, pool: Pool, partition: Partition) -> bool:
    if not partition.limits_nodes:
        return True
    names = {item.placement.node_name for item in pool.slices}
    nodes = (snapshot.nodes.get(name) for name in names if name)
    # Devices that are not tied to a node may be seen from the nodes of every partition.
    return not all(names) or any(node is not None and partition.has_node(node.labels, node.taints) for node in nodes)


def _selects(snapshot: Snapshot, name: str, shape: object) -> bool:
    found = snapshot.devices.classes.get(name)
    if found is None:
        return False
    selection = Selection(found.selectors, (), lists=True, consumable=True)
    return compiled_selector_of(selection, snapshot.devices.cache).verdict(shape) is not False  # type: ignore[arg-type]
