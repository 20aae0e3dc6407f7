"""Count the pods of each topology domain, and refuse nodes whose domain would exceed `maxSkew` (hard constraints).

The counts follow the nodes: a placement updates only the node that it changed. Pods without constraints of their own
get those of the profile, over the pods of the same service and owner.
Source: kube-scheduler's PodTopologySpread plugin (KEP-895, KEP-1258, KEP-3022, KEP-3094, KEP-3243), as behaviour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from haru.engine.framework.interfaces import PASS, FilterFailure, refuse
from haru.engine.framework.profile import Profile
from haru.engine.plugins.helper.node_rules import matches_node_affinity, untolerated_taint
from haru.engine.state.cache import Snapshot
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import ChangeCursor, Overlay, present_nodes
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj
from haru.kube.selectors import EVERYTHING, LabelSelector, Requirement, label_selector_from

PLUGIN = "PodTopologySpread"
HARD = "DoNotSchedule"
SOFT = "ScheduleAnyway"
_MESSAGE = "node(s) didn't match pod topology spread constraints"
_MISSING = (refuse(PLUGIN, "TopologySpread", f"{_MESSAGE} (missing required label)"),)


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint of one pod, its selector read. `honor_*` say which nodes do not count."""

    key: str
    max_skew: int
    min_domains: int
    selector: LabelSelector
    honor_affinity: bool
    honor_taints: bool

    @staticmethod
    def of(pod: PodInfo, constraint: Mapping[str, Any], selector: LabelSelector | None = None) -> Constraint:
        """Read a constraint; `selector` stands in where it has none of its own (defaults)."""
        wanted = selector if selector is not None else label_selector_from(constraint.get("labelSelector"))
        same = [key for key in constraint.get("matchLabelKeys") or () if key in pod.labels]
        if same and not wanted.nothing:
            more = tuple(Requirement(key, "in", frozenset({pod.labels[key]})) for key in same)
            wanted = LabelSelector((*wanted.requirements, *more))
        return Constraint(
            key=constraint["topologyKey"],
            max_skew=int(constraint["maxSkew"]),
            min_domains=int(constraint.get("minDomains") or 1),
            selector=wanted,
            honor_affinity=(constraint.get("nodeAffinityPolicy") or "Honor") == "Honor",
            honor_taints=(constraint.get("nodeTaintsPolicy") or "Ignore") == "Honor",
        )

    def counts_node(self, pod: PodInfo, node: NodeInfo) -> bool:
        """Whether the pods of a node count (KEP-3094)."""
        if self.honor_affinity and not matches_node_affinity(pod, node.name, node.labels):
            return False
        return not (self.honor_taints and untolerated_taint(pod, node.taints) is not None)


def own_constraints(pod: PodInfo, when: str) -> tuple[Constraint, ...]:
    """The hard or the soft constraints in a pod's spec."""
    listed = pod.spec.get("topologySpreadConstraints") or ()
    return tuple(Constraint.of(pod, c) for c in listed if c.get("whenUnsatisfiable") == when)


def signature(pod: PodInfo, constraints: Sequence[Constraint]) -> tuple[object, ...]:
    """Equal for pods of one shape to which the same counts apply."""
    return tuple((c, c.selector.matches(pod.labels)) for c in constraints)


@dataclass(slots=True)
class _Domain:
    """A domain's matching pods, and on how many eligible nodes it is."""

    pods: int = 0
    nodes: int = 0


@dataclass(slots=True)
class _Count:
    """One constraint's domains, by value, and how many domains have how many pods."""

    domains: dict[str, _Domain] = field(default_factory=dict)
    sizes: dict[int, set[str]] = field(default_factory=dict)

    def add(self, value: str, pods: int, nodes: int) -> None:
        domain = self.domains.get(value)
        if domain is None:
            domain = self.domains[value] = _Domain()
        else:
            self._unlist(domain.pods, value)
        domain.pods += pods
        domain.nodes += nodes
        if domain.nodes:
            self.sizes.setdefault(domain.pods, set()).add(value)
        else:
            del self.domains[value]

    def _unlist(self, size: int, value: str) -> None:
        self.sizes[size].discard(value)
        if not self.sizes[size]:
            del self.sizes[size]

    def of(self, value: str) -> int:
        domain = self.domains.get(value)
        return domain.pods if domain is not None else 0

    def least(self) -> int:
        return min(self.sizes, default=0)


class SpreadCounts:
    """The pods that match each of some constraints of a pod, per node and per domain.

    `everywhere` counts nodes that lack a topology label too, as the built-in defaults do.
    """

    def __init__(self, pod: PodInfo, constraints: Sequence[Constraint], *, everywhere: bool = False) -> None:
        self.constraints = tuple(constraints)
        self.counts = tuple(_Count() for _ in constraints)
        self._pod = pod
        self._everywhere = everywhere
        self._follower = ChangeCursor()
        self._nodes: dict[str, tuple[tuple[str | None, int], ...]] = {}
        self._on: dict[str, tuple[int, ...]] = {}

    def catch_up(self, overlay: Overlay) -> tuple[set[str], ...]:
        """Take in what has changed; the domains of each constraint whose counts may have."""
        changed = self._follower.catch_up(overlay)
        touched: tuple[set[str], ...] = tuple(set() for _ in self.constraints)
        if changed is None:
            for count, values in zip(self.counts, touched, strict=True):
                values.update(count.domains)
                count.domains.clear()
                count.sizes.clear()
            self._nodes, self._on = {}, {}
        for name, node in present_nodes(overlay, changed):
            self._put(name, node, touched)
        return touched

    def on(self, name: str, number: int) -> int:
        """How many pods on a node match a constraint."""
        found = self._on.get(name)
        return found[number] if found is not None else 0

    def has_labels(self, node: NodeInfo) -> bool:
        """Whether the node is one that counts at all."""
        return self._everywhere or all(c.key in node.labels for c in self.constraints)

    def _put(self, name: str, node: NodeInfo | None, touched: Sequence[set[str]]) -> None:
        old = self._nodes.pop(name, ())
        new = self._read(node) if node is not None else ()
        if new:
            self._nodes[name] = new
        else:
            self._on.pop(name, None)
        if old == new:
            return
        for sign, entries in ((-1, old), (1, new)):
            for number, (value, pods) in enumerate(entries):
                if value is not None:
                    self.counts[number].add(value, sign * pods, sign)
                    touched[number].add(value)

    def _read(self, node: NodeInfo) -> tuple[tuple[str | None, int], ...]:
        """Per constraint the domain that the node counts in (None: it does not count), and its pods."""
        if not self.has_labels(node):
            self._on.pop(node.name, None)
            return ()
        found: dict[LabelSelector, int] = {}
        for constraint in self.constraints:
            if constraint.selector not in found:
                found[constraint.selector] = self._matching(node, constraint.selector)
        on = tuple(found[c.selector] for c in self.constraints)
        self._on[node.name] = on
        return tuple(
            (node.labels.get(c.key, "") if c.counts_node(self._pod, node) else None, pods)
            for c, pods in zip(self.constraints, on, strict=True)
        )

    def _matching(self, node: NodeInfo, selector: LabelSelector) -> int:
        if selector.empty:
            return 0  # as kube-scheduler counts, though the pod itself is selected
        namespace = self._pod.key.namespace
        return sum(
            1
            for other in node.pods.values()
            if other.key.namespace == namespace and not other.deleting and selector.matches(other.labels)
        )


class SpreadRules:
    """A pod's hard constraints, as things stand.

    A placement can fill a domain that has thousands of nodes. Constraints over labels that are named in `wide` are
    therefore left out by `check_nodes`, and asked per domain (`domains_of`, `full`).
    """

    def __init__(self, pod: PodInfo, constraints: Sequence[Constraint], wide: Collection[str] = ()) -> None:
        self.counts = SpreadCounts(pod, constraints)
        self._own = tuple(int(c.selector.matches(pod.labels)) for c in constraints)
        self._limits: tuple[int, ...] = ()
        self._wide = tuple(number for number, c in enumerate(constraints) if c.key in wide)

    @property
    def keys(self) -> tuple[str, ...]:
        """The topology labels of the constraints, in order."""
        return tuple(c.key for c in self.counts.constraints)

    def catch_up(self, overlay: Overlay) -> tuple[set[str], ...]:
        """Take in what has changed; the domains of each constraint whose nodes may now be judged differently."""
        touched = self.counts.catch_up(overlay)
        before, self._limits = self._limits, tuple(self._limit(i) for i in range(len(self._own)))
        for number in self._wide:
            touched[number].clear()
        for number, values in enumerate(touched):
            if number not in self._wide and before and before[number] != self._limits[number]:
                low, high = sorted((before[number], self._limits[number]))
                own = self._own[number]
                for size in range(low - own + 1, high - own + 1):
                    values |= self.counts.counts[number].sizes.get(size, set())
        return touched

    def check(self, node: NodeInfo) -> Sequence[FilterFailure]:
        """Why the constraints refuse a node."""
        for number, constraint in enumerate(self.counts.constraints):
            value = node.labels.get(constraint.key)
            if value is None:
                return _MISSING
            if self._is_full(number, value):
                return (self._failure(number, value),)
        return PASS

    def check_nodes(self, node: NodeInfo) -> Sequence[FilterFailure]:
        """Why the constraints refuse a node, but for how full its wide domains are."""
        if not self._wide:
            return self.check(node)
        for number, constraint in enumerate(self.counts.constraints):
            value = node.labels.get(constraint.key)
            if value is None:
                return _MISSING
            if number not in self._wide and self._is_full(number, value):
                return (self._failure(number, value),)
        return PASS

    def domains_of(self, node: NodeInfo) -> tuple[str, ...]:
        """The wide domains of a node that has all labels."""
        return tuple(node.labels[self.counts.constraints[number].key] for number in self._wide)

    def full(self, domains: Sequence[str]) -> bool:
        """Whether any of a node's wide domains takes no more pods."""
        return any(self._is_full(number, value) for number, value in zip(self._wide, domains, strict=True))

    def _is_full(self, number: int, value: str) -> bool:
        return self.counts.counts[number].of(value) + self._own[number] > self._limits[number]

    def _failure(self, number: int, value: str) -> FilterFailure:
        count = self.counts.counts[number].of(value) + self._own[number]
        data = {
            "topologyKey": self.counts.constraints[number].key,
            "domain": value,
            "pods": count,
            "limit": self._limits[number],
        }
        return refuse(PLUGIN, "TopologySpread", _MESSAGE, data, resolvable=True)

    def _limit(self, number: int) -> int:
        constraint, count = self.counts.constraints[number], self.counts.counts[number]
        least = count.least() if len(count.domains) >= constraint.min_domains else 0
        return least + constraint.max_skew


_OWNERS = {
    ("v1", "ReplicationController"): "ReplicationController",
    ("apps/v1", "ReplicaSet"): "ReplicaSet",
    ("apps/v1", "StatefulSet"): "StatefulSet",
}


class DefaultConstraintSelectors:
    """The services of a snapshot by namespace, listed anew only when one of them has changed."""

    def __init__(self) -> None:
        self._source: Mapping[str, Obj] | None = None
        self._by_namespace: dict[str, list[Mapping[str, str]]] = {}

    def selectors(self, snapshot: Snapshot, pod: PodInfo) -> Iterator[Mapping[str, str]]:
        """The selectors of the services that a pod belongs to."""
        for selector in self._listed(snapshot).get(pod.key.namespace, ()):
            if all(pod.labels.get(key) == value for key, value in selector.items()):
                yield selector

    def reads(self, snapshot: Snapshot, namespace: str, keys: Collection[str]) -> bool:
        """Return whether a service of the namespace selects pods by one of these labels."""
        listed = self._listed(snapshot).get(namespace, ())
        return not all(selector.keys().isdisjoint(keys) for selector in listed)

    def _listed(self, snapshot: Snapshot) -> Mapping[str, Sequence[Mapping[str, str]]]:
        source = snapshot.objects("Service")
        if source is not self._source:
            self._source = source
            self._by_namespace = {}
            for path, service in sorted(source.items()):
                selector = (service.get("spec") or {}).get("selector")
                if selector is not None:
                    self._by_namespace.setdefault(path.split("/", 1)[0], []).append(selector)
        return self._by_namespace


def default_constraints(
    snapshot: Snapshot, pod: PodInfo, profile: Profile, services: DefaultConstraintSelectors, when: str
) -> tuple[Constraint, ...]:
    """The hard or the soft constraints that hold for a pod: its own, or the defaults if it has none at all."""
    if pod.spec.get("topologySpreadConstraints"):
        return own_constraints(pod, when)
    listed = [c for c in profile.spread.constraints if c.get("whenUnsatisfiable") == when]
    if not listed:
        return ()
    selector = _selector(snapshot, pod, services)
    return () if selector.empty else tuple(Constraint.of(pod, c, selector) for c in listed)


def _selector(snapshot: Snapshot, pod: PodInfo, services: DefaultConstraintSelectors) -> LabelSelector:
    labels: dict[str, str] = {}
    for found in services.selectors(snapshot, pod):
        labels.update(found)
    more: tuple[Requirement, ...] = ()
    owner = pod.controller
    kind = None if owner is None else _OWNERS.get((str(owner.get("apiVersion")), str(owner.get("kind"))))
    if owner is not None and kind is not None:
        obj = snapshot.objects(kind).get(f"{pod.key.namespace}/{owner.get('name')}") or {}
        selector = (obj.get("spec") or {}).get("selector") or {}
        if kind == "ReplicationController":
            labels.update(selector)
        elif selector:
            more = label_selector_from(selector).requirements
    if not labels and not more:
        return EVERYTHING
    required = tuple(Requirement(key, "in", frozenset({value})) for key, value in sorted(labels.items()))
    return LabelSelector((*required, *more))
