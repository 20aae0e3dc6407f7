"""All adapters, in the order in which a pod is offered to them: what somebody wrote on purpose comes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from haru.gangs.adapters.annotated import Annotated
from haru.gangs.adapters.coscheduling import Coscheduling
from haru.gangs.adapters.jobset import JobSet
from haru.gangs.adapters.kubeflow import MPI, Kubeflow
from haru.gangs.adapters.kuberay import KubeRay
from haru.gangs.adapters.kueue import KUEUE_KINDS, Kueue
from haru.gangs.adapters.leaderworkerset import LeaderWorkerSet
from haru.gangs.gang import Adapter, ForeignKind
from haru.kube.decoding import suggest_name

_ALL: tuple[Adapter, ...] = (
    Coscheduling(),
    JobSet(),
    LeaderWorkerSet(),
    KubeRay(),
    Kubeflow(),
    MPI(),
    Kueue(),
    Annotated(),
)
ADAPTERS: Mapping[str, Adapter] = MappingProxyType({adapter.name: adapter for adapter in _ALL})
"""Adapters by the names that `--gang-adapters` takes. A PodGroup that an author wrote wins over the rest."""

KINDS: tuple[ForeignKind, ...] = tuple({kind.key: kind for one in _ALL for kind in one.kinds}.values())
"""The kinds that some adapter, or an explanation, reads."""


def parse_adapters(text: str) -> frozenset[str]:
    """Return the adapters that a flag turns on: `*`, names, `-name` for all but that; raises ValueError.

    As in `--controllers` of kube-controller-manager; an empty text turns all off.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        name = word.removeprefix("-")
        if word != "*" and name not in ADAPTERS:
            close = suggest_name(name, ADAPTERS)
            hint = f'; did you mean "{close}"?' if close else f"; there are {', '.join(ADAPTERS)}"
            raise ValueError(f'"{name}": no such adapter{hint}')
    chosen = set(ADAPTERS) if "*" in words else {word for word in words if word in ADAPTERS}
    return frozenset(chosen - {word.removeprefix("-") for word in words if word.startswith("-")})


def adapters_for(names: Iterable[str], readable: Iterable[ForeignKind]) -> tuple[Adapter, ...]:
    """Return the adapters of these names whose kinds are readable; those that read none always are."""
    wanted, there = frozenset(names), frozenset(kind.key for kind in readable)
    found = []
    for adapter in _ALL:
        kinds = {kind.key for kind in adapter.kinds} - {kind.key for kind in KUEUE_KINDS}
        if adapter.name in wanted and (not kinds or kinds & there):
            found.append(adapter)
    return tuple(found)


def served(resources: frozenset[tuple[str, str, str]]) -> tuple[ForeignKind, ...]:
    """Return the kinds of which a server serves a version that is understood."""
    return tuple(kind for kind in KINDS if kind.served_version(resources))


def foreign_kind(obj: Mapping[str, Any]) -> ForeignKind | None:
    """Return the kind of an object of another project; None for an object that no adapter reads."""
    return next((kind for kind in KINDS if kind.is_kind_of(obj)), None)
