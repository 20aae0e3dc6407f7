"""Work that is not tried yet: gates, missing PodGroups, gangs that are not complete, claims that are not there.

What is missing is supplied hypothetically; the verdict then says what would come of it.
Source: the PreEnqueue checks of KEP-3521, KEP-4671 and KEP-4381.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from haru.engine import Options, Reason, Snapshot
from haru.engine.podgroup import required_members
from haru.engine.state import GroupKey, PodInfo, namespaced_name
from haru.explain import hypothesis
from haru.explain.changes import create, delete, listed, patch, pod_manifest, replacement
from haru.explain.diagnosis import quotas
from haru.explain.diagnosis.verdict import verdict_of
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy, Verdict
from haru.explain.remedies import near_names
from haru.explain.remedies.makers import told_by
from haru.gangs import (
    KINDS,
    KUEUE_LOCAL_QUEUE,
    KUEUE_WORKLOAD,
    MIN_COUNT,
    asks_too_much,
    is_foreign_group,
    is_translated,
    kueue_hold,
    title_of,
)
from haru.kube.meta import Obj, controller_of

_MOST_STEPS = 4
_UNKNOWN = "its content is for its author to say, so this could not be tried"


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict on held work. `snapshot` and `work` are as they would be without the hold; `blocked` says that it
    would wait even then."""

    verdict: Verdict
    reasons: tuple[Reason, ...]
    remedies: tuple[Remedy, ...]
    snapshot: Snapshot | None
    work: WorkloadUnit
    blocked: bool = True


def explain_gated(snapshot: Snapshot, work: WorkloadUnit, hold: Reason, options: Options) -> Answer:
    """The verdict on work that is held, and what would release it."""
    supply = _SUPPLIES.get(hold.type)
    supplied = supply(snapshot, work, hold) if supply is not None else None
    meant = tuple(_corrections(snapshot, work, hold, options))
    if supplied is None:
        return Answer("FitsIf", (hold,), (*meant, *_unproven(hold)), None, work)
    remedy, by_itself = supplied[2], supplied[3]
    kept_back = _refused_claim(snapshot, work) if hold.type == "ClaimNotCreated" else None
    verdict, reasons, then, released = _afterwards(supplied[0], supplied[1], options)
    starts = verdict == "Starting"
    if remedy is not None and "kueue" not in hold.data:
        remedy = replace(remedy, confirmed=starts)
    if verdict != "NeverFits":
        verdict = "FitsLater" if by_itself else "FitsIf"
    ways = (*meant, *((remedy,) if remedy is not None else ()))
    if kept_back is not None:
        if verdict != "NeverFits" and not kept_back.can_wait:
            verdict = "FitsIf"
        more = kept_back.remedy(starts)
        return Answer(verdict, (kept_back.reason, hold, *reasons), (*more, *ways), then, released, not starts)
    return Answer(verdict, (hold, *reasons), ways, then, released, not starts)


def _corrections(snapshot: Snapshot, work: WorkloadUnit, hold: Reason, options: Options) -> Iterator[Remedy]:
    """What was probably meant by a name that nothing has."""
    for correction in near_names.of_hold(snapshot, work, hold):
        verdict = _afterwards(correction.snapshot, correction.work, options)[0]
        yield correction.remedy(verdict == "Starting")


def _refused_claim(snapshot: Snapshot, work: WorkloadUnit) -> quotas.Refusal | None:
    """Why a claim is not made: a quota has no room for it."""
    generated = with_generated_claims(snapshot, work.pending(snapshot))
    claims = list(generated[1].values()) if generated is not None else []
    # What members have already is not given back before all have theirs.
    members = {pod.key.uid for pod in work.pods(snapshot)} if work.group is not None else set()
    have = [one for one in snapshot.claims.values() if (controller_of(one) or {}).get("uid") in members]
    for claim in claims:
        at_once = sum(one["spec"] == claim["spec"] for one in (*claims, *have)) if members else 1
        refused = quotas.refusal(snapshot, claim, [(one, 1) for one in claims], at_once)
        if refused is not None:
            return refused
    return None


def _unproven(hold: Reason) -> tuple[Remedy, ...]:
    """What has to come from its author, so that nothing can be tried."""
    if hold.type == "ClaimMissing":
        return (Remedy("CreateClaim", f"create ResourceClaim {hold.data['claim']}", (), 1, False, _UNKNOWN),)
    if hold.type == "ClaimNotCreated" and hold.data.get("template"):
        text = f"create ResourceClaimTemplate {hold.data['template']}"
        return (Remedy("CreateClaimTemplate", text, (), 1, False, _UNKNOWN),)
    if hold.type == "GangSchedulingOff":
        text = "turn on the gates GenericWorkload and GangScheduling of the scheduler (--feature-gates)"
        return (Remedy("TurnOnGates", text, (), 1, False, "the scheduler is started anew, so this could not be tried"),)
    return ()


Supplied = tuple[Snapshot, WorkloadUnit, Remedy | None, bool]


After = tuple[Verdict, tuple[Reason, ...], Snapshot, WorkloadUnit]


def _afterwards(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> After:
    """What would come of it: other holds may follow the first, and are supplied too."""
    for _ in range(_MOST_STEPS):
        hold = work.hold(snapshot)
        if hold is None:
            judgement = verdict_of(snapshot, work, options)
            reasons = tuple(r for r in judgement.reasons if r.type != "Waiting")
            return judgement.verdict, reasons, snapshot, work
        supply = _SUPPLIES.get(hold.type)
        supplied = supply(snapshot, work, hold) if supply is not None else None
        if supplied is None:
            return "FitsIf", (hold,), snapshot, work
        snapshot, work = supplied[0], supplied[1]
    return "FitsIf", (), snapshot, work


def _ungated(snapshot: Snapshot, work: WorkloadUnit, hold: Reason) -> Supplied | None:
    gated = [pod for pod in work.pending(snapshot) if pod.gated]
    freed = [PodInfo.of({**p.obj, "spec": {**p.spec, "schedulingGates": []}}) for p in gated]
    changes = tuple(patch("v1", "Pod", p.key.name, {"spec": {"schedulingGates": None}}, p.key.namespace) for p in gated)
    if "kueue" in hold.data:
        # Kueue takes its gates away when it admits the Workload; who does that by hand takes quota from others.
        held = hold.data["kueue"]
        ends = "active" not in held and not asks_too_much(held["state"])
        return hypothesis.with_pods(snapshot, freed), work, _activation(gated, hold), ends
    remedy = Remedy("RemoveGates", "remove the scheduling gates", changes, 0, False)
    return hypothesis.with_pods(snapshot, freed), work, remedy, False


def _activation(gated: Sequence[PodInfo], hold: Reason) -> Remedy | None:
    """To activate a Workload that is not active; Kueue then still has to reserve quota for it."""
    held = hold.data["kueue"]
    if "active" not in held or not held["workload"]:
        return None
    version = f"{KUEUE_WORKLOAD.group}/{KUEUE_WORKLOAD.versions[0]}"
    change = patch(version, "Workload", held["workload"], {"spec": {"active": True}}, gated[0].key.namespace)
    costs = "Kueue then still has to reserve quota for it"
    return Remedy("Resume", f"activate Workload {held['workload']} of Kueue", (change,), 1, False, costs)


def _with_group(snapshot: Snapshot, work: WorkloadUnit, hold: Reason) -> Supplied | None:
    pods = work.pending(snapshot)
    key = pods[0].group
    if key is None:
        return None
    group: Obj = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"namespace": key.namespace, "name": key.name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": len(snapshot.group_state(key).all) or 1}}},
    }
    kind, name = title_of(key.name)
    if kind != "PodGroup":
        # The object made these pods: nobody makes it by hand.
        return hypothesis.with_pod_group(snapshot, key.path, group), WorkloadUnit(work.paths, key), None, False
    made = group
    if is_foreign_group(key.name):
        members = {"minMember": len(snapshot.group_state(key).all) or 1}
        made = {**_COSCHEDULING, "metadata": {"namespace": key.namespace, "name": name}, "spec": members}
    remedy = Remedy("CreatePodGroup", f"create {group_text(key.path)}", (create(made),), 1, False)
    return hypothesis.with_pod_group(snapshot, key.path, group), WorkloadUnit(work.paths, key), remedy, False


def _with_members(snapshot: Snapshot, work: WorkloadUnit, hold: Reason) -> Supplied | None:
    group, pods = work.pod_group(snapshot), work.pending(snapshot)
    if group is None or work.group is None or not pods:
        return None
    missing = int(hold.data["minCount"]) - int(hold.data["members"])
    larger, added = _copies(snapshot, pods[-1], missing)
    text = f"create {missing} more {'pod' if missing == 1 else 'pods'} of {group_text(work.group.path)}"
    made = tuple(create(pod_manifest(larger.pods[path].obj)) for path in added)
    raised = quotas.limits_for_more(snapshot, pods[-1], missing)
    if raised:
        first, changes = quotas.raise_quotas(work.group.namespace, raised)
        remedy = Remedy("AddMembers", f"{first}, {text}", (*changes, *made), missing, False, quotas.RAISED_COSTS)
    else:
        remedy = Remedy("AddMembers", text, made, missing, False)
    return larger, WorkloadUnit((*work.paths, *added), work.group), remedy, False


_COSCHEDULING = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}


def group_text(path: str) -> str:
    """A group's kind and path, in words: of the coscheduling plugin's PodGroup with its API group."""
    namespace, _, name = path.partition("/")
    kind, own = title_of(name)
    known = is_foreign_group(name) and kind == "PodGroup"
    return f"{kind}{' (scheduling.x-k8s.io)' if known else ''} {namespace}/{own}"


def with_kueue(snapshot: Snapshot, work: WorkloadUnit, hold: Reason) -> Reason:
    """Add to what gates hold what Kueue says of it, if it is Kueue that holds it."""
    gated = next((pod for pod in work.pending(snapshot) if pod.gated), None) if hold.type == "Gated" else None
    if gated is None:
        return hold
    makers = ("Job", "StatefulSet", *(kind.key for kind in KINDS))
    owners = (obj for kind in makers for obj in snapshot.objects(kind).values())
    queues = snapshot.objects(KUEUE_LOCAL_QUEUE.key).values()
    held = kueue_hold(gated.obj, snapshot.objects(KUEUE_WORKLOAD.key).values(), owners, queues)
    if held is None:
        return hold
    kueue: dict[str, object] = {"workload": held.workload, "state": held.state, "queue": held.queue}
    kueue |= {"clusterQueue": held.cluster_queue} if held.cluster_queue else {}
    kueue |= {} if held.is_active else {"active": False}
    return Reason(hold.type, hold.message, {**hold.data, "kueue": kueue})


def kueue_text(data: Mapping[str, Any]) -> str:
    """Why Kueue holds work, in one sentence."""
    held = data["kueue"]
    workload = f", see Workload {held['workload']}" if held["workload"] else ""
    above = f" of ClusterQueue {held['clusterQueue']}" if held.get("clusterQueue") else ""
    queue = f" (queue {held['queue']}{above})" if held["queue"] else ""
    return f"Kueue holds it{workload}{queue}: {held['state']}; gates: {', '.join(data['gates'])}"


def _lower_foreign(group: Obj, count: int, before: int, confirmed: bool) -> Remedy:
    """The same for a gang of another project: in its PodGroup, or by an annotation of the pod template."""
    namespace, name = group["metadata"]["namespace"], group["metadata"]["name"]
    kind, own = title_of(name)
    text = f"let the gang start with {count} of the {before} members that it needs now"
    costs = f"the work runs without {before - count} of its members until there is room"
    if kind == "PodGroup":
        change = patch(_COSCHEDULING["apiVersion"], kind, own, {"spec": {"minMember": count}}, namespace)
        return Remedy("LowerMinCount", f"{text} (minMember {count})", (change,), 15 + before - count, confirmed, costs)
    told = f'{costs}; its pod template has to say so, by the annotation {MIN_COUNT}: "{count}"'
    return Remedy("LowerMinCount", text, (), 15 + before - count, confirmed, told)


def _copies(snapshot: Snapshot, model: PodInfo, count: int) -> tuple[Snapshot, list[str]]:
    """Members like one that exists, with claims of their own where it has claims of its own."""
    pods: list[PodInfo] = []
    claims: dict[str, Obj] = {}
    for number in range(1, count + 1):
        name, uid = f"{model.key.name}-more-{number}", f"{model.key.uid}-more-{number}"
        meta = {**model.obj["metadata"], "name": name, "uid": uid}
        statuses = []
        for entry in model.status.get("resourceClaimStatuses") or ():
            own = snapshot.claims.get(f"{model.key.namespace}/{entry.get('resourceClaimName')}")
            if own is None or _owner(own) != model.key.uid:
                statuses.append(entry)
                continue
            claim = _own_claim(own, name, uid)
            claims[f"{model.key.namespace}/{claim['metadata']['name']}"] = claim
            statuses.append({**entry, "resourceClaimName": claim["metadata"]["name"]})
        status = {**model.status, "resourceClaimStatuses": statuses}
        pods.append(PodInfo.of({**model.obj, "metadata": meta, "status": status}))
    larger = hypothesis.with_claims(hypothesis.with_pods(snapshot, pods), claims)
    return larger, [pod.key.path for pod in pods]


def _owner(claim: Obj) -> str | None:
    owners = [o for o in claim["metadata"].get("ownerReferences") or () if o.get("controller")]
    return owners[0].get("uid") if owners else None


def _own_claim(claim: Obj, pod: str, uid: str) -> Obj:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": True}
    meta = {
        "namespace": claim["metadata"].get("namespace") or "default",
        "name": f"{claim['metadata']['name']}-for-{pod}",
        "uid": f"{claim['metadata'].get('uid')}-for-{pod}",
        "ownerReferences": [owner],
    }
    return {"apiVersion": claim["apiVersion"], "kind": claim["kind"], "metadata": meta, "spec": claim["spec"]}


def _with_generated_claims(snapshot: Snapshot, work: WorkloadUnit, hold: Reason) -> Supplied | None:
    generated = with_generated_claims(snapshot, work.pending(snapshot))
    return (generated[0], work, None, True) if generated is not None else None


def with_generated_claims(snapshot: Snapshot, waiting: Iterable[PodInfo]) -> tuple[Snapshot, dict[str, Obj]] | None:
    """As if the claims existed that the controller makes from templates, and these claims; None without a template."""
    claims: dict[str, Obj] = {}
    pods: list[PodInfo] = []
    for pod in waiting:
        done = {entry.get("name") for entry in pod.status.get("resourceClaimStatuses") or ()}
        statuses = list(pod.status.get("resourceClaimStatuses") or ())
        for entry in pod.claims:
            if not entry.template_name or entry.name in done:
                continue
            template = snapshot.objects("ResourceClaimTemplate").get(f"{pod.key.namespace}/{entry.template_name}")
            if template is None:
                return None
            claim = _from_template(template, pod, entry.name)
            claims[f"{pod.key.namespace}/{claim['metadata']['name']}"] = claim
            statuses.append({"name": entry.name, "resourceClaimName": claim["metadata"]["name"]})
        pods.append(PodInfo.of({**pod.obj, "status": {**pod.status, "resourceClaimStatuses": statuses}}))
    return hypothesis.with_claims(hypothesis.with_pods(snapshot, pods), claims), claims


def _from_template(template: Obj, pod: PodInfo, entry: str) -> Obj:
    name = f"{pod.key.name}-{entry}-hypothetical"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.key.name, "uid": pod.key.uid, "controller": True}
    meta = {"namespace": pod.key.namespace, "name": name, "uid": name, "ownerReferences": [owner]}
    spec = (template.get("spec") or {}).get("spec") or {}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta, "spec": spec}


_SUPPLIES: dict[str, Callable[[Snapshot, WorkloadUnit, Reason], Supplied | None]] = {
    "Gated": _ungated,
    "PodGroupMissing": _with_group,
    "TooFewMembers": _with_members,
    "ClaimNotCreated": _with_generated_claims,
}


def smaller_gang(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> Remedy | None:
    """The other way out for a gang that lacks members: to need no more than there are."""
    if work.group is None:
        return None
    group, living = work.pod_group(snapshot), len(snapshot.group_state(work.group).all)
    if group is None or not living:
        return None
    spec = {**group["spec"], "schedulingPolicy": {"gang": {"minCount": living}}}
    fits = work.fits(hypothesis.with_pod_group(snapshot, work.group.path, {**group, "spec": spec}), options)
    return lower_min_count(snapshot, group, spec, living, fits)


def lower_min_count(snapshot: Snapshot, group: Obj, spec: Obj, count: int, confirmed: bool) -> Remedy:
    """A gang that starts with fewer members: what it gives up is the other members at the start.

    A PodGroup's policy cannot be changed, and it stays as long as it has pods: all of it is made again.
    """
    before = required_members(group)
    if is_translated(group):
        return _lower_foreign(group, count, before, confirmed)
    text = f"let the gang start with {count} of the {before} members that it needs now (minCount {count})"
    costs = (
        f"the work runs without {before - count} of its members until there is room; the PodGroup is made again with "
        "its pods, because its policy cannot be changed"
    )
    changes = remade_group(snapshot, group, spec)
    risk = risk_of_quotas(snapshot, group)
    return Remedy("LowerMinCount", text, changes, 15 + before - count, confirmed and not risk, costs + risk)


def risk_of_quotas(snapshot: Snapshot, group: Obj) -> str:
    """That quotas let the pods of a group in again only if nobody takes what these give back, as the end of costs."""
    key = GroupKey(*namespaced_name(group).split("/", 1))
    pods = [snapshot.pods[path] for path in sorted(snapshot.group_state(key).all)]
    full = sorted(quotas.limits_for_more(snapshot, pods[0], len(pods))) if pods else []
    if not full:
        return ""
    return f"; quota {listed(full)} may be given to other work while the pods are gone, and has no room besides"


def remade_group(snapshot: Snapshot, group: Obj, spec: Obj) -> tuple[Obj, ...]:
    """How a PodGroup becomes like that: it stays as long as it has pods, so those are made again with it.

    A Job is suspended meanwhile: it would count each pod that is deleted as a failure, and give up.
    """
    key = GroupKey(*namespaced_name(group).split("/", 1))
    pods = [snapshot.pods[path] for path in sorted(snapshot.group_state(key).all)]
    makers = {(str(owner["kind"]), str(owner["name"])) for pod in pods if (owner := pod.controller) is not None}
    if len(makers) == 1 and all(pod.controller is not None for pod in pods):
        [(kind, name)] = makers
        job = snapshot.objects(kind).get(f"{key.namespace}/{name}") if kind == "Job" else None
        if job is not None and not told_by(job, kind):
            paused, resumed = (
                patch("batch/v1", "Job", name, {"spec": {"suspend": value}}, key.namespace) for value in (True, False)
            )
            return (paused, *replacement(group, spec, owned=True), resumed)
    changes = [delete("v1", "Pod", pod.key.name, pod.key.namespace) for pod in pods]
    again = [create(pod_manifest(pod.obj)) for pod in pods if pod.controller is None]
    return (*changes, *replacement(group, spec), *again)
