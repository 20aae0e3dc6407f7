"""Values of the engine as plain JSON values and back: decisions, nominations, reservations, options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.dra.model.model import Features
from haru.engine.framework.options import Options
from haru.engine.framework.profile import FitStrategy, Profile
from haru.engine.packing_value.value import ExpectedRequest
from haru.engine.state.decision import ClaimAllocation, Decision, GroupKey, Obj, PodKey
from haru.engine.state.nominations import Nomination

# What is not said by a value: where decisions remember, and how identifiers are made.
_LEFT_OUT = frozenset({"memory", "new_share_id", "profile"})


def plain(value: Any) -> Any:
    """A value of the engine as JSON has it: tuples and sets as lists, sets sorted, dataclasses by field."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, PodKey | GroupKey):
        return list(value)
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    items = [plain(item) for item in value]
    return sorted(items) if isinstance(value, set | frozenset) else items


def decision_value(decision: Decision) -> Obj:
    """All that was decided; the version of the snapshot is the writer's own count and says nothing."""
    found: Obj = plain(replace(decision, version=0))
    return found


def options_value(options: Options) -> Obj:
    """The options, without their profile."""
    return {f.name: plain(getattr(options, f.name)) for f in fields(options) if f.name not in _LEFT_OUT}


def options_from(value: Obj, profile: Profile, new_share_id: Callable[[], str]) -> Options:
    """The options that were written."""
    return Options(**{**value, "features": Features(**value["features"])}, profile=profile, new_share_id=new_share_id)


def profile_from(value: Obj) -> Profile:
    """A profile that was written with `plain`."""
    pairs = {name: tuple((k, v) for k, v in value["fit"][name]) for name in ("resources", "shape")}
    sets = {name: frozenset(value[name]) for name in ("filters", "ignored_resources", "ignored_groups")}
    tuples = {name: tuple(value[name]) for name in ("balanced", "default_spread")}
    expected = tuple(
        (ExpectedRequest(cpu, cards, part, frozenset(models)), count)
        for (cpu, cards, part, models), count in value.get("expected") or ()
    )
    return Profile(
        **{**value, **sets, **tuples, "fit": FitStrategy(type=value["fit"]["type"], **pairs), "expected": expected}
    )


def nomination_from(value: Obj) -> Nomination:
    """A nomination that was written with `plain`."""
    return Nomination(
        PodKey(*value["pod"]),
        value["node"],
        value["priority"],
        tuple(ClaimAllocation(**given) for given in value["allocations"]),
        frozenset(PodKey(*pod) for pod in value["evictions"]),
        tuple(value["claimed"]),
    )


def reservation_from(value: Obj) -> BackfillReservation:
    """A reservation that was written with `plain`."""
    return BackfillReservation(
        GroupKey(*value["group"]) if value["group"] else None,
        value["priority"],
        tuple(nomination_from(place) for place in value["places"]),
        frozenset(PodKey(*pod) for pod in value["waits_for"]),
        value["until"],
    )
