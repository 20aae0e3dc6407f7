"""What must hold of every decision and of every state: each check raises AssertionError with what is wrong.

Questions of the kind "would it fit if …" are put to the engine on another cluster; all sums are those of the books.
Source: KEP-4671 (quorum), KEP-5710 (units), docs/adr/0002, 0004 and 0007.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from engine_objects import Obj, options
from safety_books import Placed
from safety_view import View, allocation_of, claims_of, cpu_of, deleting, ended, group_of, reserved_for
from safety_world import World

from haru.engine import Options
from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.equivalence import NoCache
from haru.engine.framework import PreemptionOptions
from haru.engine.podgroup import decide
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision, MemberDecision
from haru.engine.state.pending_reservations import Nomination


@dataclass(frozen=True)
class Unit:
    """A PodGroup's path and object, or nothing, and the pods that wait."""

    group: str
    obj: Obj | None
    pods: list[Obj]

    @property
    def name(self) -> str:
        return self.group or f"default/{self.pods[0]['metadata']['name']}"

    @property
    def priority(self) -> int:
        return int((self.obj or self.pods[0])["spec"]["priority"])

    @property
    def minimum(self) -> int:
        policy = (self.obj or {"spec": {"schedulingPolicy": {}}})["spec"]["schedulingPolicy"]
        return int((policy.get("gang") or {"minCount": 1})["minCount"])


def waiting(view: View, groups: dict[str, Obj]) -> list[Unit]:
    """What is to be decided; a pod whose group has not been heard of is held back by the queue."""
    found: dict[str, list[Obj]] = {}
    for path, pod in view.pods.items():
        held = group_of(pod) not in ("", *groups)
        if path not in view.places and not (held or ended(pod) or deleting(pod)):
            found.setdefault(group_of(pod) or path, []).append(pod)
    return [Unit(name if name in groups else "", groups.get(name), pods) for name, pods in found.items()]


def ask(cluster: SchedulerCache, unit: Unit, how: Options) -> Decision:
    """The same question to another cluster; the share IDs do not depend on what was asked before."""
    return decide(cluster.snapshot(), unit.pods, group=unit.obj, options=fresh(how))


def fresh(how: Options) -> Options:
    return replace(how, new_share_id=options().new_share_id)


def digest(world: World) -> str:
    """All that is handed to a decision."""
    return json.dumps([list(world.seen.values()), [e.claims for e in world.binding_tasks]], sort_keys=True)


def check_same(world: World, unit: Unit, how: Options, decision: Decision, *, anew: bool) -> None:
    """The same snapshot gives the same decision without a cache; so does (`anew`) a cluster that was built at once."""
    if not anew:
        snapshot = replace(world.cluster.snapshot(), decision_cache=NoCache(), node_device_classes=None)
        again = decide(snapshot, unit.pods, group=unit.obj, options=fresh(how))
        assert _alike(again, decision), "not deterministic"
        return
    assert _alike(ask(world.fork(), unit, how), decision), "depends on history"


def _alike(one: Decision, other: Decision) -> bool:
    """Whether two decisions differ in the numbers of the snapshot and of shares at most."""
    equal = replace(one, version=0) == replace(other, version=0) and one.diagnosis == other.diagnosis
    return equal or _text(one) == _text(other)


def _text(decision: Decision) -> str:
    """A decision but for the numbers of the snapshot and of shares."""
    text = json.dumps(asdict(replace(decision, version=0)), sort_keys=True, default=sorted)
    return re.sub(r"share-\d+", "share", text)


def check_state(world: World) -> None:
    """Nothing is given twice or beyond what there is, in what is stored and in what the scheduler goes by."""
    truth, view = world.truth(), world.view()
    for text, placed, claims, users in (
        ("stored", truth.placed(), truth.claims, True),
        ("seen", _holding(view.placed(), view.claims, view), view.claims, False),
    ):
        problems = world.books.problems(placed, given(claims.values()), users=users)
        assert not problems, f"{text}: {problems}"


def given(claims: Collection[Obj]) -> dict[str, Obj]:
    """Allocations by path of the claim."""
    found = ((f"default/{claim['metadata']['name']}", allocation_of(claim)) for claim in claims)
    return {path: allocation for path, allocation in found if allocation is not None}


def check_decision(world: World, unit: Unit, how: Options, decision: Decision, view: View) -> None:
    """What a decision asks for is possible, and allowed."""
    # Where a member's node is lost nobody knows the domain of its group: 1.36 says it is an error.
    lost = any(("Node", view.places[path]) not in world.seen for path in view.members(unit.group) if unit.group)
    assert decision.status != "error" or lost, decision.message
    listed = {pod["metadata"]["name"] for pod in unit.pods}
    assert {member.pod.name for member in decision.members} <= listed
    if decision.status == "scheduled":
        assert decision.placed
        assert not decision.evictions
        _check_quorum(unit, len(decision.placed), view)
        _check_places(world, decision.placed, view, view.claims, frozenset())
        _check_promises(world, unit, decision.placed, view)
    elif decision.status == "nominated":
        assert not decision.placed, "somebody is bound by a decision that makes room"
        _check_quorum(unit, len(decision.nominated), view)
        check_victims(world, unit, decision, view)
        gone = going(world, view) | names(decision)
        _check_places(world, decision.nominated, view, view.freed(gone, names(decision)), gone)
        check_need(world, unit, how, decision, view)
    else:
        assert not decision.placed, "somebody is bound although the unit is refused"
        assert not decision.evictions


def names(decision: Decision) -> set[str]:
    return {eviction.pod.path for eviction in decision.evictions}


def going(world: World, view: View) -> set[str]:
    """Who leaves a node, or is to, whoever wants it."""
    return {path for path in view.placed() if deleting(view.pods[path]) or path in view.promised}


def stays(world: World, paths: Collection[str]) -> bool:
    """Whether any of these pods is on a node and nobody expects it to go."""
    view = world.view()
    return not view.placed().keys().isdisjoint(set(paths) - going(world, view))


def promised_above(world: World, priority: int) -> frozenset[tuple[str, str]]:
    """The places that more important pods are known to be promised: pod and node."""
    snapshot = world.cluster.snapshot()
    found = {(path, one.node) for path, one in snapshot.pod_index.nominations.items() if one.priority > priority}
    told = (snapshot.pods[path] for path in snapshot.pod_index.nominated if path in snapshot.pods)
    return frozenset(found | {(pod.key.path, pod.nominated_node) for pod in told if pod.priority > priority})


def _check_quorum(unit: Unit, count: int, view: View) -> None:
    there = len(view.members(unit.group)) if unit.group else 0
    assert count + there >= unit.minimum, f"{unit.name}: {count} and {there} of {unit.minimum} have places"


def _check_places(
    world: World, members: Sequence[MemberDecision], view: View, claims: dict[str, Obj], without: Collection[str]
) -> None:
    """The members fit beside all that stays; their claims are not on the way to something else."""
    allocations = given(claims.values())
    placed = _holding(view.placed(without), claims, view)
    for member in members:
        taints = world.seen["Node", member.node or ""]["spec"]["taints"]
        assert not taints, f"{member.pod.name} is sent to {member.node}, which has a taint"
        for made in member.allocations:
            assert made.path not in allocations, f"{made.path} is allocated twice"
            allocations[made.path] = made.allocation
        paths = {f"{joined.claim_namespace}/{joined.claim_name}" for joined in member.reservations}
        assert not paths & view.in_flight, f"{member.pod.name} relies on {paths & view.in_flight}, not written yet"
        pod = view.pods[member.pod.path]
        placed[member.pod.path] = Placed(member.node or "", cpu_of(pod), claims_of(pod))
    ours = {member.pod.path: placed[member.pod.path] for member in members}
    problems = world.books.problems(placed, allocations, users=False)
    problems += world.books.problems(ours, allocations, users=True)
    assert not problems, f"decided: {problems}"


def _check_promises(world: World, unit: Unit, members: Sequence[MemberDecision], view: View) -> None:
    """Whoever is bound leaves alone what was promised to others that are no less important, for when it is free."""
    nominations = world.cluster.snapshot().pod_index.nominations
    kept = {
        path: one
        for path, one in nominations.items()
        if one.priority >= unit.priority and ("Node", one.node) in world.seen
        if all(path != f"default/{pod['metadata']['name']}" for pod in unit.pods)
        if not (unit.group and group_of(view.pods[path]) == unit.group)
    }
    gone = {path for path in going(world, view) if path not in kept}
    claims = view.freed(gone)
    placed, allocations = _holding(view.placed(gone), claims, view), given(claims.values())
    before = world.books.problems({**placed, **_promised(kept, view)}, _with(allocations, kept), users=False)
    for member in members:
        pod = view.pods[member.pod.path]
        placed[member.pod.path] = Placed(member.node or "", cpu_of(pod), claims_of(pod))
        allocations |= {made.path: made.allocation for made in member.allocations}
    after = world.books.problems({**placed, **_promised(kept, view)}, _with(allocations, kept), users=False)
    assert before or not after, f"promises are broken: {after}"


def _holding(placed: Mapping[str, Placed], claims: Mapping[str, Obj], view: View) -> dict[str, Placed]:
    """With what each still holds: a pod that has lost its claim has ended, though nobody has heard of it yet."""

    def holds(path: str, claim: str) -> bool:
        users = {f"default/{entry['name']}" for entry in reserved_for(claims[claim])} if claim in claims else set()
        return not users.isdisjoint({path, group_of(view.pods[path])})

    return {
        path: there._replace(claims=tuple(claim for claim in there.claims if holds(path, claim)))
        for path, there in placed.items()
    }


def _promised(kept: Mapping[str, Nomination], view: View) -> dict[str, Placed]:
    return {path: Placed(one.node, cpu_of(view.pods[path]), claims_of(view.pods[path])) for path, one in kept.items()}


def _with(allocations: dict[str, Obj], kept: Mapping[str, Nomination]) -> dict[str, Obj]:
    more = {made.path: made.allocation for one in kept.values() for made in one.allocations}
    return {**more, **allocations}


# -- evictions -------------------------------------------------------------------------------------------------------


def check_victims(world: World, unit: Unit, decision: Decision, view: View) -> None:
    """Victims are running, less important, not going yet; and whole groups go whole."""
    gone, groups = names(decision), world.objects("PodGroup")
    for path in gone:
        pod = view.pods[path]
        own = groups.get(group_of(pod), pod)["spec"]["priority"]
        assert own < unit.priority, f"{path} of priority {own} is evicted for {unit.name} of {unit.priority}"
        assert view.places[path] and pod["spec"].get("nodeName"), f"{path} is evicted before it runs"
        assert not deleting(pod), f"{path} is evicted twice"
    for group, obj in groups.items():
        if obj["spec"].get("disruptionMode") == "PodGroup":
            members = {path for path in view.members(group) if not deleting(view.pods[path])}
            assert not gone & members or members <= gone, f"of {group} only {gone & members} of {members} go"


def units_of(world: World, decision: Decision, view: View) -> Iterator[set[str]]:
    """The victims that go together."""
    whole: dict[str, set[str]] = {}
    groups = world.objects("PodGroup")
    for path in sorted(names(decision)):
        group = group_of(view.pods[path])
        unit = group if group in groups and groups[group]["spec"].get("disruptionMode") == "PodGroup" else path
        whole.setdefault(unit, set()).add(path)
    yield from whole.values()


def check_need(world: World, unit: Unit, how: Options, decision: Decision, view: View) -> None:
    """With any unit of victims left in place fewer fit: for a group anywhere, for a single pod on its node."""
    if holds(world.cluster.snapshot().reservation, unit):
        # Room is made beside the head's places and what it waits for: the question is another one.
        return
    node = "" if unit.group else (decision.nominated[0].node or "")
    everybody = going(world, view) | names(decision)
    for stays in units_of(world, decision, view):
        without = replace(how, preemption=PreemptionOptions())
        left = ask(world.fork(everybody - stays, freed=True, evicted=names(decision), only_on=node), unit, without)
        assert len(left.placed) < len(decision.nominated), f"{stays} go in vain for {unit.name}"


def holds(reservation: BackfillReservation | None, unit: Unit) -> bool:
    """Whether a reservation might keep a unit back."""
    return reservation is not None and reservation.priority >= unit.priority


def check_room_was_made(world: World, unit: Unit, how: Options, decision: Decision) -> None:
    """Once the nominations stand: when all that was evicted is gone the unit starts, and meanwhile it waits."""
    view = world.view()
    evicted = sorted(names(decision) | going(world, view))
    if unit.group and not decision.evictions and set(evicted) & set(view.members(unit.group)):
        # It waits for room that others leave, and loses members of its own: it may be too few by then, and nobody goes.
        return
    later = ask(world.fork(evicted, freed=True), unit, how)
    assert later.status == "scheduled", f"{unit.name}: evicted {evicted} in vain: {later.message}"
    for count in range(1, len(evicted)):
        partly = ask(world.fork(evicted[:count], freed=True), unit, how)
        assert not partly.evictions, f"{unit.name}: with {evicted[:count]} gone it evicts {names(partly)} too"
        assert partly.status in ("scheduled", "nominated"), f"{unit.name}: {partly.message} without {evicted[:count]}"


# -- the head of the queue -------------------------------------------------------------------------------------------


def check_head(world: World, head: Unit, reservation: BackfillReservation) -> None:
    """When all that must have ended by then has, the head starts at the moment that was foreseen."""
    view = world.view()
    assert reservation.until is not None
    then = max(reservation.until, world.now)
    ends = dict(world.ends(view))
    # Who goes and nobody has heard of it yet goes all the same: evictions for who has its place by now, for one.
    unheard = {path for path in ends if ("Pod", path) not in world.api or deleting(world.api["Pod", path])}
    gone = {path for path, end in ends.items() if end is not None and end <= then} | going(world, view) | unheard
    if gone & set(view.members(head.group)) and head.group:
        # It loses members of its own, and then needs more places than were kept.
        return
    late = {key.path for key in reservation.waits_for if key.path in ends} - gone
    assert not late, f"{late} will not have ended at {then}"
    started = ask(world.fork(gone, freed=True, reservation=False), head, options(now=then))
    assert started.status == "scheduled", f"{head.name} does not start at {then}: {started.message}"


def check_gangs(world: World) -> None:
    """In what is stored a gang that runs has its quorum, or its other members are on their way, or it met a fault."""
    truth = world.truth()
    for group, obj in world.objects("PodGroup", seen=False).items():
        bound = set(truth.members(group))
        ready = {
            m.pod.path
            for binding_task in world.binding_tasks
            if binding_task.group == group
            for m in binding_task.ready or ()
        }
        minimum = obj["spec"]["schedulingPolicy"]["gang"]["minCount"]
        if bound and group not in world.hit:
            assert len(bound | ready) >= minimum, f"{group}: {bound} are bound, {ready} are certain, of {minimum}"
