"""What is kept of nodes for preemption equals what is found by looking at every claim, after any history."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_preemption_cache import NODES, World

from haru.engine.dra.model.model import NodeView
from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.podgroup.domain_totals import DomainTotals
from haru.engine.preemption.dry_run import claim_users
from haru.engine.preemption.node_occupancy import NodeOccupancies
from haru.engine.state.cache import Snapshot


def by_looking(snapshot: Snapshot, name: str) -> tuple[int, int, dict[str, int], bool]:
    """The devices of a node, those taken, what each pod frees, and whether each taken device has one user there."""
    info, offset = snapshot.nodes[name], 0
    taken, frees, plain = 0, dict[str, int](), True
    for view in snapshot.devices.views(NodeView(name, info.labels)):
        for place, device in enumerate(view.devices):
            holders = snapshot.allocated.use(view.key).holders(device.name)
            taken |= bool(holders) << (offset + place)
            plain = plain and len(holders) < 2
            for holder in holders:
                users = claim_users(snapshot, holder)
                if users is not None and len(users) == 1 and (user := min(users)) in info.pods:
                    frees[user] = frees.get(user, 0) | 1 << (offset + place)
                elif users is not None:
                    plain = False
        offset += len(view.devices)
    return (1 << offset) - 1, taken, frees, plain


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**31), turns=st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_kept_occupancies_equal_those_found_by_looking(seed: int, turns: list[int]) -> None:
    world, found = World(seed), set[bool]()
    for changes in turns:
        for _ in range(changes):
            world.change()
        snapshot = world.cluster.snapshot()
        for classified in (True, False):
            seen = snapshot if classified else replace(snapshot, node_device_classes=None)
            kept = NodeOccupancies.of(seen, partitionable=True)
            for number in range(NODES):
                one = kept.with_frees(seen, f"n{number}")
                devices, taken, frees, plain = by_looking(seen, f"n{number}")
                assert (one.devices, one.taken) == (devices, taken)
                # A node that is not plain is filtered, which is right of any node.
                assert not one.plain or (plain and one.frees == frees)
                found.add(one.plain)

    assert True in found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**31), turns=st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_kept_totals_of_domains_equal_those_of_all_nodes(seed: int, turns: list[int]) -> None:
    world = World(seed)
    for changes in turns:
        for _ in range(changes):
            world.change()
        snapshot = world.cluster.snapshot()
        kept = DomainTotals.of(snapshot, "rack")
        fresh = DomainTotals.of(replace(snapshot, decision_cache=DecisionCache()), "rack")
        assert kept.values == fresh.values
        for value in kept.values:
            mine, other = kept.domains[value], fresh.domains[value]
            assert mine.nodes == other.nodes == {n for n, i in snapshot.nodes.items() if i.labels.get("rack") == value}
            for have, want in ((mine.free, other.free), (mine.used, other.used), (mine.capacity, other.capacity)):
                assert {k: v for k, v in have.items() if v} == {k: v for k, v in want.items() if v}
            cpu = sum(snapshot.nodes[name].allocatable.get("cpu", 0) for name in mine.nodes)
            assert mine.capacity["cpu"] == cpu
