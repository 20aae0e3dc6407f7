"""Check DynamicResourcesArgs.

Source: the arguments of KubeSchedulerConfiguration v1 with their validation, as behaviour.
"""

from __future__ import annotations

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.profile import Profile
from haru.kube.errors import invalid


def read_arguments(arguments: Arguments, profile: Profile) -> Profile:
    """Check the timeouts and change nothing.

    Steps bound the search for devices, not time, and binding conditions are not waited for.
    """
    if arguments.seconds("filterTimeout", 10.0) < 0:
        arguments.findings.append(invalid(arguments.at("filterTimeout"), "", "must be zero or positive"))
    if arguments.seconds("bindingTimeout", 600.0) < 1:
        arguments.findings.append(invalid(arguments.at("bindingTimeout"), "", "must be at least 1 second"))
    return profile
