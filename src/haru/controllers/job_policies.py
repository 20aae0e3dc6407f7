"""What a Job's policies say about pods that have ended (pure).

A failed pod is judged by the first rule of `podFailurePolicy` that matches it, by an exit code or by a condition such
as DisruptionTarget, which preemption and evictions leave behind; without a match it counts. The Indexed Jobs that
matter by their leaders or by a part of their workers say so in `successPolicy`.
Source: KEP-3329 (podFailurePolicy), KEP-3850 (FailIndex), KEP-3998 (successPolicy).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

from haru.controllers.job_indexes import parse_indexes
from haru.kube.meta import key_of


class Judgement(NamedTuple):
    """What becomes of a failed pod: the action of the rule that matched (none: empty), and why the Job fails."""

    action: str = ""
    job_failure: str = ""

    @property
    def counts(self) -> bool:
        """Whether the failure counts against the limits."""
        return self.action != "Ignore"


_COUNTED = Judgement()


def judge(job: Mapping[str, Any], pod: Mapping[str, Any]) -> Judgement:
    """Judge one failed pod."""
    policy = job["spec"].get("podFailurePolicy") or {}
    for number, rule in enumerate(policy.get("rules") or ()):
        why = _matches(rule, pod)
        if why:
            action = rule["action"]
            failure = f"{why} matching {action} rule at index {number}" if action == "FailJob" else ""
            return Judgement(action, failure)
    return _COUNTED


def _matches(rule: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    """What of the pod a rule matches, in words; empty if it does not."""
    status = pod.get("status") or {}
    requirement = rule.get("onExitCodes")
    if requirement is not None:
        for container in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
            code = _exit_code(container)
            if code and _accepts(requirement, container["name"], code):
                return f"Container {container['name']} for pod {key_of(pod)} failed with exit code {code}"
        return ""
    wanted = {(pattern["type"], pattern.get("status") or "True") for pattern in rule.get("onPodConditions") or ()}
    for condition in status.get("conditions") or ():
        if (condition["type"], condition["status"]) in wanted:
            return f"Pod {key_of(pod)} has condition {condition['type']}"
    return ""


def _exit_code(container: Mapping[str, Any]) -> int:
    """Of a container that has ended; 0 for one that succeeded or has not ended."""
    return int(((container.get("state") or {}).get("terminated") or {}).get("exitCode") or 0)


def _accepts(requirement: Mapping[str, Any], name: str, code: int) -> bool:
    if requirement.get("containerName") not in (None, name):
        return False
    listed = code in requirement["values"]
    return listed if requirement["operator"] == "In" else not listed


def job_failure(job: Mapping[str, Any], failed: Iterable[Mapping[str, Any]]) -> str:
    """Why the first of the failed pods that says so fails the whole Job; empty if none does."""
    if not job["spec"].get("podFailurePolicy"):
        return ""
    return next((why for pod in failed if (why := judge(job, pod).job_failure)), "")


def success(job: Mapping[str, Any], completed: Set[int]) -> str:
    """The rule of the success policy that the completed indexes meet, in words; empty if they meet none."""
    if not completed:
        return ""
    completions = job["spec"].get("completions") or 0
    for number, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        count, text = rule.get("succeededCount"), rule.get("succeededIndexes")
        wanted = parse_indexes(text, completions) if text is not None else None
        if wanted is not None and not wanted:
            continue
        reached = len(completed if wanted is None else completed & wanted)
        if (wanted is not None and reached == len(wanted)) or (count is not None and reached >= count):
            return f"Matched rules at index {number}"
    return ""
