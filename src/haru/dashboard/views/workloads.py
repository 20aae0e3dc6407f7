"""Whose work it is, and which work a page is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from haru.engine import Snapshot
from haru.engine.state import PodInfo, workload_of
from haru.explain.hypothesis import consumers


class Workload(NamedTuple):
    """Work by the name that a person knows it by: `default`, `job/training`."""

    namespace: str
    name: str

    @property
    def short(self) -> str:
        """The name without the kind."""
        return self.name.partition("/")[2]

    @property
    def path(self) -> str:
        """The address of its page."""
        return f"/workload/{self.namespace}/{self.name}"


OTHER = Workload("", "other work")
"""Stands for all work that a filter leaves out."""


def workload(pod: PodInfo) -> Workload:
    """The workload that a pod belongs to."""
    return Workload(pod.key.namespace, workload_of(pod))


@dataclass(frozen=True, slots=True)
class Filter:
    """What of the cluster is looked at. Each field is a name or a shell pattern (`dgx-*`); empty means everything.

    A workload is named with its kind (`job/training`) or without.
    """

    namespace: str = ""
    workload: str = ""
    node: str = ""

    @staticmethod
    def of(query: Mapping[str, str]) -> Filter:
        """The filter of an address."""
        return Filter(*(query.get(name, "").strip() for name in ("namespace", "workload", "node")))

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """What is set, as it stands in an address."""
        listed = (("namespace", self.namespace), ("workload", self.workload), ("node", self.node))
        return [(name, value) for name, value in listed if value]

    @property
    def chooses_work(self) -> bool:
        """Whether only some work is looked at."""
        return bool(self.namespace or self.workload)

    def takes(self, work: Workload) -> bool:
        """Whether this work is looked at."""
        return _matches(self.namespace, work.namespace) and (
            _matches(self.workload, work.name) or _matches(self.workload, work.short)
        )

    def takes_node(self, name: str) -> bool:
        """Whether this node is looked at."""
        return _matches(self.node, name)


EVERYTHING = Filter()


def _matches(pattern: str, text: str) -> bool:
    return not pattern or fnmatchcase(text, pattern)


@dataclass(slots=True)
class Owners:
    """The workloads behind claims, each looked up once."""

    snapshot: Snapshot
    _known: dict[str, tuple[Workload, ...]] = field(default_factory=dict)

    def of_claim(self, path: str) -> tuple[Workload, ...]:
        """Whose pods use a claim; the claim itself if no living pod does."""
        found = self._known.get(path)
        if found is None:
            found = self._known[path] = self._look_up(path)
        return found

    def of_claims(self, paths: Iterable[str]) -> tuple[Workload, ...]:
        """The same for several claims on one device."""
        return tuple(sorted({work for path in paths for work in self.of_claim(path)}))

    def _look_up(self, path: str) -> tuple[Workload, ...]:
        namespace, _, name = path.partition("/")
        claim = self.snapshot.claims.get(path)
        users = {workload(pod) for pod in consumers(self.snapshot, claim)} if claim is not None else set()
        return tuple(sorted(users)) or (Workload(namespace, f"resourceclaim/{name}"),)
