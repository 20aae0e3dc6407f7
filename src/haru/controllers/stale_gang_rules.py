"""When a gang that has lost members is stale, and what its owner wants done then (pure).

A gang is below minCount when it has been scheduled once, some members still hold their places, and fewer than minCount
are there: running, or done with success. One that stays so is stale: it holds devices and does not get on. The time is
kept in the PodGroup's condition `haru.dev/Stale`: Unknown while it runs, True when it is over, False when the gang is
complete again or holds nothing any more. Nothing of this is Kubernetes' own; 1.36 leaves such a gang alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from haru.controllers.objects import is_active
from haru.engine.podgroup import min_count
from haru.kube.durations import seconds_of
from haru.kube.meta import Obj, annotations_of, get_condition, node_of, phase_of
from haru.kube.names import format_time, parse_time

CONDITION = "haru.dev/Stale"
AFTER = "haru.dev/stale-gang-after"
POLICY = "haru.dev/stale-gang-policy"
POLICIES = ("Report", "Evict")


@dataclass(frozen=True, slots=True)
class StalePolicy:
    """After how many seconds below minCount a gang is stale (None: never), and whether its members are evicted then."""

    after: float | None = None
    evict: bool = False


def parse_after(text: str) -> float | None:
    """Seconds of a text such as `90s` or `1h30m`; None for `0s`, which switches off. ValueError says what to write."""
    try:
        seconds = seconds_of(text)
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise ValueError(f'Invalid value: "{text}": write a duration such as 10m or 1h30m, or 0s for never')
    return seconds or None


def parse_policy(text: str) -> bool:
    """Whether to evict; ValueError says what to write."""
    if text not in POLICIES:
        raise ValueError(f'Invalid value: "{text}": write {" or ".join(POLICIES)}')
    return text == "Evict"


def default_policy(after: str | None, policy: str) -> StalePolicy:
    """The policy that the flags `--stale-gang-after` and `--stale-gang-policy` set; ValueError names the flag."""
    flag, seconds = "--stale-gang-after", None
    try:
        seconds = parse_after(after) if after is not None else None
        flag = "--stale-gang-policy"
        return StalePolicy(seconds, parse_policy(policy))
    except ValueError as error:
        raise ValueError(f"{flag}: {error}") from None


def policy_of(group: Mapping[str, Any], default: StalePolicy) -> tuple[StalePolicy, list[str]]:
    """The policy for a group: what its annotations say, else the default; and what is wrong with the annotations."""
    annotations = annotations_of(group)
    policy, problems = default, []
    try:
        if (after := annotations.get(AFTER)) is not None:
            policy = replace(policy, after=parse_after(after))
    except ValueError as error:
        problems.append(f"metadata.annotations[{AFTER}]: {error}")
    try:
        if (wanted := annotations.get(POLICY)) is not None:
            policy = replace(policy, evict=parse_policy(wanted))
    except ValueError as error:
        problems.append(f"metadata.annotations[{POLICY}]: {error}")
    return policy, problems


@dataclass(frozen=True, slots=True)
class Members:
    """What there is of a gang."""

    needed: int
    running: tuple[Obj, ...]
    succeeded: int

    @classmethod
    def of(cls, group: Obj, pods: Iterable[Obj]) -> Members | None:
        """Count them; None for a group of the basic policy, which needs no number."""
        needed = min_count(group)
        if needed is None:
            return None
        pods = tuple(pods)
        running = tuple(pod for pod in pods if is_active(pod) and node_of(pod))
        return cls(needed, running, sum(phase_of(pod) == "Succeeded" for pod in pods))

    @property
    def present(self) -> int:
        """Members that run or have done their part."""
        return len(self.running) + self.succeeded

    @property
    def below(self) -> bool:
        """Some hold their places in vain."""
        return bool(self.running) and self.present < self.needed

    def describe(self) -> str:
        """How many there are of how many, in words."""
        done = f" ({self.succeeded} of them have succeeded)" if self.succeeded else ""
        return f"{self.present} of {self.needed} members that the gang needs are there{done}"


def was_scheduled(group: Mapping[str, Any]) -> bool:
    """The gang has been scheduled at least once."""
    return (get_condition(group, "PodGroupScheduled") or {}).get("status") == "True"


@dataclass(frozen=True, slots=True)
class Finding:
    """The condition that a group should have (None: none), and in how many seconds to look again."""

    condition: Obj | None
    again: float | None = None

    @property
    def is_stale(self) -> bool:
        """The time is over."""
        return self.condition is not None and self.condition["status"] == "True"


def look_at(group: Mapping[str, Any], members: Members, policy: StalePolicy, since: datetime, now: datetime) -> Finding:
    """Judge a gang at `now`; it was seen below minCount at `since`, if nothing is written yet."""
    old = get_condition(group, CONDITION)
    if policy.after is None or not was_scheduled(group) or not members.below:
        if old is None or old["status"] == "False":
            return Finding(old)
        if policy.after is None:
            return Finding(_condition("False", "NotWatched", "no time is set for this gang", now))
        reason = "Complete" if members.running else "NothingHeld"
        return Finding(_condition("False", reason, members.describe(), now))
    if old is not None and old["status"] == "True":
        return Finding({**old, "message": members.describe()})
    running_since = old is not None and old["status"] == "Unknown"
    begun = parse_time(old["lastTransitionTime"]) if old is not None and running_since else since
    left = (begun + timedelta(seconds=policy.after) - now).total_seconds()
    if left <= 0:
        return Finding(_condition("True", "BelowMinCount", members.describe(), now))
    return Finding(_condition("Unknown", "BelowMinCount", members.describe(), begun), left)


def _condition(status: str, reason: str, message: str, at: datetime) -> Obj:
    return {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_time(at),
    }
