"""What an operation of the scheduling queue takes depends neither on how many wait nor on how large a gang is."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
from counted_calls import SIZES, assert_flat, steps

from haru.scheduler.metrics import QueueMetrics, SchedulerMetrics
from haru.scheduler.queue.scheduling_queue import QueuedUnit, QueueStage, SchedulingQueue

NOW = 1000.0
Work = Callable[[], object]


def one(name: str) -> tuple[str, str, str]:
    return "pod", "default", name


class Waiting:
    """As many units as `size` in each place, and two gangs of that many members, one active and one in flight."""

    def __init__(self, size: int) -> None:
        self.queue = SchedulingQueue(metrics=QueueMetrics(SchedulerMetrics(lambda: NOW)), pop_from_backoff=True)
        self.size = size
        for number in range(size):
            self.tried(f"parked-{number}").reject(self.popped, {f"claim-{number}"}, NOW)
            self.tried(f"failed-{number}").fail(self.popped, NOW)
            self.tried(f"in-flight-{number}")
        for number in range(size):
            self.queue.hold(self.put(f"held-{number}"))
        for number in range(size):
            self.queue.release(self.put(f"active-{number}"), NOW)
        self.gang = self.gang_of("active-gang")
        self.queue.release(self.gang, NOW)

    def gang_of(self, name: str) -> QueuedUnit:
        for member in range(self.size):
            unit = self.queue.put(("group", "default", name), f"default/{name}-{member}", 0, NOW)
        return unit

    def put(self, name: str, priority: int = 0) -> QueuedUnit:
        return self.queue.put(one(name), f"default/{name}", priority, NOW - 10)

    def tried(self, name: str) -> SchedulingQueue:
        """Pop a new unit, as the first of all."""
        self.queue.release(self.put(name, priority=9), NOW)
        unit = self.queue.pop(NOW)
        assert unit is not None and unit.key == one(name)
        self.popped = unit
        return self.queue

    def parked(self, name: str) -> QueuedUnit:
        self.tried(name).reject(self.popped, {"claim-x"}, NOW)
        return self.popped


def take_out(waiting: Waiting) -> Work:
    waiting.put("more")
    return lambda: waiting.queue.take_out(one("more"), "default/more")


def pop(waiting: Waiting) -> Work:
    waiting.queue.release(waiting.put("more", 9), NOW)
    return lambda: waiting.queue.pop(NOW)


def pop_with_equals(waiting: Waiting) -> Work:
    for number in range(6):
        waiting.queue.release(waiting.put(f"more-{number}", 9), NOW)

    def work() -> None:
        assert len(waiting.queue.pop_with_equals(NOW, 4)) == 4

    return work


def put_back(waiting: Waiting) -> Work:
    waiting.tried("more")
    return lambda: waiting.queue.put_back(waiting.popped)


def hold(waiting: Waiting) -> Work:
    unit = waiting.put("more")
    return lambda: waiting.queue.hold(unit)


def release(waiting: Waiting) -> Work:
    unit = waiting.put("more")
    return lambda: waiting.queue.release(unit, NOW)


def done(waiting: Waiting) -> Work:
    waiting.tried("more")
    return lambda: waiting.queue.done(waiting.popped)


def reject(waiting: Waiting) -> Work:
    waiting.tried("more")
    return lambda: waiting.queue.reject(waiting.popped, {"claim-x"}, NOW)


def fail(waiting: Waiting) -> Work:
    waiting.tried("more")
    return lambda: waiting.queue.fail(waiting.popped, NOW)


def retry(waiting: Waiting) -> Work:
    unit = waiting.parked("more")
    return lambda: waiting.queue.retry(unit, NOW)


def retry_at(waiting: Waiting) -> Work:
    unit = waiting.parked("more")
    return lambda: waiting.queue.retry_at(unit, NOW + 1)


def event_that_wakes_one(waiting: Waiting) -> Work:
    return lambda: waiting.queue.on_event(frozenset({"claim-3"}), NOW)


def first_waiting(waiting: Waiting) -> Work:
    waiting.parked("more")
    return lambda: waiting.queue.first_waiting(but=set())


def flush_with_nothing_left_over(waiting: Waiting) -> Work:
    return lambda: waiting.queue.flush_leftovers(NOW + 1)


def member_joins(waiting: Waiting) -> Work:
    return lambda: waiting.queue.put(waiting.gang.key, "default/one-more", 0, NOW)


def member_leaves(waiting: Waiting) -> Work:
    def work() -> None:
        waiting.queue.take_out(waiting.gang.key, "default/active-gang-1")
        waiting.queue.put(waiting.gang.key, "default/one-more", 3, NOW)

    return work


CASES: dict[str, tuple[Callable[[Waiting], Work], ...]] = {
    "put": (lambda waiting: lambda: waiting.put("more"), member_joins),
    "take_out": (take_out, member_leaves),
    "hold": (hold,),
    "release": (release,),
    "pop": (pop,),
    "pop_with_equals": (pop_with_equals,),
    "put_back": (put_back,),
    "done": (done,),
    "reject": (reject,),
    "fail": (fail,),
    # What it takes is by unit in flight, of which the scheduler has one.
    "on_event": (),
    "retry": (retry,),
    "retry_at": (retry_at,),
    "first_waiting": (first_waiting,),
    "flush_leftovers": (flush_with_nothing_left_over,),
    "next_wake": (lambda waiting: waiting.queue.next_wake,),
    "pending": (lambda waiting: waiting.queue.pending,),
}


def test_every_operation_of_the_queue_has_a_growth_case() -> None:
    public = {name for name, _ in inspect.getmembers(SchedulingQueue, inspect.isfunction) if not name.startswith("_")}
    assert public == set(CASES)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", [name for name in CASES if CASES[name]])
def test_operation_takes_as_much_with_many_waiting_as_with_few(name: str, sizes: tuple[int, ...]) -> None:
    for case in CASES[name]:
        assert_flat({size: steps(case(Waiting(size))) for size in sizes}, f"{name}: {case.__name__}")


@pytest.mark.parametrize("sizes", SIZES)
def test_event_takes_time_for_those_that_it_wakes_only(sizes: tuple[int, ...]) -> None:
    costs = {}
    for size in sizes:
        waiting = Waiting(size)
        while waiting.queue._in_flight:
            waiting.queue.done(next(iter(waiting.queue._in_flight.values())))
        costs[size] = steps(event_that_wakes_one(waiting))
        woken = [unit for unit in waiting.queue.units.values() if unit.place is QueueStage.UNSCHEDULABLE]
        assert len(woken) == size - 1
    assert_flat(costs, "an event that wakes one")


@pytest.mark.parametrize("sizes", SIZES)
def test_waking_all_takes_as_much_for_each_of_many_as_of_few(sizes: tuple[int, ...]) -> None:
    costs = {}
    for size in sizes:
        queue = SchedulingQueue()
        for number in range(size):
            queue.release(queue.put(one(f"{number}"), f"default/{number}", 0, NOW), NOW)
            unit = queue.pop(NOW)
            assert unit is not None
            queue.reject(unit, {"NodeResourcesFit"}, NOW)
        costs[size] = steps(lambda queue=queue: queue.on_event(frozenset({"NodeResourcesFit"}), NOW))
        costs[size].count //= size
    assert_flat(costs, "waking one of many")
