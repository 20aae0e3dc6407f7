"""What is taken, derived from claims, and that states are values."""

from __future__ import annotations

from device_objects import DRIVER, Obj
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.engine.devices import AllocatedState, DeviceId, PoolKey

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


def test_holders_and_shares() -> None:
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


def test_states_are_values() -> None:
    first = AllocatedState().with_allocation("ns/a", allocation("gpu-0"))
    second = first.with_allocation("ns/a", allocation("gpu-1"))
    assert list(first.use(POOL).devices) == ["gpu-0"]
    assert list(second.use(POOL).devices) == ["gpu-1"]


def test_from_claims() -> None:
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
def test_a_long_history_ends_like_a_short_one(steps: list[tuple[int, bool]]) -> None:
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
