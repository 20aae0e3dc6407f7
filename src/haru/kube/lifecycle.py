"""In which releases an API version is served, and from when on clients are warned that it is deprecated.

The table of kinds is 1.36's. A server that takes the place of an older version offers what that one had of it, no more;
what 1.36 has removed (scheduling.k8s.io/v1alpha1) is not offered by anybody. Beta and alpha versions are deprecated
three releases after they came and removed three releases later.
Source: the lifecycle markers of the API types of Kubernetes 1.36; its deprecation warnings, as behaviour.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from haru.kube.data import rows
from haru.kube.kinds import Kind

_RELEASE = 36


class _Life(NamedTuple):
    """Minor versions of 1.x; 0 stands for one before 1.33, or one that is not foreseen."""

    introduced: int = 0
    deprecated: int = 0
    removed: int = 0
    instead: str = ""


_LIVES = {
    (api_version, kind): _Life(int(introduced), int(deprecated), int(removed), " ".join(instead))
    for api_version, kind, introduced, deprecated, removed, *instead in rows("lifecycle")
}


def deprecation_warning(kind: Kind) -> str:
    """The warning that goes with every answer about the kind in this version; empty when there is none."""
    return kind.custom.warning if kind.custom is not None else _of_built_in(kind)


@cache
def _of_built_in(kind: Kind) -> str:
    _, deprecated, removed, instead = _LIVES.get((kind.api_version, kind.kind), _Life())
    if not deprecated or deprecated > _RELEASE:
        return ""
    text = f"{kind} is deprecated in v1.{deprecated}+"
    if removed:
        text += f", unavailable in v1.{removed}+"
    return text + (f"; use {instead}" if instead else "")


def is_in(kind: Kind, minor: int) -> bool:
    """Whether version 1.`minor` has the resource in this version."""
    return _LIVES.get((kind.api_version, kind.kind), _Life()).introduced <= minor
