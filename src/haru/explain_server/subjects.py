"""The object that a path names, in a snapshot."""

from __future__ import annotations

from haru.engine import Snapshot
from haru.engine.state import GroupKey
from haru.explain import SubjectKind
from haru.explain_server.discovery import OBJECT_KINDS, RESOURCES
from haru.gangs import is_foreign_group
from haru.kube.meta import Obj


def find(snapshot: Snapshot, resource: str, namespace: str, name: str) -> tuple[SubjectKind, Obj] | None:
    """The object of a resource and how it is explained; None where there is none."""
    kind, prefix = RESOURCES[resource]
    path = f"{namespace}/{prefix}{name}"
    if kind == "pod":
        pod = snapshot.pods.get(path)
        found = pod.obj if pod is not None else None
    elif kind == "resourceclaim":
        found = snapshot.claims.get(path)
    elif kind == "podgroup":
        found = _group(snapshot, namespace, f"{prefix}{name}")
    else:
        found = snapshot.objects(OBJECT_KINDS[kind]).get(path)
    return (kind, {"kind": OBJECT_KINDS[kind], **found}) if found is not None else None


def _group(snapshot: Snapshot, namespace: str, name: str) -> Obj | None:
    """A PodGroup, or a gang of another project: of several that one object describes the first that waits."""
    wanted = f"{namespace}/{name}" if is_foreign_group(name) else f"{namespace}/podgroup:{name}"
    known = snapshot.pod_groups.get(f"{namespace}/{name}")
    if known is not None:
        return known
    paths = sorted(path for path in snapshot.pod_groups if path == wanted or path.startswith(f"{wanted}:"))
    states = {path: snapshot.group_state(GroupKey(*path.split("/", 1))) for path in paths}
    first = next((path for path in paths if states[path].unscheduled), next(iter(paths), None))
    return snapshot.pod_groups[first] if first is not None else None
