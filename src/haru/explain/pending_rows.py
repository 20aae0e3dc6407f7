"""Everything that waits, or all that waits of one workload, as rows: equal units are explained once.

Units (gangs, or pods that are placed each for itself) are equal if they have the same pods, claims, priority, scheduler
and hold; they are one row, of one workload or of several. The order is by what would free most: how many of the waiting
pods start once a row's first remedy is carried out, those of other rows with the same remedy included.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from haru.engine import Options, Overlay, Reason, Snapshot
from haru.engine.plugins import device_demand_of, named_nodes
from haru.engine.state import PodInfo, namespaced_name, workload_of
from haru.explain import hypothesis
from haru.explain.diagnosis.makers import author_of, waiting_makers
from haru.explain.diagnosis.running_pods import waits_in_trouble
from haru.explain.diagnosis.workload_unit import WorkloadUnit, hypothetical_options
from haru.explain.entry import explain
from haru.explain.explanation import Remedy
from haru.explain.object_names import ExplainedKind, SubjectKind
from haru.explain.results import Explanation
from haru.explain.stories.waiters import Waiter, waiters
from haru.kube.meta import Obj, controller_of, get_condition, name_of

MOST_WITH_REMEDIES = 24
"""So many different answers come with remedies, which take most of the time; those of most pods."""
_MOST_TRIED = 64


@dataclass(frozen=True, slots=True)
class PendingRow:
    """Work that waits for one reason: `pods` of the workload `what` (`job/train`) and of `others` that are equal to it.

    They are placed in so many `units`, each for itself. `paths` are those of the pods, `since` is when the first was
    made (RFC 3339). `starts` is how many of the pods start once the first remedy is carried out, `unblocks` the same
    for all rows with that remedy. The explanation is that of the first unit; it has no remedies where more than
    `MOST_WITH_REMEDIES` rows of more pods come first (not `is_searched`). `ordinal` counts the rows of one workload.
    """

    what: str
    namespace: str
    pods: int
    units: int
    others: int
    paths: tuple[str, ...]
    since: str
    explanation: Explanation
    starts: int = 0
    unblocks: int = 0
    is_searched: bool = True
    ordinal: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """The first of the pods."""
        return tuple(sorted(path.partition("/")[2] for path in self.paths)[:3])

    @property
    def remedy(self) -> Remedy | None:
        """The first remedy."""
        return next(iter(self.explanation.remedies), None)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to list: the pods, and the workloads (kind and object) whose pods do not exist."""

    pods: Callable[[PodInfo], bool] = lambda pod: True
    makers: Callable[[str, Obj], bool] = lambda kind, obj: True


@dataclass(frozen=True, slots=True)
class _Question:
    """How all of them are asked about."""

    now: str
    options: Options
    unread: Sequence[str]
    gates: Mapping[str, bool] | None

    def explain(self, snapshot: Snapshot, kind: ExplainedKind, obj: Obj, *, remedies: bool) -> Explanation:
        """What is said of one object."""
        return explain(
            snapshot,
            kind,
            obj,
            now=self.now,
            options=self.options,
            remedies=remedies,
            unread=self.unread,
            gates=self.gates,
        )


def pending_rows(
    snapshot: Snapshot,
    choice: Choice,
    now: str = "",
    *,
    remedies: bool = True,
    unread: Sequence[str] = (),
    gates: Mapping[str, bool] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[PendingRow, ...]:
    """Explain all that waits and is chosen; `progress` is told how many of the different units are done."""
    steps = pending_row_steps(snapshot, choice, now, remedies=remedies, unread=unread, gates=gates)
    while True:
        try:
            progress(*next(steps))
        except StopIteration as ended:
            rows: tuple[PendingRow, ...] = ended.value
            return rows


def pending_row_steps(
    snapshot: Snapshot,
    choice: Choice,
    now: str = "",
    *,
    remedies: bool = True,
    unread: Sequence[str] = (),
    gates: Mapping[str, bool] | None = None,
) -> Generator[tuple[int, int], None, tuple[PendingRow, ...]]:
    """Yield how many of so many different units are done, before each is explained; return the rows."""
    options = hypothetical_options()
    classes: dict[object, list[Waiter]] = {}
    by_labels = any(pod.terms for pod in snapshot.pods.values())
    makers = list(makers_without_pods(snapshot, choice.makers))
    incomplete: dict[str, tuple[PodInfo, ...]] = {str(maker["metadata"].get("uid")): () for _, maker, _ in makers}
    for unit in waiters(snapshot):
        owner = str((unit.pods[0].controller or {}).get("uid"))
        if unit.work.group is not None and owner in incomplete:
            incomplete[owner] = unit.pods  # they wait for those that are not made
        elif any(map(choice.pods, unit.pods)):
            classes.setdefault(_class_of(snapshot, unit, options, by_labels=by_labels), []).append(unit)
    ordered = sorted(classes.values(), key=lambda units: -sum(len(unit.pods) for unit in units))
    question = _Question(now, options, unread, gates)
    total = len(ordered) + len(makers)
    rows: list[PendingRow] = []
    for number, units in enumerate(ordered):
        yield number, total
        searched = number < MOST_WITH_REMEDIES
        row = _row_of(snapshot, units, question, remedies=remedies and searched)
        rows.append(replace(row, is_searched=searched or not remedies))
    for number, (kind, maker, missing) in enumerate(makers, len(ordered)):
        yield number, total
        members = incomplete[str(maker["metadata"].get("uid"))]
        rows.append(_maker_row(snapshot, kind, maker, missing, members, question, remedies=remedies))
    return _sorted(_merged(rows))


def pods_in_trouble(snapshot: Snapshot, choice: Choice) -> tuple[str, ...]:
    """Return the chosen pods that have their places and whose containers cannot start or keep ending, by path."""
    return tuple(sorted(p for p, pod in snapshot.pods.items() if waits_in_trouble(pod) and choice.pods(pod)))


def namespaces_that_wait(snapshot: Snapshot, choice: Choice) -> set[str]:
    """Return the namespaces of all that waits and is chosen."""
    units = (unit.pods[0].key.namespace for unit in waiters(snapshot) if any(map(choice.pods, unit.pods)))
    makers = makers_without_pods(snapshot, choice.makers)
    return {*units, *(namespaced_name(maker).partition("/")[0] for _, maker, _ in makers)}


def _class_of(snapshot: Snapshot, unit: Waiter, options: Options, *, by_labels: bool) -> object:
    """A key that equal units share; `by_labels`: some pod of the cluster looks at the labels of others."""
    group = unit.work.pod_group(snapshot)
    members = Counter(_pod_class(snapshot, pod, group, options, by_labels=by_labels) for pod in unit.pods)
    spec = {key: value for key, value in ((group or {}).get("spec") or {}).items() if key != "podGroupTemplateRef"}
    asked = json.dumps(spec, sort_keys=True), frozenset(members.items())
    return unit.work.group is not None, *asked, _said_by_own_node(snapshot, unit, options)


def _pod_class(snapshot: Snapshot, pod: PodInfo, group: Obj | None, options: Options, *, by_labels: bool) -> object:
    demand = device_demand_of(Overlay(snapshot), pod, group, options)
    claims: object = demand.message.replace(pod.key.path, "") if isinstance(demand, Reason) else demand.shape
    labels = frozenset(pod.labels.items()) if by_labels or pod.spec.get("topologySpreadConstraints") else None
    owner = (controller_of(pod.obj) or {}).get("uid") if pod.gated else None
    told = (get_condition(pod.obj, "PodScheduled") or {}).get("reason")
    gates = json.dumps(pod.spec.get("schedulingGates"))
    nominated = pod.status.get("nominatedNodeName")
    shape = pod.shape if (own := _own_node(pod)) is None else pod.shape.replace(json.dumps(own), "")
    return shape, claims, labels, pod.priority, pod.scheduler_name, gates, owner, told, nominated


def _own_node(pod: PodInfo) -> str | None:
    """The node that a pod of a DaemonSet is for."""
    names = named_nodes(pod) or () if (pod.controller or {}).get("kind") == "DaemonSet" else ()
    return next(iter(names)) if len(names) == 1 else None


def _said_by_own_node(snapshot: Snapshot, unit: Waiter, options: Options) -> object:
    """What tells pods of one DaemonSet apart: what the scheduler says of each one's node, but for the node's name."""
    own = _own_node(unit.pods[0]) if unit.work.group is None else None
    if own is None:
        return None
    decision = unit.work.decide(snapshot, options)
    failures = decision.diagnosis.nodes.get(own, ()) if decision.diagnosis is not None else ()
    return decision.status, repr(failures).replace(own, ""), (unit.pods[0].controller or {}).get("uid")


def _row_of(snapshot: Snapshot, units: Sequence[Waiter], asked: _Question, *, remedies: bool) -> PendingRow:
    """Equal units as one row, with the answer to the most urgent of them."""
    first = units[0]
    group = first.work.pod_group(snapshot)
    kind: SubjectKind = "podgroup" if group is not None else "pod"
    told = asked.explain(snapshot, kind, group if group is not None else first.pods[0].obj, remedies=remedies)
    firsts = [unit.pods[0] for unit in units]
    works = list(dict.fromkeys(author_of(snapshot, pod.key.namespace, workload_of(pod)) for pod in firsts))
    pods = [pod for unit in units for pod in unit.pods]
    starts = _starts(_after_first_remedy(snapshot, told), told, units, asked.options)
    return PendingRow(
        works[0],
        pods[0].key.namespace,
        len(pods),
        len(units),
        len(works) - 1,
        tuple(pod.key.path for pod in pods),
        _since(pods),
        told,
        starts,
    )


def _since(pods: Iterable[PodInfo]) -> str:
    return min((str(pod.obj["metadata"].get("creationTimestamp") or "") for pod in pods), default="")


def makers_without_pods(
    snapshot: Snapshot, chosen: Callable[[str, Obj], bool] = lambda kind, obj: True
) -> Iterator[tuple[str, Obj, int]]:
    """What makes pods and lacks some, because they are refused or not made yet: its kind, itself, how many."""
    for maker, missing in waiting_makers(snapshot):
        if chosen(maker["kind"], maker):
            yield maker["kind"], maker, missing


def made_for(kind: str, maker: Obj) -> str:
    """What a maker of pods stands for: the Deployment of a ReplicaSet (`deployment/web`), or itself."""
    owner = controller_of(maker)
    return f"{kind.lower()}/{name_of(maker)}" if owner is None else f"{owner['kind'].lower()}/{owner['name']}"


def missing_pods(maker: Obj, missing: int) -> int:
    """How many pods wait to be made; of a suspended Job all that it would run at once."""
    return missing or int(maker["spec"].get("parallelism") or 1)


MAKER_KINDS: dict[str, ExplainedKind] = {
    "Job": "job",
    "ReplicaSet": "replicaset",
    "StatefulSet": "statefulset",
    "DaemonSet": "daemonset",
}
"""The kinds of makers, as explanations name them."""


def _maker_row(
    snapshot: Snapshot,
    kind: str,
    maker: Obj,
    missing: int,
    members: Sequence[PodInfo],
    asked: _Question,
    *,
    remedies: bool,
) -> PendingRow:
    """Pods that are not made, and the members of their gang that wait for them."""
    told = asked.explain(snapshot, MAKER_KINDS[kind], maker, remedies=remedies)
    if told.verdict == "Runs":  # others of its pods do: the row is about those that are not made
        told = replace(told, verdict="FitsIf" if told.reasons else "Starting")
    namespace = namespaced_name(maker).partition("/")[0]
    since = str(maker["metadata"].get("creationTimestamp") or "")
    first = next(iter(told.remedies), None)
    pods, paths = missing_pods(maker, len(members) + missing), tuple(pod.key.path for pod in members)
    starts = pods if first and first.confirmed else 0
    work = author_of(snapshot, namespace, made_for(kind, maker))
    return PendingRow(work, namespace, pods, 1, 0, paths, since, told, starts)


_ENDS_WAITING = "AddNodeSelector"
"""The kind of remedy after which the pods that wait are not started: there are none any more."""


def _after_first_remedy(snapshot: Snapshot, told: Explanation) -> Snapshot | None:
    """The cluster with the first remedy, where that is pods that end or nodes that change; None where it is not."""
    first = next(iter(told.remedies), None)
    if first is None or not first.confirmed or not first.changes:
        return None
    after = snapshot
    for change in first.changes:
        target = change.get("target") or change["object"]
        if change["action"] == "delete" and target["kind"] == "Pod":
            after = hypothesis.without_pods(after, [namespaced_name(target)])
        elif change["action"] == "patch" and target["kind"] == "Node":
            after = hypothesis.with_nodes(after, partial(_changed_node, change["patch"]), [target["metadata"]["name"]])
        else:
            return None
    return after


def _changed_node(patch: Obj, node: Obj) -> Obj:
    """A patched node, without the taint that its controller takes away with the cordon."""
    found = _patched(node, patch)
    return found if (found.get("spec") or {}).get("unschedulable") else hypothesis.uncordoned(found)


def _patched(obj: Obj, patch: Obj) -> Obj:
    """A merge patch (RFC 7386)."""
    found = dict(obj)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _patched(found.get(key) or {}, value) if isinstance(value, dict) else value
    return found


def _starts(after: Snapshot | None, told: Explanation, units: Sequence[Waiter], options: Options) -> int:
    """How many pods of equal units start with the first remedy: at least one unit, if it is confirmed."""
    first = next(iter(told.remedies), None)
    if first is None or not first.confirmed or first.kind == _ENDS_WAITING:
        return 0
    if after is None or len(units) == 1 or units[0].work.group is not None:
        return len(units[0].pods)
    paths = tuple(path for unit in units[:_MOST_TRIED] for path in unit.work.paths)
    decision = WorkloadUnit(paths).decide(after, options)
    return max(1, sum(member.node is not None for member in decision.placed))


def _merged(rows: Iterable[PendingRow]) -> list[PendingRow]:
    """Rows of one workload that say the same as one: pods of a DaemonSet differ in their nodes, Jobs of a CronJob."""
    found: dict[object, PendingRow] = {}
    for row in rows:
        key = _said(row)
        first = found.setdefault(key, row)
        if first is not row:
            found[key] = replace(
                first,
                pods=first.pods + row.pods,
                units=first.units + row.units,
                paths=first.paths + row.paths,
                since=min(first.since, row.since),
                starts=first.starts + row.starts,
            )
    return list(found.values())


def _said(row: PendingRow) -> object:
    """What rows of one workload have alike that say the same; of pods that are not made each tells its own names."""
    told, remedy = row.explanation, row.remedy
    if row.others or (row.paths and remedy is not None and remedy.kind != _ENDS_WAITING):
        return id(row)
    text = told.summary if row.paths else tuple(reason.type for reason in told.reasons)
    return row.namespace, row.what, told.kind, told.verdict, text, remedy and remedy.summary


def _sorted(rows: Sequence[PendingRow]) -> tuple[PendingRow, ...]:
    totals: Counter[str] = Counter()
    for row in rows:
        if row.remedy is not None:
            totals[row.remedy.summary] += row.starts
    told = [replace(row, unblocks=totals[row.remedy.summary] if row.remedy is not None else 0) for row in rows]
    return tuple(sorted(told, key=lambda row: (-row.unblocks, -row.pods, row.since, row.namespace, row.what)))
