"""The explanation of work that waits: held before any attempt, or refused by the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from haru.engine import Options, Reason, Snapshot
from haru.engine.state import namespaced_name, time_text
from haru.explain.changes import listed
from haru.explain.diagnosis.diagnosis import diagnose
from haru.explain.diagnosis.gated import explain_gated, group_text, kueue_text, smaller_gang, with_kueue
from haru.explain.diagnosis.published_reservation import published_reservation
from haru.explain.diagnosis.schedulers import in_partition, other_scheduler
from haru.explain.diagnosis.verdict import JudgedVerdict, distinct, verdict_of, why
from haru.explain.diagnosis.workload_unit import Inquiry, WorkloadUnit, blind_text, is_blind, not_readable
from haru.explain.explanation import Remedy, Verdict
from haru.explain.remedies.search import MENDING, RefusedWork, apart, freed, mends, once_free, remedies
from haru.explain.render.headline import headline
from haru.explain.results import Explanation
from haru.gangs import title_of
from haru.kube.meta import Obj


def blocking_backfill(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> Reason | None:
    """Why work that has a free place waits all the same: the place is kept for somebody else."""
    published = published_reservation(snapshot, options)
    if published is None:
        return None
    holder, found = published
    if work.decide(replace(snapshot, reservation=found), options).status == "scheduled":
        return None
    name = f"{holder['kind'].lower()} {namespaced_name(holder)}"
    data: dict[str, Any] = {"for": name}
    text = f"a place is free for it, but kept for {name}, which is the head of the queue"
    if found.until is not None:
        data["until"] = time_text(found.until)
        text += f" and starts by {data['until']} at the latest; work that has ended by then goes first"
    return Reason("Reserved", text, data)


def titled(kind: str, obj: Obj, verdict: Verdict, reasons: Sequence[Reason], **rest: Any) -> Explanation:
    """An explanation of an object; the first reason says it in short unless `summary` does."""
    namespace, _, name = namespaced_name(obj).partition("/")
    if kind == "PodGroup":
        kind, name = title_of(name)
    summary = rest.pop("summary", "") or (reasons[0].message if reasons else "")
    return Explanation(kind, namespace, name, verdict, summary, tuple(reasons), **rest)


def waiting(kind: str, obj: Obj, snapshot: Snapshot, work: WorkloadUnit, inquiry: Inquiry) -> Explanation:
    """Why the work waits, and what would help."""
    options = inquiry.options
    snapshot = in_partition(snapshot, work)
    if not work.pending(snapshot):
        going = sum(pod.deleting for pod in work.pods(snapshot))
        text = "no pod of it is left to be placed" + (f": {going} being deleted" if going else "")
        return titled(kind, obj, "FitsIf", (Reason("PodsMissing", text),))
    if is_blind(inquiry.unread):
        text = blind_text(snapshot, work, inquiry.unread)
        return titled(kind, obj, "FitsIf", not_readable(inquiry.unread), summary=text)
    hold = work.hold(snapshot)
    if hold is not None:
        return _held(partial(titled, kind, obj), snapshot, work, hold, inquiry)
    judgement = inquiry.once("verdict", lambda: verdict_of(snapshot, work, options))
    found = inquiry.once("diagnosis", lambda: diagnose(snapshot, work, options, judgement.diagnosis))
    if judgement.verdict == "Starting" and (kept := blocking_backfill(snapshot, work, options)) is not None:
        return titled(kind, obj, "FitsLater", (kept,), pods=found.pods, requests=found.requests)
    if judgement.verdict == "Starting":
        return titled(kind, obj, "Starting", judgement.reasons, pods=found.pods, requests=found.requests)
    refused = RefusedWork(snapshot, work, options, found, judgement.reasons, judgement.fit)
    free = cache(lambda: freed(refused))
    ways_out = _ways_out(refused, judgement, free) if inquiry.remedies else ()
    expected = _if_mended(judgement.verdict, free, inquiry)
    if expected == "NeverFits" and any(reason.type == "PoolIncomplete" for reason in found.troubles):
        # The driver is about to publish the rest.
        expected = "FitsLater"
    reasons = distinct([*judgement.reasons, *found.reasons()])
    return titled(
        kind,
        obj,
        expected,
        reasons,
        summary=headline(expected, reasons, found),
        pods=found.pods,
        requests=found.requests,
        nodes=found.nodes,
        remedies=ways_out,
        later=judgement.later if expected == "FitsLater" else None,
    )


def _ways_out(refused: RefusedWork, judgement: JudgedVerdict, free: Callable[[], RefusedWork]) -> tuple[Remedy, ...]:
    """Return what would help: first that somebody takes the work, then what it lacks."""
    unknown = judgement.unknown
    if unknown is None:
        ways = remedies(refused)
        if judgement.verdict == "NeverFits" and all(way.kind == "AddNodes" or not way.confirmed for way in ways):
            # What helps before machines are bought, though not at once.
            ways = tuple(sorted((*ways, *once_free(free())), key=lambda way: (way.cost, way.kind)))
        return ways
    first = other_scheduler(refused.snapshot, refused.work, refused.options, unknown)
    if judgement.placed:
        return (first,)
    runs = f"a scheduler {unknown.data['schedulerName']} runs"
    return (first, *(remedy.not_enough(runs) for remedy in remedies(refused)))


def _if_mended(verdict: Verdict, free: Callable[[], RefusedWork], inquiry: Inquiry) -> Verdict:
    """The verdict; `FitsIf` where names or labels are all that is missing: nodes that exist could serve the work."""
    if verdict != "NeverFits":
        return verdict
    mendable = inquiry.once("mendable", lambda: any(way.kind in MENDING and way.confirmed for way in mends(free())))
    return "FitsIf" if mendable else verdict


def _held(
    explanation: Callable[..., Explanation], snapshot: Snapshot, work: WorkloadUnit, hold: Reason, inquiry: Inquiry
) -> Explanation:
    options, hold = inquiry.options, with_kueue(snapshot, work, hold)
    answer = inquiry.once("hold", lambda: explain_gated(snapshot, work, hold, options))
    other = smaller_gang(snapshot, work, options) if hold.type == "TooFewMembers" and inquiry.remedies else None
    whose, more = _of_members(snapshot, work, hold, options)
    told = explanation(
        answer.verdict,
        distinct([*answer.reasons, *more]),
        summary=whose + _hold_text(hold, answer.reasons),
        remedies=(*answer.remedies, *((other,) if other else ())) if inquiry.remedies else (),
    )
    lifted, freed = answer.snapshot, answer.work
    if lifted is None or freed.hold(lifted) is not None:
        return told
    # What would be asked once the hold is lifted.
    found = inquiry.once("diagnosis", lambda: diagnose(lifted, freed, options))
    reasons = distinct([*told.reasons, *found.reasons()]) if answer.blocked else told.reasons
    nodes = found.nodes if answer.blocked else ()
    if answer.blocked:
        judgement = inquiry.once("verdict", lambda: verdict_of(lifted, freed, options))
        refused = RefusedWork(lifted, freed, options, found, judgement.reasons, judgement.fit)
        told = _with_what_follows(told, refused, judgement, inquiry)
    if "kueue" in hold.data:
        then = (
            f"it would wait: {headline('FitsLater', reasons[1:], found)}"
            if answer.blocked
            else "a place is free for it"
        )
        told = replace(told, summary=f"{told.summary}; once admitted, {then}")
    return replace(told, reasons=reasons, pods=found.pods, requests=found.requests, nodes=nodes)


def _with_what_follows(
    told: Explanation, refused: RefusedWork, judgement: JudgedVerdict, inquiry: Inquiry
) -> Explanation:
    """What would help work that nobody can serve as it is, even if it is not held: both changes together."""
    free = cache(lambda: freed(refused))
    told = replace(told, verdict=_if_mended(told.verdict, free, inquiry))
    gates = next((remedy for remedy in told.remedies if remedy.kind == "RemoveGates"), None)
    if gates is None or not inquiry.remedies or judgement.verdict == "FitsLater":
        return told
    gated = [change["target"]["metadata"]["name"] for change in gates.changes]
    both = [
        replace(
            way, kind="Combination", summary=f"{gates.summary}, {way.summary}", changes=(*gates.changes, *way.changes)
        )
        for way in _ways_out(apart(refused), judgement, free)
        if way.confirmed and way.changes and not any(_makes_again(change, gated) for change in way.changes)
    ]
    most = max((way.cost for way in both), default=0)
    return replace(told, remedies=(*both, *(replace(way, cost=max(way.cost, most)) for way in told.remedies)))


def _makes_again(change: Obj, pods: Sequence[str]) -> bool:
    """Whether one of these pods is made anew by the change, with its gates; also by what may have made it."""
    about = change["target"] if change["action"] == "patch" else change["object"]
    if about["kind"] == "Pod":
        return change["action"] != "patch" and about["metadata"]["name"] in pods
    return about["kind"] in ("Job", "ReplicaSet", "Deployment", "StatefulSet", "PodGroup")


_OF_MEMBERS = frozenset({"Gated", "ClaimNotCreated", "ClaimMissing", "ClaimDeleting", "ClaimForeign"})


def _of_members(
    snapshot: Snapshot, work: WorkloadUnit, hold: Reason, options: Options
) -> tuple[str, tuple[Reason, ...]]:
    """Which members of a group this holds, if it is not all of them; and what keeps the others back."""
    if hold.type not in _OF_MEMBERS or len(work.pending(snapshot)) < 2:
        return "", ()
    holds = [(pod, reason) for pod, reason in work.holds(snapshot) if reason is not None]
    texts = {pod.key.name: _hold_text(reason, ()) for pod, reason in holds}
    own = sorted(name for name, text in texts.items() if text == _hold_text(hold, ()))
    if len(own) == len(work.pending(snapshot)):
        return "", ()
    others = [
        replace(reason, message=f"member {pod.key.name}: {texts[pod.key.name]}")
        for pod, reason in holds
        if pod.key.name not in own
    ]
    refused = [
        reason for reason in why(work.decide(snapshot, options)) if reason.type not in ("Quorum", "TooFewMembers")
    ]
    return f"{'member' if len(own) == 1 else 'members'} {listed(own)}: ", (*others, *refused)


def _hold_text(hold: Reason, reasons: Sequence[Reason]) -> str:
    """The hold in plain words; Kubernetes' own message stays in the reasons."""
    data = hold.data
    refused = next((reason.message for reason in reasons if reason.type == "QuotaExceeded"), "")
    if hold.type == "ClaimNotCreated" and refused:
        return f"its claim {data['podClaim']} is not made: {refused}"
    if hold.type == "Gated" and "kueue" in data:
        return kueue_text(data)
    if hold.type == "Gated":
        return f"held by scheduling gates: {', '.join(data['gates'])}"
    if hold.type == "TooFewMembers":
        return f"the gang has {data['members']} of the {data['minCount']} pods that it needs to be tried"
    if hold.type == "PodGroupMissing":
        return f"{group_text(data['podGroup'])} does not exist"
    if hold.type == "GangSchedulingOff":
        return f"gang scheduling is off in the scheduler, which holds what names PodGroup {data['podGroup']}"
    if hold.type == "ClaimNotCreated" and data.get("template"):
        return f"its claim {data['podClaim']} has not been made from ResourceClaimTemplate {data['template']} yet"
    if hold.type == "ClaimMissing":
        return f"ResourceClaim {data['claim']} does not exist"
    if hold.type == "ClaimDeleting":
        return f"ResourceClaim {data['claim']} is being deleted"
    return hold.message
