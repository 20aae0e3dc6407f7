"""Compute what a group's members request, as the domain prefilter counts it: lower bounds of the real needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.prefilter import device_demand_of
from haru.engine.podgroup.domain_prefilter import MemberRequest, PodGroupRequest
from haru.engine.podgroup.domain_totals import PODS
from haru.engine.podgroup.filter_node import decoded_claims
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import Obj, Reason
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo


def podgroup_request_of(
    snapshot: Snapshot, members: Sequence[PodInfo], group: Obj | None, needed: int, options: Options
) -> tuple[PodGroupRequest, list[MemberRequest | None], Counter[Hashable]]:
    """Return the group's request, each member's request, and the devices of shared claims as scores count them."""
    overlay = Overlay(snapshot)
    demands = [device_demand_of(overlay, pod, group, options) for pod in members]
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
