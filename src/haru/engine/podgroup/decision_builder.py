"""Build Decisions from tentative placements.

Source: KEP-4671 (what is written for a group and its members), KEP-5729 (one reservation per PodGroup).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from operator import attrgetter, contains, is_not

from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse
from haru.engine.podgroup.gang_pre_enqueue import FITS_ALONE, GROUP_UNSCHEDULABLE, WAITING
from haru.engine.podgroup.placed import Placed
from haru.engine.podgroup.schedule_one import Unschedulable
from haru.engine.state.decision import (
    ClaimAllocation,
    ClaimReservation,
    Decision,
    Eviction,
    ExtendedClaim,
    GroupKey,
    MemberDecision,
    Reason,
    Status,
)
from haru.engine.state.pod_info import PodInfo

GANG_PLUGIN = "GangScheduling"
_POD, _POD_KEY = attrgetter("pod"), attrgetter("pod.key")

Outcome = Placed | Unschedulable


@dataclass(frozen=True, slots=True)
class DecisionBuilder:
    """Build the decision about these members of a PodGroup, or about a single pod (`key` is None)."""

    key: GroupKey | None
    pods: Sequence[PodInfo]
    version: int
    message_of: Callable[[Unschedulable], str] = attrgetter("message")
    """What is told of a member that nodes refuse."""

    def scheduled(self, outcomes: Sequence[Outcome]) -> Decision:
        """Decide to bind every placed member; the others keep their own diagnosis."""
        members = tuple([placed(o) if isinstance(o, Placed) else self._unplaced(o) for o in outcomes])
        return Decision(self.key, "scheduled", "", members, (), self.version)

    def unschedulable(self, outcomes: Sequence[Outcome], needed: int, fit: int) -> Decision:
        """Decide to bind no member, because too few have a place at once."""
        quorum = Reason("Quorum", WAITING, {"needed": needed, "fit": fit})
        members = tuple(
            [
                MemberDecision(o.pod.key, "unschedulable", None, (), (), (quorum,), FITS_ALONE, (GANG_PLUGIN,))
                if isinstance(o, Placed)
                else self._unplaced(o)
                for o in outcomes
            ]
        )
        diagnosis = outcomes[0].diagnosis if not fit and isinstance(outcomes[0], Unschedulable) else None
        if self.key is None and members:
            first = members[0]
            return Decision(
                None, first.status, first.message, members, first.reasons, self.version, diagnosis=diagnosis
            )
        return Decision(
            self.key, "unschedulable", GROUP_UNSCHEDULABLE, members, (quorum,), self.version, diagnosis=diagnosis
        )

    def failed(self, reason: Reason) -> Decision:
        """Report the same error for all members."""
        return self._same_for_all("error", reason)

    def gated(self, reason: Reason) -> Decision:
        """Report for all members why the gang cannot be scheduled."""
        return self._same_for_all("unschedulable", reason, GANG_PLUGIN)

    def _same_for_all(self, status: Status, reason: Reason, *plugins: str) -> Decision:
        members = tuple(
            MemberDecision(pod.key, status, None, (), (), (reason,), reason.message, plugins) for pod in self.pods
        )
        return Decision(self.key, status, reason.message, members, (reason,), self.version)

    def no_domain_fits(self, reason: Reason, first: Sequence[Outcome]) -> Decision:
        """Report that no domain takes the group; members keep their diagnosis of the first domain, placed or not."""
        if len(first) != len(self.pods):
            return self.gated(reason)
        members = tuple(
            MemberDecision(o.pod.key, "unschedulable", None, (), (), (reason,), FITS_ALONE, (GANG_PLUGIN,))
            if isinstance(o, Placed)
            else MemberDecision(
                o.pod.key,
                "unschedulable",
                None,
                (),
                (),
                (reason, *o.reasons),
                self.message_of(o) if o.plugins else o.message,
                (GANG_PLUGIN, *o.plugins),
            )
            for o in first
        )
        return Decision(self.key, "unschedulable", reason.message, members, (reason,), self.version)

    def group_error(self, outcomes: Sequence[Outcome]) -> Decision:
        """Report one member's error for the whole group, because the group is decided as one."""
        broken = next(o for o in outcomes if isinstance(o, Unschedulable) and o.failed)
        if self.key is None:
            return self.failed(broken.reasons[0])
        text = f"failed to schedule other pod from a pod group: {broken.message}"
        shared = Reason("GroupError", text, {"pod": broken.pod.key.path})
        members = tuple(
            self._unplaced(broken)
            if pod.key == broken.pod.key
            else MemberDecision(pod.key, "error", None, (), (), (shared,), text)
            for pod in self.pods
        )
        return Decision(self.key, "error", text, members, (shared, *broken.reasons), self.version)

    def _unplaced(self, refused: Unschedulable) -> MemberDecision:
        status: Status = "error" if refused.failed else "unschedulable"
        message = refused.message if refused.failed else self.message_of(refused)
        return MemberDecision(refused.pod.key, status, None, (), (), refused.reasons, message, refused.plugins)


def nominated(
    refused: Decision, outcomes: Sequence[Outcome], evictions: tuple[Eviction, ...], message: str
) -> Decision:
    """Nominate every placed member; messages and reasons stay those of the refused decision."""
    known: Sequence[MemberDecision] = refused.members
    if len(known) != len(outcomes) or any(map(is_not, map(_POD, known), map(_POD_KEY, outcomes))):
        before = {member.pod: member for member in known}
        known = [before[outcome.pod.key] for outcome in outcomes]
    members = []
    for outcome, old in zip(outcomes, known, strict=True):
        members.append(placed(outcome, refused=old) if isinstance(outcome, Placed) else old)
    return replace(refused, status="nominated", message=message, members=tuple(members), evictions=evictions)


def with_message(refused: Decision, note: str) -> Decision:
    """Append to the message why preemption evicts no pod; a single pod's own message says it too."""
    separator = " " if refused.message.endswith(".") else ", "
    message = f"{refused.message}{separator}{note}"
    members = refused.members
    if refused.group is None:
        members = tuple(replace(member, message=message) for member in members)
    return replace(refused, message=message, members=members)


def placed(outcome: Placed, *, refused: MemberDecision | None = None) -> MemberDecision:
    """Build the decision of a placed member; one that was `refused` before evictions is nominated."""
    allocations = []
    for use, allocation in outcome.allocations:
        namespace, name, uid = _identity(use)
        made = use.claim if use.made_for else None
        allocations.append(ClaimAllocation(namespace, name, uid, allocation, use.reserve_for, made))
    return MemberDecision(
        outcome.pod.key,
        "scheduled" if refused is None else "nominated",
        outcome.node,
        tuple(allocations),
        tuple([ClaimReservation(*_identity(use), use.reserve_for) for use in outcome.joined]) if outcome.joined else (),
        refused.reasons if refused is not None else (),
        refused.message if refused is not None else "",
        refused.plugins if refused is not None else (),
        extended=_extended(outcome) if outcome.extended_claim is not None else None,
        claimed=outcome.claimed,
    )


def _extended(outcome: Placed) -> ExtendedClaim | None:
    extended_claim, demand = outcome.extended_claim, outcome.demand.extended
    if extended_claim is None or demand is None:
        return None
    return ExtendedClaim(extended_claim.path, demand.mappings(extended_claim))


def _identity(use: ClaimUse) -> tuple[str, str, str]:
    meta = use.claim["metadata"]
    return meta.get("namespace") or "default", meta["name"], meta.get("uid") or ""


def with_share_ids(decision: Decision, new_share_id: Callable[[], str]) -> Decision:
    """Set the identifier of each device share, in the order of the decision."""
    if not _has_shares(decision):
        return decision
    members = tuple(
        replace(member, allocations=tuple(_with_share_ids(given, new_share_id) for given in member.allocations))
        for member in decision.members
    )
    return replace(decision, members=members)


def _has_shares(decision: Decision) -> bool:
    # This looks at every device of a gang of thousands.
    results = [given.allocation["devices"]["results"] for member in decision.members for given in member.allocations]
    return any(map(contains, chain.from_iterable(results), repeat("shareID")))


def _with_share_ids(given: ClaimAllocation, new_share_id: Callable[[], str]) -> ClaimAllocation:
    devices = given.allocation["devices"]
    results = [{**one, "shareID": new_share_id()} if "shareID" in one else one for one in devices["results"]]
    return replace(given, allocation={**given.allocation, "devices": {**devices, "results": results}})
