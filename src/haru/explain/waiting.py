"""The explanation of work that waits: held before any attempt, or refused by the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from haru.engine.cluster import Snapshot, claim_path
from haru.engine.decision import Obj, Reason
from haru.explain.capacity import Capacity
from haru.explain.explanation import Explanation, Remedy, Verdict
from haru.explain.held import held, smaller_gang
from haru.explain.judge import distinct, judge
from haru.explain.node_remedies import label_nodes
from haru.explain.openings import Openings
from haru.explain.remedies import remedies
from haru.explain.reserved import kept_from
from haru.explain.study import Study, study
from haru.explain.told import first_line
from haru.explain.unread import blind_text, is_blind, not_readable
from haru.explain.work import Inquiry, Work


def titled(kind: str, obj: Obj, verdict: Verdict, reasons: Sequence[Reason], **rest: Any) -> Explanation:
    """An explanation of an object; the first reason says it in short unless `summary` does."""
    namespace, _, name = claim_path(obj).partition("/")
    summary = rest.pop("summary", "") or (reasons[0].message if reasons else "")
    return Explanation(kind, namespace, name, verdict, summary, tuple(reasons), **rest)


def waiting(kind: str, obj: Obj, snapshot: Snapshot, work: Work, inquiry: Inquiry) -> Explanation:
    """Why the work waits, and what would help."""
    options = inquiry.options
    if not work.pending(snapshot):
        going = sum(pod.deleting for pod in work.pods(snapshot))
        text = "no pod of it is left to be placed" + (f": {going} being deleted" if going else "")
        return titled(kind, obj, "FitsIf", (Reason("PodsMissing", text),))
    if is_blind(inquiry.unread):
        text = blind_text(snapshot, work, inquiry.unread)
        return titled(kind, obj, "FitsIf", not_readable(inquiry.unread), summary=text)
    hold = work.hold(snapshot)
    if hold is not None:
        return _held(kind, obj, snapshot, work, hold, inquiry)
    judgement = judge(snapshot, work, options)
    found = study(snapshot, work, options)
    if judgement.verdict == "Starting" and (kept := kept_from(snapshot, work, options)) is not None:
        return titled(kind, obj, "FitsLater", (kept,), pods=found.pods, requests=found.requests)
    if judgement.verdict == "Starting":
        return titled(kind, obj, "Starting", judgement.reasons, pods=found.pods, requests=found.requests)
    ways_out = remedies(snapshot, work, options, found, judgement.reasons, judgement.fit) if inquiry.remedies else ()
    mendable = judgement.verdict == "NeverFits" and _mendable(snapshot, work, inquiry, ways_out, found)
    expected: Verdict = "FitsIf" if mendable else judgement.verdict
    if expected == "NeverFits" and any(reason.type == "PoolIncomplete" for reason in found.troubles):
        # The driver is about to publish the rest.
        expected = "FitsLater"
    reasons = distinct([*judgement.reasons, *found.reasons()])
    return titled(
        kind,
        obj,
        expected,
        reasons,
        summary=first_line(expected, reasons, found),
        pods=found.pods,
        requests=found.requests,
        nodes=found.nodes,
        remedies=ways_out,
        later=judgement.later if expected == "FitsLater" else None,
    )


def _mendable(snapshot: Snapshot, work: Work, inquiry: Inquiry, ways_out: Sequence[Remedy], found: Study) -> bool:
    """Whether labels are all that is missing: nodes that exist could serve the work then."""
    openings = Openings(snapshot, work, inquiry.options, Capacity(snapshot, found.members), 0)
    ways = ways_out if inquiry.remedies else label_nodes(openings)
    return any(remedy.kind == "LabelNodes" for remedy in ways)


def _held(kind: str, obj: Obj, snapshot: Snapshot, work: Work, hold: Reason, inquiry: Inquiry) -> Explanation:
    options = inquiry.options
    answer = held(snapshot, work, hold, options)
    other = smaller_gang(snapshot, work, options) if hold.type == "TooFewMembers" and inquiry.remedies else None
    told = titled(
        kind,
        obj,
        answer.verdict,
        answer.reasons,
        summary=_hold_text(hold, work),
        remedies=(*answer.remedies, *((other,) if other else ())) if inquiry.remedies else (),
    )
    if answer.snapshot is None or answer.work.hold(answer.snapshot) is not None:
        return told
    # What would be asked once the hold is lifted.
    found = study(answer.snapshot, answer.work, options)
    reasons = distinct([*answer.reasons, *found.reasons()]) if answer.blocked else tuple(answer.reasons)
    nodes = found.nodes if answer.blocked else ()
    return replace(told, reasons=reasons, pods=found.pods, requests=found.requests, nodes=nodes)


def _hold_text(hold: Reason, work: Work) -> str:
    """The hold in plain words; Kubernetes' own message stays in the reasons."""
    data = hold.data
    if hold.type == "Gated":
        return f"held by scheduling gates: {', '.join(data['gates'])}"
    if hold.type == "TooFewMembers":
        return f"the gang has {data['members']} of the {data['minCount']} pods that it needs to be tried"
    if hold.type == "PodGroupMissing":
        return f"PodGroup {data['podGroup']} does not exist"
    if hold.type == "ClaimNotCreated" and data.get("template"):
        return f"its claim {data['podClaim']} has not been made from ResourceClaimTemplate {data['template']} yet"
    if hold.type == "ClaimMissing":
        return f"ResourceClaim {data['claim']} does not exist"
    if hold.type == "ClaimDeleting":
        return f"ResourceClaim {data['claim']} is being deleted"
    return hold.message
