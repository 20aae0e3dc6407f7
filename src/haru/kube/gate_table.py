"""The feature gates that this code or its documents know, with their stage and default in every version served.

`haru apiserver` may take an older version's place (emulation): a gate then has the stage and the default that it had
there, and one that came later does not exist. The table is data/gates.txt; of a gate's specifications
it has only the last before each version served.
Source: the versioned feature tables of Kubernetes 1.36.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from haru.kube.data import rows

Stage = Literal["ALPHA", "BETA", "GA"]

NEWEST = 36
"""The minor version of Kubernetes 1 that Haru is."""
OLDEST = 33
"""The oldest minor version whose place its API server can take."""
OLDEST_SERVER = 32
"""The oldest minor version of a server that its components can work with."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One feature gate as one version has it."""

    name: str
    stage: Stage
    default: bool
    locked: bool = False
    requires: tuple[str, ...] = ()


_TABLE = tuple(rows("gates"))
NAMES: tuple[str, ...] = tuple(name for name, *_ in _TABLE)
_STAGES: dict[str, Stage] = {"ALPHA": "ALPHA", "BETA": "BETA", "GA": "GA"}


@lru_cache(maxsize=8)
def gates_of(minor: int = NEWEST) -> MappingProxyType[str, Gate]:
    """The gates that version 1.`minor` has, by name and in its order. ValueError for a version that is not served."""
    check_minor(minor)
    found: dict[str, Gate] = {}
    for name, required, *specifications in _TABLE:
        requires = () if required == "-" else tuple(required.split(","))
        for text in specifications:
            since, stage, state, *locked = text.split(":")
            if int(since.partition(".")[2]) <= minor:
                found[name] = Gate(name, _STAGES[stage], state == "on", bool(locked), requires)
    return MappingProxyType(found)


def check_minor(minor: int) -> None:
    """Raise ValueError for a version that the table does not have."""
    if not OLDEST_SERVER <= minor <= NEWEST:
        raise ValueError(f"version 1.{minor} is not between [1.{OLDEST_SERVER}, 1.{NEWEST}.0]")
