"""Find anything by a part of its name, by its kind, its owner, or a label.

Words are parts of names, and all of them have to match. `kind:pod` (or `pod:` alone), `ns:team`, `owner:job/train` and
`node:dgx` say where a word is looked for; `app=web` is a label, `app=` any value of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from haru.dashboard.redaction.objects import HIDDEN
from haru.dashboard.views import tables
from haru.dashboard.views.tables import Cell, Column, Table
from haru.dashboard.views.workloads import Owners, workload
from haru.engine import Snapshot
from haru.engine.state import PodInfo
from haru.kube.meta import Obj, labels_of

COLUMNS = (
    Column("name", "Name"),
    Column("kind", "Kind"),
    Column("namespace", "Namespace"),
    Column("owner", "Owner"),
    Column("where", "Node"),
    Column("state", "State"),
)
MOST = 500
_FIELDS = ("kind", "ns", "namespace", "owner", "node")
_KINDS = {
    "Job": "job",
    "PodGroup": "podgroup",
    "ResourceClaim": "resourceclaim",
    "StatefulSet": "statefulset",
    "ReplicaSet": "replicaset",
}
"""Kinds of the cluster that have the page of a workload."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for: parts of names, parts of fields, and labels."""

    words: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]

    @staticmethod
    def of(text: str) -> Query:
        """Read what somebody has typed."""
        words, fields, labels = list[str](), list[tuple[str, str]](), list[tuple[str, str]]()
        for part in text.casefold().split():
            field, colon, value = part.partition(":")
            key, equals, label = part.partition("=")
            if colon and field in _FIELDS:
                fields.append(("namespace" if field == "ns" else field, value))
            elif colon and not value and not equals:
                fields.append(("kind", field))
            elif equals and key:
                labels.append((key, label))
            else:
                words.append(part)
        return Query(tuple(words), tuple(fields), tuple(labels))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is looked for."""
        return not (self.words or self.fields or self.labels)

    def takes(self, found: Found) -> bool:
        """Tell whether something is looked for."""
        name = f"{found.namespace}/{found.name}".casefold()
        fields = {"kind": found.kind, "namespace": found.namespace, "owner": found.owner, "node": found.node}
        return (
            all(word in name for word in self.words)
            and all(value in fields[field].casefold() for field, value in self.fields)
            and all(_has(found.labels, key, value) for key, value in self.labels)
        )


@dataclass(frozen=True, slots=True)
class Found:
    """Something that can be found, and the address of its page."""

    kind: str
    name: str
    href: str
    namespace: str = ""
    owner: str = ""
    node: str = ""
    state: str = ""
    labels: Mapping[str, str] | None = None


def search(snapshot: Snapshot, text: str, query: Mapping[str, str]) -> Table:
    """Make the table of what matches, the best first: names that begin with the first word."""
    wanted = Query.of(text)
    found = [] if wanted.is_empty else [each for each in everything(snapshot) if wanted.takes(each)]
    first = wanted.words[0] if wanted.words else ""
    found.sort(key=lambda each: (not each.name.casefold().startswith(first), len(each.name), each.kind, each.name))
    return tables.table("found", "Found", COLUMNS, [_row(each) for each in found], query, MOST)


def everything(snapshot: Snapshot) -> Iterator[Found]:
    """All that has a page: nodes, devices, namespaces, pods and their workloads, claims, gangs, Jobs."""
    yield from _of_the_cluster(snapshot)
    seen: set[str] = set()
    for pod in snapshot.pods.values():
        if pod.key.namespace != HIDDEN:
            yield from _pod(pod, seen)
    owners = Owners(snapshot)
    kinds: Sequence[tuple[str, Mapping[str, Obj]]] = (
        ("ResourceClaim", snapshot.claims),
        *((kind, snapshot.objects(kind)) for kind in _KINDS if kind != "ResourceClaim"),
    )
    for kind, objects in kinds:
        for path, obj in objects.items():
            namespace, _, name = path.partition("/")
            href = f"/workload/{namespace}/{_KINDS[kind]}/{name}"
            if namespace == HIDDEN or href in seen:
                continue
            owner = owners.of_claim(path)[0].title if kind == "ResourceClaim" else ""
            yield Found(kind, name, href, namespace, owner, labels=labels_of(obj))


def _of_the_cluster(snapshot: Snapshot) -> Iterator[Found]:
    for name in snapshot.node_names:
        info = snapshot.nodes[name]
        state = "cordoned" if info.spec.unschedulable else ""
        yield Found("Node", name, f"/node/{name}", node=name, state=state, labels=info.labels)
    for pool in snapshot.devices.pools.values():
        for item in pool.slices:
            node = item.placement.node_name or ""
            for device in item.devices:
                href = f"/device/{pool.key.driver}/{pool.key.pool}/{device.name}"
                yield Found("Device", f"{pool.key.pool}/{device.name}", href, node=node)
    for name, obj in snapshot.objects("Namespace").items():
        yield Found("Namespace", name, f"/namespace/{name}", namespace=name, labels=labels_of(obj))


def _pod(pod: PodInfo, seen: set[str]) -> Iterator[Found]:
    work, namespace = workload(pod), pod.key.namespace
    state = "Terminating" if pod.deleting else str(pod.status.get("phase") or "Pending")
    href = f"/workload/{namespace}/pod/{pod.key.name}"
    yield Found("Pod", pod.key.name, href, namespace, work.name, pod.node, state, pod.labels)
    if work.path not in seen and work.path != href:
        seen.add(work.path)
        kind = work.name.partition("/")[0]
        yield Found(_titles.get(kind, kind.capitalize()), work.short, work.path, namespace, work.name)


_titles = {
    "job": "Job", "podgroup": "PodGroup", "statefulset": "StatefulSet", "replicaset": "ReplicaSet",
    "daemonset": "DaemonSet", "jobset": "JobSet", "rayjob": "RayJob", "raycluster": "RayCluster",
}  # fmt: skip


def _has(labels: Mapping[str, str] | None, key: str, value: str) -> bool:
    """Tell whether there is a label; keys match whole, or from their last slash on."""
    for name, text in (labels or {}).items():
        known = name.casefold()
        if (known == key or known.rpartition("/")[2] == key) and value in text.casefold():
            return True
    return False


def _row(found: Found) -> tuple[Cell, ...]:
    namespace = tables.link(found.namespace, f"/namespace/{found.namespace}") if found.namespace else tables.text("")
    return (
        tables.link(found.name, found.href),
        tables.text(found.kind),
        namespace,
        tables.text(found.owner),
        tables.link(found.node, f"/node/{found.node}") if found.node else tables.text(""),
        tables.text(found.state),
    )
