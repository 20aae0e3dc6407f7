"""Read PodTopologySpreadArgs.

Source: the arguments of KubeSchedulerConfiguration v1 with their validation, as behaviour.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.profile import SYSTEM_SPREAD, Profile
from haru.kube.errors import duplicate, invalid, not_supported
from haru.kube.validation.common import label_key

_WHEN = ("DoNotSchedule", "ScheduleAnyway")


def read_arguments(arguments: Arguments, profile: Profile) -> Profile:
    """Return the profile with the constraints of pods that have none of their own."""
    listed = arguments.parts("defaultConstraints")
    kind = arguments.text("defaultingType", "System")
    if kind not in ("List", "System"):
        arguments.findings.append(not_supported(arguments.at("defaultingType"), kind, ("List", "System")))
    elif kind == "System" and listed:
        why = "when .defaultConstraints are not empty: write List"
        arguments.findings.append(invalid(arguments.at("defaultingType"), kind, why))
    constraints = tuple(_constraint(entry) for entry in listed)
    pairs = [(c["topologyKey"], c["whenUnsatisfiable"]) for c in constraints]
    for index, (key, when) in enumerate(pairs):
        if (key, when) in pairs[:index]:
            arguments.findings.append(duplicate(f"{arguments.at('defaultConstraints')}[{index}]", f"{{{key}, {when}}}"))
    if kind == "List":
        return replace(profile, default_spread=constraints, system_spread=False)
    return replace(profile, default_spread=SYSTEM_SPREAD, system_spread=True)


def _constraint(entry: Arguments) -> dict[str, Any]:
    skew, key, when = entry.integer("maxSkew", 0) or 0, entry.need("topologyKey"), entry.need("whenUnsatisfiable")
    if skew <= 0:
        entry.findings.append(invalid(entry.at("maxSkew"), skew, "not in valid range (0, inf)"))
    if key:
        entry.findings += label_key(entry.at("topologyKey"), key)
    if when and when not in _WHEN:
        entry.findings.append(not_supported(entry.at("whenUnsatisfiable"), when, _WHEN))
    entry.refuse("labelSelector", "constraint must not define a selector, as they deduced for each pod")
    found: dict[str, Any] = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when}
    if entry.has("minDomains"):
        found["minDomains"] = entry.integer("minDomains")
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if entry.has(name):
            found[name] = entry.text(name)
            if found[name] not in ("Honor", "Ignore"):
                entry.findings.append(not_supported(entry.at(name), found[name], ("Honor", "Ignore")))
    if entry.has("matchLabelKeys"):
        found["matchLabelKeys"] = entry.texts("matchLabelKeys")
    entry.done()
    return found
