"""What a Job's status may say and how it may change: whoever manages a Job, its outcome stands once it is known.

A rule about a part of the status holds for writes that change this part: what became wrong by a change of the spec is
for the controller to mend. Source: KEP-4368 (managedBy), KEP-3850, KEP-3998.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from haru.kube.errors import OMITTED, FieldError, duplicate, invalid, required
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.kube.validation.common import items, not_negative, part, same
from haru.kube.validation.job_policies import count_indexes, index_interval

_COUNTS = ("active", "succeeded", "failed", "ready", "terminating")
_CONDITIONS = "status.conditions"


def _has(job: Obj, type: str, status: str) -> bool:
    listed = items(part(job, "status"), "conditions")
    return any(c.get("type") == type and c.get("status") == status for c in listed)


class _Outcome(NamedTuple):
    """Which of the four conditions about the end are True."""

    complete: bool
    failed: bool
    success_criteria_met: bool
    failure_target: bool

    @classmethod
    def of(cls, job: Obj) -> _Outcome:
        types = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
        return cls(*(_has(job, type, "True") for type in types))

    @property
    def finished(self) -> bool:
        return self.complete or self.failed


def validate_job_status_update(new: Obj, old: Obj) -> list[FieldError]:
    """Validate a write to a Job's status."""
    status, before = part(new, "status"), part(old, "status")
    is_, was = _Outcome.of(new), _Outcome.of(old)
    changed = {name for name in status.keys() | before.keys() if not same(status.get(name), before.get(name))}
    found: list[FieldError] = []
    for name in _COUNTS:
        found += not_negative(f"status.{name}", status.get(name))
    found += _uncounted(part(status, "uncountedTerminatedPods"))
    found += _contradictions(new, is_, was, changed)
    found += _finished(status, is_, changed if is_.finished == was.finished else set(status) | set(before))
    resumes = _has(old, "Suspended", "True") and _has(new, "Suspended", "False")
    found += _times(new, before, is_, was, changed, resumes)
    found += _indexes(part(new, "spec"), status, changed)
    return found + _backwards(part(new, "spec"), status, before, is_, was)


def _uncounted(uncounted: Mapping[str, Any]) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for outcome in ("succeeded", "failed"):
        for index, uid in enumerate(uncounted.get(outcome) or ()):
            place = f"status.uncountedTerminatedPods.{outcome}[{index}]"
            if not uid:
                found.append(invalid(place, uid, "must not be empty"))
            elif uid in seen:
                found.append(duplicate(place, uid))
            seen.add(uid)
    return found


def _contradictions(job: Obj, is_: _Outcome, was: _Outcome, changed: set[str]) -> list[FieldError]:
    """Conditions that exclude each other."""
    wrong: list[str] = []
    if "conditions" in changed and is_.complete and is_.failed and (was.complete, was.failed) != (True, True):
        wrong.append("cannot set Complete=True and Failed=true conditions")
    if is_.complete and is_.failure_target and (was.complete, was.failure_target) != (True, True):
        wrong.append("cannot set Complete=True and FailureTarget=true conditions")
    if is_.success_criteria_met and is_.failed:
        wrong.append("cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if is_.success_criteria_met and is_.failure_target:
        wrong.append("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    if is_.failed and not is_.failure_target and (not was.failed or "failedIndexes" in changed):
        wrong.append("cannot set Failed=True condition without the FailureTarget=true condition")
    if is_.complete and not is_.success_criteria_met:
        if not was.complete or was.success_criteria_met:
            wrong.append("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
        if part(job, "spec").get("successPolicy") is not None:
            wrong.append("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
    if was.complete and not was.success_criteria_met and is_.success_criteria_met:
        wrong.append("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
    return [invalid(_CONDITIONS, OMITTED, why) for why in wrong]


def _finished(status: Obj, is_: _Outcome, changed: set[str]) -> list[FieldError]:
    """A finished Job has nothing running and nothing left to count."""
    found: list[FieldError] = []
    ready, active, terminating = (status.get(name) or 0 for name in ("ready", "active", "terminating"))
    if "ready" in status and ready > active and changed & {"ready", "active"}:
        found.append(invalid("status.ready", ready, "cannot set more ready pods than active"))
    if not is_.finished:
        return found
    if active > 0 and "active" in changed:
        found.append(invalid("status.active", active, "active>0 is invalid for finished job"))
    if terminating and "terminating" in changed:
        found.append(invalid("status.terminating", terminating, "terminating>0 is invalid for finished job"))
    uncounted = part(status, "uncountedTerminatedPods")
    if any(uncounted.values()) and "uncountedTerminatedPods" in changed:
        why = "must be empty for finished job"
        found.append(invalid("status.uncountedTerminatedPods", uncounted, why))
    return found


def _times(new: Obj, before: Obj, is_: _Outcome, was: _Outcome, changed: set[str], resumes: bool) -> list[FieldError]:
    spec, status = part(new, "spec"), part(new, "status")
    found: list[FieldError] = []
    began, ended = status.get("startTime"), status.get("completionTime")
    never_starts = spec.get("suspend") is True and spec.get("completions") == 0
    if is_.finished and not began and not never_starts and (not was.finished or "startTime" in changed):
        found.append(required("status.startTime", "startTime is required for finished job"))
    if before.get("startTime") and "startTime" in changed and not spec.get("suspend") and not resumes:
        why = "field is immutable for unsuspended job once set"
        found.append(invalid("status.startTime", began, why))
    if began and ended and changed & {"startTime", "completionTime"} and parse_time(ended) < parse_time(began):
        found.append(invalid("status.completionTime", ended, "must be equal to or after `startTime`"))
    if ended and before.get("completionTime") and "completionTime" in changed:
        found.append(invalid("status.completionTime", ended, "field is immutable"))
    if is_.complete != was.complete or "completionTime" in changed:
        if ended and not is_.complete:
            why = "cannot set completionTime when there is no Complete=True condition"
            found.append(invalid("status.completionTime", ended, why))
        if is_.complete and not ended:
            found.append(required("status.completionTime", "completionTime is required for Complete jobs"))
    return found


def _indexes(spec: Obj, status: Obj, changed: set[str]) -> list[FieldError]:
    found: list[FieldError] = []
    completions = spec.get("completions")
    completed, failed = status.get("completedIndexes") or "", status.get("failedIndexes")
    if "completedIndexes" in changed:
        if completed and spec.get("completionMode") != "Indexed":
            why = "cannot set non-empty completedIndexes when non-indexed completion mode"
            found.append(invalid("status.completedIndexes", completed, why))
        if completions is not None:
            found += _malformed("completedIndexes", completed, completions)
    if "failedIndexes" in changed and failed is not None:
        if spec.get("backoffLimitPerIndex") is None:
            why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
            found.append(invalid("status.failedIndexes", failed, why))
        elif completions is not None:
            found += _malformed("failedIndexes", failed, completions)
    if changed & {"completedIndexes", "failedIndexes"} and failed and completed and completions is not None:
        both = _first_overlap(completed, failed, completions)
        if both is not None:
            why = f"failedIndexes and completedIndexes overlap at index: {both}"
            found.append(invalid("status.failedIndexes", failed, why))
    return found


def _malformed(name: str, text: str, completions: int) -> list[FieldError]:
    try:
        count_indexes(text, completions)
    except ValueError as error:
        return [invalid(f"status.{name}", text, f"error parsing {name}: {error}")]
    return []


def _first_overlap(one: str, other: str, completions: int) -> int | None:
    """The first index that both of two texts name; parts that are malformed have none."""
    ones, others = _intervals(one, completions), _intervals(other, completions)
    while ones and others:
        (low, high), (first, last) = ones[0], others[0]
        if low <= last and first <= high:
            return max(low, first)
        (ones if low <= first else others).pop(0)
    return None


def _intervals(text: str, completions: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for fragment in text.split(","):
        with suppress(ValueError):
            found.append(index_interval(fragment, completions))
    return found


def _backwards(spec: Obj, status: Obj, before: Obj, is_: _Outcome, was: _Outcome) -> list[FieldError]:
    """What is known stays known."""
    found: list[FieldError] = []
    ends = (
        ("Failed", was.failed, is_.failed),
        ("Complete", was.complete, is_.complete),
        ("FailureTarget", was.failure_target, is_.failure_target),
    )
    for type, then, now in ends:
        if then and not now:
            found.append(invalid(_CONDITIONS, OMITTED, f"cannot disable the terminal {type}=True condition"))
    if was.success_criteria_met and not is_.success_criteria_met:
        found.append(invalid(_CONDITIONS, OMITTED, "cannot disable the SuccessCriteriaMet=True condition"))
    # A Job that shrinks as a whole forgets the indexes that it no longer has.
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for name in ("failed",) if elastic else ("failed", "succeeded"):
        if (status.get(name) or 0) < (before.get(name) or 0):
            found.append(invalid(f"status.{name}", status.get(name) or 0, f"cannot decrease the {name} counter"))
    return found
