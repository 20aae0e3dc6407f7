"""The feature gates of `haru up`."""

from __future__ import annotations

from haru.embedded.errors import OptionError
from haru.embedded.options import UpOptions
from haru.kube.gates import FeatureGates, parse_overrides


def gates_of(options: UpOptions) -> FeatureGates:
    """The gates of accelerators, changed by what the options say. Raises OptionError."""
    try:
        return FeatureGates.accelerator_defaults(parse_overrides(options.feature_gates))
    except ValueError as error:
        raise OptionError(f"--feature-gates: {error}") from error
