"""What preemption may evict: the units that go together, how important each is, and in which order they are spared.

A unit is a running pod, or all running pods of a PodGroup that is disrupted as a whole. It has the priority of its
PodGroup, or of the pod if it has none.
Source: KEP-5710 (units, importance), KEP-268 (disruption budgets: guarded units are spared first).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from haru.engine.cached import cached_property
from haru.engine.cluster import Snapshot
from haru.engine.decision import Eviction, GroupKey, Obj, PodKey
from haru.engine.pods import PodInfo
from haru.kube.selectors import LabelSelector, label_selector_from

Rank = tuple[int, bool, int, str, str]


@dataclass(eq=False)
class Unit:
    """Pods that are evicted together or not at all. `group` is set where that is a whole PodGroup.

    Never changed (a frozen class takes long to make, and there is one for each running pod).
    """

    pods: tuple[PodInfo, ...]
    priority: int
    group: GroupKey | None = None

    @cached_property
    def started(self) -> str:
        """When the first of its pods started."""
        return min(pod.outlook.started for pod in self.pods)

    @cached_property
    def rank(self) -> Rank:
        """Smaller is more important: priority, whole group before single pod, size of a group, start; then the name."""
        size = len(self.pods) if self.group is not None else 0
        return -self.priority, self.group is None, -size, self.started, self.pods[0].key.path

    @cached_property
    def spots(self) -> tuple[tuple[str, str, PodInfo], ...]:
        """Its pods with the nodes that they are on and their paths."""
        return tuple([(pod.node, pod.key.path, pod) for pod in self.pods])

    def evictions(self) -> Iterator[Eviction]:
        """The evictions that make the unit go."""
        for pod in self.pods:
            yield Eviction(pod.key, pod.node, self.group)


@dataclass(frozen=True, slots=True)
class SparingOrder:
    """Candidates in the order in which they are spared: the first `guarded` of them violate a disruption budget.

    Those come last who are to go anyway, for somebody whose place may be taken.
    """

    units: tuple[Unit, ...]
    guarded: int = 0


def units_below(
    snapshot: Snapshot, priority: int, pods: Iterable[PodInfo], *, groups: bool = True, whole: bool = True
) -> list[Unit]:
    """The units of a lower priority that these pods are in; `groups`: whether pods belong to PodGroups at all.

    Without `whole` those are left out that are a PodGroup.
    Pods that were placed a moment ago and are not known to be on their node yet are left alone, and so is a group that
    goes as a whole and has such pods: what stayed of it would be a part. (Unless it is going already.)
    """
    found: list[Unit] = []
    known: dict[GroupKey, tuple[int, bool] | None] = {}
    for pod in pods:
        mode = None
        if groups and (key := pod.group) is not None:
            if key not in known:
                known[key] = _disruption(snapshot, key)
                mode = known[key]
                if whole and mode is not None and mode[1] and mode[0] < priority:
                    found.append(_whole(snapshot, key, mode[0]))
            mode = known[key]
        own = pod.priority if mode is None else mode[0]
        if own < priority and not (mode is not None and mode[1]) and _may_go(pod):
            found.append(Unit((pod,), own))
    return [unit for unit in found if unit.pods]


def _disruption(snapshot: Snapshot, key: GroupKey) -> tuple[int, bool] | None:
    """A group's priority, and whether it is disrupted as a whole; None if there is no such PodGroup."""
    group = snapshot.pod_group(key)
    if group is None:
        return None
    spec = group.get("spec") or {}
    return int(spec.get("priority") or 0), spec.get("disruptionMode") == "PodGroup"


def _whole(snapshot: Snapshot, key: GroupKey, priority: int) -> Unit:
    members = [snapshot.pods[path] for path in sorted(snapshot.group_state(key).scheduled)]
    known = tuple(member for member in members if _may_go(member))
    complete = len(known) == len(members) or any(member.deleting for member in members)
    return Unit(known if complete else (), priority, key)


def _may_go(pod: PodInfo) -> bool:
    return bool(pod.spec.get("nodeName"))


def running_pods(snapshot: Snapshot, nodes: Iterable[str]) -> Iterator[PodInfo]:
    """The pods on some nodes."""
    for name in nodes:
        yield from snapshot.nodes[name].pods.values()


def sparing_order(snapshot: Snapshot, units: Iterable[Unit], evicted: Collection[PodKey] = ()) -> SparingOrder:
    """Units that violate a disruption budget first, then the others; the units are given by importance.

    Last come those that are `evicted` already, for pods that are less important than the preemptor: it may as well
    take that room.
    """
    if not evicted:
        return _unless_guarded(snapshot, units, ())
    staying: list[Unit] = []
    going: list[Unit] = []
    for unit in units:
        (going if any(pod.key in evicted for pod in unit.pods) else staying).append(unit)
    return _unless_guarded(snapshot, staying, going)


def _unless_guarded(snapshot: Snapshot, units: Iterable[Unit], going: Sequence[Unit]) -> SparingOrder:
    budgets = _budgets(snapshot)
    if not budgets:
        return SparingOrder((*units, *going))
    guarded: list[Unit] = []
    free: list[Unit] = []
    for unit in units:
        # Every pod uses up what it can, also after one that found nothing left.
        violations = [budget.use_up(pod) for pod in unit.pods for budget in budgets]
        (guarded if any(violations) else free).append(unit)
    return SparingOrder((*guarded, *free, *going), len(guarded))


class _Budget:
    """What is left of a PodDisruptionBudget as pods are counted against it."""

    def __init__(self, obj: Obj) -> None:
        status = obj.get("status") or {}
        self._namespace = obj["metadata"].get("namespace") or "default"
        self._left = int(status.get("disruptionsAllowed") or 0)
        self._disrupted = frozenset(status.get("disruptedPods") or ())
        self._selector = _selector((obj.get("spec") or {}).get("selector") or {})

    def use_up(self, pod: PodInfo) -> bool:
        """Count one disruption; whether there was none left for it."""
        if self._selector is None or pod.key.namespace != self._namespace or pod.key.name in self._disrupted:
            return False
        if not pod.labels or not self._selector.matches(pod.labels):
            return False
        self._left -= 1
        return self._left < 0


def _selector(selector: Obj) -> LabelSelector | None:
    """The pods that are guarded; None if nothing is demanded, or nothing sensible: that guards none, as in 1.36."""
    try:
        return label_selector_from(selector) if any(selector.values()) else None
    except ValueError:
        return None


def _budgets(snapshot: Snapshot) -> Sequence[_Budget]:
    return [_Budget(obj) for obj in snapshot.objects("PodDisruptionBudget").values()]
