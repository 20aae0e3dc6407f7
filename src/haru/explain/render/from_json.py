"""An explanation from its JSON, for who has it from elsewhere; fields that are unknown here are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haru.engine import Reason
from haru.explain.explanation import (
    Asked,
    DeviceCounts,
    Funnel,
    FunnelStage,
    HeldClaim,
    HeldDevice,
    Holder,
    Later,
    NodeGroup,
    NodeScore,
    PodsAsked,
    Remedy,
    ScorePart,
)
from haru.explain.results import Explanation
from haru.kube.meta import Obj


def from_json(obj: Obj) -> Explanation:
    """Return the explanation of which this is the JSON. Raises KeyError and TypeError for something else."""
    subject, later = obj["subject"], obj.get("startsAfter")
    return Explanation(
        subject["kind"],
        subject["namespace"],
        subject["name"],
        obj["verdict"],
        obj["summary"],
        tuple(map(_reason, obj["reasons"])),
        obj.get("ageSeconds"),
        tuple(obj.get("notRead") or ()),
        tuple(PodsAsked(asked["count"], asked["resources"]) for asked in obj["pods"]),
        tuple(map(_group, obj["nodes"])),
        tuple(map(_funnel, obj["requests"])),
        tuple(map(_remedy, obj["remedies"])),
        obj.get("node", ""),
        obj.get("since", ""),
        tuple(map(_held, obj["holds"])),
        Later(tuple(later["pods"]), later.get("until", "")) if later is not None else None,
        tuple(map(_score, obj.get("scores") or ())),
        obj.get("scoredNodes", 0),
    )


def _score(obj: Mapping[str, Any]) -> NodeScore:
    parts = (ScorePart(p["plugin"], p["score"], p["weight"], p["reason"]) for p in obj.get("parts") or ())
    return NodeScore(obj["node"], obj["score"], obj["here"], tuple(parts))


def _reason(obj: Mapping[str, Any]) -> Reason:
    data = {key: value for key, value in obj.items() if key not in ("type", "message")}
    return Reason(obj["type"], obj["message"], data)


def _group(obj: Mapping[str, Any]) -> NodeGroup:
    found, devices = obj.get("devices"), None
    if found is not None:
        devices = DeviceCounts(found["selected"], found["tainted"], found["taken"], found["partlyTaken"], found["free"])
    reasons = tuple(map(_reason, obj["reasons"]))
    left = obj.get("left") or {}
    return NodeGroup(obj["count"], tuple(obj["examples"]), obj["text"], reasons, devices, obj.get("room"), left)


def _funnel(obj: Mapping[str, Any]) -> Funnel:
    asked = Asked(
        obj["request"],
        obj["claims"],
        obj["count"],
        obj["deviceClass"],
        tuple(obj["selectors"]),
        obj["capacity"],
        obj["adminAccess"],
        obj["alternative"],
        obj.get("extendedResource", ""),
    )
    stages = tuple(map(_stage, obj["funnel"]))
    devices = stages[0].left + stages[0].dropped if stages else 0
    return Funnel(
        asked, obj["needed"], obj.get("devices", devices), stages, obj["free"], obj["short"], obj["error"], obj["claim"]
    )


def _stage(obj: Mapping[str, Any]) -> FunnelStage:
    more = obj.get("moreHolders") or {}
    return FunnelStage(
        obj["stage"],
        obj["left"],
        obj["dropped"],
        obj.get("expression", ""),
        tuple((value["values"], value["devices"]) for value in obj.get("values") or ()),
        obj.get("errors", 0),
        obj.get("error", ""),
        obj.get("taints") or {},
        tuple(obj.get("where") or ()),
        tuple(map(_holder, obj.get("holders") or ())),
        (more.get("workloads", 0), more.get("devices", 0)),
        obj.get("counters") or {},
        obj.get("nodes") or {},
    )


def _holder(obj: Mapping[str, Any]) -> Holder:
    return Holder(
        obj["workload"],
        obj["namespace"],
        obj["devices"],
        tuple(obj["pods"]),
        tuple(obj["claims"]),
        obj.get("priority"),
        obj.get("since", ""),
        obj.get("idle"),
    )


def _remedy(obj: Mapping[str, Any]) -> Remedy:
    return Remedy(
        obj["kind"],
        obj["summary"],
        tuple(obj["changes"]),
        obj["cost"],
        obj["confirmed"],
        obj["costs"],
        obj.get("command", ""),
    )


def _held(obj: Mapping[str, Any]) -> HeldClaim:
    devices = tuple(
        HeldDevice(d["request"], d["driver"], d["pool"], d["device"], d["product"], d["adminAccess"])
        for d in obj["devices"]
    )
    return HeldClaim(obj["claim"], obj["node"], devices, tuple(obj["users"]), obj.get("since", ""))
