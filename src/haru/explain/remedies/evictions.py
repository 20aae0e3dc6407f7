"""Whose work would have to end: the least important that is in the way, as little of it as is enough.

Candidates are ordered so that those which free a node together stand together. Who of them has to go is for the search
of preemption to say (`room`); where it gives up, the scheduler is asked about one set after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from haru.engine import Options, Snapshot
from haru.engine.podgroup import UnansweredError
from haru.engine.state import GroupKey, PodInfo, consumer_key, workload_of
from haru.explain import hypothesis
from haru.explain.changes import create, delete, listed, pod_manifest
from haru.explain.diagnosis.allocations import freed_text
from haru.explain.diagnosis.diagnosis import Diagnosis
from haru.explain.diagnosis.pod_affinity import affinity_targets
from haru.explain.diagnosis.verdict import Victim, least, running_work
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies.commands import FILE, placed, saved_pods
from haru.explain.remedies.fewer_pods import fewer_pods
from haru.explain.remedies.makers import is_of_same_maker, maker_of
from haru.explain.remedies.node_openings import smallest
from haru.kube.meta import Obj, name_of, namespace_of
from haru.kube.names import counted

_MOST_MOVED = 8
_MOST_NODES = 16


def move(snapshot: Snapshot, work: WorkloadUnit, options: Options, ended: Sequence[Victim]) -> Iterator[Remedy]:
    """The same work that would have to end, if all of it finds room elsewhere once the waiting work has its place."""
    pods = [pod for unit in ended for pod in unit.pods]
    if not pods or len(pods) > _MOST_MOVED or any(pod.controller is not None for pod in pods):
        return
    if _groups_with_claims(snapshot, pods):
        return  # where their claims are is where they start anew
    freed = hypothesis.without_pods(snapshot, [pod.key.path for pod in pods])
    first = work.decision(freed, options)
    if first is None or first.status != "scheduled":
        return
    world = hypothesis.with_places(freed, first)
    where: dict[str, str] = {}
    for unit in ended:
        again = [hypothesis.as_pending(pod) for pod in unit.pods]
        world = hypothesis.with_pods(world, again)
        moved = WorkloadUnit(tuple(pod.key.path for pod in again), unit.pods[0].group, work.questions)
        found = moved.decision(world, options)
        if found is None or found.status != "scheduled" or len(found.placed) < len(again):
            return
        where.update((member.pod.path, member.node or "") for member in found.placed)
        world = hypothesis.with_places(world, found)
    yield _remedy(snapshot, pods, where, [snapshot.pods[member.pod.path] for member in first.placed])


def _remedy(snapshot: Snapshot, pods: Sequence[PodInfo], where: dict[str, str], waiting: Sequence[PodInfo]) -> Remedy:
    """`waiting` are those who get places: who waits for more would never create again what has ended."""
    ways = listed([f"{pod.key.name} from {pod.node} to {where[pod.key.path]}" for pod in pods])
    changes = [delete("v1", "Pod", pod.key.name, pod.key.namespace) for pod in pods]
    changes += [create(pod_manifest(pod.obj)) for pod in pods]
    costs = f"{counted(len(pods), 'running pod')} started anew elsewhere, created once the waiting work has its place"
    saved, wait = saved_pods(snapshot, pods), placed(snapshot, waiting)
    steps = [saved, f"kubectl delete -f {FILE}", wait, f"kubectl create -f {FILE}"]
    return Remedy("MoveWork", f"move {ways}", tuple(changes), 8 + len(pods), True, costs, " && ".join(steps))


_MORE_IMPORTANT = _UNSURE = 25
"""What it costs more to end work of a higher priority, or perhaps in vain: nobody does that before adding a node."""


def evict(snapshot: Snapshot, work: WorkloadUnit, options: Options, found: Diagnosis) -> Iterator[Remedy]:
    """Running work to end, named by who it belongs to, with what becomes free; or to move, if it has room elsewhere."""
    ended = _least(snapshot, work, options, found)
    if not ended:
        return
    yield from move(snapshot, work, options, ended)
    pods = [pod for unit in ended for pod in unit.pods]
    text, changes = _end_text(snapshot, pods), deletions(snapshot, pods)
    own_priority = _priority(snapshot, work)
    above = max(unit.priority for unit in ended) > own_priority
    cost = 10 + len(pods) + (_MORE_IMPORTANT if above else 0)
    fewer = list(fewer_pods(snapshot, work, options, pods))
    yield from (replace(one, cost=cost - len(pods) + one.cost - 1) for one in fewer)
    if any(_takes_again(pod, own_priority) for pod in pods):
        return
    new = placed_anew(snapshot, work, options, pods)
    every = dict.fromkeys(maker_of(snapshot, pod) for pod in pods)
    makers = [maker for maker in every if not maker.startswith(("pod/", "podgroup/"))]
    if new is None and not fewer:
        then = f", which may take that room at once unless {_stopped(makers)} first"
        yield Remedy("Evict", text, changes, cost + _UNSURE, False, _costs(ended, makers, then))
    elif new is not None:
        then = f" that then wait, unless {_stopped(makers)}" if new < len(pods) else ""
        yield Remedy("Evict", text, changes, cost, True, _costs(ended, makers, then))


def ending(snapshot: Snapshot, work: WorkloadUnit, options: Options, pods: Sequence[PodInfo]) -> Remedy | None:
    """Return how to end pods so that those made in their place leave the work its own; None if nothing ensures it."""
    fewer = next(fewer_pods(snapshot, work, options, pods), None)
    if fewer is not None:
        return fewer
    own_priority = _priority(snapshot, work)
    if any(_takes_again(pod, own_priority) for pod in pods) or placed_anew(snapshot, work, options, pods) is None:
        return None
    lost = f"{counted(len(pods), 'running pod')} lost"
    return Remedy("Evict", _end_text(snapshot, pods), deletions(snapshot, pods), len(pods), True, lost)


def _priority(snapshot: Snapshot, work: WorkloadUnit) -> int:
    return max((pod.priority for pod in work.pending(snapshot)), default=0)


def _end_text(snapshot: Snapshot, pods: Sequence[PodInfo]) -> str:
    names = listed([pod.key.name for pod in pods])
    owners = Counter(owner for pod in pods if (owner := workload_of(pod)) not in ("", f"pod/{pod.key.name}"))
    shown = listed([f"{count} of {owner}" for owner, count in owners.most_common()])
    if len(pods) == 1:
        text = f"end {' '.join(owners)} pod {names}" if owners else f"end pod {names}"
    else:
        text = f"end {len(pods)} pods, {shown}: {names}" if owners else f"end {len(pods)} pods: {names}"
    groups = _groups_with_claims(snapshot, pods)
    if groups:
        text += f" and PodGroup {listed([name for name, _ in map(_named, groups)])}, which would keep its claims"
        waiting = [pod.key.name for pod in _waiting_members(snapshot, groups)]
        text += f", with {listed(waiting)}, which would keep it" if waiting else ""
    freed = freed_text(snapshot, pods)
    return f"{text} (frees {freed})" if freed else text


def deletions(snapshot: Snapshot, pods: Sequence[PodInfo]) -> tuple[Obj, ...]:
    """Return the changes that end pods, and the PodGroups that would keep their claims, with all their members."""
    groups = _groups_with_claims(snapshot, pods)
    members = [*pods, *_waiting_members(snapshot, groups)]
    ended = [delete("v1", "Pod", pod.key.name, pod.key.namespace) for pod in members]
    return (*ended, *(delete(group["apiVersion"], group["kind"], *_named(group)) for group in groups))


def _groups_with_claims(snapshot: Snapshot, pods: Sequence[PodInfo]) -> list[Obj]:
    """The PodGroups of these pods that have claims and no other pods: their claims are free once they are gone."""
    gone = {pod.key.path for pod in pods}
    keys = dict.fromkeys(pod.group for pod in pods if pod.group is not None)
    holding = [key for key in keys if snapshot.claim_index.by_consumer.get(consumer_key("podgroups", *key))]
    ended = [key.path for key in holding if gone.issuperset(snapshot.group_state(key).scheduled)]
    return [snapshot.pod_groups[path] for path in ended if path in snapshot.pod_groups]


def _waiting_members(snapshot: Snapshot, groups: Sequence[Obj]) -> list[PodInfo]:
    """The members of PodGroups that have no place: no PodGroup goes before them."""
    states = (snapshot.group_state(GroupKey(namespace_of(group), name_of(group))) for group in groups)
    return [snapshot.pods[path] for state in states for path in sorted(state.unscheduled)]


def _named(obj: Obj) -> tuple[str, str]:
    return name_of(obj), namespace_of(obj)


_SCALED = ("deployment/", "replicaset/", "statefulset/")


def _stopped(makers: Sequence[str]) -> str:
    """What keeps who makes pods from making these again."""
    if all(maker.startswith(_SCALED) for maker in makers):
        return "it is scaled down"
    return "it is suspended" if all(maker.startswith("job/") for maker in makers) else "it is stopped"


def _takes_again(pod: PodInfo, priority: int) -> bool:
    """Whether the pod that its controller makes in its place comes before work of this priority.

    It does by a higher priority, and by a claim that is not made for it anew: that one stays allocated.
    """
    return pod.controller is not None and (pod.priority > priority or any(claim.claim_name for claim in pod.claims))


def placed_anew(snapshot: Snapshot, work: WorkloadUnit, options: Options, pods: Sequence[PodInfo]) -> int | None:
    """How many of those that controllers make meanwhile have a place at once; None if they may take the work's.

    That of a StatefulSet is not made before its pod is gone, and has waited for less long by then. Where several have
    to end, they do so one after the other: what is made for the first may fit there while the work does not.
    """
    if _first_comes_back(snapshot, work, options, pods):
        return None
    remade = [pod for pod in pods if (pod.controller or {}).get("kind", "StatefulSet") != "StatefulSet"]
    if not remade:
        return 0
    anywhere = _with_replacements(work, options, hypothesis.made_anew(snapshot, remade))
    if not anywhere[1]:
        return 0
    gone = [pod.key.path for pod in pods]
    first = work.decision(hypothesis.without_pods(snapshot, gone), options)
    # Which of equal places they take is chance: it may be just there.
    places = {member.node or "" for member in first.placed} if first is not None else ()
    there = _with_replacements(work, options, hypothesis.made_anew(snapshot, remade, places))
    for after, count in (anywhere, there):
        if count and not work.fits(hypothesis.without_pods(after, gone), options):
            return None
    return anywhere[1]


def _first_comes_back(snapshot: Snapshot, work: WorkloadUnit, options: Options, pods: Sequence[PodInfo]) -> bool:
    again = [pod for pod in pods if pod.controller is not None]
    if not again or len(pods) == 1:
        return False
    after, made = hypothesis.made_anew(snapshot, again)
    return _with_replacements(work, options, (hypothesis.without_pods(after, [again[0].key.path]), made))[1] > 0


def _with_replacements(
    work: WorkloadUnit, options: Options, made: tuple[Snapshot, Sequence[PodInfo]]
) -> tuple[Snapshot, int]:
    """The cluster with new pods where there is room for them, and for how many there is."""
    after, pods = made
    count = 0
    for group in dict.fromkeys(pod.group for pod in pods):
        paths = tuple(pod.key.path for pod in pods if pod.group == group)
        decision = WorkloadUnit(paths, group, work.questions).decision(after, options)
        if decision is not None and decision.placed:
            count += len(decision.placed)
            after = hypothesis.with_places(after, decision)
    return after, count


def _costs(ended: Sequence[Victim], makers: Sequence[str], then: str) -> str:
    pods = sum(len(unit.pods) for unit in ended)
    highest = max(unit.priority for unit in ended)
    text = f"{counted(pods, 'running pod')} of priority {highest if len(ended) == 1 else f'up to {highest}'} lost"
    if makers:
        text += f"; {listed(makers)} makes new ones{then}"
    jobs = makers and all(maker.startswith("job/") for maker in makers)
    return f"{text}; {listed(makers)} counts {counted(pods, 'failure')}" if jobs else text


def _candidates(ending: Sequence[Victim], found: Diagnosis) -> list[Victim]:
    """Work that is in the way: it holds devices that are asked for, or room on a node that lacks only that."""
    holding = {pod for f in found.requests for s in f.stages for holder in s.holders for pod in holder.pods}
    crowded = {
        name
        for name, failures in (found.answers or {}).items()
        if failures and all(failure.resolvable for failure in failures)
    }
    related = [unit for unit in ending if any(pod.key.path in holding or pod.node in crowded for pod in unit.pods)]
    return _ordered(related or ending)


def _ending(snapshot: Snapshot, work: WorkloadUnit) -> list[Victim]:
    """Running work that makes room by its end: pods of DaemonSets, and of the node itself, come back to their node."""
    own = is_of_same_maker(snapshot, work)
    found = running_work(snapshot, work)
    return [unit for unit in found if not any(_comes_back(pod) or own(pod) for pod in unit.pods)]


def _comes_back(pod: PodInfo) -> bool:
    return (pod.controller or {}).get("kind") in ("DaemonSet", "Node")


def _ordered(found: Sequence[Victim]) -> list[Victim]:
    """The least important first; those that free a node together stand together."""
    on_node: Counter[str] = Counter(pod.node for unit in found for pod in unit.pods)
    return sorted(found, key=lambda u: (u.priority, len(u.pods), on_node[u.pods[0].node], u.pods[0].node, u.name))


def _least(snapshot: Snapshot, work: WorkloadUnit, options: Options, study: Diagnosis) -> list[Victim]:
    """Work to end, if need be none of what the waiting work has to be near."""
    ending = _ending(snapshot, work)
    found = _least_of(ending, snapshot, work, options, study)
    targets = affinity_targets(snapshot, work) if not found else set()
    if not targets:
        return found
    spared = [unit for unit in ending if not any(pod.key.path in targets for pod in unit.pods)]
    return _least_of(spared, snapshot, work, options, study)


def _least_of(
    ending: Sequence[Victim], snapshot: Snapshot, work: WorkloadUnit, options: Options, study: Diagnosis
) -> list[Victim]:
    """Work none of which can be spared, as far as questions go; empty if ending all of it does not help."""

    def fits(ended: Sequence[Victim]) -> bool:
        paths = [pod.key.path for unit in ended for pod in unit.pods]
        return bool(ended) and work.fits(hypothesis.without_pods(snapshot, paths), options)

    try:
        found = least(snapshot, work, options, list(reversed(_ordered(ending))))
    except UnansweredError as error:
        found = _of_one_node(ending, fits) if error.reason.type == "SelectorError" else None
    if found and fits(found):
        return found
    return _asked_for(_candidates(ending, study), study.missing, fits)


def _of_one_node(ending: Sequence[Victim], fits: Callable[[Sequence[Victim]], bool]) -> list[Victim] | None:
    """The same on one node: a selector that fails on devices of another is not asked about these."""
    by_node: dict[str, list[Victim]] = {}
    for unit in _ordered(ending):
        by_node.setdefault(unit.pods[0].node, []).append(unit)
    enough = next((units for units in islice(by_node.values(), _MOST_NODES) if fits(units)), None)
    return enough and (smallest(list(reversed(enough)), fits) or enough)


def _asked_for(order: Sequence[Victim], missing: int, fits: Callable[[Sequence[Victim]], bool]) -> list[Victim]:
    """The same, by asking the scheduler itself about one set after the other."""
    tried, size = 0, min(max(1, missing), len(order))
    while size and not fits(order[:size]):
        if size == len(order):
            return []
        tried, size = size, min(2 * size, len(order))
    while size - tried > 1:
        middle = (size + tried) // 2
        tried, size = (tried, middle) if fits(order[:middle]) else (middle, size)
    # The most important work is spared first.
    enough = list(order[:size])
    return smallest(list(reversed(enough)), fits) or enough
