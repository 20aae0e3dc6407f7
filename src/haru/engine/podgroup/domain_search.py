"""Choose the topology domain for a group: prefilter the domains, then try them in the order of their score bounds.

Every domain that passes the prefilter has an upper bound: its score with as many members as its free totals seem to
take. The search tries domains in the order of their bounds until no remaining domain can beat the best one found, so
it chooses the domain that trying all of them would choose. The seed decides between equal scores. Equal domains have
one bound.
Source: KEP-5732 (placement generation, simulation, scoring); the bounds are our own.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from operator import methodcaller
from typing import NamedTuple

from haru.engine.podgroup.domain_classes import DomainClasses
from haru.engine.podgroup.domain_prefilter import DomainPreFilter
from haru.engine.podgroup.domain_totals import DomainTotals
from haru.engine.podgroup.placement_attempt import PlacementAttempt, attempt_placement, place_greedily
from haru.engine.podgroup.placement_score import PlacementScore, amounts_of
from haru.engine.podgroup.podgroup_info import PodGroupInfo
from haru.engine.podgroup.podgroup_request import MemberRequest, podgroup_request_of
from haru.engine.state.cache import Snapshot
from haru.engine.state.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class DomainTrial:
    """Hold the result of placing the group in one domain: members placed and the resulting fit score."""

    domain: str
    attempt: PlacementAttempt
    members: int = 0
    fit: int = 0


class _Bound(NamedTuple):
    """Order equal domains: the highest score bound first, equal ones by the hash of the seed."""

    minus_score: int
    seed_hash: bytes
    """Of `domain`, the first of them in that order; empty until those of several are computed."""
    domain: str
    max_members: int
    exact: bool
    """Whether the bound comes from each node's free amounts, not only from the domain's totals."""
    equal: Collection[str]
    others: list[tuple[bytes, str]]
    """The domains after `domain` with their hashes, as a heap."""


class DomainSearch:
    """Search the best domain of a label for one group; `tried` are the domains simulated so far."""

    def __init__(
        self,
        snapshot: Snapshot,
        info: PodGroupInfo,
        label: str,
    ) -> None:
        assert info.key is not None
        self._snapshot = snapshot
        self._info = info
        self._members = info.members
        self._needed = info.needed
        self._seed = f"{info.options.seed}/{info.key.path}/"
        self._running = snapshot.group_state(info.key).scheduled_count
        self._domain_totals = DomainTotals.of(snapshot, label)
        self._request, self._of_member, self._shared_cards = podgroup_request_of(snapshot, info)
        self.prefilter = DomainPreFilter(snapshot, self._domain_totals, self._request, info.options.features)
        cards = {
            key for member_request in self._request.members for key in member_request.cards
        } | self._shared_cards.keys()
        resources = {name for pod in info.members for name in pod.requests}
        counts = {key: self.prefilter.counts[key] for key in cards}
        self._score = PlacementScore(self._domain_totals, counts, resources, info.options.profile)
        self.tried: list[DomainTrial] = []

    @property
    def values(self) -> Sequence[str]:
        """Return the values of the label, sorted; each value is a domain."""
        return self._domain_totals.values

    def nodes(self, domain: str) -> tuple[str, ...]:
        """Return the nodes of a domain, sorted by name."""
        return self._domain_totals.nodes_of(domain)

    def best(self, domains: Sequence[str]) -> DomainTrial | None:
        """Return the best of some domains, or None if none takes the group."""
        counted = [(self.prefilter.max_members(next(iter(equal))), equal) for equal in self._classes(domains)]
        fitting = [(count, equal) for count, equal in counted if count >= self._needed]
        ceiling = self._running + max([count for count, _ in fitting], default=0)
        all_of_them = self._added(range(len(self._members)))
        waiting = [self._bound(equal, count, ceiling, all_of_them) for count, equal in fitting]
        heapq.heapify(waiting)
        found: list[DomainTrial] = []
        while waiting and not self._decided(found, waiting, ceiling):
            bound = heapq.heappop(waiting)
            if not bound.exact:
                max_members = min(bound.max_members, self.prefilter.max_members_by_node(bound.domain))
                if max_members >= self._needed:
                    again = self._bound(bound.equal, max_members, ceiling, all_of_them)
                    heapq.heappush(waiting, again._replace(exact=True))
                continue
            if not bound.seed_hash:
                heapq.heappush(waiting, _next(bound, self._hashed(bound.equal)))
                continue
            trial = self.trial(bound.domain)
            self.tried.append(trial)
            if not trial.attempt.broken and trial.attempt.fit >= self._needed:
                found.append(trial)
            if bound.others:
                heapq.heappush(waiting, _next(bound, bound.others))
        return self._first(found) if found else None

    def _classes(self, domains: Sequence[str]) -> Iterable[Collection[str]]:
        """Return some domains by what is equal for bounds and scores."""
        if domains is not self.values:
            return [(domain,) for domain in domains if domain in self._domain_totals.domains]
        return DomainClasses.of(self._snapshot, self._domain_totals, tuple(self.prefilter.counts.values()))

    def diagnosis(self, domain: str) -> PlacementAttempt:
        """Return each member's outcome in a domain that does not take the group."""
        for trial in self.tried:
            if trial.domain == domain:
                return trial.attempt
        nodes = self.nodes(domain) if domain in self._domain_totals.domains else ()
        # The next group that fits nowhere is told of the same domain, the first one.
        return place_greedily(self._snapshot, self._info, nodes, asked_again=True)

    def trial(self, domain: str) -> DomainTrial:
        """Place as many members as possible in a domain."""
        attempt = attempt_placement(self._snapshot, self._info, self.nodes(domain))
        fit = self._score.fit(domain, self._added(attempt.numbers))
        return DomainTrial(domain, attempt, self._running + attempt.fit, fit)

    def _bound(self, equal: Collection[str], count: int, ceiling: int, added: Mapping[Hashable, int]) -> _Bound:
        domain = next(iter(equal))
        score = self._score.total(self._score.fit(domain, added), self._running + count, ceiling)
        seed_hash = self._seed_hash(domain) if len(equal) == 1 else b""
        return _Bound(-score, seed_hash, domain, count, False, equal, [])

    def _seed_hash(self, domain: str) -> bytes:
        return self._hashed((domain,))[0][0]

    def _hashed(self, domains: Collection[str]) -> list[tuple[bytes, str]]:
        """Return domains with their hashes, as a heap: there may be thousands."""
        texts = map(str.encode, map(self._seed.__add__, domains))
        hashes = map(methodcaller("digest"), map(partial(blake2b, digest_size=8), texts))
        found = [*zip(hashes, domains, strict=True)]
        heapq.heapify(found)
        return found

    def _first(self, found: Sequence[DomainTrial]) -> DomainTrial:
        max_members = max(trial.members for trial in found)
        return min(found, key=lambda t: (-self._score.total(t.fit, t.members, max_members), self._seed_hash(t.domain)))

    def _decided(self, found: Sequence[DomainTrial], waiting: Sequence[_Bound], ceiling: int) -> bool:
        """Tell whether no waiting domain can beat the best trial."""
        if not found:
            return False
        members = max(trial.members for trial in found)
        best = self._first(found)
        mark = (-self._score.total(best.fit, best.members, members), self._seed_hash(best.domain))
        if members == ceiling:
            return mark < (waiting[0].minus_score, waiting[0].seed_hash)
        if any(self._running + bound.max_members > members for bound in waiting):
            # The score counts members in percent of the most that any domain takes; that maximum is not known yet.
            return False
        # The bounds were computed with a higher maximum: with the true one scores rise by the same or less.
        everything = self._added(range(len(self._members)))
        return all(
            mark < (self._bound(bound.equal, bound.max_members, members, everything).minus_score, bound.seed_hash)
            for bound in waiting
        )

    def _added(self, numbers: Sequence[int]) -> Counter[Hashable]:
        """Sum the members' requests as the score counts them."""
        total: Counter[Hashable] = Counter()
        if numbers:
            total.update(self._shared_cards)
        counts: Counter[int] = Counter()
        samples: dict[int, tuple[PodInfo, MemberRequest | None]] = {}
        for number in numbers:
            pod, member_request = self._members[number], self._of_member[number]
            kind = id(member_request)
            counts[kind] += 1
            samples[kind] = (pod, member_request)
        for kind, (pod, member_request) in samples.items():
            amounts = amounts_of(pod, member_request.cards if member_request is not None else {})
            total.update({key: amount * counts[kind] for key, amount in amounts.items()})
        return total


def _next(bound: _Bound, others: list[tuple[bytes, str]]) -> _Bound:
    """Return the bound with the next of its domains first."""
    seed_hash, domain = heapq.heappop(others)
    return bound._replace(seed_hash=seed_hash, domain=domain, others=others)
