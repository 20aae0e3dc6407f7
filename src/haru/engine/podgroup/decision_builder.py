"""Build Decisions from tentative placements.

Source: KEP-4671 (what is written for a group and its members), KEP-5729 (one reservation per PodGroup).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse
from haru.engine.podgroup.gang_pre_enqueue import GROUP_UNSCHEDULABLE, WAITING
from haru.engine.podgroup.schedule_one import Placed, Unschedulable
from haru.engine.state.decision import (
    ClaimAllocation,
    ClaimReservation,
    Decision,
    Eviction,
    ExtendedClaim,
    GroupKey,
    MemberDecision,
    Obj,
    Reason,
    Status,
)
from haru.engine.state.pod_info import PodInfo

GANG_PLUGIN = "GangScheduling"

Outcome = Placed | Unschedulable


def scheduled(key: GroupKey | None, outcomes: Sequence[Outcome], version: int) -> Decision:
    """Decide to bind every placed member; the others keep their own diagnosis."""
    members = tuple(placed(o) if isinstance(o, Placed) else _unplaced(o) for o in outcomes)
    return Decision(key, "scheduled", "", members, (), version)


def unschedulable(
    key: GroupKey | None, outcomes: Sequence[Outcome], needed: int, fit: int, version: int, message: str = ""
) -> Decision:
    """Decide to bind no member, because too few have a place at once."""
    quorum = Reason("Quorum", WAITING, {"needed": needed, "fit": fit})
    members = tuple(
        MemberDecision(o.pod.key, "unschedulable", None, (), (), (quorum,), WAITING, (GANG_PLUGIN,))
        if isinstance(o, Placed)
        else _unplaced(o)
        for o in outcomes
    )
    if key is None and members:
        return Decision(None, members[0].status, members[0].message, members, members[0].reasons, version)
    return Decision(key, "unschedulable", message or GROUP_UNSCHEDULABLE, members, (quorum,), version)


def nominated(
    refused: Decision, outcomes: Sequence[Outcome], evictions: tuple[Eviction, ...], message: str
) -> Decision:
    """Nominate every placed member; messages and reasons stay those of the refused decision."""
    before = {member.pod: member for member in refused.members}
    members = []
    for outcome in outcomes:
        old = before[outcome.pod.key]
        if isinstance(outcome, Placed):
            place = replace(placed(outcome), status="nominated")
            old = replace(place, reasons=old.reasons, message=old.message, plugins=old.plugins)
        members.append(old)
    return replace(refused, status="nominated", message=message, members=tuple(members), evictions=evictions)


def with_message(refused: Decision, note: str) -> Decision:
    """Append to the message why preemption evicts no pod; a single pod's own message says it too."""
    separator = " " if refused.message.endswith(".") else ", "
    message = f"{refused.message}{separator}{note}"
    members = refused.members
    if refused.group is None:
        members = tuple(replace(member, message=message) for member in members)
    return replace(refused, message=message, members=members)


def failed(key: GroupKey | None, pods: Sequence[PodInfo], reason: Reason, version: int) -> Decision:
    """Report the same error for all members."""
    return same_for_all(key, pods, "error", reason, version)


def same_for_all(
    key: GroupKey | None, pods: Sequence[PodInfo], status: Status, reason: Reason, version: int, plugin: str = ""
) -> Decision:
    """Report the same status and reason for all members."""
    plugins = (plugin,) if plugin else ()
    members = tuple(MemberDecision(pod.key, status, None, (), (), (reason,), reason.message, plugins) for pod in pods)
    return Decision(key, status, reason.message, members, (reason,), version)


def no_domain_fits(
    key: GroupKey, pods: Sequence[PodInfo], reason: Reason, first: Sequence[Outcome], version: int
) -> Decision:
    """Report that no domain takes the group; members keep their diagnosis of the first domain, placed or not."""
    if len(first) != len(pods):
        return same_for_all(key, pods, "unschedulable", reason, version, GANG_PLUGIN)
    members = tuple(
        MemberDecision(o.pod.key, "unschedulable", None, (), (), (reason,), WAITING, (GANG_PLUGIN,))
        if isinstance(o, Placed)
        else MemberDecision(
            o.pod.key, "unschedulable", None, (), (), (reason, *o.reasons), o.message, (GANG_PLUGIN, *o.plugins)
        )
        for o in first
    )
    return Decision(key, "unschedulable", reason.message, members, (reason,), version)


def group_error(key: GroupKey | None, outcomes: Sequence[Outcome], pods: Sequence[PodInfo], version: int) -> Decision:
    """Report one member's error for the whole group, because the group is decided as one."""
    broken = next(o for o in outcomes if isinstance(o, Unschedulable) and o.failed)
    if key is None:
        return same_for_all(None, pods, "error", broken.reasons[0], version)
    text = f"failed to schedule other pod from a pod group: {broken.message}"
    shared = Reason("GroupError", text, {"pod": broken.pod.key.path})
    members = tuple(
        _unplaced(broken)
        if pod.key == broken.pod.key
        else MemberDecision(pod.key, "error", None, (), (), (shared,), text)
        for pod in pods
    )
    return Decision(key, "error", text, members, (shared, *broken.reasons), version)


def placed(outcome: Placed) -> MemberDecision:
    """Build the decision of a placed member."""
    return MemberDecision(
        outcome.pod.key,
        "scheduled",
        outcome.node,
        tuple(_allocation(use, allocation) for use, allocation in outcome.allocations),
        tuple(ClaimReservation(*_identity(use), use.reserve_for) for use in outcome.joined),
        extended=_extended(outcome),
        claimed=outcome.claimed,
    )


def _allocation(use: ClaimUse, allocation: Obj) -> ClaimAllocation:
    return ClaimAllocation(*_identity(use), allocation, use.reserve_for, use.claim if use.made_for else None)


def _extended(outcome: Placed) -> ExtendedClaim | None:
    extended_claim, demand = outcome.extended_claim, outcome.demand.extended
    if extended_claim is None or demand is None:
        return None
    return ExtendedClaim(extended_claim.path, demand.mappings(extended_claim))


def _identity(use: ClaimUse) -> tuple[str, str, str]:
    meta = use.claim["metadata"]
    return meta.get("namespace") or "default", meta["name"], meta.get("uid") or ""


def _unplaced(outcome: Unschedulable) -> MemberDecision:
    status: Status = "error" if outcome.failed else "unschedulable"
    return MemberDecision(outcome.pod.key, status, None, (), (), outcome.reasons, outcome.message, outcome.plugins)


def with_share_ids(decision: Decision, new_share_id: Callable[[], str]) -> Decision:
    """Set the identifier of each device share, in the order of the decision."""
    if not any(_shares(given) for member in decision.members for given in member.allocations):
        return decision
    members = tuple(
        replace(member, allocations=tuple(_with_share_ids(given, new_share_id) for given in member.allocations))
        for member in decision.members
    )
    return replace(decision, members=members)


def _shares(given: ClaimAllocation) -> bool:
    return any("shareID" in entry for entry in given.allocation["devices"]["results"])


def _with_share_ids(given: ClaimAllocation, new_share_id: Callable[[], str]) -> ClaimAllocation:
    if not _shares(given):
        return given
    devices = given.allocation["devices"]
    results = [{**one, "shareID": new_share_id()} if "shareID" in one else one for one in devices["results"]]
    return replace(given, allocation={**given.allocation, "devices": {**devices, "results": results}})
