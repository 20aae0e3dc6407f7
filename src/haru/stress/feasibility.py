"""Whether a waiting work fits, by a plain count that shares nothing with a scheduler. Pure.

It counts only what is certainly free: nodes of the run that are Ready, whole devices without taints and counters that
nobody holds. All pods of a work are alike, so the sum of what each node takes decides. It never says that something
fits which does not; where devices come in partitions it says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from haru.kube.meta import Obj, get_condition, labels_of
from haru.stress.history import History
from haru.stress.plan import WorkloadUnit

Matches = Callable[[str, Obj], bool]
"""Whether a device, by its driver and its entry in a slice, is of the run's device class."""


def usable_nodes(nodes: Mapping[str, Obj], selector: Mapping[str, str], tolerated: Iterable[str]) -> list[str]:
    """The nodes on which works of the run may be: labelled, Ready, not cordoned, with no taint but those tolerated."""
    keys = set(tolerated)
    return [
        name
        for name, node in nodes.items()
        if selector.items() <= labels_of(node).items()
        and not (node.get("spec") or {}).get("unschedulable")
        and (get_condition(node, "Ready") or {}).get("status") == "True"
        and not [taint for taint in (node.get("spec") or {}).get("taints") or () if taint["key"] not in keys]
    ]


def fits(unit: WorkloadUnit, needed: int, nodes: Iterable[str], history: History, matches: Matches) -> bool:
    """Whether `needed` more pods of a work fit on these nodes now."""
    free = history.devices.free_by_node() if unit.devices else {}
    found = 0
    for node in nodes:
        available = (
            sum(1 for device, entry in free.get(node, ()) if matches(device.driver, entry)) if unit.devices else 0
        )
        count = _pods_on(unit, history.nodes.free(node), available)
        if unit.kind == "shared" and unit.devices:
            if count >= needed:
                return True
        else:
            found += count
            if found >= needed:
                return True
    return False


def _pods_on(unit: WorkloadUnit, free: Mapping[str, int], devices: int) -> int:
    asked = {"cpu": unit.milli_cpu, "memory": unit.mebibytes * 2**20 * 1000, "pods": 1000}
    count = min(max(free.get(name, 0), 0) // amount for name, amount in asked.items())
    if not unit.devices:
        return count
    if unit.kind == "shared":
        return count if devices >= unit.devices else 0
    return min(count, devices // unit.devices)
