"""Work that arrives over time, decided by the engine in virtual time: who starts when, who waits, how full it gets.

Objects are there from the beginning; pods that have an arrival time come then, with the claims that were made for them.
Whenever something comes or ends, one round decides all that waits (`run_course` goes on the same way). A pod ends when
its run-time limit has passed since it started; one without a limit stays. Who is evicted comes back, if its maker or
gang makes it again, and begins from the start. Time jumps from event to event: nothing waits for a clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from haru.engine import Options
from haru.engine.state import PodInfo, object_path, parse_limit, run_limit
from haru.explain import PendingRow
from haru.kube.meta import Obj, controller_of, uid_of
from haru.kube.names import format_time
from haru.whatif.course import Course
from haru.whatif.left_pending import Inquiry, left_pending
from haru.whatif.objects import Objects
from haru.whatif.usage import Amount, usage_of

ARRIVAL = "haru.dev/arrival-time"
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
"""When virtual time begins. Decisions see it only as a number that grows."""


class ArrivalError(ValueError):
    """A time of arrival that cannot be read; the text names whose it is, the value and what to write."""


@dataclass(slots=True)
class Story:
    """One pod: seconds from the beginning at which it came, last started and ended; None: it has not."""

    path: str
    arrived: float
    started: float | None = None
    ended: float | None = None
    node: str = ""
    evictions: int = 0

    @property
    def waited(self) -> float | None:
        """Seconds until its last start."""
        return None if self.started is None else self.started - self.arrived


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of all that came. `usage` is, at each moment at which it changed, the part of devices in use.

    `pending` explains what waits at the end.
    """

    stories: tuple[Story, ...]
    usage: tuple[tuple[float, float], ...]
    end: float
    errors: tuple[str, ...]
    pending: tuple[PendingRow, ...] = ()

    @property
    def started(self) -> int:
        """How many pods had a place."""
        return sum(1 for story in self.stories if story.started is not None)

    @property
    def mean_wait(self) -> float:
        """The mean of the seconds that pods waited until their last start; what never started does not count."""
        waits = [story.waited for story in self.stories if story.waited is not None]
        return sum(waits) / len(waits) if waits else 0.0

    @property
    def mean_usage(self) -> float:
        """The part of devices in use, from 0 to 1, averaged over the time until the end."""
        if not self.usage or self.end <= 0:
            return self.usage[-1][1] if self.usage else 0.0
        moments = [*self.usage, (self.end, 0.0)]
        return sum(share * (after - at) for (at, share), (after, _) in pairwise(moments)) / self.end

    def curve(self, points: int) -> tuple[float, ...]:
        """The part in use in percent, at so many moments from the beginning to the end."""
        found, index = [], 0
        for number in range(points):
            at = self.end * number / max(points - 1, 1)
            while index + 1 < len(self.usage) and self.usage[index + 1][0] <= at:
                index += 1
            found.append(self.usage[index][1] * 100 if self.usage else 0.0)
        return tuple(found)


def arrival_times(objects: Iterable[Obj], given: Mapping[str, float]) -> dict[str, float]:
    """The seconds at which pods come, by path: as given, else by their annotation. Raises ArrivalError."""
    found: dict[str, float] = {}
    for obj in objects:
        if obj["kind"] != "Pod":
            continue
        path = object_path(obj)
        text = (obj["metadata"].get("annotations") or {}).get(ARRIVAL)
        if path in given:
            found[path] = given[path]
        elif text is not None:
            try:
                found[path] = parse_time(text)
            except ValueError as error:
                raise ArrivalError(f"Pod {path}: metadata.annotations[{ARRIVAL}]: {error}") from error
    return found


def parse_time(text: str) -> float:
    """Seconds of `90`, `90s` or `1h30m`. Raises ValueError, which says what to write."""
    plain = text.strip()
    if plain.replace(".", "", 1).isdigit():
        return float(plain)
    return parse_limit(plain)


def replay(
    objects: Iterable[Obj],
    arrivals: Mapping[str, float],
    options: Options,
    scheduler_name: str,
    inquiry: Inquiry | None = None,
) -> Replay:
    """Let everything arrive and run until nothing happens any more; the objects are not touched."""
    late, there = _split(list(objects), arrivals)
    return _Replaying(there, late, options, scheduler_name).play(inquiry or Inquiry())


def _split(objects: list[Obj], arrivals: Mapping[str, float]) -> tuple[list[tuple[float, str, list[Obj]]], list[Obj]]:
    """What comes later, each pod with its own claims, by time and path; and what is there from the beginning."""
    coming: dict[str, list[Obj]] = {}
    owners: dict[str, str] = {}
    there = []
    for obj in objects:
        path = object_path(obj)
        if obj["kind"] == "Pod" and arrivals.get(path, 0.0) > 0:
            coming[path] = [obj]
            owners[uid_of(obj)] = path
        else:
            there.append(obj)
    kept = []
    for obj in there:
        owner = owners.get((controller_of(obj) or {}).get("uid") or "") if obj["kind"] == "ResourceClaim" else None
        if owner is None:
            kept.append(obj)
        else:
            coming[owner].insert(0, obj)
    return sorted((arrivals[path], path, parts) for path, parts in coming.items()), kept


@dataclass(order=True)
class _End:
    at: float
    path: str
    uid: str = field(compare=False, default="")


class _Replaying(Course):
    """A course of events in which things arrive and end."""

    def __init__(
        self,
        there: list[Obj],
        late: list[tuple[float, str, list[Obj]]],
        options: Options,
        scheduler_name: str,
    ) -> None:
        objects = Objects(there)
        options = replace(options, now=BEGINNING.timestamp())
        super().__init__(objects, objects, options, scheduler_name, BEGINNING)
        self._late = late
        self._ends: list[_End] = []
        self._running: dict[str, str] = {}
        self._stories: dict[str, Story] = {}
        self._usage: list[tuple[float, float]] = []

    def play(self, inquiry: Inquiry) -> Replay:
        """Until nothing more comes and nothing more ends."""
        self._meet()
        while True:
            self._rounds = 0
            while self._depart() or self._decide():
                pass
            self._look()
            at = self._next()
            if at is None:
                break
            self._now = BEGINNING + timedelta(seconds=at)
            self._options = replace(self._options, now=self._now.timestamp())
            self._arrive(at)
            self._finish(at)
        stories = tuple(self._stories[path] for path in sorted(self._stories))
        errors = tuple(dict.fromkeys(self._end.errors))
        pending = left_pending(self._cluster.snapshot(), self._now, inquiry)
        return Replay(stories, tuple(self._usage), self._seconds(), errors, pending)

    def _seconds(self) -> float:
        return (self._now - BEGINNING).total_seconds()

    def _next(self) -> float | None:
        """When something happens next: an arrival, an end, or a pod that has to go because of a taint."""
        moments = [self._late[0][0]] if self._late else []
        moments += [self._ends[0].at] if self._ends else []
        moments += [(d.at - BEGINNING).total_seconds() for d in self._due(lambda at: at > self._now)]
        return min(moments, default=None)

    def _arrive(self, at: float) -> None:
        while self._late and self._late[0][0] <= at:
            _, _, parts = self._late.pop(0)
            for obj in parts:
                self._cluster.apply(obj)
        self._meet()

    def _finish(self, at: float) -> None:
        while self._ends and self._ends[0].at <= at:
            end = heapq.heappop(self._ends)
            snapshot = self._cluster.snapshot()
            pod = snapshot.pods.get(end.path)
            if pod is not None and pod.key.uid == end.uid and self._running.get(end.path) == end.uid:
                self._stories[end.path].ended = at
                del self._running[end.path]
                self._release(snapshot, pod)
                self._cluster.remove(pod.obj)

    def _meet(self) -> None:
        """Begin the stories of pods that are new."""
        for path in self._cluster.snapshot().pods:
            self._stories.setdefault(path, Story(path, self._seconds()))

    def _look(self) -> None:
        """Note who has started and who has lost its place, and how full the devices are."""
        now, snapshot = self._seconds(), self._cluster.snapshot()
        for path, uid in list(self._running.items()):
            pod = snapshot.pods.get(path)
            if pod is None or pod.key.uid != uid or not pod.node:
                story = self._stories[path]
                story.started, story.node = None, ""
                story.evictions += 1
                del self._running[path]
        for path, pod in snapshot.pods.items():
            if pod.node and not pod.terminal and path not in self._running:
                story = self._stories.setdefault(path, Story(path, now))
                story.started, story.node = now, pod.node
                self._running[path] = pod.key.uid
                self._cluster.apply(_bound(pod, format_time(self._now)))
                limit = run_limit(snapshot, pod)
                if limit is not None:
                    heapq.heappush(self._ends, _End(now + limit, path, pod.key.uid))
        share = _share_in_use(usage_of(snapshot))
        if not self._usage or self._usage[-1][1] != share:
            self._usage.append((now, share))


def _bound(pod: PodInfo, now: str) -> Obj:
    """The pod as it is once it runs: what is only about to be bound is never evicted."""
    spec = {**pod.spec, "nodeName": pod.node}
    status = {**pod.status, "phase": "Running", "startTime": pod.status.get("startTime") or now}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod.obj["metadata"], "spec": spec, "status": status}


def _share_in_use(amounts: Mapping[str, Amount]) -> float:
    """The part of all devices that is in use; of the cpu where there are no devices."""
    devices = [amount for name, amount in amounts.items() if name.startswith("devices ")]
    total = Amount(sum(amount.total for amount in devices), sum(amount.used for amount in devices))
    return total.share if total.total else amounts.get("cpu", Amount()).share
