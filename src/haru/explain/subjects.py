"""The object that KIND/NAME means, in a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from haru.engine import Snapshot
from haru.engine.state import GroupKey
from haru.errors import InputError, NotFoundError
from haru.explain.device_names import DeviceNameError, find_in
from haru.explain.object_names import PlaceKind, SubjectKind
from haru.explain.pending_choice import elsewhere, meant
from haru.explain.results import DeviceStory, NodeStory
from haru.explain.stories import explain_device, explain_node
from haru.gangs import KINDS, KUEUE_WORKLOAD, is_foreign_group, kueue_hold, title_of
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj

_API = {
    "pod": ("v1", "Pod"),
    "podgroup": ("scheduling.k8s.io/v1alpha2", "PodGroup"),
    "job": ("batch/v1", "Job"),
    "replicaset": ("apps/v1", "ReplicaSet"),
    "statefulset": ("apps/v1", "StatefulSet"),
    "resourceclaim": ("resource.k8s.io/v1", "ResourceClaim"),
}


def explain_place(
    snapshot: Snapshot, kind: PlaceKind, name: str, *, unread: Sequence[str] = ()
) -> NodeStory | DeviceStory:
    """The story of a node or a device; `unread` are kinds that could not be read.

    Raises NotFoundError where there is none, or what was meant is not clear, InputError if it cannot be told of.
    """
    needed = "Node" if kind == "node" else "ResourceSlice"
    if needed in unread:
        raise InputError(f"{kind}/{name}: cannot be told of: not allowed to read {needed} objects")
    try:
        if kind == "node":
            return explain_node(snapshot, name, unread=unread)
        labels = {node: snapshot.nodes[node].labels for node in snapshot.node_names}
        return explain_device(snapshot, find_in(name, snapshot.devices, labels), unread=unread)
    except DeviceNameError as error:
        raise NotFoundError(str(error)) from error
    except KeyError as error:
        raise NotFoundError(f'there is no {kind} "{name}"') from error


def subject_in(snapshot: Snapshot, kind: SubjectKind, namespace: str, name: str) -> Obj | None:
    """The object, with its kind; None if there is none."""
    path = f"{namespace}/{name}"
    found: Obj | None
    if kind == "pod":
        info = snapshot.pods.get(path)
        found = info.obj if info is not None else None
    elif kind == "resourceclaim":
        found = snapshot.claims.get(path)
    elif kind == "podgroup":
        found = snapshot.pod_groups.get(path) or _foreign_group(snapshot, namespace, name)
    else:
        found = snapshot.objects(_API[kind][1]).get(path)
    return None if found is None else {"apiVersion": _API[kind][0], "kind": _API[kind][1], **found}


def find_subject(snapshot: Snapshot, kind: SubjectKind, namespace: str, name: str) -> Obj:
    """The object, with its kind; raises NotFoundError."""
    found = subject_in(snapshot, kind, namespace, name)
    if found is not None:
        return found
    if kind == "podgroup" and is_foreign_group(name):
        raise NotFoundError(_without_pods(snapshot, namespace, *title_of(name)))
    known = _known(snapshot, kind)
    there = {space for space, _, each in (path.partition("/") for path in known) if each == name}
    hint = elsewhere(there) or meant(
        name, (each for space, _, each in (path.partition("/") for path in known) if space == namespace)
    )
    raise NotFoundError(f'there is no {kind} "{name}" in namespace {namespace}{hint}')


def _known(snapshot: Snapshot, kind: SubjectKind) -> Mapping[str, object]:
    """All objects of a kind, by path."""
    indexes: dict[str, Mapping[str, object]] = {
        "pod": snapshot.pods,
        "resourceclaim": snapshot.claims,
        "podgroup": snapshot.pod_groups,
    }
    return indexes.get(kind) or snapshot.objects(_API[kind][1])


def _foreign_group(snapshot: Snapshot, namespace: str, name: str) -> Obj | None:
    """A gang of another project: of several that one object describes the first that waits, else the first."""
    wanted = f"{namespace}/{name}" if is_foreign_group(name) else f"{namespace}/podgroup:{name}"
    paths = sorted(path for path in snapshot.pod_groups if path == wanted or path.startswith(f"{wanted}:"))
    states = {path: snapshot.group_state(GroupKey(*path.split("/", 1))) for path in paths}
    first = next((path for path in paths if states[path].unscheduled), next(iter(paths), None))
    return snapshot.pod_groups[first] if first is not None else None


def _without_pods(snapshot: Snapshot, namespace: str, kind: str, name: str) -> str:
    """Why an object describes no gang that could be explained."""
    key = next((each.key for each in KINDS if each.kind == kind), "")
    obj = snapshot.objects(key).get(f"{namespace}/{name}")
    if obj is None:
        return f'there is no {kind.lower()} "{name}" in namespace {namespace}'
    held = kueue_hold(_GATED | {"metadata": obj["metadata"]}, snapshot.objects(KUEUE_WORKLOAD.key).values())
    suspended = (obj.get("spec") or {}).get("suspend") or ((obj.get("spec") or {}).get("runPolicy") or {}).get(
        "suspend"
    )
    why = ": it is suspended" if suspended else ""
    if held is not None and held.workload:
        why += f"; Kueue holds it, see Workload {held.workload}: {held.state}"
    return f'{kind.lower()} "{name}" in namespace {namespace} has no pods that are a gang{why}'


_GATED: Obj = {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}


def served_kind(kind: SubjectKind) -> Kind:
    """The kind as an API server knows it."""
    return known_kind(*_API[kind])
