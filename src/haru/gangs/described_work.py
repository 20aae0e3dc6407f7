"""What its author calls work whose gang, or whose Jobs and StatefulSets, another project makes: `jobset/sweep`.

Source: the owners and labels that the controllers of the adapters' projects give their pods, as behaviour.
"""

from __future__ import annotations

from haru.gangs.adapters.coscheduling import COSCHEDULING_POD_GROUP
from haru.gangs.adapters.jobset import JobSet
from haru.gangs.adapters.kubeflow import MPI
from haru.gangs.adapters.leaderworkerset import LeaderWorkerSet
from haru.gangs.gang import SEPARATOR, Adapter
from haru.gangs.registry import KINDS
from haru.kube.meta import Obj

_ABOVE: dict[str, tuple[Adapter, ...]] = {"Job": (JobSet(), MPI()), "StatefulSet": (LeaderWorkerSet(),)}
"""The projects that make Jobs and StatefulSets, which then make the pods."""


def is_foreign_group(name: str) -> bool:
    """Return whether a PodGroup's name is that of a gang of another project."""
    return SEPARATOR in name


def title_of(name: str) -> tuple[str, str]:
    """Return kind and name of what describes a gang, by the name of its PodGroup."""
    prefix, separator, rest = name.partition(SEPARATOR)
    if not separator:
        return "PodGroup", name
    return next((kind.kind for kind in KINDS if kind.prefix == f"{prefix}{SEPARATOR}"), prefix), rest


def described_by(name: str) -> str:
    """Return the object by which its author described a gang, as `jobset/sweep`; empty if that only groups pods."""
    if not is_foreign_group(name):
        return ""
    kind, rest = title_of(name)
    described = any(each.kind == kind and each.group != COSCHEDULING_POD_GROUP.group for each in KINDS)
    return f"{kind.lower()}/{rest.partition(SEPARATOR)[0]}" if described else ""


def described_above(pod: Obj, kind: str) -> str:
    """Return what made the Job or StatefulSet (`kind`) that made a pod, as `jobset/sweep`; empty for its author."""
    sources = (adapter.source_of(pod) for adapter in _ABOVE.get(kind, ()))
    found = (source for source in sources if source is not None and source.kind is not None)
    return next((f"{source.kind.kind.lower()}/{source.name}" for source in found if source.kind is not None), "")
