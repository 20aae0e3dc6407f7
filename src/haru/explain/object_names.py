"""KIND/NAME, as people write it: which kind that is. Nothing of the engine is needed to know that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from haru.errors import InputError
from haru.gangs import KINDS
from haru.kube.kinds import Kind, all_kinds, known_kind

SubjectKind = Literal["pod", "podgroup", "job", "replicaset", "statefulset", "resourceclaim"]
ExplainedKind = Literal[SubjectKind, "daemonset"]
"""Also what stands in tables only."""
PlaceKind = Literal["node", "device"]

LISTED: Mapping[str, tuple[str, str]] = {
    "Deployment": ("apps/v1", "Deployment"),
    "DaemonSet": ("apps/v1", "DaemonSet"),
    "CronJob": ("batch/v1", "CronJob"),
    "Workload": ("scheduling.k8s.io/v1alpha2", "Workload"),
    "DeviceClass": ("resource.k8s.io/v1", "DeviceClass"),
    "Namespace": ("v1", "Namespace"),
}
"""Kinds whose explanation is a table of the work that waits for or with them, and where they are served."""
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
_FOREIGN_SHORT = {"LeaderWorkerSet": ("lws",)}
_TRAIN_JOBS, _JOB_SET_PREFIX = ("trainjob", "trainjobs"), "jobset:"
"""A TrainJob of Kubeflow Trainer makes a JobSet of its own name."""
KIND_WORDS = (
    "pod, podgroup, job, replicaset, statefulset, claim, node, device, deployment, daemonset, cronjob, workload, "
    "deviceclass, namespace, a kind that describes gangs (jobset, trainjob, leaderworkerset, raycluster, pytorchjob "
    "and its siblings, mpijob), or any other that controls pods"
)


def parse_place(text: str) -> tuple[PlaceKind, str] | None:
    """The node or device that a text names: `node/NAME`, `device/NODE/DEVICE`; None for anything else."""
    word, _, name = text.partition("/")
    kind = _PLACES.get(word.lower())
    return (kind, name) if kind is not None and name else None


def parse_subject(text: str) -> tuple[SubjectKind, str]:
    """Parse the kind and name of an object to explain; raises InputError otherwise."""
    word, _, name = text.partition("/")
    foreign = _foreign_prefix(word.lower())
    if foreign and name:
        return "podgroup", foreign + name
    kind = _EXPLAINED.get(word.lower().split(".")[0])
    if not name or "/" in name:
        raise InputError(f'"{text}": write KIND/NAME, for example job/training')
    if kind is None:
        raise InputError(f'"{word}": cannot be explained; KIND is one of {KIND_WORDS}')
    return kind, name


def _foreign_prefix(word: str) -> str:
    """What the names of a kind's gangs begin with, by the kind as kubectl writes it; empty for none."""
    if word.split(".")[0] in _TRAIN_JOBS:
        return _JOB_SET_PREFIX
    for kind in KINDS:
        short = {kind.kind.lower(), kind.plural, *_FOREIGN_SHORT.get(kind.kind, ())}
        plain = short - {"podgroup", "podgroups", "workload", "workloads"}
        if word in plain or word in {f"{name}.{kind.group}" for name in short}:
            return kind.prefix
    return ""


def _words() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, (api_version, kind) in LISTED.items():
        known = known_kind(api_version, kind)
        found |= dict.fromkeys((known.singular, known.plural, kind.lower(), *known.short_names), name)
    return found | {"workload.kueue.x-k8s.io": "Workload", "workload.scheduling.k8s.io": "Workload"}


def parse_listed(text: str) -> tuple[str, str] | None:
    """Return kind and name where a table answers (`deploy/web`, `ns/team`); None for anything else.

    A kind that is not known here may be one that controls pods, as tables name it (`workflow/train`): in small letters.
    """
    word, _, name = text.partition("/")
    word = word.lower()
    kind = _words().get(word) or ("" if "/" in name else _other_kind(word))
    return (kind, name) if kind and name else None


def _other_kind(word: str) -> str:
    """A kind that neither Kubernetes nor Haru knows, and ReplicationController; empty for the others."""
    plain = word.split(".")[0]
    if plain in _EXPLAINED or plain in _PLACES or _foreign_prefix(word):
        return ""
    kinds = (
        kind for kind in all_kinds() if plain in (kind.singular, kind.plural, kind.kind.lower(), *kind.short_names)
    )
    return plain if all(kind.kind == "ReplicationController" for kind in kinds) else ""


def is_other_kind(word: str) -> bool:
    """Whether a word, in small letters, may be a kind that is not known here and controls pods."""
    return word.isalnum() and word.isascii() and _other_kind(word) == word


def listed_kind(kind: str) -> Kind:
    """The kind as an API server knows it."""
    return known_kind(*LISTED[kind])
