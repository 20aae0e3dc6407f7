"""Pods of any other controller, such as an Indexed Job, whose template says that they are a gang.

A Job without Kubernetes' Workload API is no gang by itself: neither its completions nor an index say that its pods need
one another. `haru.dev/gang-min-count` in the pod template does; the pods of one controller are the gang.
"""

from __future__ import annotations

from haru.gangs.gang import MIN_COUNT, SEPARATOR, ForeignKind, Gang, Source, annotation, number
from haru.kube.meta import Obj, controller_of


class Annotated:
    """The pods of one controller whose template carries the annotation."""

    name = "annotation"
    kinds: tuple[ForeignKind, ...] = ()

    def source_of(self, pod: Obj) -> Source | None:
        """Return that the pod itself says all, if it is annotated and has a controller."""
        owner = controller_of(pod) if number(annotation(pod, MIN_COUNT)) else None
        return Source(None, str(owner.get("name"))) if owner is not None else None

    def gang_of(self, pod: Obj, obj: Obj | None) -> Gang | None:
        """Return the gang of the pod's controller."""
        owner, count = controller_of(pod) or {}, number(annotation(pod, MIN_COUNT))
        return Gang(f"{str(owner.get('kind')).lower()}{SEPARATOR}{owner.get('name')}", count) if count else None
