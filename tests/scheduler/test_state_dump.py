"""What SIGUSR2 writes of the scheduler's cache and queue."""

from __future__ import annotations

import asyncio
import logging

import pytest
from scheduler_bench import NS, Bench, play

from haru.engine import SchedulerCache
from haru.kube.kinds import known_kind
from haru.scheduler.debugger import capture, compare, write
from haru.scheduler.queue.scheduling_queue import SchedulingQueue
from haru.scheduler.settings import Fairness

PRIORITIES = known_kind("scheduling.k8s.io/v1", "PriorityClass")


def dumped(bench: Bench) -> list[str]:
    return list(bench.scheduler.dump().lines())


def line(lines: list[str], start: str) -> str:
    found = [one for one in lines if one.strip().startswith(start)]
    assert len(found) == 1, "\n".join(lines)
    return found[0]


def test_dump_lists_bound_pod_with_requested_and_allocatable() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node("n1", cpu=4)
        await bench.pod("p", cpu="1500m")
        await bench.started("p")
        await asyncio.sleep(1)
        lines = dumped(bench)
        node = line(lines, "node n1:")
        assert "requested cpu=1500m" in node and f"allocatable cpu=4000m memory={16 * 2**30} pods=30" in node
        assert f"1 pods: {NS}/p" in node and "(assumed)" not in node
        assert "Dump of assumed pods: none" in lines
        assert not any(one.startswith("Cache mismatch") for one in lines)

    play(scenario)


def test_dump_lists_assumed_pod_and_claim() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node("n1", gpus=1)
        await bench.claim("c")
        held: list[list[str]] = []
        carry_out = bench.scheduler._cycle.binding_cycle.carry_out

        def before_writes(binding_task):  # type: ignore[no-untyped-def]
            held.append(dumped(bench))
            return carry_out(binding_task)

        bench.scheduler._cycle.binding_cycle.carry_out = before_writes  # type: ignore[method-assign]
        await bench.pod("p", claim="c")
        await bench.eventually_bound("p")
        assert f"1 pods: {NS}/p (assumed)" in line(held[0], "node n1:")
        assert f"Dump of assumed pods: {NS}/p" in held[0]
        assert f"Dump of assumed claims: {NS}/c" in held[0]

    play(scenario)


def test_dump_lists_unschedulable_pod_with_plugin_and_attempts() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node("n1", cpu=1)
        await bench.pod("big", cpu="8")
        await asyncio.sleep(2)
        lines = dumped(bench)
        unit = line(lines, f"pod {NS}/big:")
        assert "priority 0, attempts 1, rejected by" in unit and "NodeResourcesFit" in unit
        assert lines.index(" unschedulable:") < lines.index(unit)
        assert "unschedulable 1 pods" in line(lines, "Dump of scheduling queue:")

    play(scenario)


def test_dump_lists_gated_member_with_reason() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node("n1")
        await bench.gang("ring", 3)
        await bench.pod("a", group="ring")
        await asyncio.sleep(2)
        lines = dumped(bench)
        assert f"pods {NS}/a" in line(lines, f"group {NS}/ring:")
        held = line(lines, f"pod {NS}/a held:")
        assert held.endswith(bench.scheduler._cycle.pre_enqueue.blocked[f"{NS}/a"]) and len(held) > 30
        assert lines.index(" gated:") < lines.index(held)

    play(scenario)


def test_dump_lists_nominated_pod_with_its_victims() -> None:
    async def scenario(bench: Bench) -> None:
        for name, value in (("low", 10), ("high", 100)):
            await bench.create(PRIORITIES, {"metadata": {"name": name}, "value": value})
        await bench.node("n1", cpu=4)
        await bench.pod("old", cpu="4", priorityClassName="low")
        await bench.eventually_bound("old")
        await bench.pod("urgent", cpu="4", priorityClassName="high")
        await asyncio.sleep(2)
        lines = dumped(bench)
        assert f"nominated: {NS}/urgent" in line(lines, "node n1:")
        assert line(lines, f"pod {NS}/urgent on node n1") == (
            f"  pod {NS}/urgent on node n1, priority 100, after {NS}/old have gone"
        )

    play(scenario)


def test_dump_lists_head_of_queue_with_reservation() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node("n1", cpu=4)
        await bench.pod("small", cpu="2", restartPolicy="Never", activeDeadlineSeconds=600)
        await bench.started("small")
        await bench.pod("large", cpu="4")
        await asyncio.sleep(5)
        lines = dumped(bench)
        kept = line(lines, "Dump of the backfill reservation:")
        assert f"for {NS}/large, priority 0, until 20" in kept and kept.endswith(f"waits for {NS}/small")
        assert line(lines, f"pod {NS}/large on node n1") == f"  pod {NS}/large on node n1, priority 0"

    play(scenario, fairness=Fairness(backfill=True))


def test_dump_lists_backoff_with_remaining_time() -> None:
    queue = SchedulingQueue()
    queue.release(queue.put(("pod", "d", "p"), "d/p", 7, 0.0), 0.0)
    unit = queue.pop(0.0)
    assert unit is not None
    queue.fail(unit, 10.0)
    lines = list(capture(SchedulerCache(), queue, {}, 10.25, {}).lines())
    assert line(lines, "pod d/p:") == "  pod d/p: priority 7, attempts 1, errors 1, backoff ends in 0.8 s"


def test_dump_reports_cache_mismatch() -> None:
    node = {"kind": "Node", "metadata": {"name": "b"}}
    lines = list(capture(SchedulerCache.of([node]), SchedulingQueue(), {}, 0.0, {"Node": ["a"]}).lines())
    assert lines[0] == "Cache mismatch: Node: missed a; redundant b"
    assert compare("Node", ["b", "a"], ["a", "b"]) is None


def test_dump_is_logged_at_log_level_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        caplog.handler.setLevel(logging.NOTSET)
        write(capture(SchedulerCache(), SchedulingQueue(), {}, 0.0, {}))
    assert "Dump of cached NodeInfo: 0 nodes" in caplog.messages


def test_dump_without_scheduler_says_so(caplog: pytest.LogCaptureFixture) -> None:
    write(None)
    assert [m for m in caplog.messages if "no scheduler works in this process" in m]
