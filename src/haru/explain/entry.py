"""The door: an object of a kind that can be asked about, in any state, becomes an explanation.

What has a place, has ended or goes away is answered from its status; what waits is put to the scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from haru.engine import Options, Reason, Snapshot
from haru.engine.plugins import extended_resource_claim_use
from haru.engine.state import GroupKey, PodInfo, namespaced_name
from haru.explain import hypothesis
from haru.explain.changes import listed
from haru.explain.diagnosis.allocations import allocated_twice, frees_text, held_by, held_claim
from haru.explain.diagnosis.holders import since_of
from haru.explain.diagnosis.makers import author_of, lacking
from haru.explain.diagnosis.node_scores import why_here
from haru.explain.diagnosis.object_states import State, ended_job, pod_state, settled_group
from haru.explain.diagnosis.pending import titled, waiting
from haru.explain.diagnosis.pod_creation import refused_creation
from haru.explain.diagnosis.predicted_pods import MAKERS, without_pods
from haru.explain.diagnosis.quotas import Refusal, unmade
from haru.explain.diagnosis.running_pods import end_problems, problems_of, running_problems
from haru.explain.diagnosis.verdict import distinct
from haru.explain.diagnosis.workload_unit import (
    Inquiry,
    WorkloadUnit,
    default_gates,
    hypothetical_options,
    is_blind,
    not_readable,
)
from haru.explain.explanation import Remedy, Verdict
from haru.explain.object_names import ExplainedKind, SubjectKind
from haru.explain.remedies.commands import with_commands
from haru.explain.remedies.placed_pods import placed_pod_remedies
from haru.explain.remedies.refused_pods import allowed_amounts, missing_object_remedies
from haru.explain.results import Explanation
from haru.gangs import described_by
from haru.kube.jobs import gang_refusal, has_gang_shape
from haru.kube.meta import Obj, allocation_of, controller_of
from haru.kube.names import counted, parse_time

_MOST_HELD = 16
_STATES = {
    "Running": "running",
    "Starting": "being started",
    "Completed": "completed",
    "Failed": "failed",
    "Terminating": "being deleted",
    "ImagePullBackOff": "without an image",
    "ContainerNotStarted": "not started",
    "FailedPrepareDynamicResources": "without prepared claims",
    "CrashLoopBackOff": "crashing",
    "OOMKilled": "killed for memory",
}

_MAKERS = {kind.lower(): kind for kind in MAKERS}


def explain(
    snapshot: Snapshot,
    kind: ExplainedKind,
    obj: Obj,
    related: Sequence[Obj] = (),
    now: str = "",
    *,
    options: Options | None = None,
    remedies: bool = True,
    unread: Sequence[str] = (),
    gates: Mapping[str, bool] | None = None,
    found: dict[str, Any] | None = None,
) -> Explanation:
    """Why an object is as it is, and what would help, unless that is not asked for (`remedies`): it takes far longer.

    `related` are pods and events that matter but are not in the snapshot; `now` (RFC 3339) tells how long it has been
    waiting; `unread` are kinds that the snapshot is without, because whoever asks may not read them; `gates` are the
    feature gates by which controllers make pods (without them: those of `haru up`). `found` is empty, or comes from an
    explanation with the same arguments but for `remedies`: what that one found is not looked for again.
    Raises ValueError for a kind that cannot be explained.
    """
    settings = hypothetical_options(options)
    if now:
        settings = replace(settings, now=parse_time(now).timestamp())
    inquiry = Inquiry(settings, remedies, tuple(unread), gates if gates is not None else default_gates(), found)
    told = _explained(snapshot, kind, obj, related, inquiry)
    if author_of(snapshot, told.namespace, f"{told.kind}/{told.name}").startswith("trainjob/"):
        told = replace(told, kind="TrainJob")  # whose JobSet has its name
    told = replace(told, remedies=with_commands(snapshot, told.remedies))
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
    snapshot: Snapshot, kind: ExplainedKind, obj: Obj, related: Sequence[Obj], inquiry: Inquiry
) -> Explanation:
    snapshot = hypothesis.attached_by_pods(snapshot)
    for extra in related:
        if extra["kind"] == "Pod" and namespaced_name(extra) not in snapshot.pods:
            snapshot = hypothesis.with_pods(snapshot, [PodInfo.of(extra)])
    snapshot = hypothesis.with_events(snapshot, [extra for extra in related if extra["kind"] == "Event"])
    if kind == "pod":
        return _pod(snapshot, obj, inquiry)
    if kind == "podgroup":
        return _group(snapshot, obj, inquiry)
    if kind == "daemonset":
        return _daemon_set(snapshot, obj)
    if kind in _MAKERS:
        return _maker(snapshot, {**obj, "kind": _MAKERS[kind]}, inquiry)
    if kind == "resourceclaim":
        return _claim(snapshot, obj, inquiry)
    raise ValueError(f"kind {kind!r} cannot be explained: ask about one of {', '.join(get_args(SubjectKind))}")


def _pod(snapshot: Snapshot, obj: Obj, inquiry: Inquiry) -> Explanation:
    info = snapshot.pods.get(namespaced_name(obj)) or PodInfo.of(obj)
    if info.key.path not in snapshot.pods:
        snapshot = hypothesis.with_pods(snapshot, [info])
    state = pod_state(snapshot, info)
    if state is not None:
        return _placed_pod(snapshot, obj, info, state, inquiry)
    if info.group is not None:
        siblings = tuple(sorted(snapshot.group_state(info.group).unscheduled))
        told = waiting("Pod", obj, snapshot, WorkloadUnit(siblings or (info.key.path,), info.group), inquiry)
        told = _with_refused_members(snapshot, told, info.group, snapshot.pod_group(info.group))
        described = author_of(snapshot, info.key.namespace, described_by(info.group.name))
        return replace(told, summary=f"{told.summary}; its gang is {described}") if described else told
    return waiting("Pod", obj, snapshot, WorkloadUnit((info.key.path,)), inquiry)


def _placed_pod(snapshot: Snapshot, obj: Obj, pod: PodInfo, state: State, inquiry: Inquiry) -> Explanation:
    """A pod that has its place, has ended or goes away: since when, with what, and what other nodes would have said."""
    verdict, reasons = state
    if pod.terminal or not pod.node:
        known = end_problems(pod) if pod.status.get("phase") == "Failed" else ()
        ways = _ways_out(snapshot, [(pod, reason) for reason in known], inquiry)
        return titled("Pod", obj, verdict, [*reasons, *known], node=pod.node, remedies=ways)
    present = pod.node in snapshot.nodes and snapshot.nodes[pod.node].present
    since, holds = since_of(pod), held_by(snapshot, pod)
    has = frees_text(snapshot, holds)
    problems = running_problems(snapshot, pod, inquiry.options.now) if verdict == "Runs" and not pod.deleting else ()
    first = (
        reasons[0].message if verdict != "FitsIf" or not present else f"{reasons[0].message}; it is on node {pod.node}"
    )
    text = first + (f", since {since}" if since else "") + (f", with {has}" if has else "")
    text = "; ".join([*(problem.message for problem in problems), text])
    reasons = [*problems, *reasons]
    reasons = [*reasons, *allocated_twice(snapshot, holds)]
    ways = _ways_out(snapshot, [(pod, reason) for reason in reasons], inquiry)
    told = titled("Pod", obj, verdict, reasons, summary=text, node=pod.node, since=since, holds=holds, remedies=ways)
    if not present or pod.deleting:
        return told
    nodes, scores, scored = why_here(snapshot, pod, inquiry.options)
    return replace(told, nodes=nodes, scores=scores, scored=scored)


def _group(snapshot: Snapshot, obj: Obj, inquiry: Inquiry) -> Explanation:
    key = GroupKey(*namespaced_name(obj).split("/", 1))
    if snapshot.pod_group(key) is None:
        snapshot = hypothesis.with_pod_group(snapshot, key.path, obj)
    state = settled_group(snapshot, key, obj)
    pending = tuple(sorted(snapshot.group_state(key).unscheduled))
    if state is None:
        told = waiting("PodGroup", obj, snapshot, WorkloadUnit(pending, key), inquiry)
        return _with_refused_members(snapshot, told, key, obj)
    if not pending:
        members = [snapshot.pods[path] for path in sorted(snapshot.group_state(key).scheduled)]
        return _with_problems(snapshot, titled("PodGroup", obj, *state), members, inquiry)
    # The quorum has its places: what is said of the members that wait does not change the group's verdict.
    extras = waiting("PodGroup", obj, snapshot, WorkloadUnit(pending, key), inquiry)
    reasons = distinct([*state[1], *extras.reasons])
    text = f"{state[1][0].message}; {counted(len(pending), 'more pod')} waiting: {extras.summary}"
    return replace(extras, verdict=state[0], summary=text, reasons=reasons)


def _with_problems(snapshot: Snapshot, told: Explanation, members: Sequence[PodInfo], inquiry: Inquiry) -> Explanation:
    """Also told what is wrong with members that have their places."""
    found = [(pod, reason) for pod in members for reason in problems_of(snapshot, pod, inquiry.options.now)]
    if not found:
        return told
    pods = len({pod.key for pod, _ in found})
    text = f"{told.summary}; {counted(pods, 'member')} in trouble: pod {found[0][0].key.name}: {found[0][1].message}"
    reasons = distinct([*(reason for _, reason in found), *told.reasons])
    return replace(told, summary=text, reasons=reasons, remedies=_ways_out(snapshot, found, inquiry))


def _maker(snapshot: Snapshot, obj: Obj, inquiry: Inquiry) -> Explanation:
    """A Job, a ReplicaSet or a StatefulSet: its pods, and those that it lacks."""
    ended = ended_job(snapshot, obj) if obj["kind"] == "Job" else None
    if ended is not None:
        return titled("Job", obj, *ended)
    told = _living(snapshot, obj, inquiry)
    return _without_gang(_with_refusals(snapshot, told, obj, inquiry), obj)


def _daemon_set(snapshot: Snapshot, obj: Obj) -> Explanation:
    """A DaemonSet that lacks pods: those that it has are explained one by one."""
    obj = {**obj, "kind": "DaemonSet"}
    count, owner = lacking(snapshot, obj), {"kind": "DaemonSet", **_reference(obj)}
    text = f"{counted(count, 'pod')} of daemon set {namespaced_name(obj)} not made yet"
    told = titled("DaemonSet", obj, "FitsLater", (Reason("PodsMissing", text),))
    refused, by_quota = refused_creation(snapshot, owner), unmade(snapshot, obj)
    raised = by_quota.refusal.remedy(confirmed=False) if by_quota is not None else ()
    if refused is not None:
        ways = (*missing_object_remedies(refused, confirmed=False), *raised)
        return _kept_back(told, count, refused, ways, waits=False)
    if by_quota is not None:
        return _kept_back(told, count, by_quota.refusal.reason, raised, waits=by_quota.refusal.can_wait)
    return told


def _without_gang(told: Explanation, obj: Obj) -> Explanation:
    """Also told why a Job that could be a gang is none."""
    why = gang_refusal(obj) if obj["kind"] == "Job" and has_gang_shape(obj.get("spec") or {}) else ""
    if not why:
        return told
    reason = Reason("NoGang", f"it gets no gang of its own: {why}")
    return replace(told, summary=f"{told.summary}; {reason.message}", reasons=distinct([*told.reasons, reason]))


def _with_refusals(snapshot: Snapshot, told: Explanation, obj: Obj, inquiry: Inquiry) -> Explanation:
    """Also told which pods are missing because quotas, or whoever else is asked, refuse them."""
    by_quota = unmade(snapshot, obj)
    count, owner = lacking(snapshot, obj), {"kind": obj["kind"], **_reference(obj)}
    refused = refused_creation(snapshot, owner) if count else None
    if by_quota is not None:
        waits, ways = by_quota.refusal.can_wait, _with_quota_raised(told, by_quota.refusal)
        if refused is None:
            return _kept_back(told, by_quota.count, by_quota.refusal.reason, ways, waits=waits)
        # Quotas are asked last: what refuses the pods comes before them, and they come next.
        told = replace(told, reasons=distinct([by_quota.refusal.reason, *told.reasons]), remedies=ways)
    if refused is None:
        return told

    def starts(other: Obj) -> bool:
        """Whether the workload has room and quota for its pods if it is written like that."""
        asked = replace(inquiry, remedies=False, found=None)
        is_let_in = _none_yet(told) and unmade(snapshot, other) is None
        return is_let_in and _have_room(without_pods(snapshot, other, asked))

    ways = (
        *missing_object_remedies(refused, confirmed=_have_room(told) and by_quota is None),
        *(allowed_amounts(snapshot, obj, refused, starts) if inquiry.remedies else ()),
        *(remedy.not_enough("its pods can be created") for remedy in told.remedies),
    )
    return _kept_back(told, count, refused, ways, waits=False)


def _with_quota_raised(told: Explanation, refusal: Refusal) -> tuple[Remedy, ...]:
    """First that the quota is raised: who makes the pods then makes those that are missing."""
    added = next((remedy for remedy in told.remedies if remedy.kind == "AddMembers"), None)
    starts = _have_room(told) or (added is not None and added.confirmed)
    return (*refusal.remedy(starts), *(remedy for remedy in told.remedies if remedy is not added))


def _reference(obj: Obj) -> Obj:
    namespace, _, name = namespaced_name(obj).partition("/")
    return {"namespace": namespace, "name": name, "uid": obj["metadata"].get("uid")}


def _have_room(told: Explanation) -> bool:
    """Whether there is room for pods that are not made."""
    return _none_yet(told) and "there is room for" in told.summary


def _none_yet(told: Explanation) -> bool:
    return any(reason.type == "PodsMissing" for reason in told.reasons)


def _kept_back(told: Explanation, count: int, refused: Reason, ways: tuple[Remedy, ...], *, waits: bool) -> Explanation:
    """Also told of the pods that are not made, because they are refused; `waits`: for what comes by itself."""
    verdict, none_yet = told.verdict, _none_yet(told)
    if verdict not in ("Runs", "NeverFits"):
        verdict = "FitsLater" if waits and verdict != "FitsIf" else "FitsIf"
    text = f"{counted(count, 'pod' if none_yet else 'more pod')} not made: {refused.message}"
    summary = text if none_yet else f"{told.summary}; {text}"
    reasons = distinct([refused, *told.reasons] if none_yet else [*told.reasons, refused])
    return replace(told, verdict=verdict, summary=summary, reasons=reasons, remedies=ways)


def _with_refused_members(snapshot: Snapshot, told: Explanation, key: GroupKey, group: Obj | None) -> Explanation:
    """Also told why a gang that lacks members gets no more: its workload's pods are refused."""
    if not any(reason.type == "TooFewMembers" for reason in told.reasons):
        return told
    pods = (snapshot.pods[path].controller for path in sorted(snapshot.group_state(key).all))
    owner = next((found for found in (controller_of(group or {"metadata": {}}), *pods) if found is not None), None)
    if owner is None:
        return told
    maker = snapshot.objects(owner["kind"]).get(f"{key.namespace}/{owner['name']}") if owner["kind"] in MAKERS else None
    by_quota = unmade(snapshot, {**maker, "kind": owner["kind"]}) if maker is not None else None
    refused = refused_creation(snapshot, {**owner, "namespace": key.namespace})
    if by_quota is not None and refused is None:
        refused, ways = by_quota.refusal.reason, _with_quota_raised(told, by_quota.refusal)
    elif refused is not None:
        added = [remedy for remedy in told.remedies if remedy.kind == "AddMembers"]
        rest = (remedy for remedy in told.remedies if remedy not in added)
        ways = (*missing_object_remedies(refused, confirmed=any(remedy.confirmed for remedy in added)), *rest)
    else:
        return told
    text = f"{told.summary}; {owner['kind'].lower()} {owner['name']} cannot create the others: {refused.message}"
    return replace(told, summary=text, reasons=distinct([*told.reasons, refused]), remedies=ways)


def _living(snapshot: Snapshot, obj: Obj, inquiry: Inquiry) -> Explanation:
    uid = obj["metadata"].get("uid")
    own = [
        pod
        for pod in snapshot.pods.values()
        if any(o.get("uid") == uid and o.get("controller") for o in pod.obj["metadata"].get("ownerReferences") or ())
    ]
    if not own:
        return without_pods(snapshot, obj, inquiry)
    pending = sorted((p for p in own if pod_state(snapshot, p) is None), key=lambda p: p.key)
    if not pending:
        return _placed(snapshot, obj, own, inquiry)
    first = pending[0]
    group = snapshot.pod_group(first.group) if first.group is not None else None
    some_run = first.group is not None and bool(snapshot.group_state(first.group).scheduled)
    if first.group is not None and group is not None and some_run and settled_group(snapshot, first.group, group):
        return replace(_group(snapshot, group, inquiry), kind=obj["kind"], name=obj["metadata"]["name"])
    # A gang is decided whole: pods of other Jobs belong to it, too, where a JobSet made both.
    paths = sorted(snapshot.group_state(first.group).unscheduled) if first.group is not None else [first.key.path]
    told = waiting(obj["kind"], obj, snapshot, WorkloadUnit(tuple(paths), first.group), inquiry)
    if first.group is None and len(pending) > 1:
        text = f"{told.summary} (pod {first.key.name}; {len(pending)} of its pods wait, each for itself)"
        told = replace(told, summary=text)
    return told


def _placed(snapshot: Snapshot, obj: Obj, own: Sequence[PodInfo], inquiry: Inquiry) -> Explanation:
    """A workload all of whose pods have their places."""
    states = [state for p in own if (state := pod_state(snapshot, p)) is not None]
    found_verdicts = {verdict for verdict, _ in states}
    verdict: Verdict = next((v for v in ("FitsIf", "Starting") if v in found_verdicts), "Runs")
    problems = [(p, r) for p in own if not p.deleting for r in problems_of(snapshot, p, inquiry.options.now)]
    reasons = distinct([*(r for _, r in problems), *(r for _, found in states for r in found)])
    counts = Counter(r.type for _, found in states for r in found)
    nodes = len({p.node for p in own if p.node})
    text = ", ".join(f"{counted(count, 'pod')} {_STATES.get(kind, kind)}" for kind, count in counts.items())
    where = f" on {counted(nodes, 'node')}" if nodes else ""
    if problems:
        where += f"; pod {problems[0][0].key.name}: {problems[0][1].message}"
    since = min((time for p in own if (time := since_of(p))), default="")
    living = [p for p in own if not p.terminal][:_MOST_HELD]
    holds = {held.claim: held for p in living for held in held_by(snapshot, p)}
    few = tuple(holds.values())[:_MOST_HELD]
    ways = _ways_out(snapshot, problems, inquiry)
    return titled(obj["kind"], obj, verdict, reasons, summary=text + where, since=since, holds=few, remedies=ways)


def _ways_out(snapshot: Snapshot, problems: Sequence[tuple[PodInfo, Reason]], inquiry: Inquiry) -> tuple[Remedy, ...]:
    """What would help pods that have their places; nothing where what they depend on may not be read."""
    if not inquiry.remedies or is_blind(inquiry.unread):
        return ()
    return placed_pod_remedies(snapshot, problems, inquiry.options)


def _claim(snapshot: Snapshot, obj: Obj, inquiry: Inquiry) -> Explanation:
    path = namespaced_name(obj)
    claim = snapshot.claims.get(path) or obj
    users = hypothesis.consumers(snapshot, claim)
    allocation = allocation_of(claim)
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
    reasons += allocated_twice(snapshot, holds)
    waiting_users = [p.key.path for p in _users_that_wait(snapshot, namespaced_name(claim))]
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
        special = extended_resource_claim_use(snapshot, pod)
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
    told = waiting("ResourceClaim", obj, imagined, WorkloadUnit((probe.key.path,)), inquiry)
    unused = Reason("Unused", "no pod uses it: it is allocated when one is scheduled")
    verdict: Verdict = "FitsLater" if told.verdict == "Starting" else told.verdict
    then = "devices for it are free now" if told.verdict == "Starting" else f"then it would wait: {told.summary}"
    return replace(
        told, verdict=verdict, summary=f"{unused.message}; {then}", reasons=distinct([unused, *told.reasons])
    )
