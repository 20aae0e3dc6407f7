"""What the members of a group ask for, as the sieve counts it: necessary amounts, none more than are needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from haru.engine.cluster import Snapshot
from haru.engine.decision import Obj, Reason
from haru.engine.groups.aggregates import PODS
from haru.engine.groups.asking import decoded_claims
from haru.engine.groups.demand import demand_of
from haru.engine.groups.options import Options
from haru.engine.groups.sieve import Want, Wants
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo


def wants_of(
    snapshot: Snapshot, members: Sequence[PodInfo], group: Obj | None, needed: int, options: Options
) -> tuple[Wants, list[Want | None], Counter[Hashable]]:
    """What the group asks for; per member what it asks for; the devices of shared claims as scores count them."""
    overlay = Overlay(snapshot)
    demands = [demand_of(overlay, pod, group, options) for pod in members]
    users: Counter[str] = Counter()
    for demand in demands:
        if not isinstance(demand, Reason):
            users.update(use.path for use in demand.pending)
    classes: dict[Hashable, list[int]] = {}
    for number, (pod, demand) in enumerate(zip(members, demands, strict=True)):
        if not isinstance(demand, Reason):
            own = tuple(users[use.path] == 1 for use in demand.pending)
            classes.setdefault((pod.shape, demand.shape, own), []).append(number)
    wants = Wants(needed)
    of_member: list[Want | None] = [None] * len(members)
    for numbers in classes.values():
        pod, demand = members[numbers[0]], demands[numbers[0]]
        assert not isinstance(demand, Reason)
        own_uses = [use for use in demand.pending if users[use.path] == 1]
        want = wants.add(_limits(pod, demand.backed, options), decoded_claims(overlay, options, own_uses), len(numbers))
        for number in numbers:
            of_member[number] = want
    shared_cards: Counter[Hashable] = Counter()
    seen: set[str] = set()
    for demand in demands:
        for use in demand.pending if not isinstance(demand, Reason) else ():
            if users[use.path] > 1 and use.path not in seen:
                seen.add(use.path)
                claims = decoded_claims(overlay, options, [use])
                shared_cards.update(wants.cards(claims))
                if users[use.path] > wants.total - needed:
                    wants.share(claims)
    return wants, of_member, shared_cards


def _limits(pod: PodInfo, backed: frozenset[str], options: Options) -> dict[str, int]:
    """The resources that must be free on a node for the pod, its own place among the pods included."""
    profile = options.profile
    if "NodeResourcesFit" not in profile.filters:
        return {}
    asked = {name: amount for name, amount in pod.requests.items() if name not in backed and not profile.ignores(name)}
    return {**asked, PODS: 1}
