"""Score nodes by what they can still take of an expected mix of work once the pod is placed.

The cards of a node are its devices, as units that fill up (`haru.engine.dra.utilization`); its cpu is what pods have
left of it. The node whose worth (`haru.engine.packing_value`) falls least is the best: 100, and half a card more lost
is 0. So work that needs little cpu goes where little is left for each card, holes are filled with what suits them,
whole cards of one node stay together, and pods without cards go where no cards wait for cpu. The mix is given with the
profile, not learnt: a decision depends on the snapshot and the options alone.
Source: our own; measured on a trace in docs/performance-packing.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.model.quantities import amount
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.dra.pools.pools import Pool, PoolView
from haru.engine.dra.utilization import units_in_use, whole_view
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import MAX_SCORE, Scorer
from haru.engine.packing_value.value import CARD, PackingValue
from haru.engine.plugins.score_request import CardRequest, ScoreRequest
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj

_PARTS = 10_000
"""Losses are compared in ten-thousandths of a card."""
_WORST = _PARTS // 2


class PackingScore:
    """Score nodes for one pod; `card_requests` are the requests of its claims."""

    alone = True
    general = False

    def __init__(
        self, weight: int, potential: PackingValue, pod: PodInfo, card_requests: Sequence[CardRequest]
    ) -> None:
        self.weight = weight
        self._potential = potential
        self._cpu = pod.requests.get("cpu", 0)
        self._card_requests = tuple(card_requests)
        self._devices: DeviceSnapshot | None = None
        self._allocated: AllocatedState | None = None
        self._nodes: dict[str, str] = {}
        self._views: dict[str, tuple[Pool, PoolView]] = {}

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """The nodes of which devices were taken or given back; all of them where devices were published anew."""
        before, self._allocated = self._allocated, overlay.allocated
        devices, self._devices = self._devices, overlay.snapshot.devices
        if before is None or devices is not self._devices:
            self._nodes = {pool: node for node, pools in self._devices.by_node.items() for pool in pools}
            return None
        changed = {f"{key.driver}/{key.pool}" for key in overlay.allocated.changed(before)}
        return {self._nodes[pool] for pool in changed if pool in self._nodes}

    def key(self, node: NodeInfo) -> int:
        """Return how much value the node loses with the pod on it."""
        free_parts = self._free_parts(node.name)
        cpu = node.allocatable.get("cpu", 0) - node.requested.get("cpu", 0)
        potential = self._potential
        cards = potential.cards(free_parts)
        now = potential.worth(cards, cpu)
        left = potential.cards(self._after(node.name, free_parts)) if self._card_requests else cards
        return round((now - potential.worth(left, cpu - self._cpu)) * _PARTS)

    def scores(self, keys: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Relative to the least loss."""
        del sizes
        least = min(keys, default=0)
        return [max(0, MAX_SCORE - (key - least) * MAX_SCORE // _WORST) for key in keys]

    def _after(self, node: str, free_parts: tuple[int, ...]) -> tuple[int, ...]:
        """Return the free parts after the requests: parts where they cost least, whole devices from the fullest."""
        left = list(free_parts)
        for request in self._card_requests:
            part = self._part(node, request)
            for _ in range(request.number):
                index = self._potential.taken(left, part)
                if index is not None:
                    free = left.pop(index) - part
                    left += [free] if free else []
                elif left:
                    left.remove(max(left))
        return tuple(sorted(left))

    def _part(self, node: str, request: CardRequest) -> int:
        """Thousandths of a card that a device of the request is on a node, by the first device with its capacities."""
        assert self._devices is not None
        for name in sorted(self._devices.by_node.get(node, ())) if request.amounts else ():
            for device in self._view(name, self._devices.pools[name]).devices:
                known = {capacity: known.value for capacity, known in device.shape.amounts.items()}
                shares = [-(-asked * CARD // known[key]) for key, asked in request.amounts if known.get(key)]
                if shares:
                    return min(max(shares), CARD)
        return CARD

    def _free_parts(self, node: str) -> tuple[int, ...]:
        """Thousandths left on each card of the node that has any."""
        if self._devices is None or self._allocated is None:
            return ()
        free_parts = []
        for name in sorted(self._devices.by_node.get(node, ())):
            pool = self._devices.pools[name]
            used = units_in_use(self._view(name, pool), self._allocated.use(pool.key))
            free_parts += [free for part in used if (free := round((1.0 - part) * CARD)) > 0]
        return tuple(free_parts)

    def _view(self, name: str, pool: Pool) -> PoolView:
        known = self._views.get(name)
        if known is None or known[0] is not pool:
            known = self._views[name] = (pool, whole_view(pool))
        return known[1]


def card_requests_of(claims: Iterable[Mapping[str, Any]]) -> tuple[CardRequest, ...]:
    """The requests of claims that ask for a number of devices; those with alternatives as the first one does."""
    found = []
    for claim in claims:
        for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
            asked: Obj = request.get("exactly") or next(iter(request.get("firstAvailable") or ()), {})
            if asked.get("allocationMode", "ExactCount") == "ExactCount":
                amounts = ((asked.get("capacity") or {}).get("requests") or {}).items()
                parts = tuple(sorted((name, amount(value)) for name, value in amounts))
                found.append(CardRequest(int(asked.get("count") or 1), parts))
    return tuple(found)


class HaruExpected:
    """Score nodes by what they can still take of an expected mix."""

    name = "HaruExpected"
    events: frozenset[ClusterEvent] = frozenset()

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer; None if the profile expects no mix."""
        profile = request.profile
        if profile.remaining is None or not profile.expected_weight:
            return None
        return PackingScore(profile.expected_weight, profile.remaining, request.pod, request.card_requests)
