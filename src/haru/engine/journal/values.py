"""Convert decisions, nominations, reservations and options to plain JSON values and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.dra.model.model import Features
from haru.engine.framework.options import Options, PreemptionOptions, SchedulerGates, SearchBudgets
from haru.engine.framework.profile import DefaultSpread, FitStrategy, IgnoredResources, InterPodAffinityArgs, Profile
from haru.engine.packing_value.value import ExpectedRequest
from haru.engine.state.decision import ClaimAllocation, Decision, GroupKey, PodKey
from haru.engine.state.pending_reservations import Nomination
from haru.kube.meta import Obj

# A journal has no caches and no functions; the profile has an entry of its own.
_LEFT_OUT = frozenset({"new_share_id", "profile", "recorder"})
_SECTIONS: Mapping[str, type[Any]] = {
    "gates": SchedulerGates,
    "budgets": SearchBudgets,
    "preemption": PreemptionOptions,
}
_PROFILE_NAMES = {
    "ignored": {"ignored_resources": "names", "ignored_groups": "groups"},
    "spread": {"default_spread": "constraints", "system_spread": "system"},
    "affinity": {"hard_affinity_weight": "hard_weight", "ignore_preferred_of_existing": "ignore_preferred"},
}
"""The names in a journal of what a profile has in a value of its own."""


def plain(value: Any) -> Any:
    """Return a value of the engine as JSON: tuples and sets as lists, sets sorted, dataclasses by field."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, PodKey | GroupKey):
        return list(value)
    if isinstance(value, Profile):
        return _profile_value(value)
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    items = [plain(item) for item in value]
    return sorted(items) if isinstance(value, set | frozenset) else items


def decision_value(decision: Decision) -> Obj:
    """Return a decision without its snapshot version, which only its writer can interpret."""
    found: Obj = plain(replace(decision, version=0, diagnosis=None))
    del found["diagnosis"]
    for member in found["members"]:
        if not member["volumes"]:
            del member["volumes"]
    return found


def options_value(options: Options) -> Obj:
    """Return the options without their profile; the fields of gates, budgets and preemption are not nested."""
    found: Obj = {f.name: plain(getattr(options, f.name)) for f in fields(options) if f.name not in _LEFT_OUT}
    for section in _SECTIONS:
        found.update(found.pop(section))
    return found


def options_from(value: Obj, profile: Profile, new_share_id: Callable[[], str]) -> Options:
    """Return the options that `options_value` wrote; what is missing has its default."""
    given = dict(value)
    features = Features(**given.pop("features"))
    sections: dict[str, Any] = {
        name: section(**{f.name: given.pop(f.name) for f in fields(section) if f.name in given})
        for name, section in _SECTIONS.items()
    }
    return Options(**given, **sections, features=features, profile=profile, new_share_id=new_share_id)


def _profile_value(profile: Profile) -> Obj:
    """Return a profile with the arguments of its plugins not nested, as older journals have it."""
    found = {f.name: plain(getattr(profile, f.name)) for f in fields(profile)}
    for section, names in _PROFILE_NAMES.items():
        given = found.pop(section)
        found.update({flat: given[name] for flat, name in names.items()})
    return found


def profile_from(value: Obj) -> Profile:
    """A profile that was written with `plain`."""
    pairs = {name: tuple((k, v) for k, v in value["fit"][name]) for name in ("resources", "shape")}
    flat = {name for names in _PROFILE_NAMES.values() for name in names}
    sections = {
        "ignored": IgnoredResources(frozenset(value["ignored_resources"]), frozenset(value["ignored_groups"])),
        "spread": DefaultSpread(tuple(value["default_spread"]), value["system_spread"]),
        "affinity": InterPodAffinityArgs(value["hard_affinity_weight"], value["ignore_preferred_of_existing"]),
    }
    lists = {"filters": frozenset(value["filters"]), "balanced": tuple(value["balanced"])}
    expected = tuple(
        (ExpectedRequest(cpu, cards, part, frozenset(models)), count)
        for (cpu, cards, part, models), count in value.get("expected") or ()
    )
    fit = FitStrategy(type=value["fit"]["type"], **pairs)
    other = {name: given for name, given in value.items() if name not in flat}
    return Profile(**{**other, **sections, **lists, "fit": fit, "expected": expected})


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
