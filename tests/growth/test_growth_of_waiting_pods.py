"""While pods are scheduled, those that wait for their claims cost no requests, however many they are."""

from __future__ import annotations

import asyncio

import pytest
from counted_calls import SIZES
from scheduler_bench import NS, PODS, Bench, play

TOLD_AT_MOST = 30


def told_beside_others(waiting: int) -> int:
    """How many of so many pods without a claim have been told within twelve seconds in which others are bound."""
    told = 0

    async def scenario(bench: Bench) -> None:
        nonlocal told
        await bench.node(cpu=8)
        for number in range(waiting):
            await bench.pod(f"waits-{number}", claim=f"missing-{number}")
        for number in range(6):
            await bench.pod(f"comes-{number}")
            await asyncio.sleep(2)
        for pod in (await bench.api.list(PODS, NS))["items"]:
            conditions = (pod.get("status") or {}).get("conditions") or ()
            told += any(condition.get("reason") == "NotReadyForScheduling" for condition in conditions)

    play(scenario)
    return told


@pytest.mark.parametrize("sizes", SIZES)
def test_pods_that_wait_for_claims_are_told_in_small_numbers_while_others_are_bound(sizes: tuple[int, ...]) -> None:
    told = {size: told_beside_others(size) for size in sizes}
    assert told[min(sizes)] == min(sizes)
    assert all(0 < number <= TOLD_AT_MOST for size, number in told.items() if size > min(sizes))
