"""Counting holders by what has changed says the same as counting all of them."""

from __future__ import annotations

import random

import pytest

from haru.engine.state import CowMap, FrozenMap, Workload
from haru.explain.diagnosis.holders import HolderCount

Owners = FrozenMap[tuple[Workload, ...] | None]


def counted(owners: Owners, held: dict[tuple[str, ...], int]) -> tuple[dict[Workload, int], dict[Workload, set[str]]]:
    devices: dict[Workload, int] = {}
    claims: dict[Workload, set[str]] = {}
    for (path,), count in held.items():
        for key in owners[path] or ():
            devices[key] = devices.get(key, 0) + count
            claims.setdefault(key, set()).add(path)
    return devices, claims


@pytest.mark.parametrize("seed", range(20))
def test_followed_count_equals_a_count_of_all(seed: int) -> None:
    rng = random.Random(seed)
    workloads = [("ns", f"job/{number}") for number in range(6)]
    known: CowMap[tuple[Workload, ...] | None] = CowMap()
    held: dict[tuple[str, ...], int] = {}
    count = HolderCount()
    for _ in range(60):
        for _ in range(rng.randrange(4)):
            path = f"ns/claim-{rng.randrange(12)}"
            known[path] = tuple(rng.sample(workloads, rng.randrange(3)))
            if rng.random() < 0.6:
                held[(path,)] = rng.randrange(1, 5)
            else:
                held.pop((path,), None)
        owners = known.freeze()
        assert count.follow(owners, held)
        assert (count.devices, count.claims) == counted(owners, held)


def test_shared_devices_and_unknown_owners_are_not_followed() -> None:
    known: CowMap[tuple[Workload, ...] | None] = CowMap()
    known["ns/a"], known["ns/b"] = (("ns", "job/a"),), None
    count = HolderCount()
    assert count.follow(known.freeze(), {("ns/a",): 2})
    assert not count.follow(known.freeze(), {("ns/a", "ns/b"): 1})
    assert not count.follow(known.freeze(), {("ns/a",): 2, ("ns/b",): 1})
    assert not count.follow(None, {("ns/a",): 2})
    assert count.follow(known.freeze(), {("ns/a",): 3}) and count.devices == {("ns", "job/a"): 3}
