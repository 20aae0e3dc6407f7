"""Read NodeAffinityArgs.

Source: the arguments of KubeSchedulerConfiguration v1 with their validation, as behaviour.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.profile import Profile
from haru.kube.errors import invalid
from haru.kube.validation.selectors import validate_node_selector, validate_node_selector_term

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def read_arguments(arguments: Arguments, profile: Profile) -> Profile:
    """Return the profile with the node affinity that every pod has besides its own."""
    added = arguments.part("addedAffinity")
    affinity: dict[str, Any] = {}
    if added.has(_REQUIRED):
        selector = added.take(_REQUIRED)
        affinity[_REQUIRED] = selector
        added.findings += validate_node_selector(added.at(_REQUIRED), selector)
    for entry in added.parts(_PREFERRED):
        weight, preference = entry.integer("weight", 0) or 0, entry.take("preference") or {}
        entry.done()
        if not 1 <= weight <= 100:
            entry.findings.append(invalid(entry.at("weight"), weight, "must be in the range 1-100"))
        entry.findings += validate_node_selector_term(entry.at("preference"), preference)
        affinity.setdefault(_PREFERRED, []).append({"weight": weight, "preference": preference})
    added.done()
    return replace(profile, added_affinity=affinity or None)
