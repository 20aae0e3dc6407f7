"""What a client left out and 1.36 fills in, before anything else looks at the object.

Defaulting happens in the version of the request, is idempotent, and looks at nothing but the object (and the
clock, for a device taint's `timeAdded`). What needs other objects (priority, tolerations, cluster IPs) is admission and
does not belong here. Source: the defaulting functions of each API group, as behaviour.
"""

from __future__ import annotations

from collections.abc import Set

from haru.kube.cloning import clone
from haru.kube.defaulting import core, devices, pods, policies, workloads
from haru.kube.defaulting.filling import Fillers
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind
from haru.kube.meta import Obj

_FILLERS: Fillers = {**pods.FILLERS, **core.FILLERS, **workloads.FILLERS, **policies.FILLERS}


_WITHOUT_DEFAULTS = frozenset({"apiVersion", "kind", "metadata"})


_JOB_LABELS = {"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"}


def stays_complete(obj: Obj, before: Obj, kind: Kind) -> bool:
    """Whether an object surely lacks no default that the complete one which it was made from had.

    Of what is the same object in both, of type and metadata nothing is asked, of the status of pods only addresses.
    """
    is_pod = kind.group_resource == "pods"
    for name, value in obj.items():
        if name in _WITHOUT_DEFAULTS or value is before.get(name):
            continue
        if is_pod and name == "status":
            if not pods.addresses_agree(value):
                return False
            continue
        old = before.get(name)
        if name != "spec" or not is_pod or not (isinstance(value, dict) and isinstance(old, dict)):
            return False
        if not pods.stays_complete(value, old):
            return False
    return before.keys() <= obj.keys()


def without_defaults(kind: Kind) -> Set[str]:
    """Members of the spec that have no defaults, in them or because of them, as far as these are known."""
    return pods.FREE if kind.group_resource == "pods" else frozenset()


def apply_defaults(obj: Obj, kind: Kind, gates: FeatureGates, now: str = "", *, own: bool = False) -> Obj:
    """The object with 1.36's defaults; the object itself where nothing was missing.

    `now` (RFC 3339) is the time that taints without `timeAdded` get; empty leaves them alone. `own`: the object and
    all that is in it belong to the caller, and it is changed itself.
    """
    if kind.custom is not None:
        return kind.custom.default(obj)
    if kind.group == devices.GROUP:
        return devices.fill(obj, kind.kind, kind.version, now)
    filler = _FILLERS.get((kind.group, kind.kind))
    if filler is None:
        return obj
    filled = obj if own else clone(obj)
    filler(filled, gates)
    return filled


def is_completed_by_reading(obj: Obj, kind: Kind) -> bool:
    """Whether 1.36 stores this new object without what it fills in when it reads it: the next update writes that.

    The phase of a claim for a volume is such, and the labels that a Job has from pods without labels of their own.
    """
    if kind.group_resource == "jobs.batch":
        labels = (obj["spec"]["template"].get("metadata") or {}).get("labels") or {}
        return labels.keys() == _JOB_LABELS and obj["metadata"].get("labels") == labels
    return kind.group_resource == "persistentvolumeclaims"
