"""Group running pods into disruption units, rank them by importance, and order them for reprieve.

A unit is a running pod, or all running pods of a PodGroup that is disrupted as a whole. Its priority is that of its
PodGroup, or of the pod if it has none. With a half-placed gang that is disrupted as a whole go the places that are kept
for its other members.
Source: KEP-5710 (units, importance), KEP-268 (units that violate a disruption budget are reprieved first).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from haru.engine.equivalence.decision_cache import cached_property
from haru.engine.podgroup.podgroup_info import has_quorum
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import Eviction, GroupKey, PodKey
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj
from haru.kube.selectors import LabelSelector, label_selector_from

Rank = tuple[int, bool, int, str, str]
Cost = tuple[int, int, int, int]
"""The smallest wins: budget violations, highest priority, sum of priorities, pod count."""
_PRIORITY_OFFSET = 2**31
_STARTED = attrgetter("run_deadline.started")


@dataclass(eq=False)
class DisruptionUnit:
    """Hold pods that are evicted together or not at all; `group` is set for a whole PodGroup.

    `promised` are pending members of the group: the places that are kept for them are free once the unit is evicted.
    Immutable by convention (a frozen class is slow to construct, and there is one for each running pod).
    """

    pods: tuple[PodInfo, ...]
    priority: int
    group: GroupKey | None = None
    promised: tuple[PodInfo, ...] = ()

    @cached_property
    def started(self) -> str:
        """Return when the first of its pods started."""
        started: str = min(map(_STARTED, self.pods))
        return started

    @cached_property
    def rank(self) -> Rank:
        """Return the importance, smaller first: priority, whole group before single pod, group size, start, name."""
        if self.group is None and len(self.pods) == 1:
            (pod,) = self.pods
            return -self.priority, True, 0, pod.run_deadline.started, pod.key.path
        size = len(self.pods) if self.group is not None else 0
        return -self.priority, self.group is None, -size, self.started, self.pods[0].key.path

    @cached_property
    def cost(self) -> Cost:
        """Return what its eviction costs, if it violates no budget."""
        size = len(self.pods)
        return 0, self.priority, (self.priority + _PRIORITY_OFFSET) * size, size

    @cached_property
    def pods_on(self) -> Mapping[str, Sequence[tuple[str, PodInfo]]]:
        """Return its pods with their paths, by node, promised ones included."""
        if len(self.leaving) == 1:
            (pod,) = self.pods
            return {pod.node: ((pod.key.path, pod),)}
        found: dict[str, list[tuple[str, PodInfo]]] = {}
        for pod in self.leaving:
            found.setdefault(pod.node, []).append((pod.key.path, pod))
        return found

    @cached_property
    def nodes(self) -> Collection[str]:
        """Return the nodes with pods of it, each once."""
        return (self.pods[0].node,) if len(self.leaving) == 1 else self.pods_on.keys()

    @property
    def leaving(self) -> tuple[PodInfo, ...]:
        """Return whose places are free once it is evicted."""
        return self.pods + self.promised if self.promised else self.pods

    def on(self, node: str) -> Sequence[tuple[str, PodInfo]]:
        """Return its pods on a node with their paths, promised ones included."""
        if len(self.leaving) > 1:
            return self.pods_on.get(node, ())
        pod = self.pods[0]
        return ((pod.key.path, pod),) if pod.node == node else ()

    def evictions(self) -> Iterator[Eviction]:
        """Yield the evictions of all its pods."""
        for pod in self.pods:
            yield Eviction(pod.key, pod.node, self.group)


@dataclass(frozen=True, slots=True)
class ReprieveOrder:
    """Hold candidates in reprieve order: the first `guarded` of them violate a disruption budget.

    Units that are already evicted for a nomination that the preemptor may override come last. `complete`: these are all
    units below some priority, in the order of `VictimIndex`.
    """

    units: tuple[DisruptionUnit, ...]
    guarded: int = 0
    complete: bool = False

    def by_node(self) -> dict[str, list[DisruptionUnit]]:
        """Return the units with pods on each node, in this order."""
        found: dict[str, list[DisruptionUnit]] = {}
        for unit in self.units:
            for node in unit.nodes:
                found.setdefault(node, []).append(unit)
        return found


def cost_of(units: Sequence[DisruptionUnit], violations: int = 0) -> Cost:
    """Return the cost of evicting units, most important first."""
    highest = units[0].priority if units else -_PRIORITY_OFFSET
    costs = [unit.cost for unit in units]
    return violations, highest, sum([total for _, _, total, _ in costs]), sum([pods for _, _, _, pods in costs])


def units_below(
    snapshot: Snapshot, priority: int, pods: Iterable[PodInfo], *, groups: bool = True
) -> list[DisruptionUnit]:
    """Return the units of a lower priority that contain these pods; `groups`: whether pods belong to PodGroups at all.

    It omits pods that were assumed but are not yet known to be bound, and whole groups with such pods, unless the group
    already terminates: evicting only the bound members would leave a part of the group.
    """
    found: list[DisruptionUnit] = []
    seen: set[GroupKey] = set()
    for pod, own, whole in with_priorities(snapshot.pod_groups, pods, groups=groups):
        if own >= priority:
            continue
        if not whole:
            if pod.spec.get("nodeName"):
                found.append(DisruptionUnit((pod,), own))
        elif pod.group is not None and pod.group not in seen:
            seen.add(pod.group)
            found.append(_whole(snapshot, pod.group, own))
    return [unit for unit in found if unit.pods]


def with_priorities(
    pod_groups: Mapping[str, Obj], pods: Iterable[PodInfo], *, groups: bool
) -> Iterator[tuple[PodInfo, int, bool]]:
    """Yield pods with the priorities of their units, and whether such a unit is the whole PodGroup."""
    known: dict[GroupKey, tuple[int, bool] | None] = {}
    for pod in pods:
        mode, key = None, pod.group if groups else None
        if key is not None:
            if key not in known:
                known[key] = _disruption(pod_groups.get(key.path))
            mode = known[key]
        yield (pod, pod.priority, False) if mode is None else (pod, *mode)


def _disruption(group: Obj | None) -> tuple[int, bool] | None:
    """Return a group's priority, and whether it is disrupted as a whole; None without such a PodGroup."""
    if group is None:
        return None
    spec = group.get("spec") or {}
    return int(spec.get("priority") or 0), spec.get("disruptionMode") == "PodGroup"


def whole_unit(snapshot: Snapshot, key: GroupKey) -> DisruptionUnit | None:
    """Return the unit of a group whose pods are evicted together or not at all; None for any other group."""
    found = _disruption(snapshot.pod_group(key))
    unit = _whole(snapshot, key, found[0]) if found is not None and found[1] else None
    return unit if unit is not None and unit.pods else None


def _whole(snapshot: Snapshot, key: GroupKey, priority: int) -> DisruptionUnit:
    members = [snapshot.pods[path] for path in sorted(snapshot.group_state(key).scheduled)]
    known = tuple([member for member in members if member.spec.get("nodeName")])
    complete = len(known) == len(members) or any(member.deleting for member in members)
    return DisruptionUnit(known if complete else (), priority, key, _promised(snapshot, key, priority))


def _promised(snapshot: Snapshot, key: GroupKey, priority: int) -> tuple[PodInfo, ...]:
    """Return the members for which places are kept only because their gang is half placed.

    They are assumed in their places, but pending. Those that the priority of a nomination keeps are not among them.
    """
    unscheduled = snapshot.group_state(key).unscheduled
    if not unscheduled or has_quorum(snapshot, key, snapshot.pod_group(key)):
        return ()
    nominations = snapshot.pod_index.nominations
    found = []
    for path in sorted(unscheduled):
        pod = snapshot.pods.get(path)
        if pod is None or not pod.node:
            continue
        nomination = nominations.get(path)
        if (pod.priority if nomination is None else nomination.priority) <= priority:
            found.append(pod)
    return tuple(found)


def running_pods(snapshot: Snapshot, nodes: Iterable[str]) -> Iterator[PodInfo]:
    """Yield the pods on some nodes."""
    for name in nodes:
        yield from snapshot.nodes[name].pods.values()


def reprieve_order(
    snapshot: Snapshot, units: Iterable[DisruptionUnit], evicted: Collection[PodKey] = ()
) -> ReprieveOrder:
    """Order units for reprieve: those that violate a disruption budget first; the input is sorted by importance.

    Units that are already `evicted` for pods less important than the preemptor come last, as evicting them costs
    nothing more.
    """
    if not evicted:
        return _guarded_first(snapshot, units, ())
    kept: list[DisruptionUnit] = []
    evicted_units: list[DisruptionUnit] = []
    for unit in units:
        (evicted_units if any(pod.key in evicted for pod in unit.pods) else kept).append(unit)
    return _guarded_first(snapshot, kept, evicted_units)


def _guarded_first(
    snapshot: Snapshot, units: Iterable[DisruptionUnit], evicted_units: Sequence[DisruptionUnit]
) -> ReprieveOrder:
    budgets = _budgets(snapshot)
    if not budgets:
        return ReprieveOrder((*units, *evicted_units))
    guarded: list[DisruptionUnit] = []
    free: list[DisruptionUnit] = []
    for unit in units:
        # Every pod counts against each budget, also after the budget is exhausted.
        violations = [budget.use_up(pod) for pod in unit.pods for budget in budgets]
        (guarded if any(violations) else free).append(unit)
    return ReprieveOrder((*guarded, *free, *evicted_units), len(guarded))


class _Budget:
    """Count disruptions against a PodDisruptionBudget."""

    def __init__(self, obj: Obj) -> None:
        status = obj.get("status") or {}
        self._namespace = obj["metadata"].get("namespace") or "default"
        self._left = int(status.get("disruptionsAllowed") or 0)
        self._disrupted = frozenset(status.get("disruptedPods") or ())
        self._selector = _selector((obj.get("spec") or {}).get("selector") or {})

    def use_up(self, pod: PodInfo) -> bool:
        """Count one disruption; return whether it violates the budget."""
        if self._selector is None or pod.key.namespace != self._namespace or pod.key.name in self._disrupted:
            return False
        if not pod.labels or not self._selector.matches(pod.labels):
            return False
        self._left -= 1
        return self._left < 0


def _selector(selector: Obj) -> LabelSelector | None:
    """Return the selector; None if it is empty or invalid, which guards no pod, as in 1.36."""
    try:
        return label_selector_from(selector) if any(selector.values()) else None
    except ValueError:
        return None


def _budgets(snapshot: Snapshot) -> Sequence[_Budget]:
    return [_Budget(obj) for obj in snapshot.objects("PodDisruptionBudget").values()]
