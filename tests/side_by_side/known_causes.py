"""Known causes of other decisions: would Haru decide as kube-scheduler did if it saw one thing as that does?

A cause explains a difference only if the decision in such a world is exactly what was seen.
Source: kube-scheduler 1.36's preemption (of a pod, and of a group) and DynamicResources, as behaviour.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

from decided_situations import (
    Situation,
    name,
    named_claims,
    with_counters_lost,
    with_devices_kept,
    with_distinct_devices,
    with_lists_ignored,
    with_mapped_claims_free,
)
from decision_verdicts import MESSAGES, Outcome, differences, plain
from manifests import Obj
from random_profiles import DEFAULT, profiles
from random_volumes import volume_claims_of

_CONSTRAINED = re.compile(
    r"claim \S+/(\S+), request \S+: cannot add device [^/]+/(\S+)/(\S+) because a claim constraint"
)
_MOST_DEVICES = 8


Decide = Callable[[Situation], Sequence[Outcome]]


def cause_of(
    found: Collection[str], seen: Outcome, expected: Sequence[Outcome], situation: Situation, decide: Decide
) -> str:
    """The cause for which kube-scheduler may have decided what it did; empty if there is none."""
    if refuses_domains(seen, expected, situation, decide):
        return "domains"
    if loses_shared_claim(seen, situation, decide):
        return "shared"
    if asks_for_ignored(seen, situation):
        return "ignored"
    if frees_elsewhere(seen, expected, situation, decide):
        return "elsewhere"
    if waits_on_a_node(seen, expected, situation):
        return "waits"
    if MESSAGES.issuperset(found) and tells_of_domains(seen, situation, decide):
        return "domain"
    if MESSAGES.issuperset(found) and any(_decides(seen, one, decide) for one in nodes_alone(seen, situation)):
        return "any node"
    if MESSAGES.issuperset(found) and tells_of_distinct(seen, expected, situation, decide):
        return "distinct"
    worlds: dict[str, Callable[[Situation], Situation | None]] = {
        "others first": with_others_decided,
        "lists": with_lists_ignored,
        "distinct": partial(with_distinct_devices, chosen=seen.devices),
        "mapped": with_mapped_claims_free,
        "promised": with_promised_places_taken,
        "rules": with_rules_of_promised_ignored,
        "together": with_claims_used_together,
    }
    if {"victims", "nominated", "words of preemption"}.intersection(found) and not any(seen.bound.values()):
        worlds |= {"ending": with_ending_pods_staying}
    if {"victims", "nominated"}.intersection(found) and not any(seen.bound.values()):
        worlds |= {"whole": with_members_alone}
        worlds |= {"sole use": with_sole_users_kept, "evicts for devices": with_devices_kept}
    worlds["more"] = without_search
    ending = [name(pod) for pod in _running(situation) if _ends(pod)]
    several = situation
    for cause, made in worlds.items():
        world = made(situation)
        if world is not None and _decides(seen, world, decide, ending):
            return cause
        several = made(several) or several
    if several is not situation and _decides(seen, several, decide, ending):
        return "several"
    repeated = with_distinct_devices(situation, seen.devices, spares_others=False)
    if repeated is not None and _decides(seen, repeated, decide, ending):
        return "distinct"
    if any(_decides(seen, one, decide, ending) for one in with_counters_lost(situation)):
        return "counters"
    if "victims" not in found:
        return ""
    made_for = {"quorum": quorums(situation, seen), "extras": extras(situation, seen)}
    return next((cause for cause, made in made_for.items() if any(_frees(seen, one, decide) for one in made)), "")


def _decides(seen: Outcome, world: Situation, decide: Decide, ending: Collection[str] = ()) -> bool:
    """Whether a decision in this world is what was seen; who was `ending` is deleted already."""
    found = [replace(one, victims=[each for each in one.victims if each not in ending]) for one in decide(world)]
    promised = with_promised_places_taken(world) is not None
    return set(differences(seen, found, world.group is not None, promised)) <= {"summary"}


def _frees(seen: Outcome, world: Situation, decide: Decide) -> bool:
    return any(sorted(one.victims) == sorted(seen.victims) for one in decide(world))


# -- single pods ------------------------------------------------------------------------------------------------------


def frees_elsewhere(seen: Outcome, expected: Sequence[Outcome], situation: Situation, decide: Decide) -> bool:
    """Whether no single node can be freed for a pod, and Haru evicts pods of several, or of another one, or waits."""
    if situation.group is not None or not all(one.nominates for one in expected):
        return False
    nodes = [name(one) for one in situation.objects if one["kind"] == "Node"]
    alone = ((node, one) for node in nodes for one in decide(nobody_goes(situation, but_on=node)))
    if any(each.nominated == node for node, one in alone for each in one.pods.values()):
        return False
    return _refuses(seen, nobody_goes(situation), decide)


def nobody_goes(situation: Situation, but_on: str = "") -> Situation:
    """All running pods stay, those that are being deleted, too; but for those on one node."""
    return _with_pods(situation, lambda pod: pod if pod["spec"]["nodeName"] == but_on else _kept(_staying(pod)))


def _refuses(seen: Outcome, world: Situation, decide: Decide) -> bool:
    """Whether what was seen is a refusal in this world, whatever is said of preemption."""
    if seen.victims or any(one.node or one.nominated for one in seen.pods.values()):
        return False
    words = {"summary", "words of preemption"}
    return words.issuperset(differences(seen, decide(world), world.group is not None))


def waits_on_a_node(seen: Outcome, expected: Sequence[Outcome], situation: Situation) -> bool:
    """Whether kube-scheduler evicted nobody for a pod because one that is less important ends where it is nominated."""
    told = all(one.message.endswith("a terminating pod on the nominated node.") for one in seen.pods.values())
    if situation.group is not None or seen.victims or not told or any(any(one.bound.values()) for one in expected):
        return False
    (pod,) = situation.pods
    here = [one for one in _running(situation) if one["spec"]["nodeName"] == pod["status"].get("nominatedNodeName")]
    return any(_ends(one) and _priority(one) < _priority(pod) for one in here)


def nodes_alone(seen: Outcome, situation: Situation) -> Iterator[Situation]:
    """Each node without the others, where an error of one ended the attempt: they are filtered side by side."""
    if any("nodes are available" in one.message for one in seen.pods.values()):
        return
    nodes = {name(one) for one in situation.objects if one["kind"] == "Node"}
    for node in sorted(nodes):
        gone = nodes - {node}
        yield replace(situation, objects=[one for one in situation.objects if _node_of(one) not in gone])


# -- groups -----------------------------------------------------------------------------------------------------------


def without_search(situation: Situation) -> Situation | None:
    """Each member of a gang takes the first place, as if there were no other."""
    return replace(situation, searches=False) if situation.group is not None else None


def refuses_domains(seen: Outcome, expected: Sequence[Outcome], situation: Situation, decide: Decide) -> bool:
    """Whether kube-scheduler evicted nobody for a group because it is bounded to a domain."""
    bounded = situation.group is not None and "schedulingConstraints" in situation.group["spec"]
    texts = [one.message for one in seen.pods.values() if plain(one.message, grouped=True) != "about the group"]
    told = all(text.endswith("placement-based pod group scheduling limitation") for text in texts)
    if not (bounded and texts and told and any(one.victims for one in expected)):
        return False
    stays = nobody_goes(situation)
    return not seen.victims and (_refuses(seen, stays, decide) or tells_of_domains(seen, stays, decide))


def tells_of_domains(seen: Outcome, situation: Situation, decide: Decide) -> bool:
    """Whether each message is one about some domain; several attempts may have told of several."""
    outcomes = [one for world in domains(situation) for one in decide(world)]
    told = {plain(one.message, grouped=True) for outcome in outcomes for one in outcome.pods.values()}
    return all(plain(one.message, grouped=True) in told for one in seen.pods.values())


def domains(situation: Situation) -> Iterator[Situation]:
    """Each domain to which the group may be bounded, as if there were no other nodes, or none in a domain."""
    constraints = situation.group["spec"].get("schedulingConstraints") if situation.group is not None else None
    if situation.group is None or constraints is None:
        return
    key, spec = constraints["topology"][0]["key"], situation.group["spec"]
    group = {**situation.group, "spec": {each: spec[each] for each in spec if each != "schedulingConstraints"}}
    nodes = {name(one): one["metadata"]["labels"].get(key) for one in situation.objects if one["kind"] == "Node"}
    for value in sorted({value for value in nodes.values() if value}):
        gone = {node for node, its in nodes.items() if its != value}
        objects = [group if one is situation.group else one for one in situation.objects if _node_of(one) not in gone]
        yield Situation(objects, situation.pods, group)
        outside = [
            _unlabelled(one, key) if one["kind"] == "Node" and name(one) in gone else one for one in situation.objects
        ]
        yield Situation(outside, situation.pods, situation.group)


def _unlabelled(node: Obj, key: str) -> Obj:
    labels = {label: value for label, value in node["metadata"]["labels"].items() if label != key}
    return {**node, "metadata": {**node["metadata"], "labels": labels}}


def _node_of(one: Obj) -> str:
    found: str = name(one) if one["kind"] == "Node" else one.get("spec", {}).get("nodeName") or ""
    return found


def with_sole_users_kept(situation: Situation) -> Situation | None:
    """Nobody who uses a ReadWriteOncePod claim of a member may go: the claim counts as used anyway."""
    claims = (one for one in situation.objects if one["kind"] == "PersistentVolumeClaim")
    sole = {name(one) for one in claims if "ReadWriteOncePod" in one["spec"]["accessModes"]}
    wanted = sole.intersection(claim for pod in situation.pods for claim in volume_claims_of(pod))
    users = {name(pod) for pod in _running(situation) if wanted.intersection(volume_claims_of(pod))}
    if situation.group is None or not users:
        return None
    return _with_pods(situation, lambda pod: _kept(pod) if name(pod) in users else pod)


def with_claims_used_together(situation: Situation) -> Situation | None:
    """Members that are placed together may all have a claim that is for one pod."""
    used = Counter(claim for pod in situation.pods for claim in set(volume_claims_of(pod)))
    several = {claim for claim, pods in used.items() if pods > 1}

    def shared(one: Obj) -> Obj:
        if one["kind"] != "PersistentVolumeClaim" or name(one) not in several:
            return one
        return {**one, "spec": {**one["spec"], "accessModes": ["ReadWriteOnce"]}}

    objects = [shared(one) for one in situation.objects]
    return Situation(objects, situation.pods, situation.group) if situation.group is not None and several else None


def quorums(situation: Situation, seen: Outcome) -> Iterator[Situation]:
    """Each quorum alone: a reprieve asks for no more members than that."""
    if situation.group is None or not seen.victims:
        return
    policy = situation.group["spec"]["schedulingPolicy"]
    count = policy["gang"]["minCount"] if "gang" in policy else 1
    for chosen in itertools.combinations(situation.pods, count) if count < len(situation.pods) else ():
        left = {name(pod) for pod in situation.pods} - {name(pod) for pod in chosen}
        objects = [one for one in situation.objects if one["kind"] != "Pod" or name(one) not in left]
        yield Situation(objects, chosen, situation.group)


def extras(situation: Situation, seen: Outcome) -> Iterator[Situation]:
    """Members without a place, if the quorum were not met by the others, which run."""
    running = [pod for pod in situation.pods if seen.pods[name(pod)].node]
    waiting = [pod for pod in situation.pods if pod not in running]
    if situation.group is None or not (running and waiting and situation.placed):
        return
    for count in range(1, len(waiting) + 1):
        policy = {"schedulingPolicy": {"gang": {"minCount": len(running) + count}}}
        group = {**situation.group, "spec": situation.group["spec"] | policy}
        for chosen in itertools.combinations(waiting, count):
            gone = [situation.group, *(pod for pod in waiting if pod not in chosen)]
            objects = [one for one in situation.objects if one not in gone]
            yield Situation([*_with_later(objects, situation.placed), group], chosen, group)


def with_members_alone(situation: Situation) -> Situation | None:
    """Members of running groups may be evicted one by one, as kube-scheduler does for a single pod."""
    groups = [one for one in situation.objects if one["kind"] == "PodGroup"]
    if situation.group is not None or not any(one["spec"].get("disruptionMode") == "PodGroup" for one in groups):
        return None
    alone = [{**one, "spec": {**one["spec"], "disruptionMode": "Pod"}} for one in groups]
    others = [one for one in situation.objects if one["kind"] != "PodGroup"]
    return Situation([*others, *alone], situation.pods, None)


# -- others in the queue ----------------------------------------------------------------------------------------------


def with_others_decided(situation: Situation) -> Situation | None:
    """Pods that were woken, too, have the places that they got: any unit may be the first."""
    if not situation.others:
        return None
    return replace(situation, objects=_with_later(situation.objects, situation.others), others=())


def _with_later(objects: Sequence[Obj], later: Sequence[Obj]) -> list[Obj]:
    known = set(map(_identity, later))
    return [*(one for one in objects if _identity(one) not in known), *later]


def _identity(one: Obj) -> tuple[str, str]:
    return one["kind"], name(one)


# -- promised places --------------------------------------------------------------------------------------------------


def with_promised_places_taken(situation: Situation) -> Situation | None:
    """Pods that are nominated and not less important are on their nodes now, beside the victims."""
    priority = _priority(situation.group or situation.pods[0])
    asked = {name(pod) for pod in situation.pods}
    promised = {
        name(one): one["status"]["nominatedNodeName"]
        for one in situation.objects
        if one["kind"] == "Pod" and not one["spec"].get("nodeName") and one["status"].get("nominatedNodeName")
        if _priority(one) >= priority and name(one) not in asked
    }
    objects = [
        {**one, "spec": {**one["spec"], "nodeName": promised[name(one)]}}
        if one["kind"] == "Pod" and name(one) in promised
        else one
        for one in situation.objects
    ]
    return Situation(objects, situation.pods, situation.group) if promised else None


def with_rules_of_promised_ignored(situation: Situation) -> Situation | None:
    """Pods that are nominated forbid nothing to a pod that has no rules about others."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for pod in situation.pods:
        affinity = pod["spec"].get("affinity") or {}
        if any(required in affinity.get(kind, ()) for kind in ("podAffinity", "podAntiAffinity")):
            return None

    def silent(one: Obj) -> Obj:
        if one["kind"] != "Pod" or one["spec"].get("nodeName") or not one["status"].get("nominatedNodeName"):
            return one
        return {**one, "spec": {key: value for key, value in one["spec"].items() if key != "affinity"}}

    objects = [silent(one) for one in situation.objects]
    return Situation(objects, situation.pods, situation.group) if objects != list(situation.objects) else None


# -- devices ----------------------------------------------------------------------------------------------------------


def loses_shared_claim(seen: Outcome, situation: Situation, decide: Decide) -> bool:
    """Whether members of a gang were not bound because another one had allocated their claim somewhere else."""
    users = Counter(name(claim) for pod in situation.pods for claim in named_claims([pod], situation.objects))
    lost = [f"/{claim} got allocated elsewhere in the meantime" for claim, count in users.items() if count > 1]
    told = [one.message for one in seen.pods.values()]
    if situation.group is None or not any(text.endswith(words) for words in lost for text in told):
        return False
    bound = {pod: one.node for pod, one in seen.pods.items() if one.node}
    # Members change places.
    return any(
        not Counter(bound.values()) - Counter(one.nodes().values()) for one in decide(with_own_claims(situation))
    )


def with_own_claims(situation: Situation) -> Situation:
    """Each member has a claim of its own for each that several share: they look for devices one by one."""
    users = Counter(name(claim) for pod in situation.pods for claim in named_claims([pod], situation.objects))
    shared = {claim for claim, count in users.items() if count > 1}
    pods, claims = list[Obj](), list[Obj]()
    for pod in situation.pods:
        entries = []
        for entry in pod["spec"].get("resourceClaims") or ():
            claim = entry.get("resourceClaimName")
            own = f"{claim}-{name(pod)}"
            entries.append({**entry, "resourceClaimName": own} if claim in shared else entry)
            claims += [_renamed(one, own) for one in situation.objects if claim in shared and _is_claim(one, claim)]
        pods.append({**pod, "spec": {**pod["spec"], "resourceClaims": entries}})
    group = situation.group and {**situation.group, "spec": {**situation.group["spec"], "resourceClaims": []}}
    replaced = {_identity(one) for one in situation.pods} | ({_identity(group)} if group else set())
    others = [one for one in situation.objects if _identity(one) not in replaced]
    return Situation([*others, *claims, *pods, *([group] if group else [])], pods, group)


def _is_claim(one: Obj, claim: str) -> bool:
    return _identity(one) == ("ResourceClaim", claim)


def _renamed(one: Obj, other: str) -> Obj:
    return {**one, "metadata": {**one["metadata"], "name": other, "uid": other}}


def asks_for_ignored(seen: Outcome, situation: Situation) -> bool:
    """Whether DynamicResources refused nodes for a resource that the profile ignores, beside one of devices."""
    told = all(one.node or "cannot fit resource" in one.message for one in seen.pods.values())
    ignored = profiles()[situation.pods[0]["spec"].get("schedulerName", DEFAULT)].ignored.names
    return told and all(any(name in json.dumps(pod["spec"]) for name in ignored) for pod in situation.pods)


def tells_of_distinct(seen: Outcome, expected: Sequence[Outcome], situation: Situation, decide: Decide) -> bool:
    """Whether the message names a device whose value only one before the last device has."""
    for _ in range(_MOST_DEVICES):
        told = [found for each in expected[0].pods.values() if (found := _CONSTRAINED.search(each.message))]
        if not told:
            return False
        claim, pool, device = told[0].groups()
        world = with_distinct_devices(situation, {claim: [("", pool, device)]})
        if world is None:
            return False
        if _decides(seen, world, decide):
            return True
        situation, expected = world, decide(world)
    return False


# -- pods that are being deleted --------------------------------------------------------------------------------------


def with_ending_pods_staying(situation: Situation) -> Situation | None:
    """Pods that are being deleted are there as any other: victims that count, also against their budgets."""
    return _with_pods(situation, _staying) if any(map(_ends, _running(situation))) else None


def _staying(pod: Obj) -> Obj:
    meta = {key: value for key, value in pod["metadata"].items() if not key.startswith("deletion")}
    return {**pod, "metadata": meta}


# -- pods -------------------------------------------------------------------------------------------------------------


def _running(situation: Situation) -> list[Obj]:
    return [one for one in situation.objects if one["kind"] == "Pod" and one["spec"].get("nodeName")]


def _ends(pod: Obj) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _with_pods(situation: Situation, change: Callable[[Obj], Obj]) -> Situation:
    """The situation with other running pods."""
    objects = [change(one) if one in _running(situation) else one for one in situation.objects]
    return Situation(objects, situation.pods, situation.group)


def _priority(one: Obj) -> int:
    found: int = one["spec"].get("priority") or 0
    return found


def _kept(pod: Obj) -> Obj:
    return {**pod, "spec": {**pod["spec"], "priority": 1_000_000}}
