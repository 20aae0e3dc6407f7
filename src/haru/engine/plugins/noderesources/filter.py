"""Refuse nodes that have too little of a resource left for the pod.

Source: kube-scheduler's NodeResourcesFit plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from haru.engine.framework.interfaces import NodeFilter
from haru.engine.framework.profile import DEFAULT_PROFILE, Profile
from haru.engine.framework.status import FilterFailure, refuse
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo


def node_resources_fit(pod: PodInfo, backed: Collection[str] = (), profile: Profile = DEFAULT_PROFILE) -> NodeFilter:
    """Refuse nodes with too little left of a requested resource; a zero request never fails.

    `backed` are extended resources with a DeviceClass behind them: where the node does not advertise one itself,
    devices are allocated for it, and this is not the filter to say whether there are any (KEP-5004).
    """
    requests = sorted((name, amount) for name, amount in pod.requests.items() if not profile.ignores(name))

    def check(node: NodeInfo) -> Sequence[FilterFailure]:
        failures: list[FilterFailure] = []
        offered, requested = node.spec.allocatable, node.requested
        room = offered.get("pods")
        if room is not None and len(node.pods) + 1 > room:
            failures.append(_too_many_pods(len(node.pods), room))
        for name, amount in requests:
            allocatable = offered.get(name, 0)
            if name in backed and not allocatable:
                continue
            used = requested.get(name, 0)
            if amount > allocatable - used:
                data: dict[str, Any] = {
                    "resource": name,
                    "requested": amount,
                    "used": used,
                    "allocatable": allocatable,
                }
                possible = amount <= allocatable
                failures.append(
                    refuse(
                        "NodeResourcesFit", "InsufficientResource", f"Insufficient {name}", data, resolvable=possible
                    )
                )
        return failures

    return check


def _too_many_pods(used: int, room: int) -> FilterFailure:
    data = {"resource": "pods", "requested": 1, "used": used, "allocatable": room}
    return refuse("NodeResourcesFit", "TooManyPods", "Too many pods", data, resolvable=room > 0)
