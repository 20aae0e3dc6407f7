from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from haru.scheduler.queue.scheduling_queue import FLUSH_AFTER_SECONDS, QueuedUnit, QueueStage, SchedulingQueue

A = ("pod", "ns", "a")
B = ("pod", "ns", "b")
C = ("pod", "ns", "c")
GANG = ("group", "ns", "gang")
FIT = frozenset({"NodeResourcesFit"})
DRA = frozenset({"DynamicResources"})


def queue_with(*units: tuple[tuple[str, str, str], int]) -> SchedulingQueue:
    queue = SchedulingQueue()
    for moment, (key, priority) in enumerate(units):
        unit = queue.put(key, key[2], priority, float(moment))
        queue.release(unit, float(moment))
    return queue


def test_queue_orders_by_priority_then_age() -> None:
    queue = queue_with((("pod", "ns", "old"), 0), (("pod", "ns", "young"), 0), (("pod", "ns", "urgent"), 10))
    order = [queue.pop(10.0).key[2] for _ in range(3)]  # type: ignore[union-attr]
    assert order == ["urgent", "old", "young"]
    assert queue.pop(10.0) is None


def test_equal_pods_are_popped_together_and_those_put_back_are_next() -> None:
    keys = [("pod", "ns", name) for name in "abcde"]
    queue = queue_with(*[(key, 3) for key in keys], (("pod", "ns", "low"), 0), (GANG, 3))
    queue.take_out(keys[1], "b")
    units = queue.pop_with_equals(10.0, 3)
    assert [unit.key[2] for unit in units] == ["a", "c", "d"]
    for unit in units[1:]:
        queue.put_back(unit)
    assert [unit.attempts for unit in units] == [1, 0, 0]
    assert queue.pending()["active"] == 5
    # Neither a gang nor a pod of another priority goes with them.
    assert [unit.key[2] for unit in queue.pop_with_equals(11.0, 9)] == ["c", "d", "e"]
    assert [unit.key[2] for unit in queue.pop_with_equals(12.0, 9)] == ["gang"]
    assert [unit.key[2] for unit in queue.pop_with_equals(13.0, 9)] == ["low"]
    assert queue.pop_with_equals(14.0, 9) == []


def test_pod_that_was_tried_is_popped_alone() -> None:
    queue = queue_with((A, 0), (B, 0))
    for unit in queue.pop_with_equals(1.0, 2):
        queue.fail(unit, 1.0)
    queue.release(queue.put(C, "c", 0, 2.0), 2.0)
    assert [unit.key for unit in queue.pop_with_equals(10.0, 3)] == [A]
    assert [unit.key for unit in queue.pop_with_equals(10.0, 3)] == [B]
    assert [unit.key for unit in queue.pop_with_equals(10.0, 3)] == [C]


def test_unit_that_is_gone_is_not_put_back() -> None:
    queue = queue_with((A, 0), (B, 0))
    units = queue.pop_with_equals(1.0, 2)
    queue.take_out(B, "b")
    queue.put_back(units[1])
    assert B not in queue
    assert queue.pop(2.0) is None


def test_group_is_queued_by_its_highest_priority_pod() -> None:
    queue = queue_with((A, 5))
    queue.put(GANG, "low", 0, 0.0)
    unit = queue.put(GANG, "high", 9, 0.0)
    queue.release(unit, 0.0)
    assert queue.pop(1.0) is unit


def test_backoff_doubles_to_limit_and_success_resets_it() -> None:
    queue = queue_with((A, 0))
    now, waits = 100.0, []
    for _ in range(6):
        unit = queue.pop(now)
        assert unit is not None
        queue.fail(unit, now)
        due = queue.next_wake()
        assert due is not None
        assert queue.pop(due - 0.001) is None
        waits.append(due - now)
        now = due
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    unit = queue.pop(now)
    assert unit is not None
    queue.done(unit)
    assert (unit.attempts, unit.errors, unit.refused) == (0, 0, 0)


def test_unit_may_be_tried_any_number_of_times() -> None:
    queue = SchedulingQueue()
    unit = queue.put(("pod", "ns", "p"), "ns/p", 0, 0.0)
    unit.refused = unit.errors = 5000
    queue.release(unit, 0.0)
    assert queue.pop(0.0) is unit
    queue.fail(unit, 0.0)
    assert unit.ready_at == 10.0
    queue.reject(unit, {"NodeResourcesFit"}, 0.0)
    assert unit.ready_at == 10.0


def test_only_events_of_rejecting_plugins_wake_unit() -> None:
    queue = queue_with((A, 0))
    unit = queue.pop(1.0)
    assert unit is not None
    queue.reject(unit, {"DynamicResources"}, 1.0)
    assert queue.on_event(FIT, 5.0) == 0
    assert queue.pop(5.0) is None
    assert queue.on_event(DRA, 5.0) == 1
    assert queue.pop(5.0) is unit


def test_event_during_backoff_does_not_skip_backoff() -> None:
    queue = queue_with((A, 0))
    unit = queue.pop(1.0)
    assert unit is not None
    queue.reject(unit, {"DynamicResources"}, 1.0)
    queue.on_event(DRA, 1.5)
    assert queue.pop(1.9) is None
    assert queue.pop(2.0) is unit


def test_backoff_is_skipped_when_active_queue_is_empty() -> None:
    queue = SchedulingQueue(pop_from_backoff=True)
    for number, (key, priority) in enumerate(((A, 0), (B, 0), (C, 5))):
        queue.release(queue.put(key, key[2], priority, float(number)), float(number))
    rejected = [queue.pop(3.0) for _ in range(3)]
    for unit in reversed(rejected):
        assert unit is not None
        queue.reject(unit, {"DynamicResources"}, 3.0 + unit.priority / 10)
    assert queue.pop(3.6) is None, "they wait for an event, not for a backoff"
    queue.on_event(DRA, 3.6)
    late = queue.put(("pod", "ns", "late"), "late", 0, 3.6)
    queue.release(late, 3.6)
    # Backoffs end at 4.0 (A, B) and at 4.5 (C): within one second the most important goes first.
    order = [queue.pop(3.6) for _ in range(5)]
    assert [unit.key[2] if unit else "" for unit in order] == ["late", "c", "a", "b", ""]


def test_errors_count_for_the_backoff_until_an_attempt_ends_without_one() -> None:
    queue = queue_with((A, 0))
    now, waits = 1.0, []
    for refused in (False, False, True, False):
        unit = queue.pop(now)
        assert unit is not None
        if refused:
            queue.reject(unit, FIT, now)
            queue.on_event(FIT, now)
        else:
            queue.fail(unit, now)
            waits.append(unit.ready_at - now)
        now += 60
    assert waits == [1.0, 2.0, 1.0]


def test_errors_do_not_count_for_the_backoff_of_refusals() -> None:
    queue = queue_with((A, 0))
    now, waits = 1.0, []
    for refused in (False, False, False, True, False, True):
        unit = queue.pop(now)
        assert unit is not None
        if refused:
            queue.reject(unit, FIT, now)
            queue.on_event(FIT, now)
            waits.append(unit.ready_at - now)
        else:
            queue.fail(unit, now)
        now += 60
    assert waits == [1.0, 2.0]


def test_failed_unit_keeps_its_backoff() -> None:
    queue = SchedulingQueue(pop_from_backoff=True)
    queue.release(queue.put(A, "a", 0, 0.0), 0.0)
    unit = queue.pop(0.0)
    assert unit is not None
    queue.fail(unit, 0.0)
    queue.on_event(DRA, 0.5)
    assert queue.pop(0.9) is None
    assert queue.pop(1.0) is unit


def test_event_during_scheduling_cycle_is_not_lost() -> None:
    queue = queue_with((A, 0))
    unit = queue.pop(1.0)
    assert unit is not None
    queue.on_event(DRA, 1.1)
    queue.reject(unit, {"DynamicResources"}, 1.2)
    assert unit.place is QueueStage.BACKOFF
    assert queue.pop(2.3) is unit


def test_gated_units_are_never_flushed() -> None:
    queue = SchedulingQueue()
    unit = queue.put(GANG, "m", 0, 0.0)
    queue.hold(unit)
    assert queue.pop(1.0) is None
    assert queue.flush_leftovers(FLUSH_AFTER_SECONDS * 2) == 0
    assert queue.pending() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 1}
    queue.release(unit, 1.0)
    assert queue.pop(1.0) is unit


def test_unschedulable_units_are_flushed_after_five_minutes() -> None:
    queue = queue_with((A, 0))
    unit = queue.pop(1.0)
    assert unit is not None
    queue.reject(unit, {"NodeAffinity"}, 1.0)
    assert queue.flush_leftovers(1.0 + FLUSH_AFTER_SECONDS - 1) == 0
    assert queue.flush_leftovers(1.0 + FLUSH_AFTER_SECONDS) == 1


def test_member_added_during_cycle_waits_for_next_cycle() -> None:
    queue = SchedulingQueue()
    unit = queue.put(GANG, "a", 0, 0.0)
    queue.release(unit, 0.0)
    assert queue.pop(0.0) is unit
    queue.put(GANG, "late", 0, 0.1)
    queue.take_out(GANG, "a")
    queue.done(unit)
    assert queue.units[GANG] is unit
    assert set(unit.pods) == {"late"}
    queue.release(unit, 0.2)
    assert queue.pop(0.2) is unit


def test_unit_without_pods_is_removed() -> None:
    queue = queue_with((A, 0), (B, 0))
    queue.take_out(A, "a")
    assert A not in queue
    assert queue.pop(1.0).key == B  # type: ignore[union-attr]
    queue.take_out(B, "b")
    queue.done(queue.units[B])
    assert B not in queue


operations = st.lists(
    st.tuples(
        st.sampled_from(["put", "take", "release", "hold", "pop", "reject", "fail", "done", "event", "tick"]),
        st.integers(0, 4),
        st.sampled_from([FIT, DRA]),
    ),
    max_size=60,
)


@given(operations, st.booleans())
def test_every_unit_is_in_one_queue_stage_and_reachable(
    steps: list[tuple[str, int, frozenset[str]]], early: bool
) -> None:
    queue, now, flying = SchedulingQueue(pop_from_backoff=early), 0.0, []
    for action, number, plugins in steps:
        key = ("pod", "ns", str(number))
        unit = queue.units.get(key)
        if action == "put":
            queue.release(queue.put(key, str(number), number, now), now)
        elif action == "take":
            queue.take_out(key, str(number))
        elif action == "release" and unit:
            queue.release(unit, now)
        elif action == "hold" and unit:
            queue.hold(unit)
        elif action == "pop" and (popped := queue.pop(now)):
            assert popped not in flying
            flying.append(popped)
        elif action in ("reject", "fail", "done") and flying:
            landed = flying.pop()
            if action == "reject":
                queue.reject(landed, plugins, now)
            elif action == "fail":
                queue.fail(landed, now)
            else:
                queue.done(landed)
        elif action == "event":
            queue.on_event(plugins, now)
        now += 0.5
    for unit in flying:
        queue.fail(unit, now)
    for unit in queue.units.values():
        assert unit.place is not QueueStage.IN_FLIGHT
    queue.on_event(FIT | DRA, now)
    waiting = {u.key for u in queue.units.values() if u.place is not QueueStage.HELD}
    reached = set()
    while (unit := queue.pop(now + 100.0)) is not None:
        reached.add(unit.key)
    assert reached == waiting


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "take", "release", "pop", "reject", "fail", "done", "event", "hold", "flush"]),
        st.integers(0, 4),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(steps=_STEPS)
def test_counts_and_first_waiting_are_those_of_the_units_whatever_happens(
    steps: list[tuple[str, int, int]],
) -> None:
    queue, flying, now = SchedulingQueue(pop_from_backoff=True), list[QueuedUnit](), 0.0
    for action, number, more in steps:
        now += more * 100.0
        key = ("group", "ns", f"g{number}")
        unit = queue.units.get(key)
        if action == "put":
            queue.put(key, f"pod-{more}", number * more, now)
        elif action == "take":
            queue.take_out(key, f"pod-{more}")
        elif action == "pop" and (popped := queue.pop(now)) is not None:
            flying.append(popped)
        elif action == "reject" and flying:
            queue.reject(flying.pop(), {"A", "B"} if more else (), now)
        elif action == "fail" and flying:
            queue.fail(flying.pop(), now)
        elif action == "done" and flying:
            queue.done(flying.pop())
        elif action == "event":
            queue.on_event(FIT if more else frozenset({"A"}), now)
        elif action == "flush":
            queue.flush_leftovers(now)
        elif action == "hold" and unit is not None:
            queue.hold(unit)
        elif action == "release" and unit is not None:
            queue.release(unit, now)
        _assert_consistent(queue, now)


def _assert_consistent(queue: SchedulingQueue, now: float) -> None:
    units = queue.units.values()
    for name, pods in queue.pending().items():
        assert pods == sum(len(unit.pods) for unit in units if unit.place.value == name)
    assert all(unit.priority == max(unit.pods.values(), default=0) for unit in units)
    tried = sorted(
        (unit for unit in units if unit.place in (QueueStage.UNSCHEDULABLE, QueueStage.BACKOFF)), key=lambda u: u.rank
    )
    assert queue.first_waiting(but=()) is (tried[0] if tried else None)
    for first in tried[:1]:
        assert queue.first_waiting(but={first.key}) is (tried[1] if tried[1:] else None)
    late = [u for u in units if u.place is QueueStage.UNSCHEDULABLE and now - u.parked_at >= FLUSH_AFTER_SECONDS]
    assert set(map(id, queue._waiting.values())) >= set(map(id, late))
