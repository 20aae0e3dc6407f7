"""Check whether a node can admit a pod that was bound to it, as a kubelet does.

Source: the kubelet's admission by resources (reasons OutOfcpu and so on), as behaviour; KEP-5004 and KEP-5517.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from haru.kube.meta import Obj
from haru.kube.resources import Requests, claimed_resources, pod_requests

_ADMITTED: Final = ("cpu", "memory", "ephemeral-storage")


def admission_problem(pod: Obj, others: Sequence[Obj], allocatable: Mapping[str, int]) -> tuple[str, str] | None:
    """(reason, message) if the node has no room for the pod beside the others; amounts in thousandths."""
    if len(others) + 1 > allocatable["pods"] // 1000:
        return "OutOfpods", _no_room("pods", 1, len(others), allocatable["pods"] // 1000)
    for name, quantity in _usage(pod).items():
        # An extended resource that the node does not advertise is served by devices, through a claim (KEP-5004).
        if not quantity or not (name in _ADMITTED or ("/" in name and name in allocatable)):
            continue
        used = sum(q.milli() for other in others if (q := _usage(other).get(name)))
        capacity = allocatable.get(name, 0)
        if used + quantity.milli() > capacity:
            unit = 1 if name == "cpu" else 1000
            return f"OutOf{name}", _no_room(name, quantity.milli() // unit, used // unit, capacity // unit)
    return None


def _usage(pod: Obj) -> Requests:
    """What the pod requests, and what its devices take of the node (KEP-5517)."""
    total = pod_requests(pod)
    for name, quantity in claimed_resources(pod).items():
        total[name] = total[name] + quantity if name in total else quantity
    return total


def _no_room(name: str, requested: int, used: int, capacity: int) -> str:
    return f"Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
