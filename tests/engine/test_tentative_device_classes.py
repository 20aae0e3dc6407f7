"""The class of a node's devices with tentative allocations, and what the node answers by it, equal those found anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from engine_objects import (
    DRIVER,
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    node,
    options,
    pod,
    resource_slice,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from test_equal_members import cluster_with, described, equal_member

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.allocator.allocation import DEFAULT_BUDGET as BUDGET
from haru.engine.dra.allocator.allocation import DoesNotFit, Solution, solve
from haru.engine.dra.allocator.allocation_problem import AllocationProblem
from haru.engine.dra.model.claims import decode_claims
from haru.engine.dra.model.model import NodeView, PoolKey
from haru.engine.equivalence import claim_query
from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.equivalence.device_feasibility_cache import DeviceFeasibilityCache
from haru.engine.equivalence.node_device_classes import ClassifiedNode, classified_nodes_of
from haru.engine.podgroup.schedule_one import PodPlacer
from haru.engine.state.cache import SchedulerCache, Snapshot
from haru.engine.state.overlay import Overlay
from haru.engine.state.partition import Partition

NODES = [f"n{number}" for number in range(5)]
TAINT = {"key": "broken", "effect": "NoSchedule"}
SELECTED = f"device.attributes['{DRIVER}'].size > 1"
KNOWN = f"device.attributes['{DRIVER}'].id.endsWith('-0')"


def card(rng: random.Random, name: str, number: int) -> Obj:
    attributes = {"size": {"int": rng.randint(1, 2)}, "id": {"string": f"{name}-{number}"}}
    return {"name": f"gpu-{number}", "attributes": attributes, **({"taints": [TAINT]} if rng.random() < 0.1 else {})}


def slices_of(rng: random.Random, name: str) -> list[Obj]:
    """Cards of a node: whole ones, now and then in two pools, partitions that share counters, or shared cards."""
    cards = [card(rng, name, number) for number in range(rng.randint(0, 4))]
    kind = rng.random()
    if kind < 0.15:
        for entry in cards:
            entry["consumesCounters"] = [{"counterSet": "card", "counters": {"memory": {"value": "1"}}}]
        counters = [{"name": "card", "counters": {"memory": {"value": "2"}}}]
        made = [resource_slice(name, cards), resource_slice(name, [], sharedCounters=counters)]
        made[1]["metadata"]["name"] += "-counters"
        for item in made:
            item["spec"]["pool"]["resourceSliceCount"] = 2
        return made
    if kind < 0.3:
        for entry in cards:
            entry |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "3"}}}
    more = [resource_slice(name, 2, pool=f"{name}-more")] if rng.random() < 0.2 else []
    return [resource_slice(name, cards), *more]


def cluster(rng: random.Random) -> SchedulerCache:
    found: list[Obj] = [device_class()]
    for name in NODES:
        found += [node(name), *slices_of(rng, name)]
        if rng.random() < 0.5:
            user = pod(f"user-{name}", node=name, claims=[f"held-{name}"])
            found += [user, allocated(claim(f"held-{name}"), allocation(name, "gpu-0"), user)]
    if rng.random() < 0.3:
        found.append(resource_slice("", 2, pool="net", allNodes=True))
    return SchedulerCache.of(found)


class Tentative:
    """An overlay on which devices are allocated and taken back at random, and what it holds as it should be."""

    def __init__(self, rng: random.Random, snapshot: Snapshot) -> None:
        self.rng = rng
        self.overlay = Overlay(snapshot)
        self.held: list[tuple[str, Obj]] = []
        self.marks = [(0, 0)]
        self.count = 0

    @property
    def allocated(self) -> AllocatedState:
        return self.overlay.snapshot.allocated.with_allocations(self.held)

    def step(self) -> None:
        what = self.rng.random()
        if what < 0.1:
            mark, length = self.marks[self.rng.randrange(len(self.marks))]
            self.overlay.rollback(mark)
            del self.held[length:]
            self.marks = [known for known in self.marks if known[0] <= mark]
        elif what < 0.2:
            assert self.overlay.allocated.held_devices() == self.allocated.held_devices()
        elif (free := sorted(self.free())) != []:
            pool, device, shared = self.rng.choice(free)
            self.count += 1
            owner = pool.removesuffix("-more")
            given = allocation(owner if owner in NODES else "n0", device, pool=pool)
            if shared:
                given["devices"]["results"][0] |= {"shareID": f"s{self.count}", "consumedCapacity": {"memory": "1"}}
            path = f"default/t{self.count}"
            # Whoever knows that one node alone sees the devices says so.
            self.overlay.allocate(path, given, owner if owner in NODES and self.rng.random() < 0.7 else None)
            self.held.append((path, given))
        self.marks.append((self.overlay.mark(), len(self.held)))

    def free(self) -> Iterator[tuple[str, str, bool]]:
        now = self.allocated
        for pool in self.overlay.snapshot.devices.pools.values():
            taken = now.use(pool.key).names()
            for item in pool.slices:
                for device in item.devices:
                    if device.name not in taken or device.shape.shareable:
                        yield pool.key.pool, device.name, device.shape.shareable


def by_looking(snapshot: Snapshot, now: AllocatedState, name: str) -> list[tuple[PoolKey, list[bool]]] | None:
    """Whether each device of a node is taken, by pool; None where some may be taken in part, or by other nodes too."""
    pools = [
        pool for pool in snapshot.devices.pools.values() if any(s.placement.node_name == name for s in pool.slices)
    ]
    found = []
    for pool in sorted(pools, key=lambda one: one.key):
        view, use = pool.view(NodeView(name, {}), True), now.use(pool.key)
        if view is None or len(pool.slices) > 1 or use.shares or use.states or not view.devices:
            return None
        found.append((pool.key, [bool(use.holders(device.name)) for device in view.devices]))
    return found


def bits(classified: ClassifiedNode) -> list[tuple[PoolKey, list[bool]]]:
    found, taken = [], classified.node_device_class.taken
    for view in classified.views:
        found.append((view.key, [bool(taken >> place & 1) for place in range(len(view.devices))]))
        taken >>= len(view.devices)
    return found


@settings(deadline=None)
@given(st.integers(0, 2**31))
def test_class_with_tentative_allocations_is_that_of_the_devices_taken(seed: int) -> None:
    rng = random.Random(seed)
    snapshot = cluster(rng).snapshot()
    tentative = Tentative(rng, snapshot)
    for _ in range(rng.randint(1, 12)):
        tentative.step()
        name, now = rng.choice(NODES), tentative.allocated
        by_devices = tentative.overlay.classified_by_devices(name)
        found = tentative.overlay.classified_node(name)
        if by_devices is not None:
            assert found is not None
            assert by_devices.node_device_class is found.node_device_class and by_devices.views is found.views
        if found is not None:
            expected = by_looking(snapshot, now, name)
            assert expected is None or bits(found) == expected
            assert expected is not None or not found.views
            assert [now.use(view.key).devices for view in found.views] == [use.devices for use in found.uses]
        assert snapshot.node_device_classes is not None
        everywhere = snapshot.node_device_classes.of(snapshot.devices, now)
        if everywhere is not None:
            one = classified_nodes_of(everywhere, name)
            assert (one and one.node_device_class) is (found and found.node_device_class)


def asked(rng: random.Random) -> Obj:
    exactly: Obj = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": rng.randint(1, 3)}
    if rng.random() < 0.6:
        exactly["selectors"] = [{"cel": {"expression": rng.choice([SELECTED, KNOWN])}}]
    if rng.random() < 0.2:
        exactly["allocationMode"] = "All"
        del exactly["count"]
    if rng.random() < 0.2:
        exactly["capacity"] = {"requests": {"memory": "1"}}
    if rng.random() < 0.3:
        exactly["tolerations"] = [{"operator": "Exists"}]
    more: dict[str, Any] = {}
    if rng.random() < 0.3:
        more["constraints"] = [{"matchAttribute": f"{DRIVER}/size"}]
    return claim("asked", requests=[{"name": "gpu", "exactly": exactly}], **more)


def told(answer: object) -> object:
    if isinstance(answer, Solution):
        return [[(pick.plan.ask.result_name, pick.position) for pick in own] for own in answer.picks]
    return (answer.reasons,) if isinstance(answer, DoesNotFit) else (type(answer), str(answer))


@settings(deadline=None)
@given(st.integers(0, 2**31))
def test_node_answers_by_its_own_devices_as_where_all_are_followed(seed: int) -> None:
    rng = random.Random(seed)
    known = cluster(rng)
    if rng.random() < 0.1:
        partition = Partition(device_classes=frozenset({"gpu"}))
        snapshot = known.snapshot().confined_to(partition)
    else:
        snapshot = known.snapshot()
    wanted, features = asked(rng), options().features
    kept, fresh = (DeviceFeasibilityCache(features, 10_000) for _ in range(2))
    kept.catch_up(Overlay(snapshot))
    tentative = Tentative(rng, snapshot)
    for _ in range(rng.randint(1, 10)):
        tentative.step()
        info = snapshot.nodes[rng.choice(NODES)]
        query = kept.query("asked", lambda: decoded_one(wanted, snapshot))
        if not kept.can_answer_on(tentative.overlay):
            continue
        found = kept.answer_on(tentative.overlay, info, query)
        if found is None:
            continue
        other = Overlay(snapshot)
        for path, given_to in tentative.held:
            other.allocate(path, given_to)
        fresh.catch_up(other)
        expected = fresh.answer(info, fresh.query("asked", lambda: decoded_one(wanted, snapshot)))
        assert told(found) == told(expected)


@pytest.mark.parametrize("count", [1, 2])
def test_claim_for_any_devices_is_answered_without_a_search_as_a_search_would(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = [card(random.Random(number), "n0", number) for number in range(6)]
    for entry in cards:
        entry["attributes"]["size"] = {"int": 2}
        entry.pop("taints", None)
    snapshot = SchedulerCache.of([device_class(), node("n0"), resource_slice("n0", cards)]).snapshot()
    exactly = {"deviceClassName": "gpu", "count": count, "selectors": [{"cel": {"expression": SELECTED}}]}
    claims = decoded_one(claim("asked", requests=[{"name": "gpu", "exactly": exactly}]), snapshot)
    searches: list[AllocationProblem] = []

    def searched(problem: AllocationProblem, *args: Any, **more: Any) -> Any:
        searches.append(problem)
        return solve(problem, *args, **more)

    monkeypatch.setattr(claim_query, "solve", searched)
    devices = DeviceFeasibilityCache(options().features, BUDGET)
    devices.catch_up(Overlay(snapshot))
    for taken in range(1 << len(cards)):
        overlay = Overlay(snapshot)
        names = [f"gpu-{place}" for place in range(len(cards)) if taken >> place & 1]
        held = [(f"default/{name}", allocation("n0", name)) for name in names]
        for path, given_out in held:
            overlay.allocate(path, given_out)
        found = devices.answer_on(overlay, overlay.node("n0"), devices.query("asked", lambda: claims))
        now, seen = snapshot.allocated.with_allocations(held), NodeView("n0", {})
        problem = AllocationProblem(snapshot.devices.views(seen, True), now, seen, claims, options().features)
        assert told(found) == told(solve(problem, BUDGET))
    assert not searches


def decoded_one(wanted: Obj, snapshot: Snapshot) -> Any:
    return decode_claims([wanted], snapshot.devices.classes, options().features)


@pytest.mark.parametrize("taken", [0, 3, 5])
def test_equal_members_are_placed_without_following_what_each_takes(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [claim(f"held-{number}") for number in range(taken)]
    users = [pod(f"user-{number}", node="n0", claims=[f"held-{number}"]) for number in range(taken)]
    given_out = [allocated(one, allocation("n0", f"gpu-{i}"), users[i]) for i, one in enumerate(held)]
    members = [equal_member(f"m{number}", 1) for number in range(10)]
    objects = [device_class(), *(node(name, cpu="16") for name in NODES[:2]), *users, *given_out]
    objects += [resource_slice(name, 8) for name in NODES[:2]]
    known, pods = cluster_with(objects, members)
    snapshot, outcomes, followed = known.snapshot(), [], list[Overlay]()
    catch_up = DeviceFeasibilityCache.catch_up

    def counted(self: DeviceFeasibilityCache, overlay: Overlay) -> None:
        followed.append(overlay)
        catch_up(self, overlay)

    monkeypatch.setattr(DeviceFeasibilityCache, "catch_up", counted)
    for by_class in (True, False):
        followed.clear()
        with monkeypatch.context() as patch:
            if not by_class:
                patch.setattr(DeviceFeasibilityCache, "can_answer_on", lambda self, overlay: False)
            seen = replace(snapshot, decision_cache=DecisionCache())
            placer = PodPlacer(Overlay(seen), None, options(), seen.node_names)
            outcomes.append(list(map(described, placer.place_all(pods))))
        assert (len(followed) == 1) is by_class
    assert outcomes[0] == outcomes[1]
