"""Check VolumeBindingArgs.

Source: the arguments of KubeSchedulerConfiguration v1 with their validation, as behaviour.
"""

from __future__ import annotations

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.profile import Profile
from haru.kube.errors import invalid


def read_arguments(arguments: Arguments, profile: Profile) -> Profile:
    """Check the timeout and change nothing: volumes are not bound late."""
    seconds = arguments.integer("bindTimeoutSeconds", 600)
    if seconds is not None and seconds < 0:
        why = "invalid BindTimeoutSeconds, should not be a negative value"
        arguments.findings.append(invalid(arguments.at("bindTimeoutSeconds"), seconds, why))
    arguments.refuse("shape", "needs the feature gate StorageCapacityScoring, which is not there")
    return profile
