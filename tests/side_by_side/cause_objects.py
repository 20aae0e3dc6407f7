"""Objects and outcomes for the tests of known causes."""

from __future__ import annotations

from decided_situations import Situation
from decision_verdicts import Outcome, Placement
from engine_outcomes import decisions, outcome_of
from known_causes import cause_of
from manifests import Obj, gang, node, obj

SEEN_NOBODY = "0/1 nodes are available: a. no new claims to deallocate, preemption: not eligible due to "


def stored(*given: Obj) -> list[Obj]:
    """Objects as a server has them."""
    for one in given:
        name = one["metadata"]["name"]
        one["metadata"] |= {"uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
        if one["kind"] not in ("Node", "PersistentVolume"):
            one["metadata"]["namespace"] = "d"
    return list(given)


def pod(name: str, on: str = "", priority: int = 0, cpu: str = "1", labels: Obj | None = None, **spec: object) -> Obj:
    """A pod that waits, or runs since an hour that its priority says."""
    requests = {"requests": {"cpu": cpu}}
    whole = {"priority": priority, "containers": [{"name": "c", "resources": requests}], **spec}
    status: Obj = {"phase": "Pending"}
    if on:
        whole["nodeName"] = on
        status = {"phase": "Running", "startTime": f"2026-01-01T{name[-1]:0>2}:00:00Z"}
    return obj("v1", "Pod", name, labels=labels or {}, spec=whole, status=status)


def of_group(count: int, minimum: int, **spec: object) -> tuple[Obj, list[Obj]]:
    """A waiting group of important pods of which each takes a node."""
    (group,) = gang("g", minimum, priority=10, **spec)
    assert isinstance(group, dict)
    pods = [pod(f"m{number}", priority=10, cpu="4", schedulingGroup={"podGroupName": "g"}) for number in range(count)]
    return group, pods


def cause(seen: Outcome, situation: Situation) -> str:
    """The cause that is named where Haru decides something else."""

    def decide(case: Situation) -> list[Outcome]:
        return [outcome_of(one) for one in decisions(case.objects, case.pods, case.group, ties=3)]

    expected = decide(situation)
    assert sorted(seen.victims) not in [sorted(one.victims) for one in expected], "nothing differs"
    return cause_of(["victims"], seen, expected, situation, decide)


def waits(*pods: Obj, victims: tuple[str, ...] = (), nominated: str = "", message: str = "") -> Outcome:
    """What kube-scheduler did for pods that wait."""
    return Outcome({one["metadata"]["name"]: Placement("", message, nominated) for one in pods}, victims)


def nodes(count: int) -> list[Obj]:
    """Nodes that take one pod of a group each."""
    return [one for number in range(count) for one in node(f"n{number}") if isinstance(one, dict)]
