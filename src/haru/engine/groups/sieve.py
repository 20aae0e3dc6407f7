"""Which domains cannot take a group, seen from the sums of what they have left: no domain is refused that could.

What is compared are necessary conditions only: room of every resource, places for pods, and devices of every class and
selector, against what the `needed` most modest members ask for. A domain that passes still has to be tried.
Source: our own; KEP-5732 simulates the group in every domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from haru.engine.cluster import Snapshot
from haru.engine.devices import Claim, Features
from haru.engine.devices.claims import EXACT_COUNT, Ask
from haru.engine.groups.aggregates import BOUNDLESS, Aggregates, DeviceCounts, ask_key, free_on


@dataclass(frozen=True, slots=True)
class Want:
    """What each of some members asks for that are alike: resources by name, devices by ask, at least.

    `cards` are the devices for scores: by class, whatever else is asked of them, of the first alternative.
    """

    count: int
    resources: Mapping[str, int]
    devices: Mapping[Hashable, int]
    cards: Mapping[Hashable, int]


@dataclass(slots=True)
class Wants:
    """What a group asks for: of its members, and of claims that any `needed` of them must share."""

    needed: int
    members: list[Want] = field(default_factory=list)
    shared: Counter[Hashable] = field(default_factory=Counter)
    asks: dict[Hashable, Ask] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many members there are."""
        return sum(want.count for want in self.members)

    def share(self, claims: Iterable[Claim]) -> None:
        """Count the devices of claims that any `needed` members need."""
        self.shared.update(self._devices(claims))

    def _devices(self, claims: Iterable[Claim]) -> Counter[Hashable]:
        """How many devices claims take at least, by ask, and by ask for anything of the class.

        Requests for all devices, or for access to devices in use, may be met with none, and those with alternatives
        with the fewest of these; alternatives of several classes count for nothing.
        """
        found: Counter[Hashable] = Counter()
        for request in (request for claim in claims for request in claim.requests):
            asks = request.asks
            if not asks or request.error or not all(_counts(ask) and ask.mode == EXACT_COUNT for ask in asks):
                continue
            kinds = {ask_key(kind): kind for kind in map(_anything_of_the_class, asks)}
            if len(kinds) > 1:
                continue
            if len(asks) == 1:
                kinds[ask_key(asks[0])] = asks[0]
            self.asks.update(kinds)
            found.update(dict.fromkeys(kinds, min(ask.count for ask in asks)))
        return found

    def cards(self, claims: Iterable[Claim]) -> Counter[Hashable]:
        """How many devices claims take of each class, as scores count them."""
        found: Counter[Hashable] = Counter()
        for ask in (request.asks[0] for claim in claims for request in claim.requests if request.asks):
            if _counts(ask):
                kind = _anything_of_the_class(ask)
                self.asks[ask_key(kind)] = kind
                found[ask_key(kind)] += ask.count
        return found

    def add(self, resources: Mapping[str, int], claims: Sequence[Claim], count: int) -> Want:
        """Count members in, with the resources that limit each of them and the claims that each has for itself."""
        want = Want(count, resources, self._devices(claims), self.cards(claims))
        self.members.append(want)
        return want


def _counts(ask: Ask) -> bool:
    return not (ask.error or ask.admin or ask.count < 1)


def _anything_of_the_class(ask: Ask) -> Ask:
    return replace(ask, selection=ask.selection._replace(request_expressions=()), wanted=())


class Sieve:
    """The domains of a label as seen from what a group wants."""

    def __init__(self, snapshot: Snapshot, aggregates: Aggregates, wants: Wants, features: Features) -> None:
        self._aggregates = aggregates
        self.wants = wants
        self._total = wants.total
        self._ladders, self._device_ladders = ladders_of(wants)
        self.counts = {key: DeviceCounts.of(snapshot, aggregates, ask, features) for key, ask in wants.asks.items()}

    def most(self, domain: str) -> int:
        """No more members than this find room in a domain, seen from its sums."""
        free = self._aggregates.domains[domain].free
        most = self._total
        for name, ladder in self._ladders.items():
            most = min(most, ladder.most(free.get(name, 0)))
        for key, ladder in self._device_ladders.items():
            most = min(most, ladder.most(self.counts[key].free(domain) - self.wants.shared[key]))
        return most

    def most_by_node(self, domain: str) -> int:
        """The same seen from each node of the domain: what is left on two nodes is not one member's."""
        nodes = sorted(self._aggregates.domains[domain].nodes)
        left = [want.count for want in self.wants.members]
        for name in nodes:
            free = free_on(self._aggregates.node(name))
            for number, want in enumerate(self.wants.members):
                if left[number]:
                    left[number] -= min(left[number], self._on_node(name, free, want))
        return self._total - sum(left)

    def lacking(self, domain: str) -> tuple[str, ...]:
        """The resources of which a domain has too little for the members needed; devices by the name of their class."""
        needed = self.wants.needed
        free = self._aggregates.domains[domain].free
        found = {name for name, ladder in self._ladders.items() if ladder.most(free.get(name, 0)) < needed}
        for key, ladder in self._device_ladders.items():
            if ladder.most(self.counts[key].free(domain) - self.wants.shared[key]) < needed:
                found.add(self.wants.asks[key].class_name)
        return tuple(sorted(found))

    def _on_node(self, name: str, free: Mapping[str, int], want: Want) -> int:
        most = BOUNDLESS
        for resource, amount in want.resources.items():
            most = min(most, free.get(resource, 0) // amount)
        for key, amount in want.devices.items():
            most = min(most, self.counts[key].on(name) // amount)
        return most


class Ladder:
    """How many members an amount suffices for, the most modest first."""

    def __init__(self, amounts: Iterable[tuple[int, int]]) -> None:
        self._steps: Sequence[tuple[int, int]] = sorted(amounts)

    def most(self, free: int) -> int:
        """How many at most; the others ask for more than is left."""
        if free < 0:
            return 0
        found = 0
        for amount, count in self._steps:
            if not amount:
                found += count
                continue
            here = min(count, free // amount)
            found += here
            if here < count:
                break
            free -= here * amount
        return found


def ladders_of(wants: Wants) -> tuple[dict[str, Ladder], dict[Hashable, Ladder]]:
    """By resource, and by ask for devices: how many members an amount suffices for."""
    members = wants.members
    names = sorted({name for want in members for name in want.resources})
    resources = {name: Ladder((w.resources.get(name, 0), w.count) for w in members) for name in names}
    return resources, {key: Ladder((w.devices.get(key, 0), w.count) for w in members) for key in wants.asks}
