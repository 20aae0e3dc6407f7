"""Device scoring against brute force and its own definition; what fits does not depend on it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from benchmarks.packing import KINDS, Outcome, stream
from brute_force import Pick, World, able_to_serve, first, holds
from device_objects import DRIVER
from naive_scoring import card, lost, order, size_of, untouched
from small_problems import problem
from test_dra_invariants import picks_of

from haru import dra

Obj = dict[str, Any]


def sized(seed: int, most: int = 7) -> Obj:
    """A small problem in which devices have sizes and some shared ones are in use."""
    rng = random.Random(seed)
    given = problem(seed, most)
    given["shares"] = []
    shares = rng.random() < 0.4
    for request in [r for c in given["claims"] for r in c["spec"]["devices"]["requests"]]:
        for ask in request.get("firstAvailable", [request.get("exactly")]):
            if shares and rng.random() < 0.5:
                ask["capacity"] = {"requests": {"slots": str(rng.randint(1, 2))}}
    for entry in given["slices"]:
        for device in entry["spec"].get("devices", ()):
            if shares and not device.get("consumesCounters") and rng.random() < 0.7:
                device["allowMultipleAllocations"] = True
                device["capacity"] = {"slots": {"value": str(rng.randint(2, 4))}}
            if device.get("allowMultipleAllocations"):
                slots = int(device["capacity"]["slots"]["value"])
                if rng.random() < 0.5:
                    identity = {"driver": DRIVER, "pool": entry["spec"]["pool"]["name"], "device": device["name"]}
                    given["shares"].append({**identity, "slots": rng.randint(1, slots)})
            elif rng.random() < 0.6:
                device["capacity"] = {"slots": {"value": str(rng.randint(1, 4))}}
                if rng.random() < 0.5:
                    device["capacity"]["mem"] = {"value": str(rng.randint(1, 3))}
    return given


def answer(given: Obj, *, scoring: bool) -> list[Obj] | None:
    arguments = {key: value for key, value in given.items() if key not in ("taken", "shares")}
    shared = [{**{k: s[k] for k in ("driver", "pool", "device")}, "shareID": "a"} for s in given["shares"]]
    capacity = [
        {**{k: s[k] for k in ("driver", "pool", "device")}, "capacity": {"slots": s["slots"]}} for s in given["shares"]
    ]
    state = dra.AllocatedState(given["taken"], shared, capacity)
    return dra.allocate(**arguments, allocated=state, device_scoring=scoring, new_share_id=lambda: "b")


def names(results: list[Obj] | None) -> list[list[tuple[str, str, str]]] | None:
    if results is None:
        return None
    return [sorted((r["request"], r["pool"], r["device"]) for r in result["devices"]["results"]) for result in results]


def disagreements(seeds: range, most: int = 7) -> tuple[dict[int, Any], int, int]:
    """What differs from brute force in the order of scoring, how many problems fit, for how many scoring matters."""
    found, fitting, different = {}, 0, 0
    for seed in seeds:
        given = sized(seed, most)
        expected = first(given, order)
        scored, plain = answer(given, scoring=True), answer(given, scoring=False)
        fitting += expected is not None
        different += names(scored) != names(plain)
        wanted = None if expected is None else [sorted(picks) for picks in expected]
        if names(scored) != wanted or (scored is None) != (plain is None):
            found[seed] = (wanted, names(scored), names(plain))
        elif scored is not None and not holds(World(given), picks_of(World(given), scored)):
            found[seed] = ("broken", names(scored))
    return found, fitting, different


def test_scoring_returns_best_allocation_in_its_order() -> None:
    found, fitting, different = disagreements(range(150))
    assert found == {}
    assert fitting > 40 and different > 10


def test_pruning_does_not_change_scored_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory and counts from the first failure on, or never: the order of the devices is another, the search is not."""
    problems = [sized(seed, most) for seed in range(60) for most in (7, 11)]
    answers = []
    for easy, credit in ((0, 10**6), (10**6, 0)):
        monkeypatch.setattr("haru.engine.dra.allocator.device_search._EASY", easy)
        monkeypatch.setattr("haru.engine.dra.allocator.device_search._CREDIT", credit)
        answers.append([answer(given, scoring=True) for given in problems])
    assert answers[0] == answers[1]
    assert sum(found is not None for found in answers[0]) > 25


@pytest.mark.nightly
def test_scoring_returns_best_allocation_on_10000_problems() -> None:
    found, _, different = disagreements(range(100_000, 110_000))
    assert found == {} and different > 1000


def test_single_device_request_gets_device_of_lowest_rank() -> None:
    """Nothing is greedy where one device is asked for: it has the least rank of all with which the claim holds."""
    judged = 0
    for seed in range(200):
        given = sized(seed)
        request = {"name": "one", "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}}
        given["claims"] = [{"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}]
        results, world = answer(given, scoring=True), World(given)

        def rank(index: int, world: World = world) -> Any:
            first_of_card = min(card(world, index))
            return size_of(world, index), untouched(world, index), lost(world, index), first_of_card, index

        asked = request["exactly"]
        possible = [i for i in range(len(world.devices)) if able_to_serve(world, i, asked)]
        possible = [i for i in possible if holds(world, [Pick(0, "one", "one", asked, i)])]
        if results is None:
            assert possible == []
            continue
        judged += len(possible) > 1
        best = min(possible, key=rank)
        assert names(results) == [[("one", world.pools[best], world.devices[best]["name"])]], seed
    assert judged > 80


@pytest.mark.parametrize("seed", range(40))
def test_allocating_many_nodes_together_equals_one_by_one(seed: int) -> None:
    """Answers are shared between nodes that are alike, or look alike to the claims."""
    rng = random.Random(seed)
    claims = sized(seed)["claims"]
    slices: list[Obj] = []
    taken: list[Obj] = []
    nodes = [{"metadata": {"name": f"node-{number}", "labels": {"zone": "a"}}} for number in range(14)]
    inventories = [sized(rng.randrange(10**6), 5) for _ in range(10)]
    for node in nodes:
        given, name = rng.choice(inventories), node["metadata"]["name"]
        for entry in given["slices"]:
            pool = {**entry["spec"]["pool"], "name": f"{name}-{entry['spec']['pool']['name']}"}
            spec = {**entry["spec"], "pool": pool, "nodeName": name}
            slices.append({"metadata": {"name": f"{name}-{entry['metadata']['name']}"}, "spec": spec})
        taken += [{**t, "pool": f"{name}-{t['pool']}"} for t in given["taken"] if rng.random() < 0.5]
    others = {"slices": slices, "classes": sized(seed)["classes"], "allocated": dra.AllocatedState(taken)}
    many = dra.allocate_many(claims, nodes=nodes, **others, device_scoring=True, new_share_id=lambda: "a")
    for node in nodes:
        alone = dra.allocate(claims, node=node, **others, device_scoring=True, new_share_id=lambda: "a")
        assert many[node["metadata"]["name"]] == alone


@pytest.mark.parametrize(("kind", "load"), [("by profile", 0.6), ("by memory", 0.9)])
def test_scoring_refuses_fewer_gpus_in_a_stream_of_requests(kind: str, load: float) -> None:
    """The benchmark's stream in small: with scoring fewer requests are refused, and fewer of those for whole cards."""
    plain, scored = Outcome(), Outcome()
    for seed in range(2):
        plain.add(stream(kind, load, seed, scoring=False, requests=150))
        scored.add(stream(kind, load, seed, scoring=True, requests=150))
    largest = list(KINDS[kind])[-1]
    assert scored.refused_gpus < plain.refused_gpus and scored.whole > plain.whole
    assert scored.refused.get(largest, 0) <= plain.refused.get(largest, 0)
