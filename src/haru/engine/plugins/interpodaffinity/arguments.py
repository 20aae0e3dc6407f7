"""Read InterPodAffinityArgs.

Source: the arguments of KubeSchedulerConfiguration v1 with their validation, as behaviour.
"""

from __future__ import annotations

from dataclasses import replace

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.profile import Profile
from haru.kube.errors import invalid


def read_arguments(arguments: Arguments, profile: Profile) -> Profile:
    """Return the profile with the weight of required terms, and whether others' preferred terms count."""
    weight = arguments.integer("hardPodAffinityWeight", 1)
    assert weight is not None
    if not 0 <= weight <= 100:
        arguments.findings.append(invalid(arguments.at("hardPodAffinityWeight"), weight, "not in valid range [0, 100]"))
    ignore = arguments.flag("ignorePreferredTermsOfExistingPods")
    return replace(profile, hard_affinity_weight=weight, ignore_preferred_of_existing=ignore)
