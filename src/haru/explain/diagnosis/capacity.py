"""At most how many of the unit's pods nodes could take, by division: what makes asking the scheduler needless.

The bounds count room and devices, and leave out whatever else may speak against a node, so they are never too small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from haru.engine import Snapshot
from haru.engine.dra import ALL, RequestFunnel
from haru.engine.state import NodeInfo
from haru.explain.diagnosis.device_classes import DeviceClassSurvey, NodeKind
from haru.explain.diagnosis.requests import MemberKind

_Wants = tuple[tuple[int, int], ...]
"""Per alternative of a request: devices that could serve it, and how many of them one pod needs."""


@dataclass(frozen=True, slots=True)
class _Place:
    """One node for one kind of pods: how many it has room for, and its devices, by request."""

    room: int
    requests: tuple[_Wants, ...]

    def pods(self, most: int | None = None) -> int:
        """How many pods it takes if each request asks for `most` devices at most."""
        found = self.room
        for ways in self.requests:
            found = min(found, sum(kept // (count if most is None else min(count, most)) for kept, count in ways))
        return found


class Capacity:
    """The nodes of a snapshot, for the members of a unit. `tainted`: devices count that only taints keep back."""

    def __init__(
        self,
        snapshot: Snapshot,
        members: Iterable[tuple[MemberKind, DeviceClassSurvey | None]],
        *,
        tainted: bool = False,
    ) -> None:
        self._snapshot = snapshot
        self._members = list(members)
        self._tainted = tainted
        self._devices: dict[tuple[int, NodeKind], tuple[_Wants, ...]] = {}
        self._places: dict[tuple[int, str], _Place] = {}

    @property
    def needed(self) -> int:
        """How many pods have to be placed."""
        return sum(kind.pods for kind, _ in self._members)

    def of(self, name: str, most: int | None = None) -> int:
        """How many pods a node takes at most, if each request asks for `most` devices at most."""
        return sum(self._place(number, name).pods(most) for number in range(len(self._members)))

    def _place(self, number: int, name: str) -> _Place:
        found = self._places.get((number, name))
        if found is None:
            kind, survey = self._members[number]
            node = survey.kind_of.get(name) if survey is not None and _is_countable(kind) else None
            devices: tuple[_Wants, ...] = ()
            if node is not None and survey is not None:
                known = self._devices.get((number, node))
                if known is None:
                    known = self._devices[number, node] = tuple(_wants(survey, node, self._tainted))
                devices = known
            found = self._places[number, name] = _Place(_room(self._snapshot.nodes[name], kind), devices)
        return found


def _room(node: NodeInfo, kind: MemberKind) -> int:
    limits = [kind.pods]
    for resource, amount in kind.pod.requests.items():
        if resource not in kind.demand.backed and amount > 0:
            limits.append((node.allocatable.get(resource, 0) - node.requested.get(resource, 0)) // amount)
    if "pods" in node.allocatable:
        limits.append(node.allocatable["pods"] - len(node.pods))
    return max(0, min(limits))


def _is_countable(kind: MemberKind) -> bool:
    """Whether every pod has claims of its own, for devices that have nothing to do with the node's resources."""
    return len(kind.paths) >= kind.pods and kind.demand.extended is None and not kind.demand.counts_devices


def _wants(survey: DeviceClassSurvey, node: NodeKind, tainted: bool) -> Iterator[_Wants]:
    funnels = list(node.funnel.requests)
    shared = any(device.shape.shareable for _, _, device in node.devices(next(iter(node.nodes))))
    for claim in survey.claims:
        for request in claim.requests:
            own, funnels = funnels[: len(request.asks)], funnels[len(request.asks) :]
            one_by_one = not shared and not any(ask.mode == ALL or ask.admin for ask in request.asks)
            if own and one_by_one:
                yield tuple((_kept(f, tainted), max(1, ask.count)) for ask, f in zip(request.asks, own, strict=True))


def _kept(funnel: RequestFunnel, tainted: bool) -> int:
    more = sum(len(stage.dropped) for stage in funnel.stages if stage.name == "taints") if tainted else 0
    return len(funnel.kept) + more
