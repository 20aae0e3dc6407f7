"""Read `pluginConfig` of one profile: each plugin reads its own arguments.

Source: the plugin arguments of KubeSchedulerConfiguration v1 with their validation, as behaviour.
"""

from __future__ import annotations

from haru.engine import Profile
from haru.engine.plugins import ARGUMENT_READERS
from haru.kube.errors import duplicate, forbidden, invalid
from haru.scheduler.configuration.fields import Fields, suggestion

_API_VERSION = "kubescheduler.config.k8s.io/v1"


def read_plugin_config(entries: list[Fields], profile: Profile) -> Profile:
    """Return the profile with the arguments of its plugins."""
    seen: set[str] = set()
    for entry in entries:
        name = entry.need("name")
        arguments = entry.part("args")
        entry.done()
        if name in seen:
            entry.findings.append(duplicate(entry.at("name"), name))
        elif name in ARGUMENT_READERS:
            _check_type(arguments, name)
            profile = ARGUMENT_READERS[name](arguments, profile)
            arguments.done()
        elif name:
            why = f'"{name}": no plugin of this name takes arguments{suggestion(name, ARGUMENT_READERS)}'
            entry.findings.append(forbidden(entry.at("name"), why))
        seen.add(name)
    return profile


def _check_type(arguments: Fields, plugin: str) -> None:
    for name, wanted in (("apiVersion", _API_VERSION), ("kind", f"{plugin}Args")):
        given = arguments.text(name, wanted)
        if given != wanted:
            arguments.findings.append(invalid(arguments.at(name), given, f'must be "{wanted}"'))
