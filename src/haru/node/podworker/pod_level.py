"""What a pod as a whole was allocated and has, as its status says it. Pure.

Source: KEP-5419; the kubelet's status of a pod's own level, as behaviour. A running pod has what its control group was
given: limits only where every container is limited. Where it has none, those stay that were told before it ran.
"""

from __future__ import annotations

from collections.abc import Mapping

from haru.kube.cgroup_values import PERIOD_MICROSECONDS
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity
from haru.kube.resources import pod_limits, pod_requests
from haru.node.cgroups.amounts import pod_amounts

_LEAST_MILLI = 2
"""A group has at least this share of a processor, also of a pod that requests none."""


def level_status(allocated: Obj, *, is_actuated: bool, tells_unlimited: bool = False) -> Obj:
    """`resources` and `allocatedResources` of a pod with what it was allocated in its spec.

    While its group does not have that yet, `resources` stays as it is. `tells_unlimited`: a group of version 1 tells a
    limit of memory that it does not have.
    """
    spec, before = allocated["spec"], allocated.get("status") or {}
    alone = {"spec": spec}
    requests, limits = pod_requests(alone), pod_limits(alone)
    asked = spec.get("resources") or {}
    told = {"requests": _texts(requests), "limits": _texts(limits)}
    if before.get("phase") == "Running":
        if not is_actuated and before.get("resources") is not None:
            told = before["resources"]
        else:
            had = (before.get("resources") or {}).get("limits") or {}
            kept = {name: had[name] for name in ("cpu", "memory")[: 2 - tells_unlimited] if name in had}
            told = {
                "requests": {**(asked.get("requests") or {}), **_texts(_of_group(requests))},
                "limits": {**(asked.get("limits") or {}), **kept, **_limits_of_group(allocated)},
            }
    found: Obj = {"resources": {kind: amounts for kind, amounts in told.items() if amounts}}
    return {**found, "allocatedResources": _texts(requests)} if requests else found


def _of_group(requests: Mapping[str, Quantity]) -> dict[str, Quantity]:
    kept = {name: amount for name, amount in requests.items() if name in ("cpu", "memory")}
    if "cpu" in kept and kept["cpu"].milli() <= _LEAST_MILLI:
        del kept["cpu"]
    return kept


def _limits_of_group(pod: Obj) -> dict[str, str]:
    amounts = pod_amounts(pod)
    found = {}
    if amounts.cpu_quota:
        found["cpu"] = str(Quantity(amounts.cpu_quota * 1000 // PERIOD_MICROSECONDS * 10**6))
    if amounts.memory_limit:
        found["memory"] = str(Quantity(amounts.memory_limit * 10**9, "BinarySI"))
    return found


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
