"""Known causes of other decisions: would Haru decide as kube-scheduler did if it saw one thing as that does?

A cause explains a difference only if the decision in such a world is exactly what was seen.
Source: kube-scheduler 1.36's preemption (of a pod, and of a group) and DynamicResources, as behaviour.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from decision_verdicts import Outcome, differences
from manifests import Obj
from random_volumes import volume_claims_of

from haru.kube.selectors import label_selector_from

MAPPINGS = "nodeAllocatableResourceMappings"
MARK = "protected-by"
"""The label of pods that have a budget of their own in another world."""


@dataclass(frozen=True)
class Situation:
    """All objects before a decision, and the pods that are decided."""

    objects: Sequence[Obj]
    pods: Sequence[Obj]
    group: Obj | None


Decide = Callable[[Situation], Sequence[Outcome]]


def cause_of(
    found: Collection[str], seen: Outcome, expected: Sequence[Outcome], situation: Situation, decide: Decide
) -> str:
    """The cause for which kube-scheduler may have decided what it did; empty if there is none."""
    if refuses_domains(seen, expected, situation):
        return "domains"
    worlds: dict[str, Callable[[Situation], Situation | None]] = {"mapped": with_mapped_claims_free}
    if "victims" in found and not any(seen.bound.values()):
        worlds |= {"budgets": with_counted_budgets, "whole": with_members_alone}
        worlds |= {} if seen.victims else {"sole use": with_sole_users_kept, "evicts for devices": with_devices_kept}
    for cause, made in worlds.items():
        world = made(situation)
        if world is not None and _decides(seen, world, decide):
            return cause
    quorate = "victims" in found and any(_frees(seen, one, decide) for one in quorums(situation, seen))
    return "quorum" if quorate else ""


def _decides(seen: Outcome, world: Situation, decide: Decide) -> bool:
    return set(differences(seen, decide(world), world.group is not None)) <= {"summary"}


def _frees(seen: Outcome, world: Situation, decide: Decide) -> bool:
    return any(sorted(one.victims) == sorted(seen.victims) for one in decide(world))


# -- groups -----------------------------------------------------------------------------------------------------------


def refuses_domains(seen: Outcome, expected: Sequence[Outcome], situation: Situation) -> bool:
    """Whether kube-scheduler evicted nobody for a group because it is bounded to a domain."""
    bounded = situation.group is not None and "schedulingConstraints" in situation.group["spec"]
    told = all(one.message.endswith("placement-based pod group scheduling limitation") for one in seen.pods.values())
    return bounded and told and not seen.victims and any(one.victims for one in expected)


def with_sole_users_kept(situation: Situation) -> Situation | None:
    """Nobody who uses a ReadWriteOncePod claim of a member may go: the claim counts as used anyway."""
    claims = (one for one in situation.objects if one["kind"] == "PersistentVolumeClaim")
    sole = {name(one) for one in claims if "ReadWriteOncePod" in one["spec"]["accessModes"]}
    wanted = sole.intersection(claim for pod in situation.pods for claim in volume_claims_of(pod))
    users = {name(pod) for pod in _running(situation) if wanted.intersection(volume_claims_of(pod))}
    if situation.group is None or not users:
        return None
    return _with_pods(situation, lambda pod: _kept(pod) if name(pod) in users else pod)


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


def with_members_alone(situation: Situation) -> Situation | None:
    """Members of running groups may be evicted one by one, as kube-scheduler does for a single pod."""
    groups = [one for one in situation.objects if one["kind"] == "PodGroup"]
    if situation.group is not None or not any(one["spec"].get("disruptionMode") == "PodGroup" for one in groups):
        return None
    alone = [{**one, "spec": {**one["spec"], "disruptionMode": "Pod"}} for one in groups]
    others = [one for one in situation.objects if one["kind"] != "PodGroup"]
    return Situation([*others, *alone], situation.pods, None)


# -- devices ----------------------------------------------------------------------------------------------------------


def with_devices_kept(situation: Situation) -> Situation | None:
    """Allocated claims have a user that stays: devices of victims are not thought away."""
    held = [one for one in situation.objects if (one.get("status") or {}).get("allocation")]
    other = {"apiGroup": "example.com", "resource": "others", "name": "other", "uid": "other"}

    def kept(one: Obj) -> Obj:
        status = one["status"]
        return {**one, "status": {**status, "reservedFor": [*(status.get("reservedFor") or ()), other]}}

    objects = [kept(one) if one in held else one for one in situation.objects]
    return Situation(objects, situation.pods, situation.group) if held else None


def with_mapped_claims_free(situation: Situation) -> Situation | None:
    """Allocated claims of the pods take nothing of their nodes, and nobody else uses them."""
    used = {one["resourceClaimName"] for pod in situation.pods for one in _claim_entries(pod)}
    claims = [one for one in situation.objects if one["kind"] == "ResourceClaim" and name(one) in used]
    held = [one for one in claims if (one.get("status") or {}).get("allocation")]
    devices = {(r["pool"], r["device"]) for one in held for r in one["status"]["allocation"]["devices"]["results"]}

    def free(one: Obj) -> Obj:
        if one in held:
            return {**one, "status": {**one["status"], "reservedFor": []}}
        if one["kind"] != "ResourceSlice" or not one["spec"].get("devices"):
            return one
        pool = one["spec"]["pool"]["name"]
        some = [_unmapped(each) if (pool, each["name"]) in devices else each for each in one["spec"]["devices"]]
        return {**one, "spec": {**one["spec"], "devices": some}}

    world = Situation([free(one) for one in situation.objects], situation.pods, situation.group)
    return world if held and MAPPINGS in str(situation.objects) else None


def _claim_entries(pod: Obj) -> list[Obj]:
    found = [*(pod["spec"].get("resourceClaims") or ()), *(pod["status"].get("resourceClaimStatuses") or ())]
    return [one for one in found if one.get("resourceClaimName")]


def _unmapped(device: Obj) -> Obj:
    return {key: value for key, value in device.items() if key != MAPPINGS}


# -- budgets ----------------------------------------------------------------------------------------------------------


def with_counted_budgets(situation: Situation) -> Situation | None:
    """Pods that are being deleted count against their budgets once more; None if that protects nobody else.

    Each pod that is protected then has a budget of its own that allows nothing.
    """
    units = list(_units(situation))
    counted = {name(pod) for unit in units for pod in _protected(unit, situation) if not _ends(pod)}
    staying = ([[pod for pod in one if not _ends(pod)] for one in unit] for unit in units)
    if counted == {name(pod) for unit in staying for pod in _protected(unit, situation)}:
        return None
    others = [one for one in situation.objects if one["kind"] != "PodDisruptionBudget"]
    own = [_budget(pod) for pod in _running(situation) if name(pod) in counted]
    world = Situation([*others, *own], situation.pods, situation.group)
    return _with_pods(world, lambda pod: _marked(pod) if name(pod) in counted else pod)


def _units(situation: Situation) -> list[list[list[Obj]]]:
    """The possible victims that are counted together, by importance: those on a node, or for a group all."""
    group = situation.group
    priority = _priority(group or situation.pods[0])
    pods = [pod for pod in _running(situation) if _priority(pod) < priority]
    if group is None:
        by_node: dict[str, list[list[Obj]]] = {}
        for pod in sorted(pods, key=_importance):
            by_node.setdefault(pod["spec"]["nodeName"], []).append([pod])
        return list(by_node.values())
    whole = {
        name(one)
        for one in situation.objects
        if one["kind"] == "PodGroup" and one["spec"].get("disruptionMode") == "PodGroup"
    }
    found: dict[str, list[Obj]] = {}
    for pod in sorted(pods, key=_importance):
        of = _group_of(pod)
        found.setdefault(f"group {of}" if of in whole else f"pod {name(pod)}", []).append(pod)
    return [sorted(found.values(), key=_importance_of_unit)]


def _importance(pod: Obj) -> tuple[int, str]:
    return -_priority(pod), pod["status"].get("startTime") or "9"


def _importance_of_unit(unit: Sequence[Obj]) -> tuple[object, ...]:
    priority, began = _importance(unit[0])
    grouped = bool(_group_of(unit[0]))
    return priority, not grouped, -len(unit) if grouped else 0, began


def _group_of(pod: Obj) -> str:
    found: str = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
    return found


def _protected(units: Iterable[list[Obj]], situation: Situation) -> Iterator[Obj]:
    """The pods whose eviction would be more than a budget allows, of units in the order of their importance."""
    budgets = [one for one in situation.objects if one["kind"] == "PodDisruptionBudget"]
    allowed = Counter({name(one): one["status"].get("disruptionsAllowed", 0) for one in budgets})
    for unit in units:
        for pod in unit:
            mine = [name(one) for one in budgets if _matches(one, pod)]
            allowed.subtract(mine)
            if any(allowed[budget] < 0 for budget in mine):
                yield pod
                break


def _matches(budget: Obj, pod: Obj) -> bool:
    selector, labels = budget["spec"].get("selector"), pod["metadata"].get("labels") or {}
    processed = (budget.get("status") or {}).get("disruptedPods") or {}
    return bool(selector and labels) and name(pod) not in processed and label_selector_from(selector).matches(labels)


def _budget(pod: Obj) -> Obj:
    meta = {"name": f"of-{name(pod)}", "namespace": pod["metadata"]["namespace"], "uid": f"budget-of-{name(pod)}"}
    made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta}
    return made | {"spec": {"selector": {"matchLabels": {MARK: name(pod)}}}, "status": {"disruptionsAllowed": 0}}


# -- pods -------------------------------------------------------------------------------------------------------------


def name(one: Obj) -> str:
    """The name of an object."""
    found: str = one["metadata"]["name"]
    return found


def _running(situation: Situation) -> list[Obj]:
    return [one for one in situation.objects if one["kind"] == "Pod" and one["spec"].get("nodeName")]


def _priority(one: Obj) -> int:
    found: int = one["spec"].get("priority") or 0
    return found


def _ends(pod: Obj) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _with_pods(situation: Situation, change: Callable[[Obj], Obj]) -> Situation:
    """The situation with other running pods."""
    objects = [change(one) if one in _running(situation) else one for one in situation.objects]
    return Situation(objects, situation.pods, situation.group)


def _kept(pod: Obj) -> Obj:
    return {**pod, "spec": {**pod["spec"], "priority": 1_000_000}}


def _marked(pod: Obj) -> Obj:
    labels = {**(pod["metadata"].get("labels") or {}), MARK: name(pod)}
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}}
