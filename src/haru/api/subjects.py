"""KIND/NAME, as people write it: which kind that is, and the object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from haru.api.cluster_reader import FORKED_KINDS
from haru.engine import Snapshot
from haru.errors import InputError, NotFoundError
from haru.explain.device_names import DeviceNameError, find_in
from haru.explain.entry import SubjectKind
from haru.explain.results import DeviceStory, NodeStory
from haru.explain.stories import explain_device, explain_node
from haru.kube.kinds import Kind, known_kind

Obj = dict[str, Any]
PlaceKind = Literal["node", "device"]

_SHORT = {"claim": "ResourceClaim", "claims": "ResourceClaim"}
_EXPLAINED: dict[str, SubjectKind] = {
    "pod": "pod",
    "pods": "pod",
    "po": "pod",
    "podgroup": "podgroup",
    "podgroups": "podgroup",
    "job": "job",
    "jobs": "job",
    "replicaset": "replicaset",
    "replicasets": "replicaset",
    "rs": "replicaset",
    "statefulset": "statefulset",
    "statefulsets": "statefulset",
    "sts": "statefulset",
    "claim": "resourceclaim",
    "claims": "resourceclaim",
    "resourceclaim": "resourceclaim",
    "resourceclaims": "resourceclaim",
}
_PLACES: dict[str, PlaceKind] = {"node": "node", "nodes": "node", "no": "node", "device": "device", "devices": "device"}
_KINDS = "pod, podgroup, job, replicaset, statefulset, claim, node, device"
_API = {
    "pod": ("v1", "Pod"),
    "podgroup": ("scheduling.k8s.io/v1alpha2", "PodGroup"),
    "job": ("batch/v1", "Job"),
    "replicaset": ("apps/v1", "ReplicaSet"),
    "statefulset": ("apps/v1", "StatefulSet"),
    "resourceclaim": ("resource.k8s.io/v1", "ResourceClaim"),
}


def parse_place(text: str) -> tuple[PlaceKind, str] | None:
    """The node or device that a text names: `node/NAME`, `device/NODE/DEVICE`; None for anything else."""
    word, _, name = text.partition("/")
    kind = _PLACES.get(word.lower())
    return (kind, name) if kind is not None and name else None


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


def parse_subject(text: str) -> tuple[SubjectKind, str]:
    """What can be explained, of which name; raises InputError for anything else."""
    word, slash, name = text.partition("/")
    kind = _EXPLAINED.get(word.lower().split(".")[0])
    if not slash or not name:
        raise InputError(f'"{text}": write KIND/NAME, for example job/training')
    if kind is None:
        raise InputError(f'"{word}": cannot be explained; KIND is one of {_KINDS}')
    return kind, name


def find_subject(snapshot: Snapshot, kind: SubjectKind, namespace: str, name: str) -> Obj:
    """The object, with its kind; raises NotFoundError."""
    path = f"{namespace}/{name}"
    found: Obj | None
    if kind == "pod":
        info = snapshot.pods.get(path)
        found = info.obj if info is not None else None
    elif kind == "resourceclaim":
        found = snapshot.claims.get(path)
    elif kind == "podgroup":
        found = snapshot.pod_groups.get(path)
    else:
        found = snapshot.objects(_API[kind][1]).get(path)
    if found is None:
        raise NotFoundError(f'there is no {kind} "{name}" in namespace {namespace}')
    return {"apiVersion": _API[kind][0], "kind": _API[kind][1], **found}


def served_kind(kind: SubjectKind) -> Kind:
    """The kind as an API server knows it."""
    return known_kind(*_API[kind])


def kind_of_word(text: str) -> tuple[Kind, str]:
    """The kind and the name of KIND/NAME, of all kinds that a snapshot has; raises InputError."""
    word, slash, name = text.partition("/")
    kinds = [known_kind(*kind) for kind in FORKED_KINDS]
    for kind in kinds if slash and name else ():
        words = (kind.singular, kind.plural, kind.kind.lower(), *kind.short_names)
        if word.lower() in words or _SHORT.get(word.lower()) == kind.kind:
            return kind, name
    listed = ", ".join(sorted(kind.kind.lower() for kind in kinds))
    raise InputError(f'"{text}": write KIND/NAME; KIND is one of {listed}')
