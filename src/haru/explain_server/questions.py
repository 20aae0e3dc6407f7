"""What can be asked, by its path, and what a view of the cluster says to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from haru.cluster_view import ClusterView
from haru.engine import Snapshot
from haru.engine.state import namespaced_name
from haru.errors import NotFoundError
from haru.explain import Choice, DeviceStory, NodeStory, PendingList, SubjectKind, hypothesis
from haru.explain.object_names import PlaceKind, is_other_kind, parse_place, parse_subject
from haru.explain.pending_choice import check_exists, choice_of, where_text, with_labels
from haru.explain.pending_rows import PendingRow, namespaces_that_wait, pending_row_steps, pods_in_trouble
from haru.explain.subjects import explain_place, subject_in
from haru.explain_server.discovery import (
    CLUSTER_SCOPED,
    GROUP,
    LIST,
    PLACES,
    RESOURCES,
    ROOT,
    SUBJECTS,
    SUBRESOURCE,
    TABLES,
    VERSION,
    VISIBLE_LIST,
)
from haru.kube.meta import Obj
from haru.kube.selectors import parse_field_selector


class _Resource(NamedTuple):
    group: str
    version: str
    plural: str


_RESOURCE = _Resource(GROUP, VERSION, LIST)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: a resource, the object, and whether remedies are wanted; of what waits, pods with some labels.

    What has no namespace, and what waits in all of them, is asked without one; a list has no name. `fields` selects
    rows of what waits.
    """

    resource: str
    namespace: str
    name: str
    remedies: bool = True
    selector: str = ""
    fields: str = ""

    @property
    def whole_list(self) -> Question:
        """The list in which what is asked for stands."""
        return replace(self, name="", fields="") if self.resource in (LIST, VISIBLE_LIST) else self

    @property
    def is_subject(self) -> bool:
        """Whether it is about one object that is explained."""
        return self.resource in SUBJECTS

    @property
    def is_place(self) -> bool:
        """Whether it is about a node or a device."""
        return self.resource in PLACES

    @property
    def is_row(self) -> bool:
        """Whether it is about one row of what waits in a namespace."""
        return self.resource == LIST and bool(self.name)

    @property
    def kind(self) -> SubjectKind:
        """As what the object is explained. Raises InputError."""
        return parse_subject(f"{self.resource}/{self.name}")[0]

    def found_in(self, snapshot: Snapshot) -> tuple[SubjectKind, Obj] | None:
        """The object that is explained and how; None where there is none."""
        kind, name = parse_subject(f"{self.resource}/{self.name}")
        obj = subject_in(snapshot, kind, self.namespace, name)
        return (kind, obj) if obj is not None else None


def parse_path(path: str) -> tuple[str, str, str] | None:
    """The resource, the namespace and the name that a path asks for; None where there is nothing of the kind."""
    if not path.startswith(f"{ROOT}/"):
        return None
    parts, namespace = path.removeprefix(f"{ROOT}/").split("/"), ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    match parts:
        case [resource] if resource == LIST or (resource == VISIBLE_LIST and not namespace):
            return resource, namespace, ""
        case [resource, name] if resource == LIST and namespace and name:
            return resource, namespace, name
        case [resource, name, part] if part == SUBRESOURCE and name and (resource in RESOURCES or is_other(resource)):
            return (resource, namespace, name) if (resource in CLUSTER_SCOPED) != bool(namespace) else None
    return None


def is_other(resource: str) -> bool:
    """Whether it is none of those that the group lists, but may be what controls pods: `workflows`."""
    return resource not in (*RESOURCES, LIST, VISIBLE_LIST) and is_other_kind(resource)


def story_of(question: Question, view: ClusterView) -> NodeStory | DeviceStory:
    """The story of a node or a device. Raises NotFoundError."""
    place: tuple[PlaceKind, str] | None = parse_place(f"{question.resource}/{question.name.replace(':', '/')}")
    if place is None:
        raise NotFoundError(question.name)
    return explain_place(view.snapshot, *place, unread=view.refused)


def waiting_namespaces(question: Question, view: ClusterView) -> frozenset[str]:
    """The namespaces in which something waits that is asked for, and that it is there. Raises NotFoundError."""
    return frozenset(namespaces_that_wait(view.snapshot, _choice(question, view.snapshot)))


def list_of(
    question: Question, view: ClusterView, namespaces: Collection[str] | None, now: str, gates: Mapping[str, bool]
) -> Generator[object, None, PendingList]:
    """What waits in some namespaces or (None) in all, with an object where one is named, step by step.

    Raises NotFoundError and InputError.
    """
    choice = _choice(question, view.snapshot)
    if namespaces is not None:
        choice = _within(choice, namespaces)
    choice = with_labels(choice, question.selector)
    rows = yield from pending_row_steps(
        hypothesis.with_events(view.snapshot, view.events),
        choice,
        now,
        remedies=question.remedies,
        unread=view.refused,
        gates=gates,
    )
    where = _where(question, namespaces)
    where = f"{where} with {question.selector}" if question.selector else where
    return PendingList(numbered(rows), where, now, pods_in_trouble(view.snapshot, choice))


def numbered(rows: Iterable[PendingRow]) -> tuple[PendingRow, ...]:
    """The rows; of those of one workload, which waits for several reasons, each knows which it is."""
    seen: Counter[tuple[str, str]] = Counter()
    found: list[PendingRow] = []
    for row in rows:
        seen[row.namespace, row.what] += 1
        found.append(replace(row, ordinal=seen[row.namespace, row.what]))
    return tuple(found)


def row_metadata(row: PendingRow) -> dict[str, str]:
    """Name and namespace of a row as an object; names have no slash, and differ."""
    name = row.what.replace("/", ".")
    return metadata(row.namespace, name if row.ordinal == 1 else f"{name}.{row.ordinal}")


def metadata(namespace: str, name: str) -> dict[str, str]:
    """What an object of the group has in `metadata`."""
    return {key: value for key, value in (("name", name), ("namespace", namespace)) if value}


def chosen_rows(question: Question, listed: PendingList) -> PendingList:
    """Of a list the rows that are asked for, by name or by fields. Raises NotFoundError, and StatusError (400)."""
    if question == question.whole_list:
        return listed
    if question.is_row:
        found = tuple(row for row in listed.rows if row_metadata(row)["name"] == question.name)
        if not found:
            raise NotFoundError(question.name)
        return replace(listed, rows=found, in_trouble=())
    fields = parse_field_selector(question.fields)
    fields.matches(_RESOURCE, {})  # Of an empty list, too, an unknown field is an error.
    found = tuple(row for row in listed.rows if fields.matches(_RESOURCE, {"metadata": row_metadata(row)}))
    return replace(listed, rows=found, where=f"{listed.where} with {question.fields}", in_trouble=())


def _within(choice: Choice, namespaces: Collection[str]) -> Choice:
    return Choice(
        lambda pod: pod.key.namespace in namespaces and choice.pods(pod),
        lambda kind, obj: namespaced_name(obj).partition("/")[0] in namespaces and choice.makers(kind, obj),
    )


def _where(question: Question, namespaces: Collection[str] | None) -> str:
    if question.name:
        kind = TABLES.get(question.resource) or question.resource.removesuffix("s")
        return where_text(kind, f"{kind.lower()}/{question.name}")
    if question.namespace:
        return f"in namespace {question.namespace}"
    return "in all namespaces" if namespaces is None else "in the namespaces that you may list"


def _choice(question: Question, snapshot: Snapshot) -> Choice:
    if not question.name:
        return Choice()
    kind = TABLES.get(question.resource) or question.resource
    # Who may ask about this name in this namespace is not told what others there are.
    path = f"{question.namespace}/{question.name}" if question.namespace else question.name
    named = [{**obj, "kind": kind} for key, obj in snapshot.objects(kind).items() if key == path]
    check_exists(named, snapshot, kind, question.namespace, question.name)
    return choice_of(snapshot, kind, question.namespace, question.name)
