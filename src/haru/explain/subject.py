"""The door: an object of a kind that can be asked about, in any state, becomes an explanation.

What has a place, has ended or goes away is answered from its status; what waits is put to the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from haru.engine.cluster import Snapshot, claim_path
from haru.engine.decision import GroupKey, Obj, Reason
from haru.engine.groups import Options
from haru.engine.pods import PodInfo
from haru.explain import hypothesis
from haru.explain.changes import listed
from haru.explain.explanation import Explanation, Verdict
from haru.explain.funnels import funnels
from haru.explain.held import held, smaller_gang
from haru.explain.judge import distinct, judge
from haru.explain.remedies import remedies
from haru.explain.states import ended_job, pod_state, settled_group
from haru.explain.work import Work, hypothetical_options
from haru.kube.names import parse_time

SubjectKind = Literal["pod", "podgroup", "job", "resourceclaim"]


def explain(
    snapshot: Snapshot,
    kind: SubjectKind,
    obj: Obj,
    related: Sequence[Obj] = (),
    now: str = "",
    *,
    options: Options | None = None,
) -> Explanation:
    """Why an object is as it is, and what would help.

    `related` are pods that matter but are not in the snapshot; `now` (RFC 3339) tells how long it has been waiting.
    Raises ValueError for a kind that cannot be explained.
    """
    told = _explained(snapshot, kind, obj, related, options)
    created = obj["metadata"].get("creationTimestamp")
    if not now or not created or told.verdict == "Runs":
        return told
    return replace(told, age_seconds=max(0, int((parse_time(now) - parse_time(created)).total_seconds())))


def _explained(
    snapshot: Snapshot, kind: SubjectKind, obj: Obj, related: Sequence[Obj], options: Options | None
) -> Explanation:
    settings = hypothetical_options(options)
    for extra in related:
        if extra["kind"] == "Pod" and claim_path(extra) not in snapshot.pods:
            snapshot = hypothesis.with_pods(snapshot, [PodInfo.of(extra)])
    if kind == "pod":
        return _pod(snapshot, obj, settings)
    if kind == "podgroup":
        return _group(snapshot, obj, settings)
    if kind == "job":
        return _job(snapshot, obj, settings)
    if kind == "resourceclaim":
        return _claim(snapshot, obj, settings)
    raise ValueError(f"kind {kind!r} cannot be explained: ask about a pod, podgroup, job or resourceclaim")


def _titled(kind: str, obj: Obj, verdict: Verdict, reasons: Sequence[Reason], **rest: object) -> Explanation:
    namespace, _, name = claim_path(obj).partition("/")
    summary = reasons[0].message if reasons else ""
    return Explanation(kind, namespace, name, verdict, summary, tuple(reasons), **rest)  # type: ignore[arg-type]


def _pod(snapshot: Snapshot, obj: Obj, options: Options) -> Explanation:
    info = snapshot.pods.get(claim_path(obj)) or PodInfo.of(obj)
    if info.key.path not in snapshot.pods:
        snapshot = hypothesis.with_pods(snapshot, [info])
    state = pod_state(snapshot, info)
    if state is not None:
        return _titled("Pod", obj, *state)
    if info.group is not None:
        siblings = tuple(sorted(snapshot.group_state(info.group).unscheduled))
        return _waiting("Pod", obj, snapshot, Work(siblings or (info.key.path,), info.group), options)
    return _waiting("Pod", obj, snapshot, Work((info.key.path,)), options)


def _group(snapshot: Snapshot, obj: Obj, options: Options) -> Explanation:
    key = GroupKey(*claim_path(obj).split("/", 1))
    if snapshot.pod_group(key) is None:
        snapshot = hypothesis.with_pod_group(snapshot, key.path, obj)
    state = settled_group(snapshot, key, obj)
    pending = tuple(sorted(snapshot.group_state(key).unscheduled))
    if state is None:
        return _waiting("PodGroup", obj, snapshot, Work(pending, key), options)
    if not pending:
        return _titled("PodGroup", obj, *state)
    # The quorum has its places: what is said of the members that wait does not change the group's verdict.
    extras = _waiting("PodGroup", obj, snapshot, Work(pending, key), options)
    reasons = distinct([*state[1], *extras.reasons])
    return replace(extras, verdict=state[0], summary=reasons[0].message, reasons=reasons)


def _job(snapshot: Snapshot, obj: Obj, options: Options) -> Explanation:
    ended = ended_job(snapshot, obj)
    if ended is not None:
        return _titled("Job", obj, *ended)
    uid = obj["metadata"].get("uid")
    own = [
        pod
        for pod in snapshot.pods.values()
        if any(o.get("uid") == uid and o.get("controller") for o in pod.obj["metadata"].get("ownerReferences") or ())
    ]
    if not own:
        return _unmade_job(snapshot, obj, options)
    waiting = sorted((p for p in own if pod_state(snapshot, p) is None), key=lambda p: p.key)
    if not waiting:
        states = [state for p in own if (state := pod_state(snapshot, p)) is not None]
        verdict: Verdict = "Starting" if any(v == "Starting" for v, _ in states) else "Runs"
        return _titled("Job", obj, verdict, distinct([r for _, reasons in states for r in reasons]))
    first = waiting[0]
    paths = tuple(p.key.path for p in waiting) if first.group is not None else (first.key.path,)
    return _waiting("Job", obj, snapshot, Work(paths, first.group), options)


def _unmade_job(snapshot: Snapshot, obj: Obj, options: Options) -> Explanation:
    """A job without pods: what would come of the pods that its template describes."""
    namespace, _, name = claim_path(obj).partition("/")
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    count = int(spec.get("parallelism") or 1)
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
    reason = Reason("PodsMissing", f"no pod of job {namespace}/{name} exists yet", {"parallelism": count})
    key = pods[0].group
    paths = tuple(p.key.path for p in pods) if key is not None else (pods[0].key.path,)
    told = _waiting("Job", obj, hypothesis.with_pods(snapshot, pods), Work(paths, key), options)
    if spec.get("suspend"):
        reason = Reason("Suspended", f"job {namespace}/{name} is suspended")
    verdict: Verdict = told.verdict
    if verdict == "Starting":
        verdict = "FitsIf" if spec.get("suspend") else "FitsLater"
    return replace(told, verdict=verdict, summary=reason.message, reasons=distinct([reason, *told.reasons]))


def _claim(snapshot: Snapshot, obj: Obj, options: Options) -> Explanation:
    path = claim_path(obj)
    claim = snapshot.claims.get(path) or obj
    users = hypothesis.consumers(snapshot, claim)
    allocation = (claim.get("status") or {}).get("allocation")
    if claim["metadata"].get("deletionTimestamp"):
        message = f"resource claim {path} is being deleted; it goes once nobody uses it"
        state = Reason("Terminating", message, {"users": [p.key.path for p in users]})
        return _titled("ResourceClaim", obj, "Runs" if users else "FitsIf", (state,))
    if allocation:
        results = (allocation.get("devices") or {}).get("results") or ()
        devices = [f"{r['driver']}/{r['pool']}/{r['device']}" for r in results]
        data = {"devices": devices, "users": [p.key.path for p in users]}
        text = f"allocated: {listed(devices) or 'no devices'}"
        reasons = [Reason("Allocated", text, data)]
        if not users:
            reasons.append(Reason("Unused", "no living pod uses it", {}))
        return _titled("ResourceClaim", obj, "Runs", reasons)
    waiting = _first_user(snapshot, path)
    if waiting is not None:
        return replace(_pod(snapshot, waiting.obj, options), kind="ResourceClaim", name=path.partition("/")[2])
    return _unused_claim(snapshot, obj, claim, path, options)


def _first_user(snapshot: Snapshot, path: str) -> PodInfo | None:
    namespace, _, name = path.partition("/")
    for key in sorted(snapshot.pods):
        pod = snapshot.pods[key]
        made = {s.get("resourceClaimName") for s in pod.status.get("resourceClaimStatuses") or ()}
        named = {entry.claim_name for entry in pod.claims}
        if pod.key.namespace == namespace and name in made | named and not (pod.terminal or pod.node):
            return pod
    return None


def _unused_claim(snapshot: Snapshot, obj: Obj, claim: Obj, path: str, options: Options) -> Explanation:
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
    told = _waiting("ResourceClaim", obj, imagined, Work((probe.key.path,)), options)
    unused = Reason("Unused", "no pod uses it: it is allocated when one is scheduled")
    verdict: Verdict = "FitsLater" if told.verdict == "Starting" else told.verdict
    return replace(told, verdict=verdict, summary=unused.message, reasons=distinct([unused, *told.reasons]))


def _waiting(kind: str, obj: Obj, snapshot: Snapshot, work: Work, options: Options) -> Explanation:
    hold = work.hold(snapshot)
    if hold is not None:
        verdict, reasons, ways = held(snapshot, work, hold, options)
        other = smaller_gang(snapshot, work, options) if hold.type == "TooFewMembers" else None
        return _titled(kind, obj, verdict, reasons, remedies=(*ways, *((other,) if other else ())))
    judgement = judge(snapshot, work, options)
    if judgement.verdict == "Starting":
        return _titled(kind, obj, "Starting", judgement.reasons)
    group = work.pod_group(snapshot)
    shown, details = funnels(judgement.refusal, group, options) if judgement.refusal is not None else ((), ())
    ways_out = remedies(snapshot, work, options)
    mendable = judgement.verdict == "NeverFits" and any(remedy.kind == "LabelNodes" for remedy in ways_out)
    expected: Verdict = "FitsIf" if mendable else judgement.verdict
    reasons = distinct([*judgement.reasons, *details])
    return _titled(kind, obj, expected, reasons, nodes=judgement.nodes, requests=shown, remedies=ways_out)
