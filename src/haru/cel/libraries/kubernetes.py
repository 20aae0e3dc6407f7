"""The base environment of Kubernetes 1.36: what every expression in its API may use, whatever its variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haru.cel.environment import Library
from haru.cel.errors import EvaluationError
from haru.cel.libraries.authorization import AUTHORIZATION
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
from haru.cel.macros import MAP_INSERT, TWO_VARIABLES
from haru.cel.overloads import function
from haru.cel.types import map_of, param
from haru.cel.values import Value, map_key, show

_K, _V = param("K"), param("V")
_MAP = map_of(_K, _V)


def _insert(entries: Mapping[Any, Value], key: Value, value: Value) -> dict[Any, Value]:
    encoded = map_key(key)
    if encoded in entries:
        raise EvaluationError(f"insert failed: key {show(key)} already exists")
    return {**entries, encoded: value}


def _insert_all(entries: Mapping[Any, Value], more: Mapping[Any, Value]) -> dict[Any, Value]:
    for key in more:
        if key in entries:
            raise EvaluationError(f"insert failed: key {show(key)} already exists")
    return {**entries, **more}


TWO_VARIABLE_COMPREHENSIONS = Library(
    "cel.lib.ext.comprehensions",
    {
        MAP_INSERT: (
            function("@mapInsert_map_map", (_MAP, _MAP), _MAP, _insert_all),
            function("@mapInsert_map_key_value", (_MAP, _K, _V), _MAP, _insert),
        )
    },
    TWO_VARIABLES,
)


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
