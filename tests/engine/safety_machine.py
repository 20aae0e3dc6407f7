"""Random histories of a small cluster, rule by rule, with everything checked after each of them.

Source: the rules of `safety_world` (what may happen) and `safety_checks` (what must hold).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, TypeVar

import safety_checks as checks
from engine_objects import Obj, claim, options, pod, pod_group
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from safety_books import KINDS, Hardware
from safety_checks import Unit
from safety_view import deleting, ended, group_of, marked, with_status
from safety_world import DEFAULT_GRACE, World

from haru.engine import Options
from haru.engine.backfill.earliest_start import reserve_earliest_start
from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.podgroup import decide
from haru.engine.preemption.nominated_placements import displaced
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.deadlines import ANNOTATION
from haru.engine.state.decision import Decision
from haru.engine.state.pending_reservations import nominations_of

T = TypeVar("T")

NAMES = ("n0", "n1", "n2", "n3")
machines = st.lists(
    st.tuples(st.integers(2, 6), st.sampled_from(["r0", "r1"]), st.sampled_from(sorted(KINDS))), min_size=1, max_size=4
)
which = st.integers(0, 7)
broken = st.integers(-6, 2)
"""Which of the claims of a decision cannot be written, if there are so many."""
PRIORITIES = [0, 5, 10]
HAPPENINGS = [
    *("tick", "pod_goes", "victim_leaves", "free_claims", "node_changes", "watch", "join_claim", "one_more"),
    "group_changes",
]
options_of = st.fixed_dictionaries(
    {"seed": st.integers(0, 3), "preempt_for_pods": st.booleans(), "preempt_for_groups": st.booleans()}
)
How = dict[str, int]
Ask = tuple[str, int, int]
"""Class, count, memory."""
Limit = tuple[int, int | None]
"""Seconds and grace period."""


class Work(NamedTuple):
    """A pod, or (`members`: two numbers, of which the smaller one is the quorum) a gang.

    `kept`: running by a controller; of a gang: its members share their claim.
    """

    cpu: int
    priority: int
    ask: Ask | None
    limit: Limit | None
    kept: bool
    members: tuple[int, int] | None
    whole: bool
    racked: bool


works = st.builds(
    Work,
    st.integers(1, 3),
    st.sampled_from(PRIORITIES),
    st.sampled_from(
        [None, None, ("any", 1, 0), ("any", 2, 0), ("any", 1, 1), ("any", 1, 2), ("big", 1, 0), ("big", 2, 0)]
    ),
    st.sampled_from([None, (20, 0), (20, None), (60, 0), (60, 0), (200, 10)]),
    st.sampled_from([False, False, True]),
    st.one_of(st.none(), st.tuples(st.integers(1, 3), st.integers(1, 3))),
    st.booleans(),
    st.sampled_from([False, False, True]),
)


class SafetyMachine(RuleBasedStateMachine):
    """`head` is the unit for which places are kept; `undisturbed` while nothing has come that may delay it.

    `counted_on` are the pods that were about to be evicted when its places were found, `promised` the places that
    more important pods were promised by then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = World([], 0)
        self.count = 0
        self.groups: dict[str, Obj] = {}
        self.head: Unit | None = None
        self.undisturbed = False
        self.counted_on: frozenset[str] = frozenset()
        self.promised: frozenset[tuple[str, str]] = frozenset()

    @initialize(found=machines, wide=st.integers(0, 2), listed=st.lists(works, min_size=2, max_size=6))
    def begin(self, found: list[tuple[int, str, str]], wide: int, listed: list[Work]) -> None:
        """Some work runs already."""
        hardware = [Hardware(name, *one) for name, one in zip(NAMES, found, strict=False)]
        self.world = World(hardware, wide, self.cluster())
        for work in listed:
            self._add(work)
            self._decide(-1, {}, True, -1)

    def cluster(self) -> SchedulerCache:
        """The cluster as the scheduler sees it, when a history begins."""
        return SchedulerCache()

    def asked(self, unit: Unit, chosen: Options) -> Decision:
        """Decide one unit."""
        return decide(self.world.cluster.snapshot(), unit.pods, group=unit.obj, options=chosen)

    # -- work --------------------------------------------------------------------------------------------------------

    @rule(work=works, how=options_of, now=st.booleans(), broken=broken)
    def add_and_decide(self, work: Work, how: How, now: bool, broken: int) -> None:
        """Something comes and is decided at once."""
        self._add(work)
        if self._waiting():
            self._decide(-1, how, now, broken)

    @rule(listed=st.lists(st.tuples(works, options_of), min_size=1, max_size=3), now=st.booleans())
    def add_some(self, listed: list[tuple[Work, How]], now: bool) -> None:
        """Several come, and then they are decided, the most important first."""
        for work, _ in listed:
            self._add(work)
        for _, how in listed:
            if units := self._waiting():
                self._decide(max(range(len(units)), key=lambda number: units[number].priority), how, now, -1)

    def _join_claim(self, index: int, how: int) -> None:
        """A pod that uses a claim that is there."""
        claims = sorted(self.world.objects("ResourceClaim", seen=False))
        if claims:
            self.world.put(self._pod(1, pick(PRIORITIES, how), None, [pick(claims, index).split("/")[1]]))

    def _add(self, work: Work) -> None:
        if work.members is not None:
            self._add_gang(work, *work.members)
            return
        made = self._pod(work.cpu, work.priority, work.limit, [self._claim(work.ask)] if work.ask is not None else [])
        if work.kept:
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
            made["metadata"]["ownerReferences"] = [owner]
            made["spec"]["restartPolicy"] = "Always"
        self.world.put(made)

    def _add_gang(self, work: Work, one: int, other: int) -> None:
        name = self._name("g")
        spec: Obj = {"priority": work.priority}
        claims: list[Obj] = []
        if work.whole:
            spec["disruptionMode"] = "PodGroup"
        if work.racked:
            spec["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
        if work.ask is not None and work.kept:
            made = self._claim(work.ask)
            claims = [{"name": made, "resourceClaimName": made}]
        group = pod_group(name, min(one, other), claims, **spec)
        if work.limit is not None:
            group["metadata"]["annotations"] = {ANNOTATION: f"{work.limit[0]}s"}
        self.groups[f"default/{name}"] = self.world.put(group)
        for _ in range(max(one, other)):
            self._add_member(name, work.cpu, work.priority, work.ask, work.limit, [c["name"] for c in claims])

    def _one_more(self, index: int, how: int) -> None:
        """One more member, or a replacement."""
        groups = self.world.objects("PodGroup", seen=False)
        if groups:
            path = pick(sorted(groups), index)
            spec = groups[path]["spec"]
            names = [entry["name"] for entry in spec["resourceClaims"]]
            self._add_member(path.split("/")[1], 1 + how % 2, spec["priority"], None, None, names)
            self._disturb(path)

    def _add_member(
        self,
        group: str,
        cpu: int,
        priority: int,
        ask: Ask | None,
        limit: Limit | None,
        shared: list[str],
    ) -> None:
        names = shared or ([self._claim(ask)] if ask is not None else [])
        made = self._pod(cpu, priority, None, names)
        made["spec"]["schedulingGroup"] = {"podGroupName": group}
        if limit is not None and limit[1] is not None:
            made["spec"]["terminationGracePeriodSeconds"] = limit[1]
        promised = self.world.api["PodGroup", f"default/{group}"]["metadata"].get("annotations")
        if promised:
            grace = made["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE)
            self.world.limits[f"default/{made['metadata']['name']}"] = int(promised[ANNOTATION][:-1]) + grace
            self.world.unenforced.add(f"default/{made['metadata']['name']}")
        self.world.put(made)

    def _pod(self, cpu: int, priority: int, limit: Limit | None, claims: list[str]) -> Obj:
        made = pod(self._name("p"), cpu=str(cpu), claims=list(claims), priority=priority, restartPolicy="Never")
        if limit is not None:
            made["spec"]["activeDeadlineSeconds"] = limit[0]
            if limit[1] is not None:
                made["spec"]["terminationGracePeriodSeconds"] = limit[1]
            grace = DEFAULT_GRACE if limit[1] is None else limit[1]
            self.world.limits[f"default/{made['metadata']['name']}"] = limit[0] + grace
        return made

    def _claim(self, ask: Ask) -> str:
        class_name, count, memory = ask
        exactly: Obj = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
        if memory:
            exactly["capacity"] = {"requests": {"memory": str(memory)}}
        name = self._name("c")
        self.world.put(claim(name, requests=[{"name": "gpu", "exactly": exactly}]))
        return name

    def _name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # -- decisions ---------------------------------------------------------------------------------------------------

    def _waiting(self) -> list[Unit]:
        return checks.waiting(self.world.view(), self.world.objects("PodGroup"))

    def _options(self, how: How) -> Options:
        return options(now=self.world.now, **how)

    @precondition(lambda self: self._waiting())
    @rule(index=which, how=options_of, now=st.booleans(), broken=broken)
    def decide(self, index: int, how: How, now: bool, broken: int) -> None:
        """One unit is decided; what it asks for is begun, or also carried out at once."""
        self._decide(index, how, now, broken)

    def _decide(self, index: int, how: How, now: bool, broken: int) -> None:
        world, unit = self.world, pick(self._waiting(), index)
        view, before, chosen = world.view(), checks.digest(world), self._options(how)
        decision = self.asked(unit, chosen)
        checks.check_same(world, unit, chosen, decision, anew=self.count % 2 == 0)
        assert checks.digest(world) == before, "a decision has changed what it was given"
        checks.check_decision(world, unit, chosen, decision, view)
        self._enact(unit, chosen, decision, now, broken)

    def _enact(self, unit: Unit, chosen: Options, decision: Decision, now: bool, broken: int) -> None:
        world = self.world
        if decision.status in ("scheduled", "nominated"):
            self._took_places(unit)
        if decision.status == "scheduled":
            binding_task = world.start(decision.placed, unit.group, unit.minimum)
            if now:
                world.reserve(binding_task, broken)
                while binding_task.ready:
                    world.bind(binding_task, 0)
        if decision.status == "nominated":
            self._make_room(unit, decision)
            checks.check_room_was_made(world, unit, chosen, decision)
            for path in sorted(checks.names(decision)):
                if ("Pod", path) in world.api and not deleting(world.api["Pod", path]):
                    self._hit(path, world.api["Pod", path])
                    world.put(marked(world.api["Pod", path], world.now, preempted=True))
        else:
            for member in decision.members:
                if member.status != "scheduled":
                    world.cluster.forget_nomination(member.pod)
                    world.unnominate(member.pod.path)

    def _took_places(self, unit: Unit) -> None:
        if self.head is not None and self.head.name == unit.name:
            self._drop()
        elif self.head is not None and unit.priority > self.head.priority:
            self.undisturbed = False

    def _make_room(self, unit: Unit, decision: Decision) -> None:
        cluster = self.world.cluster
        for key in displaced(cluster.snapshot(), decision, unit.priority):
            cluster.forget_nomination(key)
            self.world.unnominate(key.path)
        snapshot = cluster.snapshot()
        for one in nominations_of(decision, unit.priority):
            before = snapshot.pod_index.nominations.get(one.pod.path)
            still = {key for key in before.evictions if key.path in snapshot.pods} if before is not None else set()
            cluster.nominate([replace(one, evictions=one.evictions | still)])
        for member in decision.members:
            if member.status == "nominated" and ("Pod", member.pod.path) in self.world.api:
                stored = self.world.api["Pod", member.pod.path]
                self.world.put(with_status(stored, nominatedNodeName=member.node))
            elif member.status != "nominated":
                cluster.forget_nomination(member.pod)

    @precondition(lambda self: self.world.binding_tasks)
    @rule(index=which, broken=st.integers(-3, 2), member=which, fails=st.sampled_from([False, False, True]))
    def carry_on(self, index: int, broken: int, member: int, fails: bool) -> None:
        """The next step of an errand, which may fail."""
        binding_task = pick(self.world.binding_tasks, index)
        if binding_task.ready is None:
            self.world.reserve(binding_task, broken)
            if len(binding_task.ready or ()) < len(binding_task.members):
                # Who was about to start, and does not, ends at another time than was foreseen.
                self._disturb("")
        else:
            self.world.bind(binding_task, member, fails=fails)
            if fails:
                self._disturb("")

    # -- the head of the queue ---------------------------------------------------------------------------------------

    @precondition(lambda self: self._waiting())
    @rule(index=which, drop=st.sampled_from([False, False, False, True]))
    def keep_places(self, index: int, drop: bool) -> None:
        """A unit that was refused becomes the head of the queue, instead of whoever was; or nobody is any more."""
        if drop:
            self._drop()
            return
        world, unit = self.world, pick(self._waiting(), index)
        chosen = options(now=world.now)
        before = world.cluster.snapshot().reservation
        world.cluster.reserve(None if self.head is not None and self.head.name == unit.name else before)
        if decide(world.cluster.snapshot(), unit.pods, group=unit.obj, options=chosen).status != "unschedulable":
            world.cluster.reserve(before)
            return
        found = reserve_earliest_start(world.cluster.snapshot(), unit.pods, group=unit.obj, options=chosen)
        self._drop()
        if found is not None:
            world.cluster.reserve(found)
            # News of a node that is on its way may be that it is gone: places were found on what was known.
            self.head, world.late = unit, False
            self.undisturbed = not {"Node", "ResourceSlice"} & set(world.lagged())
            self.counted_on = world.view().promised
            self.promised = checks.promised_above(world, found.priority)

    def _drop(self) -> None:
        self.head, self.undisturbed = None, False
        self.world.cluster.reserve(None)

    def _disturb(self, unit: str) -> None:
        """Something has happened to a unit, or (nothing) to many, for which nobody who went first can be blamed."""
        if self.head is not None and unit in ("", self.head.name):
            self.undisturbed = False

    # -- what happens anyway -----------------------------------------------------------------------------------------

    @rule(listed=st.lists(st.tuples(st.sampled_from(HAPPENINGS), which, which), min_size=1, max_size=3))
    def happens(self, listed: list[tuple[str, int, int]]) -> None:
        """Things happen that nobody decided."""
        for what, index, how in listed:
            getattr(self, f"_{what}")(index, how)

    def _tick(self, index: int, how: int) -> None:
        """Time passes."""
        self.world.tick(pick([1, 4, 10, 30, 100], how))

    def _pod_goes(self, index: int, how: int) -> None:
        """A pod ends by itself, or somebody deletes it: at once if it waits, else it is going."""
        world = self.world
        pods = {p: o for p, o in world.objects("Pod", seen=False).items() if not deleting(o) and not ended(o)}
        if not pods:
            return
        path = pick(sorted(pods), index)
        found = pods[path]
        if found["spec"].get("nodeName"):
            ends = how % 2 == 0
            world.put(with_status(found, phase="Succeeded") if ends else marked(found, world.now, preempted=False))
        elif how % 2:
            world.delete("Pod", path)
            self._disturb(group_of(found) or path)
        else:
            return
        self._hit(path, found)

    def _victim_leaves(self, index: int, how: int) -> None:
        """A pod that was going, or has ended, is gone; mostly its claims are freed."""
        world = self.world
        pods = sorted(p for p, o in world.objects("Pod", seen=False).items() if deleting(o) or ended(o))
        if pods:
            path = pick(pods, index)
            self._hit(path, world.api["Pod", path])
            world.delete("Pod", path)
        if how % 4:
            world.free_claims()

    def _free_claims(self, index: int, how: int) -> None:
        """What nobody uses any more is freed."""
        self.world.free_claims()

    def _node_changes(self, index: int, how: int) -> None:
        """A node is lost with its devices, tainted, or (again) as it was."""
        world = self.world
        machine = pick([world.machines[name] for name in sorted(world.machines)], index)
        if how == 0:
            if ("Node", machine.name) in world.api:
                for obj in [*machine.slices(), *list(machine.objects())[:1]]:
                    world.delete(obj["kind"], obj["metadata"]["name"])
                self.undisturbed = False
            return
        for obj in machine.objects(tainted=how == 1):
            world.put(obj)
        self.undisturbed &= how != 1

    def _group_changes(self, index: int, how: int) -> None:
        """A PodGroup is deleted, or is there again, or asks for one member more or less."""
        world = self.world
        if not self.groups:
            return
        path = pick(sorted(self.groups), index)
        group = world.api.get(("PodGroup", path))
        if how == 0 and group is not None:
            world.delete("PodGroup", path)
        elif how and (how < 4 or group is None):
            minimum = max(1, self.groups[path]["spec"]["schedulingPolicy"]["gang"]["minCount"] + pick([-1, 1, 1], how))
            gang = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
            self.groups[path] = world.put({**self.groups[path], "spec": {**self.groups[path]["spec"], **gang}})
        if world.truth().members(path) or world.lagged() or any(task.group == path for task in world.binding_tasks):
            # Who has a place already may be too few for what it asks by now.
            world.hit.add(path)
        self._disturb("")

    def _watch(self, index: int, how: int) -> None:
        """The watch lags from now on, or all news has arrived, or some of one kind."""
        self.world.lagging = how < 6
        for kind in self.world.lagged() if how >= 6 else ():
            self.world.deliver(kind)
        if self.world.lagged():
            self.world.deliver(pick(self.world.lagged(), index), how)

    def _hit(self, path: str, found: Obj) -> None:
        """A gang has lost a member by what is nobody's decision, or is everybody's."""
        if group_of(found):
            self.world.hit.add(group_of(found))

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_given_twice(self) -> None:
        checks.check_state(self.world)

    @invariant()
    def no_gang_is_bound_in_part(self) -> None:
        checks.check_gangs(self.world)

    @invariant()
    def nobody_delays_the_head(self) -> None:
        reservation: BackfillReservation | None = self.world.cluster.snapshot().reservation
        if self.head is None or reservation is None or self.world.late or not self.undisturbed:
            return
        if checks.stays(self.world, self.counted_on):
            # Who was to evict them gave it up, before anybody heard that they go.
            self.undisturbed = False
        elif checks.promised_above(self.world, reservation.priority) - self.promised:
            # Somebody more important has a promise by now, or is heard to have one: that counts before the head's.
            self.undisturbed = False
        elif reservation.until is not None:
            checks.check_head(self.world, self.head, reservation)


def pick(found: list[T], index: int) -> T:
    """One of a list, whatever its length."""
    return found[index % len(found)]
