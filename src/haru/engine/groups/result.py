"""From tentative placements to the Decision that is handed out.

Source: KEP-4671 (what is written for a group and its members), KEP-5729 (one reservation per PodGroup).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from haru.engine.decision import (
    ClaimAllocation,
    Decision,
    Eviction,
    ExtendedClaim,
    GroupKey,
    MemberDecision,
    Obj,
    Reason,
    Reservation,
    Status,
)
from haru.engine.groups.claims import ClaimUse
from haru.engine.groups.placing import Placed, Refused
from haru.engine.groups.quorum import GROUP_UNSCHEDULABLE, WAITING
from haru.engine.pods import PodInfo

GANG_PLUGIN = "GangScheduling"

Outcome = Placed | Refused


def scheduled(key: GroupKey | None, outcomes: Sequence[Outcome], version: int) -> Decision:
    """Whoever has a place is bound; the others keep their own diagnosis."""
    members = tuple(placed(o) if isinstance(o, Placed) else _refused(o) for o in outcomes)
    return Decision(key, "scheduled", "", members, (), version)


def unschedulable(
    key: GroupKey | None, outcomes: Sequence[Outcome], needed: int, fit: int, version: int, message: str = ""
) -> Decision:
    """Nobody is bound: too few members have a place at once."""
    quorum = Reason("Quorum", WAITING, {"needed": needed, "fit": fit})
    members = tuple(
        MemberDecision(o.pod.key, "unschedulable", None, (), (), (quorum,), WAITING, (GANG_PLUGIN,))
        if isinstance(o, Placed)
        else _refused(o)
        for o in outcomes
    )
    if key is None and members:
        return Decision(None, members[0].status, members[0].message, members, members[0].reasons, version)
    return Decision(key, "unschedulable", message or GROUP_UNSCHEDULABLE, members, (quorum,), version)


def nominated(
    refused: Decision, outcomes: Sequence[Outcome], evictions: tuple[Eviction, ...], message: str
) -> Decision:
    """Whoever has a place is nominated to it; texts and reasons are those of the refusal."""
    before = {member.pod: member for member in refused.members}
    members = []
    for outcome in outcomes:
        old = before[outcome.pod.key]
        if isinstance(outcome, Placed):
            place = replace(placed(outcome), status="nominated")
            old = replace(place, reasons=old.reasons, message=old.message, plugins=old.plugins)
        members.append(old)
    return replace(refused, status="nominated", message=message, members=tuple(members), evictions=evictions)


def with_note(refused: Decision, note: str) -> Decision:
    """A refusal that says in its message why nobody is evicted; a single pod says it itself."""
    separator = " " if refused.message.endswith(".") else ", "
    message = f"{refused.message}{separator}{note}"
    members = refused.members
    if refused.group is None:
        members = tuple(replace(member, message=message) for member in members)
    return replace(refused, message=message, members=members)


def failed(key: GroupKey | None, pods: Sequence[PodInfo], reason: Reason, version: int) -> Decision:
    """The attempt went wrong for all members alike."""
    return alike(key, pods, "error", reason, version)


def alike(
    key: GroupKey | None, pods: Sequence[PodInfo], status: Status, reason: Reason, version: int, plugin: str = ""
) -> Decision:
    """All members share one answer."""
    plugins = (plugin,) if plugin else ()
    members = tuple(MemberDecision(pod.key, status, None, (), (), (reason,), reason.message, plugins) for pod in pods)
    return Decision(key, status, reason.message, members, (reason,), version)


def nowhere(key: GroupKey, pods: Sequence[PodInfo], reason: Reason, first: Sequence[Outcome], version: int) -> Decision:
    """No domain takes the group; the members keep the diagnosis of the first one, whether they fit there or not."""
    if len(first) != len(pods):
        return alike(key, pods, "unschedulable", reason, version, GANG_PLUGIN)
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
    """One member's attempt went wrong: the others fail with it, because the group is decided as one."""
    broken = next(o for o in outcomes if isinstance(o, Refused) and o.failed)
    if key is None:
        return alike(None, pods, "error", broken.reasons[0], version)
    text = f"failed to schedule other pod from a pod group: {broken.message}"
    shared = Reason("GroupError", text, {"pod": broken.pod.key.path})
    members = tuple(
        _refused(broken)
        if pod.key == broken.pod.key
        else MemberDecision(pod.key, "error", None, (), (), (shared,), text)
        for pod in pods
    )
    return Decision(key, "error", text, members, (shared, *broken.reasons), version)


def placed(outcome: Placed) -> MemberDecision:
    """A member that has a place."""
    return MemberDecision(
        outcome.pod.key,
        "scheduled",
        outcome.node,
        tuple(_allocation(use, allocation) for use, allocation in outcome.allocations),
        tuple(Reservation(*_identity(use), use.reserve_for) for use in outcome.joined),
        extended=_extended(outcome),
        claimed=outcome.claimed,
    )


def _allocation(use: ClaimUse, allocation: Obj) -> ClaimAllocation:
    return ClaimAllocation(*_identity(use), allocation, use.reserve_for, use.claim if use.made_for else None)


def _extended(outcome: Placed) -> ExtendedClaim | None:
    special, demand = outcome.special, outcome.demand.extended
    if special is None or demand is None:
        return None
    return ExtendedClaim(special.path, demand.mappings(special))


def _identity(use: ClaimUse) -> tuple[str, str, str]:
    meta = use.claim["metadata"]
    return meta.get("namespace") or "default", meta["name"], meta.get("uid") or ""


def _refused(outcome: Refused) -> MemberDecision:
    status: Status = "error" if outcome.failed else "unschedulable"
    return MemberDecision(outcome.pod.key, status, None, (), (), outcome.reasons, outcome.message, outcome.plugins)
