"""What is taken, derived from claims, and that states are values."""

from __future__ import annotations

from device_objects import DRIVER, Obj
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.engine.dra import AllocatedState, DeviceId, DeviceSnapshot, NodeView, PoolKey
from haru.engine.dra.pools.pools import PoolView

POOL = PoolKey(DRIVER, "pool")


def allocation(*devices: str, **more: Obj) -> Obj:
    results: list[Obj] = [{"request": "r", "driver": DRIVER, "pool": "pool", "device": d} for d in devices]
    results += [{"request": "r", "driver": DRIVER, "pool": "pool", "device": d, **extra} for d, extra in more.items()]
    return {"devices": {"results": results}}


def share(name: str, mem: str) -> Obj:
    return {"shareID": name, "consumedCapacity": {"mem": mem}}


def contents(state: AllocatedState) -> object:
    use = state.use(POOL)
    return dict(use.devices), {name: set(shares) for name, shares in use.shares.items()}


def test_allocated_state_tracks_holders_and_consumed_capacity() -> None:
    state = AllocatedState().with_allocation("ns/a", allocation("gpu-0", admin={"adminAccess": True}))
    state = state.with_allocation("ns/b", allocation(big=share("1", "2Gi")))
    state = state.with_allocation("ns/c", allocation(big=share("2", "3Gi")))
    assert state.holders(DeviceId(DRIVER, "pool", "gpu-0")) == ("ns/a",)
    assert state.holders(DeviceId(DRIVER, "pool", "big")) == ("ns/b", "ns/c")
    assert state.holders(DeviceId(DRIVER, "pool", "admin")) == ()
    assert state.use(POOL).consumed("big") == {"mem": 5 * 2**30 * 10**9}
    assert state.use(POOL).names() == {"gpu-0", "big"}
    assert state.devices == {DeviceId(DRIVER, "pool", "gpu-0"): "ns/a"}
    assert state.without("ns/b").use(POOL).consumed("big") == {"mem": 3 * 2**30 * 10**9}
    assert contents(state.without("ns/a").without("ns/b").without("ns/c")) == ({}, {})
    assert state.without("ns/unknown") is state


def test_allocated_states_are_immutable() -> None:
    first = AllocatedState().with_allocation("ns/a", allocation("gpu-0"))
    second = first.with_allocation("ns/a", allocation("gpu-1"))
    assert list(first.use(POOL).devices) == ["gpu-0"]
    assert list(second.use(POOL).devices) == ["gpu-1"]


def test_allocated_state_is_built_from_claims() -> None:
    claims = [
        {"metadata": {"name": "a", "namespace": "ns"}, "status": {"allocation": allocation("gpu-0")}},
        {"metadata": {"name": "b", "namespace": "ns"}, "status": {}},
        {"metadata": {"name": "c", "namespace": "ns"}},
    ]
    state = AllocatedState.from_claims(claims)
    assert state.holders(DeviceId(DRIVER, "pool", "gpu-0")) == ("ns/a",)
    assert contents(state) == contents(AllocatedState().with_allocation("ns/a", allocation("gpu-0")))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=300))
def test_long_history_of_allocations_equals_fresh_state(steps: list[tuple[int, bool]]) -> None:
    """Layers are folded now and then; what counts is who holds what in the end."""
    state, held = AllocatedState(), dict[str, Obj]()
    for number, put in steps:
        key = f"ns/{number}"
        if put:
            held[key] = allocation(f"gpu-{number}", big=share(key, "1"))
            state = state.with_allocation(key, held[key])
        else:
            held.pop(key, None)
            state = state.without(key)
    fresh = AllocatedState()
    for key, result in held.items():
        fresh = fresh.with_allocation(key, result)
    assert contents(state) == contents(fresh)
    assert set(state.devices.values()) == set(held)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=20))
def test_changed_pools_of_next_state_equal_those_found_by_comparison(steps: list[tuple[int, int, bool]]) -> None:
    states = [AllocatedState()]
    for number, pool, put in steps:
        results = [{"request": "r", "driver": DRIVER, "pool": f"pool-{pool}", "device": f"gpu-{number}"}]
        given = {"devices": {"results": results}}
        last, key = states[-1], f"ns/{number}"
        states.append(last.with_allocation(key, given) if put else last.without(key))
    keys = [PoolKey(DRIVER, f"pool-{pool}") for pool in range(4)]
    for number, before in enumerate(states):
        for after in states[number:]:
            found = after.changed(before)
            assert found <= set(keys)
            assert {key for key in keys if after.use(key) != before.use(key)} <= found
            assert {key for key in keys if after.use(key) is before.use(key)}.isdisjoint(found)


def test_freeing_claims_together_equals_one_by_one() -> None:
    state = AllocatedState().with_allocation("ns/a", allocation("gpu-0", "gpu-1"))
    state = state.with_allocation("ns/b", allocation(big=share("1", "2Gi")))
    state = state.with_allocation("ns/c", allocation(big=share("2", "3Gi")))
    assert contents(state.freed(["ns/a", "ns/c", "ns/unknown"])) == contents(state.without("ns/a").without("ns/c"))
    assert state.freed(["ns/unknown"]) is state
    assert contents(state.freed(["ns/a", "ns/b", "ns/c"])) == ({}, {})


def test_union_of_two_states_holds_devices_of_both() -> None:
    """What is taken now, and what will be once one claim is freed and another one has its devices."""
    now = AllocatedState().with_allocation("ns/old", allocation("gpu-0", big=share("1", "2Gi")))
    later = now.freed(["ns/old"]).with_allocation("ns/new", allocation("gpu-1", big=share("2", "3Gi")))
    both = now.and_also(later)
    assert set(both.use(POOL).devices) == {"gpu-0", "gpu-1"}
    assert both.use(POOL).consumed("big") == {"mem": 3 * 2**30 * 10**9}
    more = both.with_allocation("ns/more", allocation("gpu-2", big=share("3", "4Gi")))
    assert set(more.use(POOL).devices) == {"gpu-0", "gpu-1", "gpu-2"}
    assert more.use(POOL).consumed("big") == {"mem": 7 * 2**30 * 10**9}
    assert contents(more.without("ns/more")) == contents(both)
    assert now.and_also(now) is now


@given(st.lists(st.sampled_from(["whole", "half-0", "half-1", "quarter-0"]), unique=True, max_size=3), st.data())
def test_counters_left_of_two_states_are_the_minimum(now: list[str], data: st.DataObject) -> None:
    """A device fits beside both states if and only if it fits beside each."""
    sizes = {"whole": 4, "half-0": 2, "half-1": 2, "quarter-0": 1}
    later = data.draw(st.lists(st.sampled_from(sorted(sizes)), unique=True, max_size=3))
    view = partitioned(sizes)
    states = [AllocatedState().with_allocation("ns/x", allocation(*names)) for names in (now, later)]
    lefts = [view.counters_left(state.use(POOL))[0] for state in states]
    assert view.counters_left(states[0].and_also(states[1]).use(POOL)) == (min(lefts),)


def partitioned(sizes: dict[str, int]) -> PoolView:
    devices = [
        {
            "name": name,
            "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": str(size)}}}],
        }
        for name, size in sizes.items()
    ]
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 2}
    base: Obj = {"driver": DRIVER, "pool": pool, "nodeName": "node"}
    counters = [{"name": "card", "counters": {"memory": {"value": "4"}}}]
    specs = [{**base, "devices": devices}, {**base, "sharedCounters": counters}]
    slices = [{"metadata": {"name": f"s{number}"}, "spec": spec} for number, spec in enumerate(specs)]
    [view] = DeviceSnapshot.of(slices).views(NodeView("node", {}))
    return view
