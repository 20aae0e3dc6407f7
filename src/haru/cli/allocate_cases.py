"""Run allocation problems as test cases, and measure each part.

`prepareSeconds` is the time from decoded JSON to a snapshot with all selectors compiled; `seconds` from there to the
result, with no cached selector result or search state; `warmSeconds`, for problems with many nodes, is the time of the
same problem after one device on one node changed hands. Each is the median of a few rounds without caches and without
garbage collection, as `timeit` measures.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

from haru.dra import AllocatedState, InputError, Problem
from haru.engine.dra import AllocatedState as State
from haru.engine.dra import AllocationError, DeviceId, GaveUp, compile_selectors, forget_selectors
from haru.engine.equivalence import Answer, ClaimQuery
from haru.kube.meta import Obj

SHARE_ID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
_ENOUGH_SECONDS = 1.0
_TOO_MANY_SECONDS = 10.0
_FEWEST, _ROUNDS = 3, 15


class _Times(NamedTuple):
    prepare: float
    cold: float
    warm: float


def answer_case(
    case: Obj,
    timeout: float | None = None,
    device_scoring: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Obj:
    """The outcome of one case, in the form of the test vectors, with the medians of its times by a clock."""
    many = "nodes" in case
    outcome: Obj = {}
    times: list[_Times] = []
    gc.collect()
    begun = time.perf_counter()
    with _no_collection():
        while not times or (len(times) < _ROUNDS and time.perf_counter() - begun < _limit(len(times))):
            try:
                outcome, spent = _round(case, timeout, device_scoring, len(times), clock)
            except InputError as error:
                empty: Obj = {"nodesFit": None, "nodes": None} if many else {"results": None}
                return {"name": case["name"], **empty, "error": str(error)}
            times.append(spent)
    prepare, cold, warm = (median(column) for column in zip(*times, strict=True))
    answer = {"name": case["name"], **outcome, "prepareSeconds": round(prepare, 7), "seconds": round(cold, 7)}
    return answer | {"warmSeconds": round(warm, 7)} if many else answer


def _limit(rounds: int) -> float:
    """How long may have passed for another round to be worth it."""
    return _TOO_MANY_SECONDS if rounds < _FEWEST else _ENOUGH_SECONDS


def settle_heap() -> None:
    """Exclude loaded objects from garbage collection, which would cost more than small cases."""
    gc.collect()
    gc.freeze()


@contextmanager
def _no_collection() -> Iterator[None]:
    """The garbage collector at rest."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _round(
    case: Obj, timeout: float | None, scoring: bool, number: int, clock: Callable[[], float]
) -> tuple[Obj, _Times]:
    forget_selectors()
    many = "nodes" in case
    nodes = case["nodes"] if many else [case["node"]]
    taken = AllocatedState(case["allocated"], case.get("allocatedShared") or (), case.get("allocatedCapacity") or ())
    begun = clock()
    problem = Problem(case["slices"], case["classes"], nodes, allocated=taken, features=case["features"])
    compile_selectors(case["classes"], case["claims"], problem.features)
    prepared = clock()
    if not many:
        (found,) = problem.ask(case["claims"], timeout=timeout, new_share_id=lambda: SHARE_ID, device_scoring=scoring)
        answered = clock()
        failed = isinstance(found, AllocationError | GaveUp)
        outcome: Obj = {"results": None if failed else found, "error": str(found) if failed else None}
        return outcome, _Times(prepared - begun, answered - prepared, 0.0)
    question, fitting = problem.fits(case["claims"], timeout=timeout, device_scoring=scoring)
    answered = clock()
    names = [problem.fleet.nodes[node].name for node in fitting]
    outcome = {"nodesFit": len(names), "nodes": names, "error": _first_error(problem, question)}
    state = _hand_over(problem, number)
    again = clock()
    problem.fleet.update(problem.fleet.snapshot, state)
    question.fits(problem.fleet)
    return outcome, _Times(prepared - begun, answered - prepared, clock() - again)


def _first_error(problem: Problem, question: ClaimQuery) -> str | None:
    """What aborts the attempt, as the first node in order has it."""
    found: dict[int, Answer] = {}
    for peers in problem.fleet.classes.values():
        answer = question.answer(problem.fleet, peers)
        if isinstance(answer, AllocationError | GaveUp):
            found[min(peers.nodes)] = answer
    return str(found[min(found)]) if found else None


def _hand_over(problem: Problem, number: int) -> State:
    """How things stand after one device changed hands, another one in every round: taken if it was free, else freed."""
    fleet = problem.fleet
    count = len(fleet.nodes)
    for offset in range(count):
        node = fleet.nodes[(count // 2 + number + offset) % count]
        views = fleet.snapshot.views(node, problem.features.PartitionableDevices)
        for view in views:
            if view.status == "ok" and view.devices:
                name = view.devices[(3 + number) % len(view.devices)].name
                device = DeviceId(view.key.driver, view.key.pool, name)
                if name in fleet.allocated.use(view.key).devices:
                    return fleet.allocated.without_device(device)
                result = {"driver": device.driver, "pool": device.pool, "device": name}
                return fleet.allocated.with_allocation("default/another", {"devices": {"results": [result]}})
    return fleet.allocated
