"""The status of a Job, written from its counted pods (pure).

Source: batch/v1 Job; KEP-2232 (suspend), KEP-3939 (terminating).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from haru.controllers.job_tracking import Tally
from haru.controllers.job_verdict import Verdict, true_condition
from haru.controllers.objects import ConditionText, is_ready
from haru.kube.meta import Obj, get_condition, set_condition


def status_of(job: Obj, counted: Tally, verdict: Verdict | None, now: str) -> Obj:
    """What `status` should be; it changes nothing when all stands as it did."""
    old = job.get("status") or {}
    suspended = bool(job["spec"].get("suspend"))
    conditions = list(old.get("conditions") or ())
    status: Obj = {**counted.status(), "ready": sum(is_ready(pod) for pod in counted.active)}
    status["terminating"] = len(counted.terminating)
    if counted.active:
        status["active"] = len(counted.active)
    started = old.get("startTime")
    was_suspended = true_condition(job, "Suspended") is not None
    if suspended and verdict is None:
        started = None
        if not was_suspended:
            conditions = _with(conditions, ConditionText("Suspended", "True", "JobSuspended", "Job suspended"), now)
    elif was_suspended and not suspended:
        conditions = _with(conditions, ConditionText("Suspended", "False", "JobResumed", "Job resumed"), now)
        started = now
    if not suspended or verdict is not None:
        started = started or now
    if started:
        status["startTime"] = started
    if verdict is not None:
        conditions = _with(conditions, ConditionText(verdict.announced, "True", verdict.reason, verdict.message), now)
        if not counted.active and not counted.terminating and not counted.strays and counted.settled:
            conditions = _with(conditions, ConditionText(verdict.final, "True", verdict.reason, verdict.message), now)
            if not verdict.failed:
                status["completionTime"] = now
    if conditions:
        status["conditions"] = conditions
    return status


def _with(conditions: list[Obj], new: ConditionText, now: str) -> list[Obj]:
    condition = {"type": new.type, "status": new.status, "lastProbeTime": now, "reason": new.reason}
    condition["message"] = new.message
    old = get_condition(conditions, new.type)
    if old is not None and all(old.get(key) == condition[key] for key in ("status", "reason", "message")):
        return conditions
    return set_condition(conditions, condition, now)


def announcements(job: Obj, status: Obj) -> Iterator[tuple[Any, str, str]]:
    """The events (type, reason, message) that a new status is worth."""
    tells: dict[tuple[str, str], tuple[Any, str]] = {
        ("Complete", "True"): ("Normal", "Completed"),
        ("Failed", "True"): ("Warning", ""),
        ("Suspended", "True"): ("Normal", "Suspended"),
        ("Suspended", "False"): ("Normal", "Resumed"),
    }
    for condition in status.get("conditions") or ():
        old = get_condition(job, condition["type"])
        tell = tells.get((condition["type"], condition["status"]))
        if tell is None or (old is not None and old["status"] == condition["status"]):
            continue
        message = "Job completed" if tell[1] == "Completed" else condition["message"]
        yield tell[0], tell[1] or condition["reason"], message
