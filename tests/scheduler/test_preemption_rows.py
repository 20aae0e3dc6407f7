"""Preemption on the live scheduler in virtual time, when requests fail or the cluster changes meanwhile.

The cases without failures are in `test_live_preemption`, and the choice of victims is in `test_preemption`.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter

import pytest
from preemption_objects import gang, going, levels, nominated, occupied, occupied_by_gang
from scheduler_bench import PODS, Bench, play


class Requests:
    """Counts what the scheduler asks of the pods that go, and refuses the first deletions of one of them."""

    def __init__(self, bench: Bench, victim: str, refusals: float) -> None:
        self.marked: Counter[str] = Counter()
        self.refused = 0
        self._victim, self._refusals = victim, refusals
        bench.faulty.kinds, bench.faulty.only, bench.faulty.rate = ("refuse 500",), self._fails, 1.0

    def _fails(self, method: str, path: str) -> bool:
        if method == "PATCH" and path.endswith("/status"):
            self.marked[path.split("/")[-2]] += 1
        fails = method == "DELETE" and path.endswith(f"/{self._victim}") and self.refused < self._refusals
        self.refused += fails
        return fails


def test_pod_in_binding_is_evicted_only_after_binding() -> None:
    async def scenario(bench: Bench) -> None:
        await levels(bench)
        await bench.node()
        bench.faulty.kinds = ("lose",)
        bench.faulty.only = lambda method, path: path.endswith("/old/binding")
        bench.faulty.rate = 1.0
        await bench.pod("old", cpu="4", priorityClassName="low")
        await asyncio.sleep(1)
        await bench.pod("urgent", cpu="4", priorityClassName="high")
        await asyncio.sleep(3)
        assert not await bench.node_of("old")
        assert await going(bench) == set()
        assert not await bench.condition(PODS, "old", "DisruptionTarget")
        bench.faulty.rate = 0.0
        await bench.eventually_bound("old")
        await asyncio.sleep(2)
        assert await going(bench) == {"old"}
        await bench.delete("old")
        await bench.eventually_bound("urgent")

    play(scenario)


def test_preemptor_that_loses_its_nomination_evicts_elsewhere() -> None:
    """While its victim drains somebody more important comes, takes the place, and the first one preempts again."""

    async def scenario(bench: Bench) -> None:
        await occupied(bench, "a", "b")
        await bench.pod("urgent", cpu="4", priorityClassName="high")
        await asyncio.sleep(2)
        (first,) = await going(bench)
        place = await nominated(bench, "urgent")
        assert place == await bench.node_of(first)
        await bench.pod("more", cpu="4", priorityClassName="higher", nodeSelector={"kubernetes.io/hostname": place})
        await asyncio.sleep(2)
        await bench.delete(first)
        await bench.eventually_bound("more")
        await asyncio.sleep(5)
        assert await bench.node_of("more") == place
        assert await going(bench) == {"a", "b"} - {first}
        assert await nominated(bench, "urgent") not in ("", place)
        await bench.delete((await going(bench)).pop())
        await bench.eventually_bound("urgent")

    play(scenario)


def test_failed_deletion_of_victim_is_repeated() -> None:
    async def scenario(bench: Bench) -> None:
        await occupied(bench, "old")
        requests = Requests(bench, "old", 1)
        await bench.pod("urgent", cpu="4", priorityClassName="high")
        await asyncio.sleep(2)
        assert await going(bench) == {"old"}
        assert (requests.refused, requests.marked["old"]) == (1, 1)
        assert await nominated(bench, "urgent") == "n1"
        await bench.delete("old")
        await bench.eventually_bound("urgent")

    play(scenario)


@pytest.mark.parametrize(("stubborn", "others"), [(2, {"old-0", "old-1"}), (1, {"old-0"})], ids=["last", "not last"])
def test_group_with_undeletable_pod_is_evicted_eventually(stubborn: int, others: set[str]) -> None:
    """The others go at once (the last one after all others), and this one as soon as it can; each is marked once."""

    async def scenario(bench: Bench) -> None:
        old = await occupied_by_gang(bench, "old", 3)
        requests = Requests(bench, f"old-{stubborn}", math.inf)
        new = await gang(bench, "new", 3, "high")
        await asyncio.sleep(10)
        assert await going(bench) == others
        assert requests.refused > 5
        bench.faulty.rate = 0.0
        await asyncio.sleep(10)
        assert await going(bench) == set(old)
        assert requests.marked[f"old-{stubborn}"] == 1
        for name in old:
            await bench.delete(name)
        await bench.eventually_bound(*new)

    play(scenario)
