"""One decision round over a cluster, as the scheduling cases describe it, without preemption.

Pods go by priority, then age, then name; a group takes the place of its first pod. What was bound is assumed at once;
what is left is tried again until a whole pass decides nothing.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from haru.engine.cluster import Cluster, claim_path
from haru.engine.decision import Decision, GroupKey, Obj
from haru.engine.devices import Features
from haru.engine.groups import Options, decide
from haru.engine.groups.quorum import group_hold, min_count

CODES = {
    "Gated": "Gated",
    "PodGroupMissing": "PodGroupMissing",
    "TooFewMembers": "TooFewMembers",
    "Quorum": "Quorum",
    "TopologyDomain": "TopologyDomain",
    "NodeNameMismatch": "NodeMismatch",
    "NodeAffinityMismatch": "NodeMismatch",
    "NodeUnschedulable": "NodeUnschedulable",
    "NodeTaints": "Taints",
    "PortsTaken": "Ports",
    "PodAffinity": "PodAffinity",
    "PodAntiAffinity": "PodAffinity",
    "ExistingPodAntiAffinity": "PodAffinity",
    "TopologySpread": "TopologySpread",
    "InsufficientResource": "InsufficientResources",
    "TooManyPods": "InsufficientResources",
    "ClaimMissing": "ClaimMissing",
    "DeviceClassMissing": "DeviceClassMissing",
}


@dataclass
class Answer:
    bindings: dict[str, str] = field(default_factory=dict)
    allocations: dict[str, list[Obj]] = field(default_factory=dict)
    pending: dict[str, Obj] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)

    def to_json(self, name: str) -> Obj:
        return {"name": name, "nominations": {}, "evictions": [], **vars(self)}


class Round:
    def __init__(self, case: Obj) -> None:
        self.gates = case.get("gates") or {}
        self.cluster = Cluster.of(case["objects"])
        numbers = itertools.count()
        self.options = Options(
            new_share_id=lambda: f"share-{next(numbers)}",
            gang_scheduling=self.on("GangScheduling"),
            workload_claims=self.on("DRAWorkloadResourceClaims"),
            topology=self.on("TopologyAwareWorkloadScheduling"),
            features=Features.from_gates({"DRAListTypeAttributes": True, **self.gates}),
        )
        self.waiting = sorted((o for o in case["objects"] if o["kind"] == "Pod" and _to_decide(o)), key=_order)
        self.answer = Answer()

    def on(self, gate: str) -> bool:
        return bool(self.gates.get(gate, True))

    def run(self) -> Answer:
        while self._pass():
            pass
        for pod in self.waiting:
            key = self._group(pod)
            if key is not None:
                self.answer.groups.setdefault(key.path, self._state(key))
        return self.answer

    def _group(self, pod: Obj) -> GroupKey | None:
        name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
        if not name or not self.on("GenericWorkload"):
            return None
        return GroupKey(pod["metadata"]["namespace"], name)

    def _pass(self) -> bool:
        decided: set[Any] = set()
        progress = False
        for pod in self.waiting:
            unit = self._group(pod) or claim_path(pod)
            if unit in decided or claim_path(pod) in self.answer.bindings:
                continue
            decided.add(unit)
            progress |= self._decide(pod)
        return progress

    def _decide(self, pod: Obj) -> bool:
        snapshot, key = self.cluster.snapshot(), self._group(pod)
        group = snapshot.pod_group(key) if key else None
        members = [pod] if key is None else [p for p in self.waiting if self._group(p) == key]
        members = [p for p in members if claim_path(p) not in self.answer.bindings]
        for member in members:
            self.answer.pending[claim_path(member)] = {"reason": "Gated"}
        if key is not None and group is None:
            for member in members:
                self.answer.pending[claim_path(member)] = {"reason": "PodGroupMissing"}
            return False
        free = [p for p in members if not p["spec"].get("schedulingGates")]
        if not free:
            return False
        decision = decide(snapshot, free, group=group, options=self.options)
        for result in decision.members:
            code = CODES.get(result.reasons[0].type, "Devices") if result.reasons else "Quorum"
            self.answer.pending[result.pod.path] = {"reason": f"{code}: {result.message}"}
        return self._enact(decision)

    def _enact(self, decision: Decision) -> bool:
        placed = decision.placed if decision.status == "scheduled" else ()
        for member in placed:
            del self.answer.pending[member.pod.path]
            self.answer.bindings[member.pod.path] = member.node or ""
            self.cluster.assume_pod(member.pod, member.node or "")
            for given in member.allocations:
                results = given.allocation["devices"]["results"]
                names = ("request", "driver", "pool", "device")
                self.answer.allocations[given.path] = [{n: r[n] for n in names} for r in results]
                claim = self.cluster.snapshot().claims[given.path]
                status = {"allocation": given.allocation, "reservedFor": [given.reserve_for]}
                self.cluster.assume_claim({**claim, "status": status}, written=True)
        return bool(placed)

    def _state(self, key: GroupKey) -> str:
        snapshot = self.cluster.snapshot()
        group = snapshot.pod_group(key)
        running = len(snapshot.group_state(key).scheduled)
        gang = self.on("GangScheduling")
        needed = (min_count(group) if gang else None) or 1
        if running >= needed:
            return "Scheduled"
        gated = all(p["spec"].get("schedulingGates") for p in self.waiting if self._group(p) == key)
        held = group is None or gated or (gang and group_hold(snapshot, key) is not None)
        return "Held" if held else "Unschedulable"


def _to_decide(pod: Obj) -> bool:
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    ours = pod["spec"].get("schedulerName", "default-scheduler") == "default-scheduler"
    return ours and not (ended or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"))


def _order(pod: Obj) -> tuple[int, str, str]:
    return -(pod["spec"].get("priority") or 0), pod["metadata"].get("creationTimestamp", ""), claim_path(pod)
