"""The victims that counts per node give equal those of the rule carried out literally, after any history."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from counted_calls import Steps
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
    pod_group,
    resource_slice,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from test_preemption_cache import NODES, World

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.bucketed_map import Bucketed
from haru.engine.dra.errors import AllocationError
from haru.engine.dra.model.model import NodeView
from haru.engine.podgroup.member_capacity import member_capacity_for
from haru.engine.podgroup.podgroup_cycle import members_of
from haru.engine.podgroup.podgroup_info import PodGroupInfo
from haru.engine.podgroup.single_class_capacity import single_class_capacity_for
from haru.engine.preemption.disruption_units import DisruptionUnit, ReprieveOrder, running_pods, units_below
from haru.engine.preemption.dry_run import EvictionDryRun
from haru.engine.preemption.fast_reprieve import FastReprieve
from haru.engine.preemption.feasibility_oracle import Preemptor, node_sets
from haru.engine.preemption.node_candidates import NodeCandidates
from haru.engine.preemption.node_counter import NodeCounter
from haru.engine.preemption.node_occupancy import NodeOccupancies
from haru.engine.preemption.nominated_placements import with_nominated_pods
from haru.engine.preemption.podgroup_preemption import Search, Victims, after_pending_evictions
from haru.engine.preemption.victim_index import VictimIndex
from haru.engine.state.cache import SchedulerCache, Snapshot
from haru.engine.state.cow_map import CowMap, Patched
from haru.engine.state.decision import PodKey
from haru.engine.state.pod_info import PodInfo
from nights import tonight

OPTIONS = options(preempt_for_pods=True, preempt_for_groups=True)
Found = tuple[list[int] | None, int, list[tuple[str, ...]]]


class LocalWorld(World):
    """A world in which only pods of one node share a claim, as it is with devices of a node."""

    def share(self) -> None:
        work = self.work
        places = self.rng.sample(range(NODES), NODES)
        for place in places:
            self.work = {name: one for name, one in work.items() if one[0] == place}
            if self.work:
                super().share()
                break
        self.work = work


def by_the_rule(snapshot: Snapshot, preemptor: Preemptor, units: Sequence[DisruptionUnit]) -> Found:
    """Remove unit by unit until as many fit as can, then put each back if as many still fit; filter every node."""
    capacity = member_capacity_for(snapshot, preemptor.info, snapshot.node_names)
    assert capacity is not None
    dry_run = EvictionDryRun(snapshot, [unit.pods for unit in units])
    capacity.use_dry_run(dry_run)
    removed = dry_run.removed

    def totals() -> list[int]:
        capacity.use_dry_run(dry_run)  # nothing is kept from one state to the next
        return [sum(capacity.count(name) for name in nodes) for nodes in preemptor.places]

    fit = min(len(preemptor.info.members), max(totals(), default=0))
    removed[:] = bytes(len(units))
    victims: list[int] = []
    begin = len(units)
    while max(totals(), default=0) < fit:
        begin -= 1
        removed[begin] = 1
    for number in range(begin, len(units)):
        removed[number] = 0
        if max(totals(), default=0) < fit:
            removed[number] = 1
            victims.append(number)
    places = [nodes for nodes, total in zip(preemptor.places, totals(), strict=True) if total >= fit]
    usable = [tuple(name for name in nodes if capacity.count(name)) for nodes in places]
    return victims, fit, usable


def by_counts(snapshot: Snapshot, preemptor: Preemptor, order: ReprieveOrder) -> Found | None:
    """Find the same with what is kept of earlier preemptors; None where nodes cannot be counted one by one."""
    capacity = member_capacity_for(snapshot, preemptor.info, snapshot.node_names)
    counter = single_class_capacity_for(snapshot, OPTIONS, capacity.classes) if capacity is not None else None
    if capacity is None or counter is None:
        return None
    occupancies = NodeOccupancies.of(snapshot, partitionable=OPTIONS.features.PartitionableDevices)
    units = VictimIndex.of(snapshot, groups=True) if order.complete else order.by_node()
    nodes = NodeCounter(snapshot, occupancies, counter, capacity, units)
    fast = FastReprieve(order.units, preemptor.places, nodes)
    found = fast.victims(len(preemptor.info.members), 0)
    assert found is not None
    return *found, fast.usable_nodes()


def compared(seed: int) -> Iterator[int]:
    """Compare both through one history, in the order of ranks and in a random one; yield the numbers of victims."""
    world = LocalWorld(seed)
    for number in range(10):
        for _ in range(world.rng.randrange(4)):
            world.change()
        group, pods, objects = world.newcomer(number % 4)
        world.put(*objects)
        snapshot = world.cluster.snapshot()
        info = PodGroupInfo.of(snapshot, members_of(snapshot, pods), group, OPTIONS)
        preemptor = Preemptor(info, node_sets(snapshot, info))
        units = VictimIndex.of(snapshot, groups=True).below(preemptor.priority)
        shuffled = world.rng.sample(units, len(units))
        for order in (ReprieveOrder(tuple(units), complete=True), ReprieveOrder(tuple(shuffled))):
            found = by_counts(snapshot, preemptor, order)
            if found is not None:
                assert found == by_the_rule(snapshot, preemptor, order.units), seed
                yield len(found[0] or ())
        for obj in reversed(objects):
            world.cluster.remove(obj)


def test_victims_by_counts_equal_those_by_the_rule() -> None:
    victims = [count for seed in range(16) for count in compared(seed)]
    assert sum(map(bool, victims)) > 40


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(10))
def test_victims_by_counts_equal_those_by_the_rule_in_long_runs(block: int) -> None:
    seeds = tonight(range(100 * block, 100 * block + 100))
    assert sum(count for seed in seeds for count in compared(seed)) > 0


def test_node_that_is_known_to_be_no_better_is_a_candidate_that_costs_no_less_than_its_least_unit() -> None:
    nothing, found, refused, partly = Victims((), 0, ()), 0, 0, 0
    for seed in range(40):
        world = World(seed)
        # A pod that is assumed, and so not to be evicted, leaves nothing of its node.
        world.put(pod("assumed", cpu="100"))
        world.cluster.assume_pod(PodKey("default", "assumed", ""), "n0")
        for _ in range(10):
            for _ in range(world.rng.randrange(4)):
                world.change()
            cards = world.rng.randrange(4)
            claims = [("cards", "tmpl", "m-cards")] if cards else None
            newcomer = pod("m", cpu="1", claims=claims, priority=world.rng.randrange(1, 7))
            objects = [newcomer, claim("m-cards", cards, owner=newcomer)] if cards else [newcomer]
            world.put(*objects)
            snapshot = world.cluster.snapshot()
            info = PodGroupInfo.of(snapshot, members_of(snapshot, [newcomer]), None, OPTIONS)
            preemptor = Preemptor(info, node_sets(snapshot, info))
            search = Search(snapshot, preemptor)
            candidates = NodeCandidates(snapshot, preemptor, search, {})
            names = list(filter(candidates.has_units, snapshot.node_names))
            if seed % 2:
                candidates.look_at(names)
            for name in names:
                exceeds, candidate = candidates.is_no_better(name, nothing), candidates.candidate(name)
                of_pod, units = candidates.units(name), VictimIndex.of(snapshot, groups=True).units_on(name)
                victims = search.victims_in(ReprieveOrder(tuple(of_pod)), name)
                assert (candidate is None) is (victims is None), seed
                refused += candidate is None
                if exceeds:
                    assert candidate is not None, seed
                    assert victims is not None
                    assert candidate.victims().cost == victims.cost >= candidate.least_cost >= units[-1].cost
                    assert not candidate.violations
                    found += 1
                    partly += len(of_pod) < len(units)
            for obj in reversed(objects):
                world.cluster.remove(obj)
    assert min(found, refused) > 100
    assert partly > 0


def told(units: Iterable[DisruptionUnit]) -> list[tuple[Any, ...]]:
    return sorted((unit.rank, [pod.key for pod in unit.pods], [pod.key for pod in unit.promised]) for unit in units)


def few_cards(rng: random.Random) -> tuple[list[Obj], list[Obj]]:
    """A node with a few cards, some of which are held or tainted, and a gang that asks for some."""
    sizes = rng.choice([[1], [1], [2], [1, 2]])
    cards: list[Obj] = [{"name": f"gpu-{i}", "attributes": {"size": {"int": rng.choice(sizes)}}} for i in range(8)]
    for card in cards if rng.random() < 0.2 else ():
        card |= {"taints": [{"key": "broken", "effect": "NoSchedule"}]} if rng.random() < 0.5 else {}
    held = rng.sample(range(8), rng.randint(0, 4)) if rng.random() < 0.7 else []
    user = pod("user", node="n0", claims=["held"])
    to = allocation("n0", *[f"gpu-{i}" for i in held])
    found = [device_class(), node("n0", cpu="16"), resource_slice("n0", cards)]
    found += [user, allocated(claim("held", len(held)), to, user)] if held else []
    exactly: Obj = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": rng.randint(1, 4)}
    exactly |= rng.choice([{}, {"selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].size == 1"}}]}])
    exactly |= rng.choice([{}, {}, {"tolerations": [{"operator": "Exists"}]}, {"adminAccess": True}])
    requests = [{"name": "gpu", "exactly": exactly}]
    if rng.random() < 0.2:
        requests = [{"name": "gpu", "firstAvailable": [{**exactly, "name": "a"}, {**exactly, "name": "b", "count": 1}]}]
    if rng.random() < 0.2:
        requests.append({"name": "all", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}})
    same = {"constraints": [{"matchAttribute": f"{DRIVER}/size"}]} if rng.random() < 0.2 else {}
    members = [pod(f"m{i}", group="g", claims=[f"c{i}"]) for i in range(rng.randint(1, 9))]
    return [*found, *members, *[claim(f"c{i}", requests=requests, **same) for i in range(len(members))]], members


@settings(deadline=None)
@given(st.integers(0, 2**31))
def test_count_of_members_on_a_node_is_how_many_the_allocator_serves(seed: int) -> None:
    rng = random.Random(seed)
    objects, members = few_cards(rng)
    snapshot = SchedulerCache.of([*objects, pod_group("g", 1)]).snapshot()
    info = PodGroupInfo.of(snapshot, members_of(snapshot, members), snapshot.pod_groups["default/g"], OPTIONS)
    capacity = member_capacity_for(snapshot, info, snapshot.node_names)
    counter = single_class_capacity_for(snapshot, OPTIONS, capacity.classes) if capacity is not None else None
    if counter is None:
        return
    occupancy = NodeOccupancies.of(snapshot, partitionable=True).with_frees(snapshot, "n0")
    if counter.is_plain(occupancy):
        view, names = NodeView("n0", occupancy.info.labels), [f"gpu-{place}" for place in range(8)]
        # What is counted with some devices taken may tell what is counted with others taken.
        for taken in rng.sample([occupancy.taken, 0, rng.getrandbits(8), rng.getrandbits(8)], 3):
            held = AllocatedState.of([(DRIVER, "n0", names[place]) for place in range(8) if taken >> place & 1])
            try:
                served = [count for count in range(1, counter.most + 1) if counter._serves(view, held, count)]
            except AllocationError:
                return
            assert counter.count(occupancy, taken, counter.free_of(occupancy.info)) == max(served, default=0)


def test_units_on_a_node_are_those_of_the_order_after_any_history() -> None:
    for seed in range(6):
        world = World(seed)
        for _ in range(25):
            world.change()
            # As a preemptor sees it that is more important than all: with the places promised to half-placed gangs.
            seen = with_nominated_pods(world.cluster.snapshot(), [PodInfo.of(pod("p", priority=99))])
            snapshot = after_pending_evictions(seen)
            index = VictimIndex.of(snapshot, groups=True)
            anew = units_below(snapshot, 2**31, running_pods(snapshot, snapshot.node_names))
            # A preemptor that takes one node asks for some nodes only; nobody need have asked for all in between.
            for name in world.rng.sample(snapshot.node_names, world.rng.randrange(3)):
                there = [unit for unit in anew if name in unit.nodes]
                assert told(index.units_on(name)) == told(there), seed
            if world.rng.random() < 0.5:
                below = sum(unit.priority < 2 for unit in anew)
                number = below + world.rng.randrange(-3, 3)
                assert index.has_more_below(2, number) is (below > number), seed
                continue
            ranks = {n: [unit.rank for unit in anew if n in unit.nodes] for n in snapshot.node_names}
            assert [index.least_rank_on(n) for n in ranks] == [max(ranks[n], default=None) for n in ranks], seed
            assert told(index.below(2**31)) == told(anew), seed
            by_node = ReprieveOrder(tuple(index.below(2**31))).by_node()
            assert {n: [*index.units_on(n)] for n in snapshot.node_names if index.units_on(n)} == by_node, seed


def test_allocations_recorded_together_equal_those_recorded_one_by_one() -> None:
    world = World(3)
    for seed in range(30):
        world.change()
        allocated = world.cluster.snapshot().allocated
        world.rng.seed(seed)
        changes = []
        for path in world.rng.sample([f"default/w{number}-cards" for number in range(8)], 5):
            results = [
                {"driver": "gpu.example.com", "pool": f"n{world.rng.randrange(3)}", "device": f"gpu-{card}"}
                for card in world.rng.sample(range(4), world.rng.randrange(3))
            ]
            shared = [{**one, "shareID": "s", "consumedCapacity": {"memory": "1Gi"}} for one in results[1:]]
            changes.append((path, {"devices": {"results": [*results[:1], *shared]}}))
        one_by_one = allocated
        for path, given_to in changes:
            one_by_one = one_by_one.with_allocation(path, given_to)
        together = allocated.with_allocations(changes)
        assert contents(together) == contents(one_by_one)
        assert together.changed(allocated) >= {key for key, use in together._pools.items() if allocated.use(key) != use}


def contents(state: AllocatedState) -> tuple[object, object]:
    return dict(state._pools.items()), dict(state._claims.items())


def test_changes_put_together_equal_those_put_one_by_one() -> None:
    base = Bucketed.of({f"key-{number}": number for number in range(3000)})
    changes: dict[str, int | None] = {f"key-{number}": None if number % 3 else -number for number in range(2000, 4000)}
    one_by_one = base
    for key, value in changes.items():
        one_by_one = one_by_one.put({key: value})
    together = base.put(changes)
    assert dict(together.items()) == dict(one_by_one.items())
    assert together.difference(base) == one_by_one.difference(base)
    assert dict(base.items()) == {f"key-{number}": number for number in range(3000)}


def test_map_of_few_entries_is_looked_through_in_few_steps() -> None:
    """A small cluster does not visit the thousands of buckets that a large one fills."""
    for entries in ({}, {"a": 1}):
        made = Bucketed.of(entries).put({"b": 2})
        with Steps() as steps:
            assert dict(made.items()) == {**entries, "b": 2}
        assert steps.count < 2000


def test_length_of_patched_map_counts_replaced_added_and_removed_keys() -> None:
    base: CowMap[int] = CowMap()
    base.update({f"key-{number}": number for number in range(10)})
    patched = Patched(base.freeze(), {"key-1": None, "key-2": 5, "new": 6, "never": None})
    assert len(patched) == len(list(patched)) == 10
