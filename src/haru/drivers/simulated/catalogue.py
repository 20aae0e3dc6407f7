"""The profile of each simulated node, found by its label.

The label `simulated.haru.dev/profile` names the profile. The annotation `simulated.haru.dev/profile-spec` describes one
that is not built in, as YAML or JSON; nodes that were made from a file carry it, and so are known after a restart too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from haru.drivers.simulated.objects import PROFILE_LABEL, PROFILE_SPEC, profile_label
from haru.drivers.simulated.profiles import Profile, ProfileError, described_profile, load_profile
from haru.kube.meta import annotations_of, labels_of

UNKNOWN_PROFILE: Final = "UnknownProfile"
"""The reason of the event about a node whose profile cannot be found."""


class Catalogue:
    """The built-in profiles, those given, and those that nodes describe themselves."""

    def __init__(self, profiles: Iterable[Profile] = ()) -> None:
        self._given = {profile_label(profile): profile for profile in profiles}

    def profile_of(self, node: Mapping[str, Any]) -> Profile | None:
        """The profile of a simulated node, None for a node of someone else's; ProfileError if it makes no sense."""
        label = labels_of(node).get(PROFILE_LABEL)
        if not label:
            return None
        described = annotations_of(node).get(PROFILE_SPEC)
        if described:
            return described_profile(described, f"annotation {PROFILE_SPEC}", label)
        given = self._given.get(label)
        if given is not None:
            return given
        if label.endswith((".yaml", ".yml")):  # files are read for who starts the cluster only
            raise ProfileError(f'label {PROFILE_LABEL}: "{label}": describe the profile in annotation {PROFILE_SPEC}')
        return load_profile(label)
