"""The search against a naive walk of the same order, on random small problems; and what every result must satisfy."""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest
from device_objects import DRIVER, chosen, claim, class_, device, exact, first_of, slice_, solve, taken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_walk import FAULTY, SELECTORS, Abort, World

import haru.engine.dra.allocator.device_search as search_module
from haru.engine.dra import Allocated, AllocationError

Obj = dict[str, Any]

COUNTERS = {f"card-{i}": {"mem": 4, "slot": 3} for i in range(3)}


@st.composite
def devices(draw: st.DrawFn) -> list[Obj]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        attributes = {}
        if (model := draw(st.sampled_from(["x", "y", None]))) is not None:
            attributes["model"] = model
        if (root := draw(st.sampled_from(["r0", "r1", "r2", None]))) is not None:
            attributes["root"] = root
        consumes: dict[str, int] = {}
        if draw(st.booleans()):
            card = draw(st.sampled_from(sorted(COUNTERS)))
            names = draw(st.sampled_from([["mem"], ["mem", "slot"]]))
            consumes = {f"{card}.{name}": draw(st.integers(1, 3)) for name in names}
        entry: Obj = {"name": f"dev-{number}", "attributes": attributes, "consumes": consumes}
        if not consumes and draw(st.integers(0, 4)) == 0:
            entry["slots"] = draw(st.integers(1, 4))
        if draw(st.integers(0, 5)) == 0:
            entry["taint"] = True
        found.append(entry)
    return found


@st.composite
def cards(draw: st.DrawFn) -> list[Obj]:
    """Equal cards with the same partitions, told apart by nothing, or by the root that they are on."""
    parts = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=3))
    told_apart = draw(st.booleans())
    found: list[Obj] = []
    for card in range(6 // len(parts) if len(parts) > 1 else 3):
        for mem, slot in parts:
            attributes = {"model": "x", **({"root": f"r{card}"} if told_apart else {})}
            consumes = {f"card-{card % 3}.mem": mem, **({f"card-{card % 3}.slot": slot} if slot else {})}
            found.append({"name": f"dev-{len(found)}", "attributes": attributes, "consumes": consumes})
    return draw(st.permutations(found)) if draw(st.booleans()) else found


def asks(alternative: bool) -> st.SearchStrategy[Obj]:
    @st.composite
    def build(draw: st.DrawFn) -> Obj:
        expressions = draw(st.lists(st.sampled_from([*SELECTORS, *SELECTORS, FAULTY]), max_size=1))
        more: Obj = {}
        if draw(st.integers(0, 4)) == 0:
            more["tolerations"] = [{"operator": "Exists"}]
        if draw(st.integers(0, 6)) == 0:
            more["capacity"] = {"requests": {"slots": str(draw(st.integers(1, 3)))}}
        if not alternative and draw(st.integers(0, 7)) == 0:
            more["adminAccess"] = True
        count = draw(st.sampled_from([1, 1, 1, 2, 2, 3, None]))
        return exact(count, *expressions, **more)

    return build()


@st.composite
def requests(draw: st.DrawFn, number: int) -> Obj:
    if draw(st.integers(0, 3)) == 0:
        return first_of(f"req-{number}", *draw(st.lists(asks(True), min_size=1, max_size=3)))
    return {"name": f"req-{number}", "exactly": draw(asks(False))}


@st.composite
def claims(draw: st.DrawFn) -> list[Obj]:
    found = []
    for number in range(draw(st.integers(1, 3))):
        wanted = [draw(requests(i)) for i in range(draw(st.integers(0, 3)))]
        constraints = []
        for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
            kind = draw(st.sampled_from(["matchAttribute", "distinctAttribute"]))
            constraint: Obj = {kind: f"{DRIVER}/{draw(st.sampled_from(['root', 'model']))}"}
            if wanted and draw(st.booleans()):
                constraint["requests"] = [wanted[0]["name"]]
            constraints.append(constraint)
        found.append(claim(f"claim-{number}", *wanted, constraints=constraints))
    return found


@st.composite
def companions(draw: st.DrawFn) -> list[Obj]:
    """Claims of which each wants its devices on one root, or those of some of its requests."""
    found = []
    for number in range(draw(st.integers(2, 4))):
        wanted = []
        for place in range(draw(st.integers(1, 2))):
            counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
            alike = first_of(f"req-{place}", *map(exact, counts))
            wanted.append(alike if len(counts) > 1 else {"name": f"req-{place}", "exactly": exact(counts[0])})
        constraints: list[Obj] = [{"matchAttribute": f"{DRIVER}/root"}]
        if len(wanted) > 1 and draw(st.booleans()):
            constraints = [{**constraints[0], "requests": [entry["name"]]} for entry in wanted]
        found.append(claim(f"claim-{number}", *wanted, constraints=constraints))
    return found


def published(found: list[Obj]) -> list[Obj]:
    listed = []
    for entry in found:
        consumes: dict[str, dict[str, int]] = {}
        for counter, amount in entry["consumes"].items():
            card, name = counter.split(".")
            consumes.setdefault(card, {})[name] = amount
        more: Obj = {"consumes": consumes} if consumes else {}
        if entry.get("slots") is not None:
            more |= {"capacity": {"slots": str(entry["slots"])}, "allowMultipleAllocations": True}
        if entry.get("taint"):
            more["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
        listed.append(device(entry["name"], entry["attributes"], **more))
    return [slice_("a-devices", listed, count=2), slice_("b-counters", count=2, counters=COUNTERS)]


def naive(found: list[Obj], wanted: list[Obj], gone: set[str], limit: int) -> list[list[str]] | str | None:
    left = {f"{card}.{name}": value for card, counters in COUNTERS.items() for name, value in counters.items()}
    for entry in found:
        if entry["name"] in gone:
            for counter, amount in entry["consumes"].items():
                left[counter] -= amount
    # What is overdrawn before the search gives nothing out to anything that consumes.
    if any(value < 0 for value in left.values()):
        left = dict.fromkeys(left, -1)
    try:
        picks = World(found, left, gone, wanted, limit).solve()
    except Abort as abort:
        return str(abort)
    return None if picks is None else [[f"{request}:{name}" for request, name in own] for own in picks]


def quick(found: list[Obj], wanted: list[Obj], gone: set[str]) -> list[list[str]] | str | None:
    try:
        answer = solve(published(found), wanted, state=taken(*sorted(gone)))
    except AllocationError as error:
        return next(word for word in ("no such key: model", "claim constraint", "limit") if word in str(error))
    if not isinstance(answer, Allocated):
        return None
    return [[f"{r['request']}:{r['device']}" for r in result["devices"]["results"]] for result in answer.results]


def strip(wanted: list[Obj]) -> list[Obj]:
    """The naive walk notes candidates in the asks; each side gets its own."""
    return copy.deepcopy(wanted)


problem = st.tuples(
    st.one_of(devices(), cards()),
    st.one_of(claims(), companions()),
    st.sets(st.sampled_from([f"dev-{i}" for i in range(6)]), max_size=2),
)
NIGHT = os.environ.get("HARU_NIGHTLY") == "1"
relaxed = settings(max_examples=5000 if NIGHT else 120, deadline=None, suppress_health_check=list(HealthCheck))


@relaxed
@given(problem)
def test_allocation_equals_naive_search(case: tuple[list[Obj], list[Obj], set[str]]) -> None:
    found, wanted, gone = case
    assert quick(found, wanted, gone) == naive(found, strip(wanted), gone, 32)


@relaxed
@given(case=problem, limit=st.integers(2, 5), begin=st.sampled_from([(0, 10**6), (1, 10), (3, 30)]))
def test_allocation_with_early_pruning_equals_naive_search(
    case: tuple[list[Obj], list[Obj], set[str]], limit: int, begin: tuple[int, int]
) -> None:
    """Memory and counts set in at once, or soon and not everywhere; and a small limit comes into play."""
    found, wanted, gone = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "_EASY", begin[0])
        patch.setattr(search_module, "_CREDIT", begin[1])
        patch.setattr(search_module, "MAX_RESULTS", limit)
        patch.setattr("haru.engine.dra.allocator.allocation_problem.MAX_RESULTS", limit)
        patch.setattr("haru.engine.dra.allocator.pruning.MAX_RESULTS", limit)
        assert quick(found, wanted, gone) == naive(found, strip(wanted), gone, limit)


@relaxed
@given(problem)
def test_every_allocation_satisfies_all_rules(case: tuple[list[Obj], list[Obj], set[str]]) -> None:
    found, wanted, gone = case
    try:
        answer = solve(published(found), wanted, state=taken(*sorted(gone)))
    except AllocationError:
        return
    if not isinstance(answer, Allocated):
        return
    by_name = {entry["name"]: entry for entry in found}
    results = [r for result in answer.results for r in result["devices"]["results"]]
    plain = [r["device"] for r in results if not r.get("adminAccess") and "shareID" not in r]
    assert len(plain) == len(set(plain))
    assert not gone & {r["device"] for r in results if not r.get("adminAccess")}
    consumed: dict[str, int] = {}
    for name in [*plain, *(n for n in gone if n in by_name)]:
        for counter, amount in by_name[name]["consumes"].items():
            consumed[counter] = consumed.get(counter, 0) + amount
    if any(by_name[name]["consumes"] for name in plain):
        assert all(COUNTERS[key.split(".")[0]][key.split(".")[1]] >= amount for key, amount in consumed.items())
    for name, entry in by_name.items():
        if entry.get("slots") is not None:
            used = [int(r["consumedCapacity"]["slots"]) for r in results if r["device"] == name]
            assert sum(used) <= entry["slots"]
    assert solve(published(found), wanted, state=taken(*sorted(gone))) == answer


def test_naive_search_backtracks_over_match_attribute() -> None:
    """Count 2 on one root out of r1, r2, r2: the second and third device."""
    found = [
        {"name": f"dev-{i}", "attributes": {"root": root}, "consumes": {}} for i, root in enumerate(("r1", "r2", "r2"))
    ]
    wanted = [claim("c", {"name": "r", "exactly": exact(2)}, match="root")]
    assert naive(found, strip(wanted), set(), 32) == [["r:dev-1", "r:dev-2"]]
    assert chosen(solve(published(found), wanted, classes=[class_()])) == [["dev-1", "dev-2"]]
