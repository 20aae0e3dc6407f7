"""When node taints drive pods away (pure).

A toleration with `tolerationSeconds` counts from when the taint was added; the shortest one decides.
Source: Kubernetes `taint-eviction-controller` (KEP-3902).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from haru.engine.state.decision import Obj
from haru.kube.meta import toleration_matches
from haru.kube.names import parse_time


def no_execute_taints(node: Mapping[str, Any]) -> list[Obj]:
    """The node's taints that drive pods away."""
    return [t for t in (node.get("spec") or {}).get("taints") or () if t.get("effect") == "NoExecute"]


def eviction_time(pod: Mapping[str, Any], taints: Sequence[Obj], now: datetime) -> datetime | None:
    """When the pod must go; None: it tolerates all the taints for ever."""
    due: list[datetime] = []
    tolerations = (pod.get("spec") or {}).get("tolerations") or ()
    for taint in taints:
        matching = [toleration for toleration in tolerations if toleration_matches(toleration, taint)]
        if not matching:
            return now
        seconds = [t["tolerationSeconds"] for t in matching if t.get("tolerationSeconds") is not None]
        if seconds:
            added = parse_time(taint["timeAdded"]) if taint.get("timeAdded") else now
            due.append(added + timedelta(seconds=max(0, min(seconds))))
    return min(due, default=None)
