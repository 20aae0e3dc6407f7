"""How many members nodes can take together, exactly, when nodes can be judged apart from each other.

Members are counted by class: equal pods with equal claims. For every kind of node the largest combinations of classes
that fit on it are found, devices allocated jointly, so that an early member never takes the device that a later one
cannot do without. Combinations are then added up over the nodes; of sums that are worse in every class only the best
is kept. For one class this is the sum of what each node takes, and its answer no is a proof.
Source: our own; KEP-4671 promises a placement for homogeneous groups only.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from haru.engine.decision import Obj
from haru.engine.devices import Claim, DoesNotFit, GaveUp, NodeView, allocate
from haru.engine.devices.claims import ALL, Ask
from haru.engine.groups.asking import Decoder
from haru.engine.groups.budget import Budget
from haru.engine.groups.claimed import claimed_on, too_much
from haru.engine.groups.claims import ClaimUse
from haru.engine.groups.demand import Demand, counts_devices
from haru.engine.groups.options import Options
from haru.engine.groups.placing import Placed, occupy
from haru.engine.groups.signature import DeviceLens
from haru.engine.nodeinfo import NodeInfo
from haru.engine.nodes.plan import NodePlan
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo

Vector = tuple[int, ...]
_COMPARISONS_PER_QUESTION = 500


@dataclass(slots=True)
class MemberClass:
    """Members that are alike: same shape, same demand."""

    plan: NodePlan
    demand: Demand
    members: list[tuple[int, PodInfo, Demand]] = field(default_factory=list)


@dataclass(slots=True)
class PackedSum:
    """Members placed, by class, and how: the combination taken on each node."""

    vector: Vector
    taken: tuple[tuple[str, Vector], ...]


class Packing:
    """The packing of classes of members onto nodes, over what the overlay holds already."""

    def __init__(
        self,
        overlay: Overlay,
        options: Options,
        budget: Budget,
        classes: Sequence[MemberClass],
        nodes: Sequence[str],
    ) -> None:
        self._overlay = overlay
        self._options = options
        self._budget = budget
        self._classes = classes
        self._nodes = nodes
        self._decoder = Decoder(overlay, options)
        # What extended resources ask for differs between nodes; the lens must know whatever may be asked of any.
        asked = [self._decoder.claims(c.members[0][2].pending_anywhere()) for c in classes]
        self._counts_devices = counts_devices(overlay.snapshot, options)
        self._lens = DeviceLens(
            (claim for claims in asked for claim in claims), options.features, mapped=self._counts_devices
        )
        self._wants_devices = any(asked)
        self._least = min(map(least_devices, asked), default=0)
        self._known: dict[Hashable, tuple[Vector, ...]] = {}

    def confined(self) -> bool:
        """Whether nodes can be judged apart: no device that members want is seen by two of them."""
        return self._lens.confined(self._overlay.snapshot, (_view(self._overlay.node(name)) for name in self._nodes))

    def look_at(self, overlay: Overlay, budget: Budget) -> None:
        """Go on with another state of the same nodes: what was found out about equal nodes still holds."""
        self._overlay = overlay
        self._budget = budget

    def best(self, enough: int, nodes: Sequence[str] | None = None) -> PackedSum:
        """The sum with the most members (the earlier ones first); stops early once `enough` are placed."""
        zero = tuple(0 for _ in self._classes)
        sums = [PackedSum(zero, ())]
        limits = tuple(len(c.members) for c in self._classes)
        for name in self._nodes if nodes is None else nodes:
            additions = self.combinations(name)
            if additions:
                sums = self._extended(sums, name, additions, limits)
            if any(sum(s.vector) >= enough for s in sums):
                break
        return min(sums, key=lambda s: (-sum(s.vector), self._places(s.vector)))

    def realise(self, chosen: PackedSum) -> list[tuple[int, Placed]]:
        """Take the places of a sum in the overlay; answers with members by their number."""
        queues = [list(c.members) for c in self._classes]
        placed: list[tuple[int, Placed]] = []
        for name, vector in chosen.taken:
            here = [queues[i].pop(0) for i, count in enumerate(vector) for _ in range(count)]
            here.sort(key=lambda entry: entry[0])
            placed += self._realise_node(name, here)
        return sorted(placed, key=lambda entry: entry[0])

    def _realise_node(self, name: str, here: Sequence[tuple[int, PodInfo, Demand]]) -> list[tuple[int, Placed]]:
        node = self._overlay.node(name)
        uses = [use for _, _, demand in here for use in demand.pending_on(node)]
        answer = self._allocate(node, self._decoder.claims(uses))
        if answer is None:
            raise AssertionError(f"node {name} took a combination of members and now refuses it")
        results = dict(zip((use.path for use in uses), answer, strict=True))
        return [
            (
                number,
                occupy(self._overlay, pod, demand, name, tuple((u, results[u.path]) for u in demand.pending_on(node))),
            )
            for number, pod, demand in here
        ]

    def _places(self, vector: Vector) -> list[int]:
        return sorted(c.members[i][0] for c, count in zip(self._classes, vector, strict=True) for i in range(count))

    def _extended(
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
        """The largest combinations of classes that a node takes."""
        node = self._overlay.node(name)
        seen = tuple(moment.node(name) for moment in self._overlay.moments)
        open_to = tuple(
            not (any(c.plan.check(info) for info in seen) or c.demand.tied_elsewhere(node)) for c in self._classes
        )
        if not (any(open_to) and self._has_devices(node)):
            return ()
        # Labels, taints and volumes are settled by `open_to`; what changes as members are added is in the node's load.
        key = (tuple((info.spec.kind, info.load) for info in seen), open_to, self._device_signature(node))
        if key not in self._known:
            caps = tuple(self._cap(seen, i) if is_open else 0 for i, is_open in enumerate(open_to))
            self._known[key] = self._maximal(seen, caps) if any(caps) else ()
        return self._known[key]

    def _has_devices(self, node: NodeInfo) -> bool:
        """Whether a node has as many free devices as the most modest member needs, whatever they are."""
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
        if not self._wants_devices:
            return ()
        return self._lens.signature(self._overlay.snapshot.devices, self._overlay.allocated, _view(node))

    def _cap(self, seen: Sequence[NodeInfo], index: int) -> int:
        """How many of one class the node takes."""
        count = 0
        while count < len(self._classes[index].members):
            vector = tuple(count + 1 if i == index else 0 for i in range(len(self._classes)))
            if not self._fits(seen, vector):
                break
            count += 1
        return count

    def _maximal(self, seen: Sequence[NodeInfo], caps: Vector) -> tuple[Vector, ...]:
        if sum(1 for cap in caps if cap) == 1:
            return (caps,)
        found: list[Vector] = []
        tried: set[Vector] = set()
        level = [caps]
        while level:
            following: list[Vector] = []
            for vector in level:
                if any(_covers(other, vector) for other in found):
                    continue
                if self._fits(seen, vector):
                    found.append(vector)
                    continue
                for i, count in enumerate(vector):
                    smaller = (*vector[:i], count - 1, *vector[i + 1 :])
                    if count and smaller not in tried:
                        tried.add(smaller)
                        following.append(smaller)
            level = following
        return tuple(v for v in found if any(v))

    def _fits(self, seen: Sequence[NodeInfo], vector: Vector) -> bool:
        """Whether a node, as it is at each moment, takes this many members of each class together."""
        self._budget.spend()
        nodes = list(seen)
        members: list[tuple[PodInfo, Demand]] = []
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
        return not self._counts_devices or self._has_room(seen, members, uses, answer)

    def _has_room(
        self,
        seen: Sequence[NodeInfo],
        members: Sequence[tuple[PodInfo, Demand]],
        uses: Sequence[ClaimUse],
        results: Sequence[Obj],
    ) -> bool:
        """Whether the node also has what the devices of its members take of it themselves (KEP-5517)."""
        given = {use.path: (use, result) for use, result in zip(uses, results, strict=True)}
        nodes = list(seen)
        for pod, demand in members:
            fresh = [given[use.path] for use in demand.pending_on(nodes[0])]
            claimed = claimed_on(self._overlay, pod, demand, nodes[0], fresh)
            if any(too_much(pod, node, claimed) for node in nodes):
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
                step_budget=self._options.step_budget,
                scoring=self._options.profile.packing,
            )
        except GaveUp:
            self._budget.missed = True
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
    """How many devices claims need at least, those with admin access not counted."""
    return sum(min(_needed(ask) for ask in request.asks) for claim in claims for request in claim.requests)


def _needed(ask: Ask) -> int:
    return 0 if ask.admin or ask.mode == ALL else ask.count
