"""Workloads: the owners of pods and claims, and the filter of a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from haru.dashboard.redaction.objects import HIDDEN
from haru.engine import Snapshot
from haru.engine.state import PodInfo, workload_of
from haru.explain.hypothesis import consumers


class Workload(NamedTuple):
    """A workload by namespace and kind/name: `default`, `job/training`."""

    namespace: str
    name: str

    @property
    def short(self) -> str:
        """The name without the kind."""
        return self.name.partition("/")[2]

    @property
    def title(self) -> str:
        """The name with the namespace, where it is in one."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def path(self) -> str:
        """The address of its page."""
        return f"/workload/{self.namespace}/{self.name}"


OTHER = Workload("", "other work")
"""All work that a filter leaves out."""
ANOTHER = Workload("", HIDDEN)
"""All work of namespaces that are hidden."""


def workload(pod: PodInfo) -> Workload:
    """The workload that a pod belongs to."""
    return ANOTHER if pod.key.namespace == HIDDEN else Workload(pod.key.namespace, workload_of(pod))


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects a part of the cluster. Each field is a name or a shell pattern (`dgx-*`); empty means everything.

    A workload is named with its kind (`job/training`) or without.
    """

    namespace: str = ""
    workload: str = ""
    node: str = ""

    @staticmethod
    def of(query: Mapping[str, str]) -> Filter:
        """Read the filter from a query."""
        return Filter(*(query.get(name, "").strip() for name in ("namespace", "workload", "node")))

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The fields that are set, as query parameters."""
        listed = (("namespace", self.namespace), ("workload", self.workload), ("node", self.node))
        return [(name, value) for name, value in listed if value]

    @property
    def chooses_work(self) -> bool:
        """Whether it selects work."""
        return bool(self.namespace or self.workload)

    def takes(self, work: Workload) -> bool:
        """Tell whether it selects a workload."""
        return _matches(self.namespace, work.namespace) and (
            _matches(self.workload, work.name) or _matches(self.workload, work.short)
        )

    def takes_namespace(self, name: str) -> bool:
        """Tell whether it selects a namespace."""
        return _matches(self.namespace, name)

    def takes_node(self, name: str) -> bool:
        """Tell whether it selects a node."""
        return _matches(self.node, name)


EVERYTHING = Filter()


def _matches(pattern: str, text: str) -> bool:
    return not pattern or fnmatchcase(text, pattern)


@dataclass(slots=True)
class Owners:
    """The workloads that use claims, each looked up once."""

    snapshot: Snapshot
    _known: dict[str, tuple[Workload, ...]] = field(default_factory=dict)

    def of_claim(self, path: str) -> tuple[Workload, ...]:
        """Find the workloads whose pods use a claim; the claim itself if no running pod does."""
        found = self._known.get(path)
        if found is None:
            found = self._known[path] = self._look_up(path)
        return found

    def of_claims(self, paths: Iterable[str]) -> tuple[Workload, ...]:
        """Find the workloads that use any of several claims."""
        return tuple(sorted({work for path in paths for work in self.of_claim(path)}))

    def _look_up(self, path: str) -> tuple[Workload, ...]:
        namespace, _, name = path.partition("/")
        claim = self.snapshot.claims.get(path)
        users = {workload(pod) for pod in consumers(self.snapshot, claim)} if claim is not None else set()
        alone = ANOTHER if namespace == HIDDEN else Workload(namespace, f"resourceclaim/{name}")
        return tuple(sorted(users)) or (alone,)
