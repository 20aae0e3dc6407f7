"""Nodes: nothing is scheduled to a node before it has said that it is ready.

A node that is registered together with a Ready condition (as simulated ones are) has said so; 1.36 taints it too, and
its node-lifecycle controller takes the taint away at once.
Source: admission plugin TaintNodesByCondition, as behaviour.
"""

from __future__ import annotations

from typing import Any

from haru.apiserver.request.call import Call
from haru.kube.meta import get_condition

Obj = dict[str, Any]

NOT_READY = "node.kubernetes.io/not-ready"


async def taint_until_ready(call: Call, node: Obj) -> None:
    """Keep pods away from a node of which nothing is known yet."""
    ready = get_condition(node, "Ready")
    if ready is not None and ready.get("status") == "True":
        return
    spec: Obj = node.setdefault("spec", {})
    taints = list(spec.get("taints") or ())
    if not any(taint.get("key") == NOT_READY and taint.get("effect") == "NoSchedule" for taint in taints):
        spec["taints"] = [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]
