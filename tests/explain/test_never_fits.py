"""`NeverFits` is said of what brute force finds no place for on the empty, open cluster, and of nothing else.

Claims have several requests, constraints and alternatives; the search tries every choice of devices on every node.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from engine_objects import (
    DRIVER,
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    node,
    pod,
    pod_group,
    resource_slice,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haru.engine import SchedulerCache
from haru.explain import explain

ARCHES, PLACES = ("A", "H"), (0, 1)
NUMA = f"{DRIVER}/numa"

devices = st.fixed_dictionaries(
    {
        "arch": st.sampled_from(ARCHES),
        "numa": st.sampled_from(PLACES),
        "tainted": st.sampled_from([False, False, True]),
        "taken": st.sampled_from([False, True]),
    }
)
nodes = st.lists(
    st.fixed_dictionaries({"cordoned": st.booleans(), "devices": st.lists(devices, max_size=4)}), min_size=1, max_size=3
)
asks = st.fixed_dictionaries({"arch": st.sampled_from(["", *ARCHES]), "count": st.integers(1, 3)})
requests = st.lists(st.lists(asks, min_size=1, max_size=2), min_size=1, max_size=2)
constraints = st.sampled_from(["", "matchAttribute", "distinctAttribute"])


def built(facts: list[Obj], wanted: list[list[Obj]], constraint: str, pods: int) -> list[Obj]:
    objects: list[Obj] = [device_class("gpu", [f'device.driver == "{DRIVER}"']), pod_group("g", pods)]
    for n, one in enumerate(facts):
        published = []
        for i, facts_of in enumerate(one["devices"]):
            attributes = {"arch": {"string": facts_of["arch"]}, "numa": {"int": facts_of["numa"]}}
            taints = [{"key": "bad", "value": "x", "effect": "NoSchedule"}] if facts_of["tainted"] else []
            published.append({"name": f"d{i}", "attributes": attributes, "taints": taints})
            if facts_of["taken"]:
                user = pod(f"h-{n}-{i}", node=f"n{n}", claims=[f"h-{n}-{i}"])
                objects += [user, allocated(claim(f"h-{n}-{i}"), allocation(f"n{n}", f"d{i}"), user)]
        objects += [node(f"n{n}", cpu="64", unschedulable=one["cordoned"]), resource_slice(f"n{n}", published)]
    limits: Obj = {"constraints": [{constraint: NUMA}]} if constraint else {}
    for p in range(pods):
        member = pod(f"m{p}", group="g", claims=[("gpu", "tmpl", f"m{p}-gpu")])
        written = [request(number, ways) for number, ways in enumerate(wanted)]
        objects += [member, claim(f"m{p}-gpu", owner=member, requests=written, **limits)]
    return objects


def request(number: int, ways: list[Obj]) -> Obj:
    def exactly(one: Obj) -> Obj:
        expression = f'device.attributes["{DRIVER}"].arch == "{one["arch"]}"'
        selectors = [{"cel": {"expression": expression}}] if one["arch"] else []
        mode = {"allocationMode": "ExactCount", "count": one["count"]}
        return {"deviceClassName": "gpu", "selectors": selectors, **mode}

    if len(ways) == 1:
        return {"name": f"r{number}", "exactly": exactly(ways[0])}
    first = [{"name": f"way-{i}", **exactly(one)} for i, one in enumerate(ways)]
    return {"name": f"r{number}", "firstAvailable": first}


def choices(free: frozenset[int], facts: Obj, wanted: list[list[Obj]], constraint: str) -> Iterator[frozenset[int]]:
    """Every set of devices of a node that serves one claim."""

    def serve(left: frozenset[int], number: int, chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if number == len(wanted):
            yield chosen
            return
        for way in wanted[number]:
            fitting = [i for i in sorted(left) if way["arch"] in ("", facts["devices"][i]["arch"])]
            for some in itertools.combinations(fitting, way["count"]):
                yield from serve(left - set(some), number + 1, (*chosen, *some))

    for chosen in serve(free, 0, ()):
        places = [facts["devices"][i]["numa"] for i in chosen]
        if constraint == "matchAttribute" and len(set(places)) > 1:
            continue
        if constraint == "distinctAttribute" and len(set(places)) < len(places):
            continue
        yield frozenset(chosen)


def most(facts: Obj, wanted: list[list[Obj]], constraint: str) -> int:
    """How many such claims the empty node can serve at once."""

    def count(free: frozenset[int]) -> int:
        return max((1 + count(free - chosen) for chosen in set(choices(free, facts, wanted, constraint))), default=0)

    return count(frozenset(range(len(facts["devices"]))))


PROBLEMS = (nodes, requests, constraints, st.integers(1, 3))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(*PROBLEMS)
def test_never_fits_verdict_is_true(facts: list[Obj], wanted: list[list[Obj]], constraint: str, pods: int) -> None:
    check(facts, wanted, constraint, pods)


@pytest.mark.nightly
@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(*PROBLEMS)
def test_never_fits_verdict_is_true_in_2000_cases(
    facts: list[Obj], wanted: list[list[Obj]], constraint: str, pods: int
) -> None:
    check(facts, wanted, constraint, pods)


def check(facts: list[Obj], wanted: list[list[Obj]], constraint: str, pods: int) -> None:
    objects = built(facts, wanted, constraint, pods)
    group = next(o for o in objects if o["kind"] == "PodGroup")
    answer = explain(SchedulerCache.of(objects).snapshot(), "podgroup", group, remedies=False)
    possible = sum(most(one, wanted, constraint) for one in facts) >= pods
    assert (answer.verdict == "NeverFits") == (not possible), (answer.verdict, answer.summary)
    assert answer.reasons
