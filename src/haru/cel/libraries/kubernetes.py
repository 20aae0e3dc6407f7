"""The base environment of Kubernetes 1.36: what every expression in its API may use, whatever its variables."""

from __future__ import annotations

from haru.cel.environment import Library
from haru.cel.libraries.optionals import LIBRARY as OPTIONALS
from haru.cel.libraries.quantity import QUANTITIES
from haru.cel.libraries.regex import REGEX
from haru.cel.libraries.semver import SEMVERS
from haru.cel.libraries.standard import STANDARD
from haru.cel.macros import BINDINGS

CEL_BINDINGS = Library("cel.lib.ext.cel.bindings", {}, BINDINGS)

BASE: tuple[Library, ...] = (STANDARD, OPTIONALS, REGEX, QUANTITIES, SEMVERS, CEL_BINDINGS)
