"""Dump the scheduler's cache and queue into the log, for a scheduler that does not do what one expects.

The dump answers what no metric can: on which node the scheduler counts a pod, which of that the API server has not
confirmed yet, which places it keeps for whom, and in which stage of the queue each pod waits, and why.
`capture` copies what changes, on the event loop, in time proportional to the queue; the rest is immutable, so
`StateDump.lines` may be read in another thread. A line names one node, pod, claim or unit: `grep` finds it.
Source: pkg/scheduler/backend/cache/debugger of kube-scheduler, as behaviour; reservations are our own.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from haru.engine import SchedulerCache, Snapshot
from haru.engine.state import NodeInfo, Nomination, time_text
from haru.scheduler.queue.scheduling_queue import QueuedUnit, QueueStage, SchedulingQueue

_log = logging.getLogger(__name__)
_NONE = "none"
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class WaitingUnit:
    """A unit of the queue as it was. Times in seconds; `reasons` has the message of each pod that PreEnqueue holds."""

    key: tuple[str, str, str]
    stage: QueueStage
    priority: int
    pods: tuple[str, ...]
    attempts: int
    errors: int
    backoff_left: float
    rejected_by: frozenset[str]
    reasons: Mapping[str, str]

    def lines(self) -> Iterator[str]:
        """Yield the line of the unit, then one for each pod that PreEnqueue holds."""
        kind, namespace, name = self.key
        facts = [f"priority {self.priority}", f"attempts {self.attempts}"]
        if self.errors:
            facts.append(f"errors {self.errors}")
        if self.stage is QueueStage.BACKOFF:
            facts.append(f"backoff ends in {self.backoff_left:.1f} s")
        if self.stage is QueueStage.UNSCHEDULABLE:
            facts.append(f"rejected by {_listed(self.rejected_by)}")
        pods = f", pods {_listed(self.pods)}" if kind == "group" else ""
        yield f"  {kind} {namespace}/{name}: {', '.join(facts)}{pods}"
        for path, reason in sorted(self.reasons.items()):
            yield f"    pod {path} held: {reason}"


@dataclass(frozen=True, slots=True)
class CacheMismatch:
    """Objects that the informer and the cache disagree on: `missed` by the cache, `redundant` in it."""

    kind: str
    missed: tuple[str, ...]
    redundant: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateDump:
    """The scheduler's cache and queue at one time."""

    snapshot: Snapshot
    assumed_pods: frozenset[str]
    assumed_claims: tuple[str, ...]
    units: tuple[WaitingUnit, ...]
    mismatches: tuple[CacheMismatch, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the dump line by line: differences first, then nodes, assumptions, kept places and the queue."""
        for found in self.mismatches:
            missed, redundant = _listed(found.missed), _listed(found.redundant)
            yield f"Cache mismatch: {found.kind}: missed {missed}; redundant {redundant}"
        yield from self._nodes()
        yield from self._assumed()
        yield from self._kept_places()
        yield from self._queue()

    def _nodes(self) -> Iterator[str]:
        nominated: dict[str, list[str]] = {}
        for path, nomination in self.snapshot.pod_index.nominations.items():
            nominated.setdefault(nomination.node, []).append(path)
        for path, pod in self.snapshot.pod_index.nominated.items():
            if path not in self.snapshot.pod_index.nominations:
                nominated.setdefault(pod.nominated_node, []).append(path)
        yield f"Dump of cached NodeInfo: {len(self.snapshot.nodes)} nodes"
        for name, node in sorted(self.snapshot.nodes.items()):
            yield self._node(name, node, nominated.get(name, []))

    def _node(self, name: str, node: NodeInfo, nominated: list[str]) -> str:
        gone = "" if node.present else " (deleted)"
        pods = [f"{path} (assumed)" if path in self.assumed_pods else path for path in node.pods]
        text = f"  node {name}{gone}: requested {_amounts(node.requested)}; allocatable {_amounts(node.allocatable)}"
        text += f"; {len(pods)} pods: {_listed(pods)}"
        return f"{text}; nominated: {_listed(nominated)}" if nominated else text

    def _assumed(self) -> Iterator[str]:
        yield f"Dump of assumed pods: {_listed(self.assumed_pods)}"
        yield f"Dump of assumed claims: {_listed(self.assumed_claims)}"

    def _kept_places(self) -> Iterator[str]:
        snapshot = self.snapshot
        yield f"Dump of nominations: {len(snapshot.pod_index.nominations)}"
        for _, nomination in sorted(snapshot.pod_index.nominations.items()):
            yield _place(nomination)
        kept = snapshot.reservation
        if kept is None:
            yield "Dump of the backfill reservation: none"
            return
        holder = kept.group.path if kept.group is not None else kept.places[0].pod.path if kept.places else _NONE
        until = "no known time" if kept.until is None else time_text(kept.until)
        yield (
            f"Dump of the backfill reservation: for {holder}, priority {kept.priority}, until {until}, "
            f"waits for {_listed(pod.path for pod in kept.waits_for)}"
        )
        for place in kept.places:
            yield _place(place)

    def _queue(self) -> Iterator[str]:
        yield "Dump of scheduling queue: " + ", ".join(
            f"{stage.value} {sum(len(unit.pods) for unit in self.units if unit.stage is stage)} pods"
            for stage in QueueStage
        )
        for stage in QueueStage:
            found = [unit for unit in self.units if unit.stage is stage]
            if found:
                yield f" {stage.value}:"
            for unit in found:
                yield from unit.lines()


def dump_on_signal(state: Callable[[], StateDump | None]) -> None:
    """Write what `state` returns into the log on each SIGUSR2 that the running event loop receives.

    None stands for a process that schedules nothing now. It says so: without a handler the signal would end it.
    """
    loop = asyncio.get_running_loop()

    def dump() -> None:
        # A cluster of thousands of nodes takes seconds to write: decisions go on meanwhile.
        loop.run_in_executor(None, write, state())

    loop.add_signal_handler(signal.SIGUSR2, dump)


def write(dump: StateDump | None) -> None:
    """Write a dump into the log at level INFO, whatever the level of other messages is."""
    _log.setLevel(logging.INFO)
    with _one_at_a_time:
        if dump is None:
            _log.info("SIGUSR2: no scheduler works in this process: there is no cache and no queue to dump")
            return
        for line in dump.lines():
            _log.info("%s", line)


def capture(
    cache: SchedulerCache,
    queue: SchedulingQueue,
    held: Mapping[str, str],
    now: float,
    watched: Mapping[str, Collection[str]],
) -> StateDump:
    """Copy the state of the cache and the queue.

    `held` has the messages of PreEnqueue by pod, `now` is the queue's time, `watched` the names that the informers of
    `Node` and `Pod` have.
    """
    snapshot = cache.snapshot()
    units = tuple(_waiting(unit, held, now) for unit in sorted(queue.units.values(), key=lambda unit: unit.rank))
    cached: dict[str, Iterable[str]] = {"Node": snapshot.node_names, "Pod": snapshot.pods}
    return StateDump(
        snapshot,
        cache.assumed_pods,
        cache.assumed_claims,
        units,
        tuple(found for kind in watched if (found := compare(kind, watched[kind], cached[kind]))),
    )


def compare(kind: str, watched: Iterable[str], cached: Iterable[str]) -> CacheMismatch | None:
    """Compare the names of an informer's objects with those in the cache; None where they are the same."""
    actual, known = set(watched), set(cached)
    if actual == known:
        return None
    return CacheMismatch(kind, tuple(sorted(actual - known)), tuple(sorted(known - actual)))


def _waiting(unit: QueuedUnit, held: Mapping[str, str], now: float) -> WaitingUnit:
    return WaitingUnit(
        unit.key,
        unit.place,
        unit.priority,
        tuple(unit.pods),
        unit.attempts,
        unit.errors,
        max(unit.ready_at - now, 0.0),
        unit.rejected_by,
        {path: held[path] for path in unit.pods if path in held},
    )


def _place(nomination: Nomination) -> str:
    devices = [
        f"{result['pool']}/{result['device']}"
        for claim in nomination.allocations
        for result in (claim.allocation.get("devices") or {}).get("results") or ()
    ]
    text = f"  pod {nomination.pod.path} on node {nomination.node}, priority {nomination.priority}"
    text += f", devices {_listed(devices)}" if devices else ""
    return text + (
        f", after {_listed(pod.path for pod in nomination.evictions)} have gone" if nomination.evictions else ""
    )


def _amounts(amounts: Mapping[str, int]) -> str:
    texts = [f"{name}={value}m" if name == "cpu" else f"{name}={value}" for name, value in sorted(amounts.items())]
    return " ".join(texts) or _NONE


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or _NONE
