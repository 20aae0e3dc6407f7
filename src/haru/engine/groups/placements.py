"""The choice of a domain for a group: what cannot take it is sieved out, the rest is tried, the promising ones first.

Every domain that passes the sieve has a bound: the score that it would have with as many members as it seems to have
room for. Domains are tried in the order of their bounds until none that is left can do better than the best one found,
so the choice is the one that trying all of them would lead to. Among equals the seed chooses.
Source: KEP-5732 (placement generation, simulation, scoring); the bounds are our own.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from haru.engine.cluster import Snapshot
from haru.engine.decision import GroupKey, Obj
from haru.engine.groups.aggregates import Aggregates
from haru.engine.groups.attempt import Attempt, attempt_on, greedily
from haru.engine.groups.fullness import Fullness, amounts_of
from haru.engine.groups.options import Options
from haru.engine.groups.sieve import Sieve, Want
from haru.engine.groups.wanting import wants_of
from haru.engine.pods import PodInfo


@dataclass(frozen=True, slots=True)
class Trial:
    """A domain in which the group was tried, how many members have a place there and how full it would be."""

    domain: str
    attempt: Attempt
    members: int = 0
    fit: int = 0


class _Bound(NamedTuple):
    """The smallest comes first: the highest score, among equals what the seed says."""

    minus_score: int
    lot: bytes
    domain: str
    exact: bool
    """Whether every node was looked at."""


class Placements:
    """The search for the best domain of a label for one group. `tried` are the domains in which it was tried."""

    def __init__(
        self,
        snapshot: Snapshot,
        key: GroupKey,
        members: Sequence[PodInfo],
        group: Obj | None,
        needed: int,
        options: Options,
        label: str,
    ) -> None:
        self._snapshot = snapshot
        self._members = members
        self._group = group
        self._needed = needed
        self._options = options
        self._salt = f"{options.seed}/{key.path}/"
        self._running = snapshot.group_state(key).scheduled_count
        self._aggregates = Aggregates.of(snapshot, label)
        self._wants, self._of_member, self._shared_cards = wants_of(snapshot, members, group, needed, options)
        self.sieve = Sieve(snapshot, self._aggregates, self._wants, options.features)
        cards = {key for want in self._wants.members for key in want.cards} | self._shared_cards.keys()
        resources = {name for pod in members for name in pod.requests}
        counts = {key: self.sieve.counts[key] for key in cards}
        self._fullness = Fullness(self._aggregates, counts, resources, options.profile)
        self.tried: list[Trial] = []

    @property
    def values(self) -> Sequence[str]:
        """The values of the label, sorted; each is a domain."""
        return self._aggregates.values

    def nodes(self, domain: str) -> tuple[str, ...]:
        """The nodes of a domain, by name."""
        return tuple(sorted(self._aggregates.domains[domain].nodes))

    def best(self, domains: Sequence[str]) -> Trial | None:
        """The best of some domains, or None if none of them takes the group."""
        known = [domain for domain in domains if domain in self._aggregates.domains]
        most = {domain: count for domain in known if (count := self.sieve.most(domain)) >= self._needed}
        ceiling = self._running + max(most.values(), default=0)
        all_of_them = self._added(range(len(self._members)))
        waiting = [self._bound(domain, count, ceiling, all_of_them) for domain, count in most.items()]
        heapq.heapify(waiting)
        found: list[Trial] = []
        while waiting and not self._decided(found, waiting, most, ceiling):
            bound = heapq.heappop(waiting)
            domain = bound.domain
            if not bound.exact:
                most[domain] = min(most[domain], self.sieve.most_by_node(domain))
                if most[domain] >= self._needed:
                    again = self._bound(domain, most[domain], ceiling, all_of_them)
                    heapq.heappush(waiting, again._replace(exact=True))
                continue
            trial = self.trial(domain)
            self.tried.append(trial)
            if not trial.attempt.broken and trial.attempt.fit >= self._needed:
                found.append(trial)
        return self._first(found) if found else None

    def diagnosis(self, domain: str) -> Attempt:
        """How the members fare in a domain that does not take the group."""
        for trial in self.tried:
            if trial.domain == domain:
                return trial.attempt
        nodes = self.nodes(domain) if domain in self._aggregates.domains else ()
        return greedily(self._snapshot, self._members, self._group, self._options, nodes)

    def trial(self, domain: str) -> Trial:
        """Place as many members as possible in a domain."""
        attempt = attempt_on(
            self._snapshot, self._members, self._group, self._needed, self._options, self.nodes(domain)
        )
        fit = self._fullness.fit(domain, self._added(attempt.numbers))
        return Trial(domain, attempt, self._running + attempt.fit, fit)

    def _bound(self, domain: str, count: int, ceiling: int, added: Mapping[Hashable, int]) -> _Bound:
        score = self._fullness.total(self._fullness.fit(domain, added), self._running + count, ceiling)
        return _Bound(-score, self._lot(domain), domain, False)

    def _lot(self, domain: str) -> bytes:
        return blake2b((self._salt + domain).encode(), digest_size=8).digest()

    def _first(self, found: Sequence[Trial]) -> Trial:
        most = max(trial.members for trial in found)
        return min(found, key=lambda t: (-self._fullness.total(t.fit, t.members, most), self._lot(t.domain)))

    def _decided(
        self, found: Sequence[Trial], waiting: Sequence[_Bound], most: Mapping[str, int], ceiling: int
    ) -> bool:
        """Whether no domain that is waiting can be better than the best one found."""
        if not found:
            return False
        members = max(trial.members for trial in found)
        best = self._first(found)
        mark = (-self._fullness.total(best.fit, best.members, members), self._lot(best.domain))
        if members == ceiling:
            return mark < (waiting[0].minus_score, waiting[0].lot)
        if any(self._running + most[bound.domain] > members for bound in waiting):
            # What counts is the share of the most that any domain takes; that is not known yet.
            return False
        # The bounds were made for a higher count: with the true one, scores are higher by the same or less.
        everything = self._added(range(len(self._members)))
        return all(
            mark < (self._bound(bound.domain, most[bound.domain], members, everything).minus_score, bound.lot)
            for bound in waiting
        )

    def _added(self, numbers: Sequence[int]) -> Counter[Hashable]:
        """What members ask for together, as scores count it."""
        total: Counter[Hashable] = Counter()
        if numbers:
            total.update(self._shared_cards)
        counts: Counter[int] = Counter()
        samples: dict[int, tuple[PodInfo, Want | None]] = {}
        for number in numbers:
            pod, want = self._members[number], self._of_member[number]
            kind = id(want)
            counts[kind] += 1
            samples[kind] = (pod, want)
        for kind, (pod, want) in samples.items():
            amounts = amounts_of(pod, want.cards if want is not None else {})
            total.update({key: amount * counts[kind] for key, amount in amounts.items()})
        return total
