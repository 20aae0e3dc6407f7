"""Clusters for tests of preemption: full of less important pods, and what is known of those that go."""

from __future__ import annotations

from scheduler_bench import GROUPS, NS, PODS, Bench

from haru.kube.kinds import known_kind

PRIORITIES = known_kind("scheduling.k8s.io/v1", "PriorityClass")


async def levels(bench: Bench) -> None:
    for name, value in (("low", 10), ("high", 100), ("higher", 200)):
        await bench.create(PRIORITIES, {"metadata": {"name": name}, "value": value})


async def gang(bench: Bench, name: str, size: int, level: str, mode: str = "Pod", cpu: str = "4") -> list[str]:
    spec = {"schedulingPolicy": {"gang": {"minCount": size}}, "priorityClassName": level, "disruptionMode": mode}
    await bench.create(GROUPS, {"metadata": {"name": name}, "spec": spec})
    names = [f"{name}-{i}" for i in range(size)]
    for pod in names:
        await bench.pod(pod, cpu=cpu, group=name, priorityClassName=level)
    return names


async def going(bench: Bench) -> set[str]:
    pods = (await bench.api.list(PODS, NS))["items"]
    return {pod["metadata"]["name"] for pod in pods if pod["metadata"].get("deletionTimestamp")}


async def nominated(bench: Bench, name: str) -> str:
    return str((await bench.api.get(PODS, name, NS)).get("status", {}).get("nominatedNodeName") or "")


async def occupied(bench: Bench, *pods: str) -> None:
    """As many nodes as pods of low priority, each pod filling a node."""
    await levels(bench)
    for number, pod in enumerate(pods, 1):
        await bench.node(f"n{number}")
        await bench.pod(pod, cpu="4", priorityClassName="low")
    await bench.eventually_bound(*pods, seconds=1)


async def occupied_by_gang(bench: Bench, name: str, size: int) -> list[str]:
    """As many nodes as members of a gang that is evicted as a whole, each member filling a node."""
    await levels(bench)
    for number in range(1, size + 1):
        await bench.node(f"n{number}")
    pods = await gang(bench, name, size, "low", mode="PodGroup")
    await bench.eventually_bound(*pods, seconds=1)
    return pods
