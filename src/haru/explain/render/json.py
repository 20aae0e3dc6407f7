"""An explanation as JSON for programs. The schema is docs/reference/explain.md: fields are added, never renamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haru.explain.explanation import (
    ExplanationData,
    Funnel,
    FunnelStage,
    HeldClaim,
    Holder,
    Later,
    NodeGroup,
    NodeScore,
    Remedy,
)
from haru.kube.meta import Obj


def to_json(explanation: ExplanationData) -> Obj:
    """The Explanation object of haru.dev/v1alpha1."""
    return {
        "apiVersion": "haru.dev/v1alpha1",
        "kind": "Explanation",
        "subject": {"kind": explanation.kind, "namespace": explanation.namespace, "name": explanation.name},
        "verdict": explanation.verdict,
        "summary": explanation.summary,
        **({} if explanation.age_seconds is None else {"ageSeconds": explanation.age_seconds}),
        **({"node": explanation.node} if explanation.node else {}),
        **({"since": explanation.since} if explanation.since else {}),
        **({} if explanation.later is None else {"startsAfter": _later(explanation.later)}),
        "reasons": [reason.to_json() for reason in explanation.reasons],
        "pods": [{"count": asked.pods, "resources": dict(asked.resources)} for asked in explanation.pods],
        "requests": [_request(funnel) for funnel in explanation.requests],
        "nodes": [_nodes(group) for group in explanation.nodes],
        **({"scores": [_score(score) for score in explanation.scores]} if explanation.scores else {}),
        **({"scoredNodes": explanation.scored} if explanation.scores else {}),
        "remedies": [_remedy(remedy) for remedy in explanation.remedies],
        "holds": [_held(claim) for claim in explanation.holds],
        **({"notRead": list(explanation.unread)} if explanation.unread else {}),
    }


def _score(score: NodeScore) -> Obj:
    parts = [
        {
            "plugin": p.plugin,
            "score": p.score,
            "weight": p.weight,
            "points": p.points,
            "most": p.most,
            "reason": p.reason,
        }
        for p in score.parts
    ]
    return {"node": score.node, "score": score.score, "here": score.here, "parts": parts}


def _later(later: Later) -> Obj:
    return {"pods": list(later.pods), **({"until": later.until} if later.until else {})}


def _nodes(group: NodeGroup) -> Obj:
    found: Obj = {
        "count": group.count,
        "examples": list(group.examples),
        "text": group.text,
        "reasons": [reason.to_json() for reason in group.reasons],
    }
    if group.devices is not None:
        counts = group.devices
        found["devices"] = {
            "selected": counts.selected,
            "tainted": counts.tainted,
            "taken": counts.taken,
            "partlyTaken": counts.partly_taken,
            "free": counts.free,
        }
    if group.room is not None:
        found["room"] = group.room
    if group.left:
        found["left"] = dict(group.left)
    return found


def _request(funnel: Funnel) -> Obj:
    asked = funnel.asked
    return {
        "request": asked.request,
        "claim": funnel.claim,
        "claims": asked.claims,
        "count": asked.count,
        "deviceClass": asked.device_class,
        "selectors": list(asked.selectors),
        "capacity": dict(asked.capacity),
        "adminAccess": asked.admin,
        "alternative": asked.alternative,
        **({"extendedResource": asked.resource} if asked.resource else {}),
        "needed": funnel.needed,
        "free": funnel.free,
        "short": funnel.short,
        "error": funnel.error,
        "funnel": [_stage(stage) for stage in funnel.stages],
    }


def _stage(stage: FunnelStage) -> Obj:
    found: dict[str, Any] = {"stage": stage.stage, "left": stage.left, "dropped": stage.dropped}
    if stage.stage == "constraints":
        found["expression"] = stage.expression
    if stage.stage in ("class", "selector"):
        found["expression"] = stage.expression
        found["values"] = [{"values": dict(values), "devices": count} for values, count in stage.values]
        found["errors"], found["error"] = stage.errors, stage.error
    if stage.taints:
        found["taints"], found["where"] = dict(stage.taints), list(stage.where)
    if stage.holders:
        found["holders"] = [holder_json(holder) for holder in stage.holders]
    if any(stage.unnamed):
        found["moreHolders"] = {"workloads": stage.unnamed[0], "devices": stage.unnamed[1]}
    if stage.counters:
        found["counters"] = dict(stage.counters)
    if stage.nodes:
        found["nodes"] = dict(stage.nodes)
    return found


def holder_json(holder: Holder) -> Obj:
    """Work that holds devices."""
    optional: Mapping[str, object] = {"priority": holder.priority, "since": holder.since or None, "idle": holder.idle}
    return {
        "workload": holder.name,
        "namespace": holder.namespace,
        "devices": holder.devices,
        "pods": list(holder.pods),
        "claims": list(holder.claims),
        **{name: value for name, value in optional.items() if value is not None},
    }


def _remedy(remedy: Remedy) -> Obj:
    return {
        "kind": remedy.kind,
        "summary": remedy.summary,
        "changes": list(remedy.changes),
        "cost": remedy.cost,
        "costs": remedy.costs,
        **({"command": remedy.command} if remedy.command else {}),
        "confirmed": remedy.confirmed,
    }


def _held(held: HeldClaim) -> Obj:
    return {
        "claim": held.claim,
        "node": held.node,
        **({"since": held.since} if held.since else {}),
        "devices": [
            {
                "request": device.request,
                "driver": device.driver,
                "pool": device.pool,
                "device": device.device,
                "product": device.product,
                "adminAccess": device.admin,
            }
            for device in held.devices
        ],
        "users": list(held.users),
    }
