"""The base environment of Kubernetes 1.36: what every expression in its API may use, whatever its variables."""

from __future__ import annotations

from haru.cel.environment import Library
from haru.cel.libraries.authorization import AUTHORIZATION
from haru.cel.libraries.comprehensions import TWO_VARIABLE_COMPREHENSIONS
from haru.cel.libraries.formats import FORMAT
from haru.cel.libraries.lists import KUBERNETES_LISTS, LISTS, SETS
from haru.cel.libraries.network import CIDRS, IPS
from haru.cel.libraries.optionals import LIBRARY as OPTIONALS
from haru.cel.libraries.quantity import QUANTITIES
from haru.cel.libraries.regex import REGEX
from haru.cel.libraries.semver import SEMVERS
from haru.cel.libraries.standard import STANDARD
from haru.cel.libraries.strings import STRINGS
from haru.cel.libraries.urls import URLS
from haru.cel.macros import BINDINGS as BINDING_MACROS

BINDINGS = Library("cel.lib.ext.cel.bindings", {}, BINDING_MACROS)
"""`cel.bind`: not in the base, but in the device environment."""

BASE: tuple[Library, ...] = (
    STANDARD,
    URLS,
    REGEX,
    KUBERNETES_LISTS,
    AUTHORIZATION,
    OPTIONALS,
    QUANTITIES,
    STRINGS,
    SETS,
    IPS,
    CIDRS,
    FORMAT,
    TWO_VARIABLE_COMPREHENSIONS,
    SEMVERS,
    LISTS,
)
