"""The course of events in a cluster that is left to itself: who has to go, goes; what waits, is decided; until rest.

Who goes is made again at once if somebody makes it again: pods with a controller, and members of a gang, whose maker
keeps it whole. It comes back under its old name, younger than before, with new claims from its templates. Time jumps to
the next pod whose toleration runs out; nothing ends by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from haru.engine import Options, RoundResult, SchedulerCache, Snapshot, run_round
from haru.engine.plugins import attachments_of_pods
from haru.engine.podgroup import count_succeeded
from haru.engine.state import Eviction, PodInfo, consumer_key, freed, workload_of
from haru.kube.meta import Obj, controller_of
from haru.kube.names import format_time
from haru.whatif.departures import Cause, Departure, Ground, departures
from haru.whatif.objects import Objects

MAX_ROUNDS = 100
"""Of evictions that make room, each followed by a round of decisions. Priorities bound them; this is for safety."""


@dataclass(frozen=True, slots=True)
class Displaced:
    """A pod that lost its place: where it was, why, whether it is made again, and after how many seconds it went."""

    pod: PodInfo
    cause: Cause
    remade: bool
    after_seconds: int = 0


@dataclass(slots=True)
class End:
    """The cluster at rest, at a time: who was displaced (by path, the first time counts).

    `circling` are pods that are driven away again wherever they come back to. `settled` is false if rest was not
    reached within `MAX_ROUNDS`.
    """

    snapshot: Snapshot
    at: datetime
    displaced: dict[str, Displaced] = field(default_factory=dict)
    circling: dict[str, Cause] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    settled: bool = True


def run_course(objects: Objects, original: Objects, options: Options, scheduler_name: str, now: datetime) -> End:
    """Let a cluster come to rest; `original` is what it was before it was changed."""
    return Course(objects, original, options, scheduler_name, now).run()


class Course:
    """One course of events, to be run once."""

    def __init__(
        self, objects: Objects, original: Objects, options: Options, scheduler_name: str, now: datetime
    ) -> None:
        self._objects = objects
        self._options = options
        self._scheduler_name = scheduler_name
        self._began = self._now = now
        self._ground = Ground.of(objects, original)
        self._cluster = SchedulerCache.of(objects)
        for attachment in attachments_of_pods(self._cluster.snapshot()):
            self._cluster.remove(attachment)
        count_succeeded(self._cluster)
        self._end = End(self._cluster.snapshot(), now)
        self._gone: set[tuple[str, str, str]] = set()
        self._rounds = 0

    def run(self) -> End:
        """Until nobody has to go any more, and nobody has to go for others."""
        for path in list(
            self._cluster.snapshot().pod_index.terminating
        ):  # who makes it again has done so when it was deleted
            self._displace(path, Cause("Deleted", "is being deleted already"), remade=False)
        for path, again in self._objects.doomed.items():
            if path in self._cluster.snapshot().pods:
                self._displace(path, Cause("Deleted", "deleted by the change"), remade=again)
        while self._depart() or self._decide() or self._due(lambda at: at <= self._now) or self._wait():
            pass
        self._end.snapshot, self._end.at = self._cluster.snapshot(), self._now
        return self._end

    # -- leaving -------------------------------------------------------------------------------------------------------

    def first(self, found: list[Departure]) -> list[Departure]:
        """Those who go before the next decisions are made, of those who have to go: all of them."""
        return found

    def _depart(self) -> bool:
        """Whoever has to go by now goes; whether anybody did."""
        moved = False
        for departure in self.first(self._due(lambda at: at <= self._now)):
            node = self._cluster.snapshot().pods[departure.path].node
            seen = (departure.path, departure.cause.type, node)
            if seen in self._gone:
                self._end.circling[departure.path] = departure.cause
            else:
                self._gone.add(seen)
                self._displace(departure.path, departure.cause, remade=self._is_made_again(departure.path))
                moved = True
        return moved

    def _wait(self) -> bool:
        """Let time pass until the next pod has to go; whether there is one."""
        later = self._due(lambda at: at > self._now)
        if later:
            self._now = min(departure.at for departure in later)
        return bool(later)

    def _due(self, when: Callable[[datetime], bool]) -> list[Departure]:
        """Who has to go at such a time, but for those who are known to go round in circles."""
        found = departures(self._cluster.snapshot(), self._ground, self._began)
        return [d for d in found if when(d.at) and d.path not in self._end.circling]

    def _is_made_again(self, path: str) -> bool:
        pod = self._cluster.snapshot().pods[path]
        if controller_of(pod.obj) is not None:
            return self._objects.has_maker(pod.obj)
        return pod.group is not None and pod.group.path in self._cluster.snapshot().pod_groups

    def _displace(self, path: str, cause: Cause, *, remade: bool) -> None:
        snapshot = self._cluster.snapshot()
        pod = snapshot.pods[path]
        if pod.node and not pod.terminal:
            seconds = int((self._now - self._began).total_seconds())
            self._end.displaced.setdefault(path, Displaced(pod, cause, remade, seconds))
        own = self._release(snapshot, pod)
        self._cluster.remove(pod.obj)
        if remade:
            again = _made_again(pod, format_time(self._now))
            for claim in own:
                self._cluster.apply(_anew(claim, again))
            self._cluster.apply(again)

    def _release(self, snapshot: Snapshot, pod: PodInfo) -> list[Obj]:
        """Give back what a pod holds; answers with the claims that were made for it from templates, now gone."""
        path, key = pod.key.path, pod.key
        names = [s.get("resourceClaimName") for s in pod.status.get("resourceClaimStatuses") or ()]
        special = snapshot.claim_index.extended.get(key.uid) or frozenset()
        used = snapshot.claim_index.by_consumer.get(consumer_key("pods", key.namespace, key.name)) or frozenset()
        made: list[Obj] = []
        for claim_path in sorted({f"{key.namespace}/{name}" for name in names if name} | used | special):
            claim = snapshot.claims.get(claim_path)
            if claim is None:
                continue
            if (controller_of(claim) or {}).get("uid") == key.uid:
                self._cluster.remove({"kind": "ResourceClaim", **claim})
                made += [claim] if claim_path not in special else []
            elif claim_path in used:
                self._cluster.apply(_without_consumer(claim, path))
        return made

    # -- deciding ------------------------------------------------------------------------------------------------------

    def _decide(self) -> bool:
        """One round over all that waits, and what its evictions make of the cluster; whether somebody had to go."""
        result = run_round(self._cluster, self._options, self._scheduler_name)
        self._rounds += 1
        self._end.errors = result.errors
        if self._rounds >= MAX_ROUNDS:
            self._end.settled = not result.evictions
            return False
        for eviction in result.evictions:
            path = eviction.pod.path
            self._displace(path, self._made_room(result, eviction), remade=self._is_made_again(path))
        return bool(result.evictions)

    def _made_room(self, result: RoundResult, eviction: Eviction) -> Cause:
        pods: Mapping[str, PodInfo] = self._cluster.snapshot().pods
        there = [path for path, node in result.nominations.items() if node == eviction.node]
        paths = there or list(result.nominations)
        units = sorted({f"{pods[path].key.namespace}/{workload_of(pods[path])}" for path in paths})
        data = {"node": eviction.node, "for": units}
        if eviction.unit is not None:
            data["unit"] = eviction.unit.path
        return Cause("Preempted", f"evicted for {', '.join(units)}", data)


def _without_consumer(claim: Obj, pod: str) -> Obj:
    """The claim without one of its pods; freed if that was the last."""
    status = claim.get("status") or {}
    namespace = claim["metadata"].get("namespace") or "default"
    left = [
        entry
        for entry in status.get("reservedFor") or ()
        if entry.get("resource") != "pods" or f"{namespace}/{entry.get('name')}" != pod
    ]
    claim = {"kind": "ResourceClaim", **claim}
    return {**claim, "status": {**status, "reservedFor": left}} if left else freed(claim)


def _made_again(pod: PodInfo, now: str) -> Obj:
    """The pod that takes the place of one that has gone: alike, but young and without a node."""
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences", "generateName")
    metadata = {name: pod.obj["metadata"][name] for name in kept if name in pod.obj["metadata"]}
    status: Obj = {"phase": "Pending"}
    if recorded := pod.status.get("resourceClaimStatuses"):
        status["resourceClaimStatuses"] = recorded
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "uid": f"{pod.key.uid}/again", "creationTimestamp": now},
        "spec": {name: value for name, value in pod.spec.items() if name != "nodeName"},
        "status": status,
    }


def _anew(claim: Obj, pod: Obj) -> Obj:
    """The claim that is made from a template for a pod that was made again."""
    metadata = {name: value for name, value in claim["metadata"].items() if name != "resourceVersion"}
    owners = [
        {**owner, "uid": pod["metadata"]["uid"]} if owner.get("controller") else owner
        for owner in metadata.get("ownerReferences") or ()
    ]
    fresh = {**metadata, "uid": f"{metadata.get('uid')}/again", "ownerReferences": owners}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": fresh, "spec": claim["spec"]}
