"""Compute what a group's members request, as the domain prefilter counts it: lower bounds of the real needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from haru.engine.dra.model.claims import EXACT_COUNT, Claim, SubRequest
from haru.engine.framework.options import Options
from haru.engine.podgroup.domain_totals import PODS, ask_key
from haru.engine.podgroup.equal_members import members_with_demands
from haru.engine.podgroup.filter_node import decoded_claims
from haru.engine.podgroup.podgroup_info import PodGroupInfo
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import Reason
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class MemberRequest:
    """Hold the minimum request of `count` equal members: resources by name, devices by subrequest key.

    `cards` are the devices that scores count: by device class, selectors ignored, of the first alternative.
    """

    count: int
    resources: Mapping[str, int]
    devices: Mapping[Hashable, int]
    cards: Mapping[Hashable, int]


@dataclass(slots=True)
class PodGroupRequest:
    """Hold what a group requests: per member, and in claims that any `needed` members must share."""

    needed: int
    members: list[MemberRequest] = field(default_factory=list)
    shared: Counter[Hashable] = field(default_factory=Counter)
    asks: dict[Hashable, SubRequest] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Count the members."""
        return sum(member_request.count for member_request in self.members)

    def share(self, claims: Iterable[Claim]) -> None:
        """Count the devices of claims that any `needed` members need."""
        self.shared.update(self._devices(claims))

    def _devices(self, claims: Iterable[Claim]) -> Counter[Hashable]:
        """Count the devices that claims take at least, by subrequest, and by subrequest without its selectors.

        Requests for all devices or with admin access may be met with no device and count nothing. Requests with
        alternatives count the smallest alternative; alternatives of several classes count nothing.
        """
        found: Counter[Hashable] = Counter()
        for request in (request for claim in claims for request in claim.requests):
            asks = request.asks
            if not asks or request.error or not all(_counts(ask) and ask.mode == EXACT_COUNT for ask in asks):
                continue
            by_key = {ask_key(subrequest): subrequest for subrequest in map(_without_selectors, asks)}
            if len(by_key) > 1:
                continue
            if len(asks) == 1:
                by_key[ask_key(asks[0])] = asks[0]
            self.asks.update(by_key)
            found.update(dict.fromkeys(by_key, min(ask.count for ask in asks)))
        return found

    def cards(self, claims: Iterable[Claim]) -> Counter[Hashable]:
        """Count the devices that claims take of each class, as scores count them."""
        found: Counter[Hashable] = Counter()
        for ask in (request.asks[0] for claim in claims for request in claim.requests if request.asks):
            if _counts(ask):
                subrequest = _without_selectors(ask)
                self.asks[ask_key(subrequest)] = subrequest
                found[ask_key(subrequest)] += ask.count
        return found

    def add(self, resources: Mapping[str, int], claims: Sequence[Claim], count: int) -> MemberRequest:
        """Add equal members with the resources that limit each and the claims that each has for itself."""
        member_request = MemberRequest(count, resources, self._devices(claims), self.cards(claims))
        self.members.append(member_request)
        return member_request


def _counts(ask: SubRequest) -> bool:
    return not (ask.error or ask.admin or ask.count < 1)


def _without_selectors(ask: SubRequest) -> SubRequest:
    return replace(ask, selection=ask.selection._replace(request_expressions=()), wanted=())


def podgroup_request_of(
    snapshot: Snapshot, info: PodGroupInfo
) -> tuple[PodGroupRequest, list[MemberRequest | None], Counter[Hashable]]:
    """Return the group's request, each member's request, and the devices of shared claims as scores count them."""
    overlay = Overlay(snapshot)
    members, needed, options = info.members, info.needed, info.options
    equal = members_with_demands(overlay, members, info.group, options)
    demands = [demand for _, found in equal for demand in found]
    users: Counter[str] = Counter()
    for demand in demands:
        if not isinstance(demand, Reason):
            users.update(use.path for use in demand.pending)
    classes: dict[Hashable, list[int]] = {}
    for number, (pod, demand) in enumerate(zip(members, demands, strict=True)):
        if not isinstance(demand, Reason):
            own = tuple(users[use.path] == 1 for use in demand.pending)
            classes.setdefault((pod.shape, demand.shape, own), []).append(number)
    request = PodGroupRequest(needed)
    of_member: list[MemberRequest | None] = [None] * len(members)
    for numbers in classes.values():
        pod, demand = members[numbers[0]], demands[numbers[0]]
        assert not isinstance(demand, Reason)
        own_uses = [use for use in demand.pending if users[use.path] == 1]
        member_request = request.add(
            _limits(pod, demand.backed, options), decoded_claims(overlay, options, own_uses), len(numbers)
        )
        for number in numbers:
            of_member[number] = member_request
    shared_cards: Counter[Hashable] = Counter()
    seen: set[str] = set()
    for demand in demands:
        for use in demand.pending if not isinstance(demand, Reason) else ():
            if users[use.path] > 1 and use.path not in seen:
                seen.add(use.path)
                claims = decoded_claims(overlay, options, [use])
                shared_cards.update(request.cards(claims))
                if users[use.path] > request.total - needed:
                    request.share(claims)
    return request, of_member, shared_cards


def _limits(pod: PodInfo, backed: frozenset[str], options: Options) -> dict[str, int]:
    """Return the resources that must be free on a node for the pod, its own pod slot included."""
    profile = options.profile
    if "NodeResourcesFit" not in profile.filters:
        return {}
    asked = {name: amount for name, amount in pod.requests.items() if name not in backed and not profile.ignores(name)}
    return {**asked, PODS: 1}
