"""A small cluster with its API, its watch and the carrying out of decisions, as far as safety depends on them.

What is stored is the truth; the scheduler's `Cluster` hears of it through one stream of events for each kind, which may
lag. A decision is carried out in the steps of the live scheduler (docs/adr/0002), with its own checks before a claim is
written, and any of them may fail. Source: our own, after `haru.scheduler.binding.binding_cycle`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from engine_objects import Obj
from safety_books import Books, Hardware, classes, wide_pool
from safety_view import (
    View,
    allocation_of,
    claims_of,
    deleting,
    ended,
    group_of,
    is_evicted,
    key_of,
    marked,
    moment,
    reserved_for,
    with_status,
)

from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import MemberDecision, PodKey, namespaced_name, object_path
from haru.engine.state.pending_reservations import evicted_pods
from haru.scheduler.binding import BindingError, ClaimWrite, claim_writes, freed_status, reserved_claim

Key = tuple[str, str]
START = 1_800_000_000.0
DEFAULT_GRACE = 30


@dataclass(eq=False)
class Errand:
    """What one decision asks for. `ready` are the members past the barrier, None before it."""

    group: str
    minimum: int
    members: tuple[MemberDecision, ...]
    decided: float
    claims: dict[str, Obj] = field(default_factory=dict)
    ready: list[MemberDecision] | None = None


class World:
    """`api` is what is stored, `seen` what the scheduler has heard of it, `limits` the seconds that pods run at most.

    Limits that are only promised (`unenforced`) may be broken. `hit` are groups that lost members by a fault. `late`:
    somebody took so long from its decision to its start that no foreseen time holds.
    """

    def __init__(self, machines: Sequence[Hardware], wide: int, cluster: SchedulerCache | None = None) -> None:
        self.machines = {machine.name: machine for machine in machines}
        self.books = Books(machines, wide)
        self.api: dict[Key, Obj] = {}
        self.seen: dict[Key, Obj] = {}
        self.cluster = cluster or SchedulerCache()
        self.now = START
        self.lagging = False
        self.binding_tasks: list[Errand] = []
        self.limits: dict[str, int] = {}
        self.unenforced: set[str] = set()
        self.hit: set[str] = set()
        self.robbed: set[str] = set()
        self.late = False
        self.refused: list[str] = []
        self._events: dict[str, deque[tuple[str, Obj | None]]] = {}
        self._assumed: dict[str, str] = {}
        self._joined: dict[str, dict[str, Obj]] = {}
        self._written: dict[str, Obj] = {}
        self._revision = 1
        for obj in (*classes(), *([wide_pool(wide)] if wide else []), *(o for m in machines for o in m.objects())):
            self.put(obj)

    # -- the API and its watch ---------------------------------------------------------------------------------------

    def put(self, obj: Obj) -> Obj:
        """Store an object."""
        self._revision += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._revision)}}
        self.api[obj["kind"], object_path(obj)] = obj
        self._tell(obj["kind"], object_path(obj), obj)
        return obj

    def delete(self, kind: str, path: str) -> None:
        """Remove an object."""
        del self.api[kind, path]
        self._tell(kind, path, None)

    def _tell(self, kind: str, path: str, obj: Obj | None) -> None:
        self._events.setdefault(kind, deque()).append((path, obj))
        if not self.lagging:
            self.deliver(kind)

    def lagged(self) -> list[str]:
        """The kinds of which there is news."""
        return sorted(kind for kind, events in self._events.items() if events)

    def deliver(self, kind: str, most: int | None = None) -> None:
        """Let the scheduler hear the news of one kind."""
        events = self._events.get(kind) or deque()
        for _ in range(len(events) if most is None else min(most, len(events))):
            path, obj = events.popleft()
            if kind == "Pod":
                self._heard(path, self.seen.get((kind, path)), obj)
            if obj is None:
                self.cluster.remove(self.seen.pop((kind, path)))
            else:
                self.seen[kind, path] = obj
                self.cluster.apply(obj)
            if kind == "Pod" and (obj is None or obj["spec"].get("nodeName") or ended(obj)):
                self._forget(path)

    def _forget(self, path: str) -> None:
        self._assumed.pop(path, None)
        self._joined.pop(path, None)

    def _heard(self, path: str, before: Obj | None, pod: Obj | None) -> None:
        """Whether its group has lost a member by eviction, or has another one with a place."""
        last = pod or before
        assert last is not None
        if pod is None or ended(pod):
            if last["spec"].get("nodeName") and is_evicted(last):
                self.robbed.add(group_of(last))
        elif pod["spec"].get("nodeName") and not (before or pod)["spec"].get("nodeName") and path not in self._assumed:
            self.robbed.discard(group_of(pod))

    def objects(self, kind: str, *, seen: bool = True) -> dict[str, Obj]:
        """By path."""
        return {path: obj for (known, path), obj in (self.seen if seen else self.api).items() if known == kind}

    def view(self) -> View:
        """What the scheduler is to go by."""
        pods, claims = self.objects("Pod"), self.objects("ResourceClaim")
        places = {path: pod["spec"]["nodeName"] for path, pod in pods.items() if pod["spec"].get("nodeName")}
        for path, written in self._written.items():
            if path in claims and _revision(written) > _revision(claims[path]):
                claims[path] = written
        under_way = {
            path: c
            for binding_task in self.binding_tasks
            if binding_task.ready is None
            for path, c in binding_task.claims.items()
        }
        under_way = {path: claim for path, claim in under_way.items() if path in claims}
        promised = {
            key.path for key in evicted_pods(self.cluster.snapshot().pod_index.nominations.values()) if key.path in pods
        }
        return View(
            pods,
            {**places, **self._assumed},
            {path: self._with_joined(path, claim) for path, claim in {**claims, **under_way}.items()},
            frozenset(under_way),
            frozenset(promised),
            frozenset(self.robbed),
        )

    def _with_joined(self, path: str, claim: Obj) -> Obj:
        """The claim with those that are about to join it."""
        known = {entry["uid"] for entry in reserved_for(claim)}
        added = [joined[path] for joined in self._joined.values() if path in joined]
        entries = {entry["uid"]: entry for entry in added if entry["uid"] not in known}
        if not entries or allocation_of(claim) is None:
            return claim
        return {**claim, "status": {**claim["status"], "reservedFor": [*reserved_for(claim), *entries.values()]}}

    def truth(self) -> View:
        """What is stored."""
        pods = self.objects("Pod", seen=False)
        places = {path: pod["spec"]["nodeName"] for path, pod in pods.items() if pod["spec"].get("nodeName")}
        return View(pods, places, self.objects("ResourceClaim", seen=False))

    def fork(
        self,
        going: Collection[str] = (),
        *,
        freed: bool = False,
        evicted: Collection[str] = (),
        only_on: str = "",
        reservation: bool = True,
    ) -> SchedulerCache:
        """Another cluster like the one that the scheduler sees, without some pods and, if so, with the claims freed."""
        view, snapshot = self.view(), self.cluster.snapshot()
        made = SchedulerCache()
        claims = view.freed(going, evicted) if freed else view.claims
        under_way = {path for path in view.in_flight if allocation_of(claims[path]) is not None}
        for (kind, path), obj in self.seen.items():
            if kind == "Node" and only_on and path != only_on:
                obj = {**obj, "spec": {**obj["spec"], "unschedulable": True}}
            if kind == "ResourceClaim":
                obj = obj if path in under_way else claims[path]
            if kind != "Pod" or path not in going:
                made.apply(obj)
        for path in sorted(under_way):
            made.assume_claim(claims[path])
        for path, node in self._assumed.items():
            if path not in going:
                made.assume_pod(key_of(view.pods[path]), node, (), self._joined[path])
        for group in sorted(view.robbed(going, evicted) - {""}):
            self._rob(made, group)
        standing = [one for path, one in snapshot.pod_index.nominations.items() if path not in going]
        made.nominate(standing)
        made.reserve(snapshot.reservation if reservation else None)
        return made

    def _rob(self, cluster: SchedulerCache, group: str) -> None:
        """Let a member of a group be evicted that was there before all others."""
        spec = {"nodeName": "nowhere", "schedulingGroup": {"podGroupName": group.split("/")[1]}, "containers": []}
        metadata = {"name": "robbed", "namespace": "default", "uid": "uid-robbed"}
        ghost: Obj = {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}
        # It has its place first, which ends the memory of earlier ones.
        for seen in (ghost, marked(ghost, self.now, preempted=True)):
            cluster.apply(seen)
        cluster.remove(ghost)

    # -- carrying out ------------------------------------------------------------------------------------------------

    def start(self, members: tuple[MemberDecision, ...], group: str, minimum: int) -> Errand:
        """Count the members as placed and their claims as allocated from now on."""
        binding_task, claims = Errand(group, minimum, members, self.now), self.view().claims
        for member in members:
            self.cluster.assume_pod(member.pod, member.node or "", member.claimed, member.joined)
            self._assumed[member.pod.path] = member.node or ""
            self._joined[member.pod.path] = member.joined
        self.robbed.discard(group)
        for path, write in claim_writes(members).items():
            if write.allocation is not None:
                binding_task.claims[path] = reserved_claim(claims[path], write, None)
                self.cluster.assume_claim(binding_task.claims[path])
        self.binding_tasks.append(binding_task)
        return binding_task

    def reserve(self, binding_task: Errand, broken: int = -1) -> None:
        """Write all claims, of which one may fail; then go on as a whole, or take back as a whole.

        Errands of one group take turns.
        """
        for other in self.binding_tasks[: self.binding_tasks.index(binding_task)]:
            if binding_task.group and other.group == binding_task.group and other.ready is None:
                self.reserve(other)
        failed: set[PodKey] = set()
        for number, (path, write) in enumerate(claim_writes(binding_task.members).items()):
            try:
                self._write(path, write, refused=number == broken)
            except BindingError as error:
                self.refused.append(str(error))
                failed |= write.pods
        failed |= {one.pod for one in binding_task.members if one.pod not in failed and self._fallen(binding_task, one)}
        ready = [member for member in binding_task.members if member.pod not in failed]
        if binding_task.group and len(self._certain(binding_task)) + len(ready) < binding_task.minimum:
            ready = []
        for member in ready if binding_task.minimum > 1 else ():
            if (pod := self.api.get(("Pod", member.pod.path))) is not None:
                self.put(with_status(pod, nominatedNodeName=member.node))
        binding_task.ready = ready
        self._take_back(binding_task, [member for member in binding_task.members if member not in ready])
        if not ready:
            self.binding_tasks.remove(binding_task)

    def bind(self, binding_task: Errand, number: int, *, fails: bool = False) -> None:
        """Bind one of the members that are ready; the last one ends the errand."""
        assert binding_task.ready
        member = binding_task.ready.pop(number % len(binding_task.ready))
        pod = self.api.get(("Pod", member.pod.path))
        if fails or pod is None or deleting(pod):
            self.hit.add(binding_task.group)
            self._take_back(binding_task, [member])
        else:
            self.late |= self.now > binding_task.decided + 5
            pod = {**pod, "spec": {**pod["spec"], "nodeName": member.node}}
            self.put(with_status(pod, phase="Running", startTime=moment(self.now), nominatedNodeName=None))
        if not binding_task.ready:
            self.binding_tasks.remove(binding_task)

    def _write(self, path: str, write: ClaimWrite, *, refused: bool) -> None:
        claim = self.api.get(("ResourceClaim", path))
        if claim is None or refused:
            raise BindingError(f"claim {path} cannot be written")
        self._learn(self.put(reserved_claim(claim, write, None)))

    def _learn(self, claim: Obj) -> None:
        self._written[namespaced_name(claim)] = claim
        self.cluster.assume_claim(claim, written=True)

    def _fallen(self, binding_task: Errand, member: MemberDecision) -> bool:
        pod = self.seen.get(("Pod", member.pod.path))
        if pod is None or deleting(pod) or ("Node", member.node) not in self.seen:
            return True
        claims = self.view().claims
        others = {
            path
            for other in self.binding_tasks
            if other is not binding_task and other.ready is None
            for path in other.claims
        }
        return any(path in others or path not in claims or not reserved_for(claims[path]) for path in claims_of(pod))

    def _certain(self, binding_task: Errand) -> set[str]:
        sent = {member.pod.path for other in self.binding_tasks if other.ready is None for member in other.members}
        return set(self.view().members(binding_task.group)) - sent

    def _take_back(self, binding_task: Errand, failed: Sequence[MemberDecision]) -> None:
        if failed:
            gone = {member.pod for member in failed}
            staying = (
                set(self.view().members(binding_task.group)) - {pod.path for pod in gone}
                if binding_task.group
                else set()
            )
            for path, write in claim_writes(failed).items():
                self._undo(path, write, keep_group=bool(staying))
            for path, write in claim_writes(binding_task.members).items():
                if path in binding_task.claims and write.pods <= gone:
                    self.cluster.forget_claim(path, binding_task.claims[path])
            for member in failed:
                self.cluster.forget_pod(member.pod)
                self._forget(member.pod.path)
                self.unnominate(member.pod.path)

    def _undo(self, path: str, write: ClaimWrite, *, keep_group: bool) -> None:
        claim = self.api.get(("ResourceClaim", path))
        if claim is None or allocation_of(claim) is None:
            return
        ours = {e["uid"] for e in write.consumers if not (keep_group and e["resource"] == "podgroups")}
        left = [entry for entry in reserved_for(claim) if entry["uid"] not in ours]
        if not left and write.allocation is not None:
            self._learn(self.put({**claim, "status": freed_status(claim)}))
        elif left != reserved_for(claim):
            self._learn(self.put(with_status(claim, reservedFor=left)))

    def unnominate(self, path: str) -> None:
        """The pod waits for no node any more."""
        pod = self.api.get(("Pod", path))
        if pod is not None and "nominatedNodeName" in pod["status"]:
            self.put(with_status(pod, nominatedNodeName=None))

    # -- what happens anyway -----------------------------------------------------------------------------------------

    def free_claims(self) -> None:
        """What the claim controller does, and for evicted groups the scheduler: what nobody uses any more is freed.

        A group keeps what it has reserved when its members end, but not when they were evicted.
        """
        held = {
            e["uid"]
            for binding_task in self.binding_tasks
            for w in claim_writes(binding_task.members).values()
            for e in w.consumers
        }
        truth, view = self.truth(), self.view()
        for path, claim in truth.claims.items():
            entries = reserved_for(claim)
            left = [entry for entry in entries if entry["uid"] in held or self._is_used(entry, path, truth, view)]
            if allocation_of(claim) is not None and (not left or left != entries):
                status = {**claim["status"], "reservedFor": left} if left else freed_status(claim)
                written = self.put({**claim, "status": status})
                if any(entry["resource"] != "pods" and entry not in left for entry in entries):
                    self._learn(written)

    def _is_used(self, entry: Obj, claim: str, truth: View, view: View) -> bool:
        path = f"default/{entry['name']}"
        if entry["resource"] == "pods":
            return path in truth.pods and not ended(truth.pods[path])
        return path not in self.robbed or bool(truth.users(path, claim) | view.users(path, claim))

    def tick(self, seconds: int) -> None:
        """Time passes; whoever has used up its run time ends."""
        self.now += seconds
        self.late |= any(self.now > binding_task.decided + 5 for binding_task in self.binding_tasks)
        for path, end in list(self.ends(self.truth())):
            if end is not None and end <= self.now and path not in self.unenforced:
                self.put(with_status(self.api["Pod", path], phase="Failed"))

    def ends(self, view: View) -> Iterator[tuple[str, float | None]]:
        """The living pods on nodes, and when each will have ended at the latest; None if nobody knows."""
        for path in view.placed():
            # A pod has started whether or not that has been heard of.
            pod = self.api.get(("Pod", path)) or view.pods[path]
            seconds, started = self.limits.get(path), pod["status"].get("startTime")
            began = datetime.fromisoformat(started).timestamp() if started else self.now
            yield path, None if seconds is None else began + seconds


def _revision(obj: Obj) -> int:
    return int(obj["metadata"]["resourceVersion"])
