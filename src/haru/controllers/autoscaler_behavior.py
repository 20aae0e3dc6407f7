"""How far and how soon an autoscaler follows its metrics: stabilization, rates, bounds, and what it remembers. Pure.

Without `spec.behavior` a workload shrinks to the highest recommendation of five minutes, and grows to no more than
twice its replicas (at least four) at once. With it, windows and policies say so for each direction.
Source: Kubernetes 1.36, pkg/controller/podautoscaler/horizontal.go, as behaviour (KEP-853).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from haru.controllers.objects import ConditionText

STABILIZATION_SECONDS: Final = 300
_SCALE_UP_FACTOR, _SCALE_UP_MINIMUM = 2, 4
_LOWER = "recent recommendations were lower than current one, applying the lowest recent recommendation"
_HIGHER = "recent recommendations were higher than current one, applying the highest recent recommendation"
_TOO_FAST = "the desired replica count is {} faster than the maximum scale rate"


class Timed(NamedTuple):
    """A number of replicas at a moment, in seconds of a clock that never jumps."""

    time: float
    replicas: int


@dataclass(frozen=True, slots=True)
class History:
    """What was recommended lately, and how many replicas were added and removed."""

    recommended: tuple[Timed, ...] = ()
    added: tuple[Timed, ...] = ()
    removed: tuple[Timed, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """What metrics ask for, and between which bounds it has to stay."""

    current: int
    desired: int
    low: int
    high: int


class Limited(NamedTuple):
    """What may be done about a wish now, the conditions that say so, and what to remember."""

    replicas: int
    conditions: tuple[ConditionText, ConditionText]
    history: History


class _Limit(NamedTuple):
    replicas: int
    reason: str
    message: str


Behavior = Mapping[str, Any]
Rules = Mapping[str, Any]


def started(history: History | None, current: int, now: float) -> History:
    """The history of an autoscaler that is looked at: nothing shrinks at once that was found running."""
    return history if history is not None else History((Timed(now, current),))


def limited(wish: Wish, behavior: Behavior | None, history: History, now: float) -> Limited:
    """Stabilize a wish, then limit how fast it comes true."""
    if behavior is None:
        stable, stabilized = _stabilized_down(wish, history, now)
        limit = _limit_by_default(replace(wish, desired=stable))
        windows = (0, STABILIZATION_SECONDS)
    else:
        windows = _windows(behavior)
        stable, stabilized = _stabilized(wish, windows, history, now)
        limit = _limit_by_rules(replace(wish, desired=stable), behavior, history, now)
    able = stabilized if stable != wish.desired else _ready()
    held = ConditionText("ScalingLimited", str(limit.replicas != stable), limit.reason, limit.message)
    # What is older than both windows is never looked at again.
    since = now - max(windows)
    kept = (one for one in history.recommended if one.time >= since)
    return Limited(limit.replicas, (able, held), replace(history, recommended=(*kept, Timed(now, wish.desired))))


def rescaled(history: History, behavior: Behavior | None, before: int, after: int, now: float) -> History:
    """Remember a change that was made, as long as a policy looks back."""
    if behavior is None:
        return history
    if after > before:
        kept = _recent(history.added, _longest_period(behavior["scaleUp"]), now)
        return replace(history, added=(*kept, Timed(now, after - before)))
    kept = _recent(history.removed, _longest_period(behavior["scaleDown"]), now)
    return replace(history, removed=(*kept, Timed(now, before - after)))


def _ready() -> ConditionText:
    return ConditionText("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size")


def _windows(behavior: Behavior) -> tuple[int, int]:
    """Seconds of stabilization upwards and downwards."""
    up, down = (behavior[member].get("stabilizationWindowSeconds") for member in ("scaleUp", "scaleDown"))
    return up or 0, STABILIZATION_SECONDS if down is None else down


def _stabilized_down(wish: Wish, history: History, now: float) -> tuple[int, ConditionText]:
    since = now - STABILIZATION_SECONDS
    recent = (one.replicas for one in history.recommended if one.time >= since)
    reason = ConditionText("AbleToScale", "True", "ScaleDownStabilized", _HIGHER)
    return max(wish.desired, *recent, 0), reason


def _stabilized(wish: Wish, windows: tuple[int, int], history: History, now: float) -> tuple[int, ConditionText]:
    """The current count, moved no further than every recommendation of the windows agrees to."""
    lowest, highest = (
        [wish.desired, *(one.replicas for one in history.recommended if one.time > now - window)] for window in windows
    )
    stable = min(max(wish.current, min(lowest)), max(highest))
    up = wish.desired >= wish.current
    reason, message = ("ScaleUpStabilized", _LOWER) if up else ("ScaleDownStabilized", _HIGHER)
    return stable, ConditionText("AbleToScale", "True", reason, message)


def _limit_by_default(wish: Wish) -> _Limit:
    fastest = max(_SCALE_UP_FACTOR * wish.current, _SCALE_UP_MINIMUM)
    if wish.desired < wish.low:
        return _too_few(wish.low)
    if wish.desired > min(wish.high, fastest):
        return _too_fast(fastest, "increasing") if wish.high > fastest else _too_many(wish.high)
    return _within(wish.desired)


def _limit_by_rules(wish: Wish, behavior: Behavior, history: History, now: float) -> _Limit:
    if wish.desired > wish.current:
        fastest = max(_reach(behavior["scaleUp"], 1, wish.current, history, now), wish.current)
        if wish.desired > min(wish.high, fastest):
            return _too_fast(fastest, "increasing") if wish.high > fastest else _too_many(wish.high)
    elif wish.desired < wish.current:
        fastest = min(_reach(behavior["scaleDown"], -1, wish.current, history, now), wish.current)
        if wish.desired < max(wish.low, fastest):
            return _too_fast(fastest, "decreasing") if wish.low < fastest else _too_few(wish.low)
    return _within(wish.desired)


def _reach(rules: Rules, sign: int, current: int, history: History, now: float) -> int:
    """How far the policies of one direction let the replicas go, from what they were when each period began."""
    chosen = rules.get("selectPolicy") or "Max"
    if chosen == "Disabled":
        return current
    ends = []
    for policy in rules.get("policies") or ():
        period = policy["periodSeconds"]
        start = current - _changed(history.added, period, now) + _changed(history.removed, period, now)
        ends.append(_end(policy, start, sign))
    widest = max if (chosen == "Min") == (sign < 0) else min
    return widest(ends, default=current)


def _end(policy: Mapping[str, Any], start: int, sign: int) -> int:
    if policy["type"] == "Pods":
        return start + sign * int(policy["value"])
    share = start * (1 + sign * policy["value"] / 100)
    # Upwards a share of few replicas is still one more.
    return math.ceil(share) if sign > 0 else int(share)


def _recent(events: Iterable[Timed], seconds: int, now: float) -> Iterable[Timed]:
    return (one for one in events if one.time >= now - seconds)


def _changed(events: Iterable[Timed], seconds: int, now: float) -> int:
    return sum(one.replicas for one in events if one.time > now - seconds)


def _longest_period(rules: Rules) -> int:
    return max((policy["periodSeconds"] for policy in rules.get("policies") or ()), default=0)


def _too_few(low: int) -> _Limit:
    return _Limit(low, "TooFewReplicas", "the desired replica count is less than the minimum replica count")


def _too_many(high: int) -> _Limit:
    return _Limit(high, "TooManyReplicas", "the desired replica count is more than the maximum replica count")


def _too_fast(replicas: int, how: str) -> _Limit:
    reason = "ScaleUpLimit" if how == "increasing" else "ScaleDownLimit"
    return _Limit(replicas, reason, _TOO_FAST.format(how))


def _within(desired: int) -> _Limit:
    return _Limit(desired, "DesiredWithinRange", "the desired count is within the acceptable range")
