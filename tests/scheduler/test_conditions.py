from __future__ import annotations

from typing import Any

import pytest

from haru.scheduler.status.conditions import ConditionText, NominationChange, group_scheduled_patch, pod_scheduled_patch

NOW, EARLIER = "2026-11-20T10:00:00Z", "2026-11-20T09:00:00Z"


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "uid": "u1", "generation": 2}, "status": status}


def scheduled(status: str, reason: str, message: str, since: str = EARLIER) -> dict[str, str]:
    return {
        "type": "PodScheduled",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }


def test_first_rejection_is_written_with_transition_time() -> None:
    patch = pod_scheduled_patch(pod(), ConditionText("Unschedulable", "0/1 nodes", NOW), NominationChange(keep=False))
    assert patch is not None
    assert patch["metadata"] == {"uid": "u1"}
    [entry] = patch["status"]["conditions"]
    assert (entry["status"], entry["reason"], entry["message"]) == ("False", "Unschedulable", "0/1 nodes")
    assert entry["lastTransitionTime"] == NOW


def test_unchanged_rejection_writes_nothing() -> None:
    known = pod(conditions=[scheduled("False", "Unschedulable", "0/1 nodes")])
    assert (
        pod_scheduled_patch(known, ConditionText("Unschedulable", "0/1 nodes", NOW), NominationChange(keep=False))
        is None
    )


def test_other_message_keeps_transition_time() -> None:
    known = pod(conditions=[scheduled("False", "Unschedulable", "0/1 nodes")])
    patch = pod_scheduled_patch(known, ConditionText("Unschedulable", "0/2 nodes", NOW), NominationChange(keep=False))
    assert patch is not None
    assert "lastTransitionTime" not in patch["status"]["conditions"][0]


def test_nomination_is_cleared_unless_kept() -> None:
    known = pod(nominatedNodeName="n", conditions=[scheduled("False", "Unschedulable", "m")])
    cleared = pod_scheduled_patch(known, ConditionText("Unschedulable", "m", NOW), NominationChange(keep=False))
    assert cleared == {"metadata": {"uid": "u1"}, "status": {"nominatedNodeName": None}}
    assert pod_scheduled_patch(known, ConditionText("Unschedulable", "m", NOW), NominationChange(keep=True)) is None


def group(*conditions: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "g", "uid": "u2", "generation": 1}, "status": {"conditions": list(conditions)}}


def group_condition(status: str, message: str = "") -> dict[str, str]:
    reason = "Scheduled" if status == "True" else "Unschedulable"
    facts = {"type": "PodGroupScheduled", "status": status, "reason": reason, "message": message}
    return {**facts, "lastTransitionTime": EARLIER}


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulerError"])
def test_condition_true_is_never_reverted(reason: str) -> None:
    assert group_scheduled_patch(group(group_condition("True")), "False", reason, "no room", NOW) is None


def test_group_condition_message_and_transition_time() -> None:
    waiting = group(group_condition("False", "no room"))
    assert group_scheduled_patch(waiting, "False", "Unschedulable", "no room", NOW) is None
    other = group_scheduled_patch(waiting, "False", "Unschedulable", "less room", NOW)
    assert other is not None
    assert other["status"]["conditions"][0]["lastTransitionTime"] == EARLIER
    done = group_scheduled_patch(waiting, "True", "Scheduled", "", NOW)
    assert done is not None
    assert done["status"]["conditions"][0]["lastTransitionTime"] == NOW
    assert done["status"]["conditions"][0]["observedGeneration"] == 1
