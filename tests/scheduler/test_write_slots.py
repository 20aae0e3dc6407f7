"""Writes of what was decided first go first, and decisions do not run far ahead of the writes."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from scheduler_bench import CLAIMS, PODS, Bench, play

import virtual_time
from haru.scheduler.binding.write_slots import WriteSlots
from waiting import until


def test_first_pod_of_a_burst_is_bound_before_the_last_claim_is_written() -> None:
    async def scenario(bench: Bench) -> None:
        for number in range(6):
            await bench.node(f"n{number}", cpu=30, gpus=10)
        names = [f"p{number}" for number in range(60)]
        bench.faulty.kinds, bench.faulty.rate = ("slow",), 1.0
        for name in names:
            await bench.claim(name)
        await asyncio.gather(*(bench.pod(name, cpu="100m", claim=name) for name in names))

        async def one_is_bound() -> bool:
            return any(pod["spec"].get("nodeName") for pod in (await bench.api.list(PODS))["items"])

        await until(one_is_bound)
        claims = (await bench.api.list(CLAIMS))["items"]
        allocated = [claim for claim in claims if (claim.get("status") or {}).get("allocation")]
        assert len(allocated) <= 32
        await bench.eventually_bound(*names, seconds=30)

    play(scenario)


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=20), st.integers(1, 4))
def test_writes_are_bounded_and_in_the_order_of_decisions(decisions: list[tuple[int, bool]], places: int) -> None:
    """Each decision has some writes; some are cancelled while they wait. No place is lost."""

    async def scenario() -> None:
        slots, begun, in_flight = WriteSlots(places), list[int](), 0

        async def write(number: int) -> None:
            nonlocal in_flight
            async with slots:
                in_flight += 1
                assert in_flight <= places
                begun.append(number)
                try:
                    await asyncio.sleep(1)
                finally:
                    in_flight -= 1

        async def carry_out(number: int, writes: int) -> None:
            slots.new_decision()
            await asyncio.gather(*(write(number) for _ in range(writes)))

        tasks = [asyncio.create_task(carry_out(n, writes)) for n, (writes, _) in enumerate(decisions)]
        await asyncio.sleep(0.5)
        for task, (_, is_cancelled) in zip(tasks, decisions, strict=True):
            if is_cancelled:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for number, (writes, is_cancelled) in enumerate(decisions):
            assert is_cancelled or begun.count(number) == writes
        assert begun == sorted(begun)
        await slots.wait_for_room()
        async with asyncio.timeout(1.5):
            await asyncio.gather(*(write(0) for _ in range(places)))

    virtual_time.run(scenario())


def test_deciding_waits_while_many_decisions_wait_to_be_written() -> None:
    async def scenario() -> None:
        slots = WriteSlots(1, most_decisions=3)

        async def carry_out() -> None:
            slots.new_decision()
            async with slots:
                await asyncio.sleep(1)

        tasks = [asyncio.create_task(carry_out()) for _ in range(4)]
        await asyncio.sleep(0.5)
        began = asyncio.get_running_loop().time()
        await slots.wait_for_room()
        # Until about half of them are written: one at a time is more work than several together.
        assert 1.4 < asyncio.get_running_loop().time() - began < 1.6
        await asyncio.gather(*tasks)

    virtual_time.run(scenario())
