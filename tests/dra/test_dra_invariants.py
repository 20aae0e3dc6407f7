"""What must hold for every answer, whatever the problem: checked on answers alone, without searching."""

from __future__ import annotations

import copy
import random
from typing import Any

from brute_force import Pick, World, holds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_problems import problem

from haru import dra

Obj = dict[str, Any]
SHARE_ID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"

problems = st.builds(problem, st.integers(0, 2**32), st.sampled_from([7, 12, 24]))
relaxed = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def allocate(given: Obj, **more: Any) -> list[Obj] | None:
    """The answer to a problem; claims that ask for too many devices, all of them twice over, have none."""
    arguments = {key: value for key, value in given.items() if key != "taken"}
    arguments |= {"allocated": dra.AllocatedState(given["taken"]), "new_share_id": lambda: SHARE_ID, **more}
    try:
        return dra.allocate(**arguments)
    except dra.AllocationError as error:
        assert "exceeds the claim limit of 32" in str(error)
        return None


def picks_of(world: World, results: list[Obj]) -> list[Pick]:
    places = {(pool, d["name"]): i for i, (pool, d) in enumerate(zip(world.pools, world.devices, strict=True))}
    picks = []
    for number, (claim, result) in enumerate(zip(world.claims, results, strict=True)):
        asks = {}
        for request in claim["spec"]["devices"]["requests"]:
            asks[request["name"]] = (request["name"], request.get("exactly"))
            for ask in request.get("firstAvailable", ()):
                asks[f"{request['name']}/{ask['name']}"] = (request["name"], ask)
        for entry in result["devices"]["results"]:
            request, ask = asks[entry["request"]]
            picks.append(Pick(number, request, entry["request"], ask, places[entry["pool"], entry["device"]]))
    return picks


@relaxed
@given(problems, st.booleans())
def test_allocation_respects_counters_capacities_constraints_and_counts(given: Obj, scoring: bool) -> None:
    """No device twice, counters and capacities not exceeded, constraints true, counts right, at most 32 results."""
    results = allocate(given, device_scoring=scoring)
    assert (results is None) == (allocate(given) is None)
    if results is None:
        return
    world = World(given)
    picks = picks_of(world, results)
    assert holds(world, picks)
    for pick in picks:
        assert world.selected(pick.device, pick.ask)
        assert pick.ask.get("adminAccess") or pick.device not in world.taken
    for number, claim in enumerate(given["claims"]):
        own = [pick for pick in picks if pick.claim == number]
        assert len(own) <= 32
        for request in claim["spec"]["devices"]["requests"]:
            served = [pick for pick in own if pick.request == request["name"]]
            assert len({pick.name for pick in served}) == 1  # one alternative
            if served[0].ask["allocationMode"] == "ExactCount":
                assert len(served) == served[0].ask["count"]


@relaxed
@given(problems, st.booleans())
def test_equal_input_gives_equal_allocation_and_is_not_modified(given: Obj, scoring: bool) -> None:
    before = copy.deepcopy(given)
    first = allocate(given, device_scoring=scoring)
    random.Random(1).shuffle(given["slices"])
    assert allocate(given, device_scoring=scoring) == first
    given["slices"] = before["slices"]
    assert given == before
    if first:
        first[0]["devices"]["results"].clear()
        first[0].setdefault("nodeSelector", {}).clear()
        assert given == before


@relaxed
@given(problems)
def test_devices_of_stored_allocation_are_not_allocated_again(given: Obj) -> None:
    """Claims with their allocation in status, passed as `allocated`, leave what is left."""
    results = allocate(given, allocated=())
    if results is None:
        return
    held = [{**c, "status": {"allocation": r}} for c, r in zip(given["claims"], results, strict=True)]
    again = allocate(given, allocated=held)
    if again is None:
        return
    plain = [
        (r["pool"], r["device"])
        for result in (*results, *again)
        for r in result["devices"]["results"]
        if not r.get("adminAccess") and "shareID" not in r
    ]
    assert len(plain) == len(set(plain))


def test_claim_gets_at_most_32_devices() -> None:
    from device_objects import claim, class_, device, request, slice_

    devices = [device(f"dev-{i}") for i in range(40)]
    given = {"node": {"metadata": {"name": "node-1"}}, "slices": [slice_("a", devices)], "classes": [class_()]}
    (result,) = dra.allocate([claim("c", request("r", 32))], **given) or []
    assert len(result["devices"]["results"]) == 32
    assert dra.allocate([claim("a", request("r", 20)), claim("b", request("r", 20))], **given) is not None
