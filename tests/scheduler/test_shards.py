"""Shards: schedulers that run at once on one API server, on pools of their own or on pools that they share.

Every state that the API server went through is checked, not only the last one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_bench import CLAIMS, NS, PODS, Bench, play
from test_coexistence import Schedulers

from haru.engine.state import partition_from
from haru.kube.kinds import Kind

Obj = dict[str, Any]
NODES = ("n1", "n2", "n3")
SHARDS = ("one", "two")


@dataclass(frozen=True)
class Load:
    """Pools by shard, devices of each pool, and pods of each shard; `shared`: claims of a pod of both."""

    pools: Mapping[str, frozenset[str]]
    devices: int
    pods: Mapping[str, int]
    shared: int
    delay: float
    seed: int


@st.composite
def loads(draw: st.DrawFn, overlap: bool) -> Load:
    owners = [draw(st.sampled_from([("one",), ("two",), SHARDS] if overlap else [("one",), ("two",)])) for _ in NODES]
    owners[0], owners[1] = (SHARDS, owners[1]) if overlap else (("one",), ("two",))
    pools = {shard: frozenset(n for n, own in zip(NODES, owners, strict=True) if shard in own) for shard in SHARDS}
    pods = {shard: draw(st.integers(1, 6)) for shard in SHARDS}
    delay = draw(st.sampled_from([0.0, 0.05, 0.5]))
    return Load(pools, draw(st.integers(1, 3)), pods, draw(st.integers(0, 2)), delay, draw(st.integers(0, 2**16)))


@dataclass
class History:
    """Every change of pods and claims, as a watch of each showed it."""

    changes: list[tuple[int, Kind, str, Obj]] = field(default_factory=list)

    async def follow(self, bench: Bench, kind: Kind, since: str) -> None:
        async with aclosing(bench.api.watch(kind, NS, since, bookmarks=False)) as events:
            async for type_, obj in events:
                self.changes.append((int(obj["metadata"]["resourceVersion"]), kind, type_, obj))

    def states(self) -> Iterator[tuple[dict[str, Obj], set[str]]]:
        """Claims by name, and UIDs of bound pods, after each change."""
        claims: dict[str, Obj] = {}
        bound: set[str] = set()
        for _, kind, type_, obj in sorted(self.changes, key=lambda change: change[0]):
            if kind is CLAIMS:
                claims[obj["metadata"]["name"]] = obj
                if type_ == "DELETED":
                    del claims[obj["metadata"]["name"]]
            elif obj["spec"].get("nodeName"):
                bound.add(obj["metadata"]["uid"])
            yield claims, bound


def devices_of(claim: Obj) -> list[str]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return [f"{r['pool']}/{r['device']}" for r in (allocation.get("devices") or {}).get("results") or ()]


def users_of(claim: Obj) -> set[str]:
    return {entry["uid"] for entry in (claim.get("status") or {}).get("reservedFor") or ()}


def holders(claims: Mapping[str, Obj], bound: set[str] | None = None) -> Counter[str]:
    """Devices by how many claims have them; with `bound`, claims of these pods alone."""
    held = [claim for claim in claims.values() if bound is None or users_of(claim) & bound]
    return Counter(device for claim in held for device in devices_of(claim))


async def run_shards(bench: Schedulers, load: Load) -> History:
    """All pods at once, for both shards; then everything settles."""
    since = (await bench.api.list(PODS, NS))["metadata"]["resourceVersion"]
    history = History()
    watches = [asyncio.create_task(history.follow(bench, kind, since)) for kind in (PODS, CLAIMS)]
    for node in NODES:
        await bench.node(node, cpu=100, gpus=load.devices)
    await asyncio.sleep(1 + load.delay)
    for number in range(load.shared):
        await bench.claim(f"shared-{number}")
        for shard in SHARDS:
            name = f"{shard}-shares-{number}"
            await bench.pod(name, cpu="10m", claim=f"shared-{number}", schedulerName=shard)
    for number in range(max(load.pods.values())):
        for shard in (shard for shard in SHARDS if number < load.pods[shard]):
            await bench.claim(f"{shard}-{number}")
            await bench.pod(f"{shard}-{number}", cpu="10m", claim=f"{shard}-{number}", schedulerName=shard)
    await asyncio.sleep(60)
    for watch in watches:
        watch.cancel()
    await asyncio.gather(*watches, return_exceptions=True)
    return history


async def check_nobody_waits_for_a_free_device(bench: Bench, load: Load) -> None:
    claims = {claim["metadata"]["name"]: claim for claim in (await bench.api.list(CLAIMS, NS))["items"]}
    taken = holders(claims)
    for shard in SHARDS:
        free = [f"{pool}/gpu-{n}" for pool in load.pools[shard] for n in range(load.devices)]
        free = [device for device in free if not taken[device]]
        waiting = [name for n in range(load.pods[shard]) if not await bench.node_of(name := f"{shard}-{n}")]
        assert not (free and waiting), (shard, free, waiting)


def check_claims_keep_their_allocation(states: Sequence[tuple[dict[str, Obj], set[str]]]) -> None:
    """One write wins where two shards allocate one claim, and nobody writes over it while a bound pod uses it."""
    had: dict[str, tuple[list[str], bool]] = {}
    for claims, bound in states:
        for name, claim in claims.items():
            devices, in_use = had.get(name, ([], False))
            now = devices_of(claim)
            assert now == devices or not (devices and now), f"{name}: {devices} became {now}"
            assert now == devices or not in_use, f"{name}: {devices} were taken from a bound pod"
            had[name] = now, bool(users_of(claim) & bound)


def play_shards(load: Load, check: Any, confirm: str = "auto") -> None:
    async def scenario(bench: Bench) -> None:
        assert isinstance(bench, Schedulers)
        history = await run_shards(bench, load)
        states = [({**claims}, {*bound}) for claims, bound in history.states()]
        assert len(states) > sum(load.pods.values())
        check(states)
        check_claims_keep_their_allocation(states)
        if confirm != "never":
            await check_nobody_waits_for_a_free_device(bench, load)

    bench = Schedulers(*SHARDS, delay=load.delay, confirm=confirm, seed=load.seed)
    bench.partitions = {shard: partition_from({"pools": sorted(pools)}) for shard, pools in load.pools.items()}
    play(scenario, bench=bench)


@settings(max_examples=4, deadline=None)
@given(loads(overlap=False))
def test_shards_on_pools_of_their_own_never_allocate_a_device_twice(load: Load) -> None:
    def check(states: Sequence[tuple[dict[str, Obj], set[str]]]) -> None:
        for claims, _ in states:
            assert max(holders(claims).values(), default=0) <= 1
            for name, claim in claims.items():
                shard = name.partition("-")[0]
                pools = {device.partition("/")[0] for device in devices_of(claim)}
                assert shard == "shared" or pools <= load.pools[shard]

    play_shards(load, check)


@settings(max_examples=4, deadline=None)
@given(loads(overlap=True))
def test_shards_that_share_pools_and_confirm_never_bind_two_holders_of_a_device(load: Load) -> None:
    def check(states: Sequence[tuple[dict[str, Obj], set[str]]]) -> None:
        for claims, bound in states:
            assert max(holders(claims, bound).values(), default=0) <= 1

    play_shards(load, check, confirm="always")


def test_check_of_histories_finds_two_holders_where_nobody_confirms() -> None:
    load = Load({shard: frozenset(NODES[:1]) for shard in SHARDS}, 6, dict.fromkeys(SHARDS, 6), 0, 0.5, 1)

    def check(states: Sequence[tuple[dict[str, Obj], set[str]]]) -> None:
        assert max(max(holders(claims, bound).values(), default=0) for claims, bound in states) == 2

    play_shards(load, check, confirm="never")


@pytest.mark.nightly
@settings(max_examples=100, deadline=None)
@given(st.booleans().flatmap(lambda overlap: st.tuples(st.just(overlap), loads(overlap))))
def test_shards_over_many_histories(drawn: tuple[bool, Load]) -> None:
    overlap, load = drawn

    def check(states: Sequence[tuple[dict[str, Obj], set[str]]]) -> None:
        for claims, bound in states:
            assert max(holders(claims, bound if overlap else None).values(), default=0) <= 1

    play_shards(load, check, confirm="always" if overlap else "auto")
