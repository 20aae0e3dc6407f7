"""What an adapter says of a pod: the gang that it belongs to, by the labels and objects of another project.

A gang becomes a PodGroup of 1.36 before the engine sees it (`translation`), so that it is decided like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from haru.kube.kinds import Kind
from haru.kube.meta import Obj, annotations_of

MIN_COUNT = "haru.dev/gang-min-count"
"""Annotation of a pod (template): how many members the gang needs; `"0"`: the pod belongs to none."""
NO_GANG = "haru.dev/gang"
"""Annotation of a pod (template), or of what describes a gang: `"false"` if its pods are none."""
DISRUPTION_MODE = "haru.dev/disruption-mode"
"""Annotation of a pod (template): `PodGroup` or `Pod`, what preemption evicts of the gang at once."""
SEPARATOR = ":"
"""Stands in the names of these groups and in no name of an object, so that they meet no PodGroup of the cluster."""


@dataclass(frozen=True, slots=True)
class ForeignKind:
    """A kind that is read if the server serves it; `versions` are those that are understood, the best first."""

    group: str
    versions: tuple[str, ...]
    kind: str
    plural: str

    @property
    def key(self) -> str:
        """`Kind.group`, as in `JobSet.jobset.x-k8s.io`."""
        return f"{self.kind}.{self.group}"

    @property
    def prefix(self) -> str:
        """What the names of its gangs begin with."""
        return self.kind.lower() + SEPARATOR

    def served_version(self, resources: frozenset[tuple[str, str, str]]) -> str:
        """Return the version to read, of those that are served; empty if there is none."""
        found = (version for version in self.versions if (self.group, version, self.plural) in resources)
        return next(found, "")

    def as_kind(self, version: str) -> Kind:
        """Return the kind in one version, for a client."""
        return Kind(
            group=self.group,
            version=version,
            kind=self.kind,
            plural=self.plural,
            singular=self.kind.lower(),
            namespaced=True,
            short_names=(),
            categories=(),
            verbs=(),
            subresources=("status",),
            storage_version=version,
            type_name="",
            virtual=False,
        )

    def is_kind_of(self, obj: Mapping[str, Any]) -> bool:
        """Return whether an object is of this kind, in a version that is understood."""
        group, _, version = str(obj.get("apiVersion") or "").rpartition("/")
        return group == self.group and obj.get("kind") in (self.kind, self.key) and version in self.versions


class Source(NamedTuple):
    """Where a pod's labels say that more is written: an object by kind and name; no kind: all is on the pod."""

    kind: ForeignKind | None
    name: str


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that start together: at least `min_count` of them or none.

    `name` is unique among the gangs of a namespace. `timeout` is how many seconds the author lets them wait for one
    another, `whole` whether preemption evicts them together.
    """

    name: str
    min_count: int
    timeout: int | None = None
    whole: bool = True


class Adapter(Protocol):
    """Find gangs by the conventions of one project; pure functions of a pod and of the object that it names."""

    @property
    def name(self) -> str:
        """Its name in `--gang-adapters`."""

    @property
    def kinds(self) -> tuple[ForeignKind, ...]:
        """The kinds that it reads."""

    def source_of(self, pod: Obj) -> Source | None:
        """Return which object says more of the pod's gang; None if the pod is none of this project's."""

    def gang_of(self, pod: Obj, obj: Obj | None) -> Gang | None:
        """Return the pod's gang, given the object that it names (None where it names none); None: it has none."""


def label(pod: Mapping[str, Any], name: str) -> str:
    """Return the value of a label; empty if the pod has none."""
    return str((pod["metadata"].get("labels") or {}).get(name) or "")


def annotation(obj: Mapping[str, Any], name: str) -> str:
    """Return the value of an annotation; empty if there is none."""
    return str(annotations_of(obj).get(name) or "")


def number(text: object, default: int = 0) -> int:
    """Return a whole number that somebody wrote, or the default where it is none."""
    found = str(text if text is not None else "")
    return int(found) if found.isascii() and found.isdigit() else default


def part(obj: Mapping[str, Any] | None, *path: str) -> Any:
    """Return what is at a path of fields; None where one of them is missing."""
    found: Any = obj
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def job_pods(spec: Mapping[str, Any] | None) -> int:
    """Return how many pods a Job with this spec runs at once."""
    parallelism, completions = part(spec, "parallelism"), part(spec, "completions")
    at_once = 1 if parallelism is None else number(parallelism)
    return at_once if completions is None else min(at_once, number(completions))
