"""Compute exactly how many members the nodes take together, when no requested device is visible from two nodes.

Members are counted by class: equal pods with equal claims. For every class of equal nodes the packing finds the largest
combinations of member classes that fit, with devices allocated jointly, so that an early member never takes a device
that a later one needs. It then adds combinations up over the nodes and keeps only sums that no other sum dominates.
For one class this is the sum of the nodes' capacities, and a negative answer is a proof.
Source: our own; KEP-4671 promises a placement for homogeneous groups only.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from haru.engine.dra.allocator.allocation import DoesNotFit, allocate
from haru.engine.dra.errors import GaveUp
from haru.engine.dra.model.claims import ALL, Claim, SubRequest
from haru.engine.dra.model.model import NodeView
from haru.engine.equivalence.device_signature import DeviceSignature
from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.plugin import insufficient_node_resources, node_allocatable_use
from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand, counts_devices
from haru.engine.podgroup.filter_node import Decoder, FilterPlan
from haru.engine.podgroup.placed import Placed, assume, placement_on
from haru.engine.podgroup.search_budget import SearchBudget
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj

Vector = tuple[int, ...]
_COMPARISONS_PER_QUESTION = 500
_MAX_SIGNATURES = 65_536


@dataclass(slots=True)
class MemberClass:
    """Group members with the same shape and the same device demand."""

    plan: FilterPlan
    demand: DeviceDemand
    members: list[tuple[int, PodInfo, DeviceDemand]] = field(default_factory=list)


@dataclass(slots=True)
class PackedSum:
    """Hold the number of placed members by class, and the combination on each node."""

    vector: Vector
    taken: tuple[tuple[str, Vector], ...]


class MultiClassPacking:
    """Pack classes of members onto nodes, beside what the overlay already holds."""

    def __init__(
        self,
        overlay: Overlay,
        options: Options,
        budget: SearchBudget,
        classes: Sequence[MemberClass],
        nodes: Sequence[str],
    ) -> None:
        self._overlay = overlay
        self._options = options
        self._budget = budget
        self._classes = classes
        self._nodes = nodes
        self._decoder = Decoder(overlay, options)
        # Claims for extended resources differ between nodes; the signature must cover the claims of every node.
        claims_by_class = [self._decoder.claims(c.members[0][2].pending_anywhere()) for c in classes]
        self._counts_devices = counts_devices(overlay.snapshot, options)
        claims = [claim for claims in claims_by_class for claim in claims]
        self._signature = DeviceSignature(claims, options.features, sized=True)
        self._needs_devices = any(claims_by_class)
        self._least = min(map(least_devices, claims_by_class), default=0)
        self._cache = overlay.snapshot.decision_cache.scope()

    def confined(self) -> bool:
        """Tell whether nodes are independent: no device that members request is visible from two of them."""
        return self._signature.are_independent(
            self._overlay.snapshot, (_view(self._overlay.node(name)) for name in self._nodes)
        )

    def use_overlay(self, overlay: Overlay, budget: SearchBudget) -> None:
        """Continue with another state of the same nodes; results for equal node signatures still hold."""
        self._overlay = overlay
        self._budget = budget

    def best(self, enough: int, nodes: Iterable[str] | None = None) -> PackedSum:
        """Return the sum with the most members (earlier members first); stop early once `enough` are placed."""
        zero = tuple(0 for _ in self._classes)
        sums = [PackedSum(zero, ())]
        limits = tuple(len(c.members) for c in self._classes)
        for name in self._nodes if nodes is None else nodes:
            additions = self.combinations(name)
            if not additions:
                continue
            sums = self._combined(sums, name, additions, limits)
            if any(sum(s.vector) >= enough for s in sums):
                break
        return min(sums, key=lambda s: (-sum(s.vector), self._member_numbers(s.vector)))

    def assume_all(self, chosen: PackedSum) -> list[tuple[int, Placed]]:
        """Assume the placements of a sum in the overlay; return them with the members' numbers."""
        queues = [list(c.members) for c in self._classes]
        placed: list[tuple[int, Placed]] = []
        for name, vector in chosen.taken:
            here = [queues[i].pop(0) for i, count in enumerate(vector) for _ in range(count)]
            here.sort(key=lambda entry: entry[0])
            placed += self._assume_on_node(name, here)
        return sorted(placed, key=lambda entry: entry[0])

    def _assume_on_node(self, name: str, here: Sequence[tuple[int, PodInfo, DeviceDemand]]) -> list[tuple[int, Placed]]:
        node = self._overlay.node(name)
        uses = [use for _, _, demand in here for use in demand.pending_on(node)]
        answer = self._allocate(node, self._decoder.claims(uses))
        if answer is None:
            raise AssertionError(f"node {name} took a combination of members and now refuses it")
        results = dict(zip((use.path for use in uses), answer, strict=True))
        placed: list[tuple[int, Placed]] = []
        for number, pod, demand in here:
            allocations = tuple((use, results[use.path]) for use in demand.pending_on(node))
            outcome = assume(self._overlay, placement_on(self._overlay, pod, demand, name, allocations))
            placed.append((number, outcome))
        return placed

    def _member_numbers(self, vector: Vector) -> list[int]:
        return sorted(c.members[i][0] for c, count in zip(self._classes, vector, strict=True) for i in range(count))

    def _combined(
        self, sums: Sequence[PackedSum], name: str, additions: Sequence[Vector], limits: Vector
    ) -> list[PackedSum]:
        found: dict[Vector, PackedSum] = {s.vector: s for s in sums}
        for base in sums:
            for addition in additions:
                added = tuple(min(a, m - b) for a, b, m in zip(addition, base.vector, limits, strict=True))
                vector = tuple(a + b for a, b in zip(added, base.vector, strict=True))
                if vector not in found:
                    self._budget.spend()
                    found[vector] = PackedSum(vector, (*base.taken, (name, added)))
        self._budget.spend(len(found) * len(found) // _COMPARISONS_PER_QUESTION)
        return _undominated(list(found.values()))

    def combinations(self, name: str) -> tuple[Vector, ...]:
        """Return the largest combinations of classes that a node takes."""
        node = self._overlay.node(name)
        node_passes = tuple(state.node(name) for state in self._overlay.passes)
        feasible = tuple(
            not (any(c.plan.check(info) for info in node_passes) or c.demand.allocated_elsewhere(node))
            for c in self._classes
        )
        if not (any(feasible) and self._has_devices(node)):
            return ()
        # `feasible` covers labels, taints and volumes; the node's load covers what changes as members are added.
        key = (tuple((info.spec.kind, info.load) for info in node_passes), feasible, self._device_signature(node))
        compute = partial(self._combinations_of, node_passes, feasible)
        return self._cache.get_or_compute("combinations", key, compute, _MAX_SIGNATURES)

    def _combinations_of(self, node_passes: Sequence[NodeInfo], feasible: Sequence[bool]) -> tuple[Vector, ...]:
        caps = tuple(self._max_of_class(node_passes, i) if is_feasible else 0 for i, is_feasible in enumerate(feasible))
        return self._maximal_vectors(node_passes, caps) if any(caps) else ()

    def _has_devices(self, node: NodeInfo) -> bool:
        """Tell whether a node has as many free devices as the smallest member request needs, of any kind."""
        if not self._least:
            return True
        free = 0
        for view in self._overlay.snapshot.devices.views(_view(node), self._options.features.PartitionableDevices):
            if any(shape.shareable for shape in view.table.shapes):
                return True
            places = view.table.places
            taken = sum(name in places for name in self._overlay.allocated.use(view.key).devices)
            free += len(view.devices) - taken
            if free >= self._least:
                return True
        return False

    def _device_signature(self, node: NodeInfo) -> Hashable:
        if not self._needs_devices:
            return ()
        overlay, mapped = self._overlay, self._counts_devices
        return self._signature.of_node(overlay.snapshot.devices, overlay.allocated, _view(node), mapped=mapped)

    def _max_of_class(self, node_passes: Sequence[NodeInfo], index: int) -> int:
        """Count how many members of one class the node takes."""
        count = 0
        while count < len(self._classes[index].members):
            vector = tuple(count + 1 if i == index else 0 for i in range(len(self._classes)))
            if not self._fits(node_passes, vector):
                break
            count += 1
        return count

    def _maximal_vectors(self, node_passes: Sequence[NodeInfo], caps: Vector) -> tuple[Vector, ...]:
        if sum(1 for cap in caps if cap) == 1:
            return (caps,)
        found: list[Vector] = []
        tried: set[Vector] = set()
        level = [caps]
        while level:
            next_level: list[Vector] = []
            for vector in level:
                if any(_covers(other, vector) for other in found):
                    continue
                if self._fits(node_passes, vector):
                    found.append(vector)
                    continue
                for i, count in enumerate(vector):
                    smaller = (*vector[:i], count - 1, *vector[i + 1 :])
                    if count and smaller not in tried:
                        tried.add(smaller)
                        next_level.append(smaller)
            level = next_level
        return tuple(v for v in found if any(v))

    def _fits(self, node_passes: Sequence[NodeInfo], vector: Vector) -> bool:
        """Tell whether a node takes this many members of each class together in every pass."""
        self._budget.spend()
        nodes = list(node_passes)
        members: list[tuple[PodInfo, DeviceDemand]] = []
        uses: list[ClaimUse] = []
        claims: list[Claim] = []
        for index, count in enumerate(vector):
            chosen = self._classes[index]
            for i in range(count):
                if any(chosen.plan.check(node) for node in nodes):
                    return False
                _, pod, demand = chosen.members[i]
                nodes = [node.with_pod(pod.bound_to(node.name)) for node in nodes]
                members.append((pod, demand))
                pending = demand.pending_on(nodes[0])
                uses.extend(pending)
                claims.extend(self._decoder.claims(pending))
        answer = self._allocate(nodes[0], claims) if claims else ()
        if answer is None:
            return False
        return not self._counts_devices or self._fits_with_devices(node_passes, members, uses, answer)

    def _fits_with_devices(
        self,
        node_passes: Sequence[NodeInfo],
        members: Sequence[tuple[PodInfo, DeviceDemand]],
        uses: Sequence[ClaimUse],
        results: Sequence[Obj],
    ) -> bool:
        """Tell whether the node also has the resources that the members' devices take of it (KEP-5517)."""
        given = {use.path: (use, result) for use, result in zip(uses, results, strict=True)}
        nodes = list(node_passes)
        for pod, demand in members:
            fresh = [given[use.path] for use in demand.pending_on(nodes[0])]
            claimed = node_allocatable_use(self._overlay, pod, demand, nodes[0], fresh)
            if any(insufficient_node_resources(pod, node, claimed) for node in nodes):
                return False
            nodes = [node.with_pod(pod.bound_to(node.name, claimed)) for node in nodes]
        return True

    def _allocate(self, node: NodeInfo, claims: Sequence[Claim]) -> Sequence[Obj] | None:
        try:
            answer = allocate(
                self._overlay.snapshot.devices,
                self._overlay.allocated,
                _view(node),
                claims,
                self._options.features,
                new_share_id=self._options.new_share_id,
                step_budget=self._options.budgets.step_budget,
                scoring=self._options.profile.packing,
            )
        except GaveUp:
            self._budget.unproven = True
            return None
        return None if isinstance(answer, DoesNotFit) else answer.results


def _view(node: NodeInfo) -> NodeView:
    return NodeView(node.name, node.labels)


def _covers(larger: Vector, smaller: Vector) -> bool:
    return all(a >= b for a, b in zip(larger, smaller, strict=True))


def _undominated(sums: Sequence[PackedSum]) -> list[PackedSum]:
    kept: list[PackedSum] = []
    for candidate in sorted(sums, key=lambda s: -sum(s.vector)):
        if not any(_covers(other.vector, candidate.vector) for other in kept):
            kept.append(candidate)
    return kept


def least_devices(claims: Sequence[Claim]) -> int:
    """Count the devices that claims need at least; admin access does not count."""
    return sum(min(_needed(ask) for ask in request.asks) for claim in claims for request in claim.requests)


def _needed(ask: SubRequest) -> int:
    return 0 if ask.admin or ask.mode == ALL else ask.count
