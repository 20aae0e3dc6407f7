"""The door: an object of a kind that can be asked about, in any state, becomes an explanation.

What has a place, has ended or goes away is answered from its status; what waits is put to the scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from haru.engine.cluster import Snapshot, claim_path
from haru.engine.decision import GroupKey, Obj, Reason
from haru.engine.groups import Options
from haru.engine.groups.extended import special_use
from haru.engine.pods import PodInfo
from haru.explain import hypothesis
from haru.explain.changes import listed
from haru.explain.explanation import Explanation, Verdict
from haru.explain.holdings import frees_text, held_by, held_claim
from haru.explain.judge import distinct
from haru.explain.owners import since_of
from haru.explain.quotas import Unmade, unmade
from haru.explain.states import State, ended_job, pod_state, settled_group
from haru.explain.unread import not_readable
from haru.explain.waiting import titled, waiting
from haru.explain.why_here import why_here
from haru.explain.wording import counted
from haru.explain.work import Inquiry, Work, hypothetical_options
from haru.kube.names import parse_time

_MOST_HELD = 16
_STATES = {
    "Running": "running",
    "Starting": "being started",
    "Completed": "completed",
    "Failed": "failed",
    "Terminating": "being deleted",
}

SubjectKind = Literal["pod", "podgroup", "job", "replicaset", "resourceclaim"]
_MAKERS = {"Job": ("job", "parallelism"), "ReplicaSet": ("replica set", "replicas")}
"""Who makes pods: how they are called, and the field that says how many."""


def explain(
    snapshot: Snapshot,
    kind: SubjectKind,
    obj: Obj,
    related: Sequence[Obj] = (),
    now: str = "",
    *,
    options: Options | None = None,
    remedies: bool = True,
    unread: Sequence[str] = (),
) -> Explanation:
    """Why an object is as it is, and what would help, unless that is not asked for (`remedies`): it takes far longer.

    `related` are pods that matter but are not in the snapshot; `now` (RFC 3339) tells how long it has been waiting;
    `unread` are kinds that the snapshot is without, because whoever asks may not read them.
    Raises ValueError for a kind that cannot be explained.
    """
    settings = hypothetical_options(options)
    if now:
        settings = replace(settings, now=parse_time(now).timestamp())
    told = _explained(snapshot, kind, obj, related, Inquiry(settings, remedies, tuple(unread)))
    told = (
        replace(told, reasons=distinct([*told.reasons, *not_readable(unread)]), unread=tuple(unread))
        if unread
        else told
    )
    created = obj["metadata"].get("creationTimestamp")
    if not now or not created or told.verdict == "Runs":
        return told
    return replace(told, age_seconds=max(0, int((parse_time(now) - parse_time(created)).total_seconds())))


def _explained(
    snapshot: Snapshot, kind: SubjectKind, obj: Obj, related: Sequence[Obj], inquiry: Inquiry
) -> Explanation:
    for extra in related:
        if extra["kind"] == "Pod" and claim_path(extra) not in snapshot.pods:
            snapshot = hypothesis.with_pods(snapshot, [PodInfo.of(extra)])
    if kind == "pod":
        return _pod(snapshot, obj, inquiry)
    if kind == "podgroup":
        return _group(snapshot, obj, inquiry)
    if kind == "job":
        return _maker(snapshot, {**obj, "kind": "Job"}, inquiry)
    if kind == "replicaset":
        return _maker(snapshot, {**obj, "kind": "ReplicaSet"}, inquiry)
    if kind == "resourceclaim":
        return _claim(snapshot, obj, inquiry)
    raise ValueError(f"kind {kind!r} cannot be explained: ask about a pod, podgroup, job, replicaset or resourceclaim")


def _pod(snapshot: Snapshot, obj: Obj, inquiry: Inquiry) -> Explanation:
    info = snapshot.pods.get(claim_path(obj)) or PodInfo.of(obj)
    if info.key.path not in snapshot.pods:
        snapshot = hypothesis.with_pods(snapshot, [info])
    state = pod_state(snapshot, info)
    if state is not None:
        return _placed_pod(snapshot, obj, info, state, inquiry)
    if info.group is not None:
        siblings = tuple(sorted(snapshot.group_state(info.group).unscheduled))
        return waiting("Pod", obj, snapshot, Work(siblings or (info.key.path,), info.group), inquiry)
    return waiting("Pod", obj, snapshot, Work((info.key.path,)), inquiry)


def _placed_pod(snapshot: Snapshot, obj: Obj, pod: PodInfo, state: State, inquiry: Inquiry) -> Explanation:
    """A pod that has its place, has ended or goes away: since when, with what, and what other nodes would have said."""
    verdict, reasons = state
    if pod.terminal or not pod.node:
        return titled("Pod", obj, verdict, reasons, node=pod.node)
    since, holds = since_of(pod), held_by(snapshot, pod)
    has = frees_text(snapshot, holds)
    text = reasons[0].message + (f", since {since}" if since else "") + (f", with {has}" if has else "")
    present = pod.node in snapshot.nodes and snapshot.nodes[pod.node].present
    told = titled("Pod", obj, verdict, reasons, summary=text, node=pod.node, since=since, holds=holds)
    if not present or pod.deleting:
        return told
    nodes, scores, scored = why_here(snapshot, pod, inquiry.options)
    return replace(told, nodes=nodes, scores=scores, scored=scored)


def _group(snapshot: Snapshot, obj: Obj, inquiry: Inquiry) -> Explanation:
    key = GroupKey(*claim_path(obj).split("/", 1))
    if snapshot.pod_group(key) is None:
        snapshot = hypothesis.with_pod_group(snapshot, key.path, obj)
    state = settled_group(snapshot, key, obj)
    pending = tuple(sorted(snapshot.group_state(key).unscheduled))
    if state is None:
        return waiting("PodGroup", obj, snapshot, Work(pending, key), inquiry)
    if not pending:
        return titled("PodGroup", obj, *state)
    # The quorum has its places: what is said of the members that wait does not change the group's verdict.
    extras = waiting("PodGroup", obj, snapshot, Work(pending, key), inquiry)
    reasons = distinct([*state[1], *extras.reasons])
    text = f"{state[1][0].message}; {counted(len(pending), 'more pod')} waiting: {extras.summary}"
    return replace(extras, verdict=state[0], summary=text, reasons=reasons)


def _maker(snapshot: Snapshot, obj: Obj, inquiry: Inquiry) -> Explanation:
    """A Job or a ReplicaSet: its pods, and those that it lacks."""
    ended = ended_job(snapshot, obj) if obj["kind"] == "Job" else None
    if ended is not None:
        return titled("Job", obj, *ended)
    told = _living(snapshot, obj, inquiry)
    lacking = unmade(snapshot, obj)
    return told if lacking is None else _kept_back(told, lacking)


def _kept_back(told: Explanation, lacking: Unmade) -> Explanation:
    """Also told of the pods that are not made, because a quota refuses them."""
    refused = lacking.refusal
    verdict = told.verdict
    if verdict not in ("Runs", "NeverFits"):
        verdict = "FitsLater" if refused.can_wait and verdict != "FitsIf" else "FitsIf"
    none_yet = any(reason.type == "PodsMissing" for reason in told.reasons)
    text = f"{counted(lacking.count, 'pod' if none_yet else 'more pod')} not made: {refused.reason.message}"
    summary = text if none_yet else f"{told.summary}; {text}"
    ways = (*refused.remedy(none_yet and "there is room for them now" in told.summary), *told.remedies)
    reasons = distinct([refused.reason, *told.reasons] if none_yet else [*told.reasons, refused.reason])
    return replace(told, verdict=verdict, summary=summary, reasons=reasons, remedies=ways)


def _living(snapshot: Snapshot, obj: Obj, inquiry: Inquiry) -> Explanation:
    uid = obj["metadata"].get("uid")
    own = [
        pod
        for pod in snapshot.pods.values()
        if any(o.get("uid") == uid and o.get("controller") for o in pod.obj["metadata"].get("ownerReferences") or ())
    ]
    if not own:
        return _without_pods(snapshot, obj, inquiry)
    pending = sorted((p for p in own if pod_state(snapshot, p) is None), key=lambda p: p.key)
    if not pending:
        return _placed(snapshot, obj, own)
    first = pending[0]
    paths = tuple(p.key.path for p in pending) if first.group is not None else (first.key.path,)
    told = waiting(obj["kind"], obj, snapshot, Work(paths, first.group), inquiry)
    if first.group is None and len(pending) > 1:
        text = f"{told.summary} (pod {first.key.name}; {len(pending)} of its pods wait, each for itself)"
        told = replace(told, summary=text)
    return told


def _placed(snapshot: Snapshot, obj: Obj, own: Sequence[PodInfo]) -> Explanation:
    """A workload all of whose pods have their places."""
    states = [state for p in own if (state := pod_state(snapshot, p)) is not None]
    verdict: Verdict = "Starting" if any(v == "Starting" for v, _ in states) else "Runs"
    reasons = distinct([r for _, found in states for r in found])
    counts = Counter(r.type for _, found in states for r in found)
    nodes = len({p.node for p in own if p.node})
    text = ", ".join(f"{counted(count, 'pod')} {_STATES.get(kind, kind)}" for kind, count in counts.items())
    where = f" on {counted(nodes, 'node')}" if nodes else ""
    since = min((time for p in own if (time := since_of(p))), default="")
    living = [p for p in own if not p.terminal][:_MOST_HELD]
    holds = {held.claim: held for p in living for held in held_by(snapshot, p)}
    few = tuple(holds.values())[:_MOST_HELD]
    return titled(obj["kind"], obj, verdict, reasons, summary=text + where, since=since, holds=few)


def _without_pods(snapshot: Snapshot, obj: Obj, inquiry: Inquiry) -> Explanation:
    """A workload without pods: what would come of the pods that its template describes."""
    word, field = _MAKERS[obj["kind"]]
    namespace, _, name = claim_path(obj).partition("/")
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    count = int(1 if spec.get(field) is None else spec[field])
    if not count:
        reason = Reason("PodsMissing", f"it runs no pods: its {field} is 0", {field: 0})
        return titled(obj["kind"], obj, "FitsIf", (reason,))
    pods = [
        PodInfo.of(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **(template.get("metadata") or {}),
                    "namespace": namespace,
                    "name": f"{name}-{number}",
                    "uid": f"{name}-{number}",
                },
                "spec": template.get("spec") or {},
            }
        )
        for number in range(count)
    ]
    reason = Reason("PodsMissing", f"no pod of {word} {namespace}/{name} exists yet", {field: count})
    key = pods[0].group
    paths = tuple(p.key.path for p in pods) if key is not None else (pods[0].key.path,)
    told = waiting(obj["kind"], obj, hypothesis.with_pods(snapshot, pods), Work(paths, key), inquiry)
    if spec.get("suspend"):
        reason = Reason("Suspended", f"job {namespace}/{name} is suspended")
    verdict: Verdict = told.verdict
    if verdict == "Starting":
        verdict = "FitsIf" if spec.get("suspend") else "FitsLater"
    then = "there is room for them now" if told.verdict == "Starting" else f"then they would wait: {told.summary}"
    return replace(
        told, verdict=verdict, summary=f"{reason.message}; {then}", reasons=distinct([reason, *told.reasons])
    )


def _claim(snapshot: Snapshot, obj: Obj, inquiry: Inquiry) -> Explanation:
    path = claim_path(obj)
    claim = snapshot.claims.get(path) or obj
    users = hypothesis.consumers(snapshot, claim)
    allocation = (claim.get("status") or {}).get("allocation")
    if claim["metadata"].get("deletionTimestamp"):
        message = f"resource claim {path} is being deleted; it goes once nobody uses it"
        state = Reason("Terminating", message, {"users": [p.key.path for p in users]})
        return titled("ResourceClaim", obj, "Runs" if users else "FitsIf", (state,))
    if allocation:
        return _allocated_claim(snapshot, obj, claim, [p.key.path for p in users])
    waits = _users_that_wait(snapshot, path)
    if waits:
        told = _pod(snapshot, waits[0].obj, inquiry)
        text = f"it waits with pod {waits[0].key.name}: {told.summary}"
        return replace(told, kind="ResourceClaim", name=path.partition("/")[2], summary=text)
    return _unused_claim(snapshot, obj, claim, path, inquiry)


def _allocated_claim(snapshot: Snapshot, obj: Obj, claim: Obj, users: Sequence[str]) -> Explanation:
    """Its devices, and who uses them."""
    held = held_claim(snapshot, claim)
    holds = (held,) if held is not None else ()
    devices = [f"{d.driver}/{d.pool}/{d.device}" for one in holds for d in one.devices]
    reasons = [
        Reason("Allocated", f"allocated: {listed(devices) or 'no devices'}", {"devices": devices, "users": list(users)})
    ]
    waiting_users = [p.key.path for p in _users_that_wait(snapshot, claim_path(claim))]
    if users:
        text = f"{reasons[0].message}; used by {listed(list(users))}"
    elif waiting_users:
        text = f"{reasons[0].message}; kept for {listed(waiting_users)}, which has no place yet"
    else:
        reasons.append(Reason("Unused", "no living pod uses it", {}))
        text = f"{reasons[0].message}, but no living pod uses it"
    node = holds[0].node if holds else ""
    since = holds[0].since if holds else ""
    return titled("ResourceClaim", obj, "Runs", reasons, summary=text, holds=holds, node=node, since=since)


def _users_that_wait(snapshot: Snapshot, path: str) -> list[PodInfo]:
    """Pods without a place that name a claim."""
    namespace, _, name = path.partition("/")
    found = []
    for key in sorted(snapshot.pods):
        pod = snapshot.pods[key]
        if pod.key.namespace != namespace or pod.terminal or pod.node:
            continue
        made = {s.get("resourceClaimName") for s in pod.status.get("resourceClaimStatuses") or ()}
        special = special_use(snapshot, pod)
        if name in made | {entry.claim_name for entry in pod.claims} or (special is not None and special.path == path):
            found.append(pod)
    return found


def _unused_claim(snapshot: Snapshot, obj: Obj, claim: Obj, path: str, inquiry: Inquiry) -> Explanation:
    """A claim that nobody asks for: what would come of a pod that wants nothing else."""
    namespace, _, name = path.partition("/")
    probe = PodInfo.of(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "name": f"user-of-{name}", "uid": f"user-of-{name}"},
            "spec": {"containers": [], "resourceClaims": [{"name": "claim", "resourceClaimName": name}]},
        }
    )
    imagined = hypothesis.with_claims(hypothesis.with_pods(snapshot, [probe]), {path: claim})
    told = waiting("ResourceClaim", obj, imagined, Work((probe.key.path,)), inquiry)
    unused = Reason("Unused", "no pod uses it: it is allocated when one is scheduled")
    verdict: Verdict = "FitsLater" if told.verdict == "Starting" else told.verdict
    then = "devices for it are free now" if told.verdict == "Starting" else f"then it would wait: {told.summary}"
    return replace(
        told, verdict=verdict, summary=f"{unused.message}; {then}", reasons=distinct([unused, *told.reasons])
    )
