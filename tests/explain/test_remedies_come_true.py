"""What is confirmed works: a remedy's command is run on a whole cluster in virtual time, and then the work runs.

The cluster is that of the tests of whatif: API server, scheduler, controllers, virtual kubelets. What keeps the work
out is random: who holds the devices, cordons, taints of nodes and devices, requests that are too large, missing labels.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from explain_schema import REMEDIES
from kubectl_shell import Shell
from whatif_world import (
    CUT,
    NODES,
    PLAIN,
    PRIORITIES,
    REST_SECONDS,
    RULES,
    SMALL,
    TEMPLATES,
    Workload,
    World,
)

import virtual_time
from haru.drivers.simulated.profiles import Profile
from haru.engine import SchedulerCache
from haru.engine.dra import DeviceId, Taint
from haru.explain import Explanation, Remedy, explain
from haru.explain.tainting import rule_manifest
from haru.kube.kinds import known_kind
from nights import tonight

Obj = dict[str, Any]
QUESTION = "question"


def random_nodes(rng: random.Random) -> list[tuple[Profile, str]]:
    counts = ((SMALL, rng.randint(1, 3)), (PLAIN, rng.randint(0, 1)), (CUT, rng.randint(0, 1)))
    return [(profile, f"{profile.name}-n{number}") for profile, count in counts for number in range(count)]


async def obstruct(world: World, rng: random.Random, nodes: list[tuple[Profile, str]]) -> None:
    """Cordons and taints on some nodes and devices."""
    for profile, name in nodes:
        cut = rng.random()
        if cut < 0.2:
            await world.api.patch(NODES, name, {"spec": {"unschedulable": True}})
        elif cut < 0.4:
            taint = {"key": "maintenance", "value": "fan", "effect": "NoSchedule"}
            await world.api.patch(NODES, name, {"spec": {"taints": [taint]}})
        elif cut < 0.6 and profile is SMALL:
            device = DeviceId("gpu.nvidia.com", name, f"gpu-{rng.randrange(2)}")
            await world.create(RULES, rule_manifest(device, Taint("fan", "x", "NoSchedule"), RULES.api_version))


async def ask(world: World, rng: random.Random) -> tuple[str, Obj]:
    """Submit the work in question, the least important of all: nobody is evicted for it by the scheduler."""
    kind = rng.choice(("bare", "bare", "gang"))
    size = rng.randint(2, 3) if kind == "gang" else 1
    claim = rng.choice(("one-card", "two-cards", "picky", "aligned", "", "one-part"))
    work = Workload(QUESTION, kind, size, rng.choice((1, 2, 7)), claim, 1)
    for obj in work.manifests():
        if obj["kind"] == "Pod" and rng.random() < 0.1:
            obj["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
        if obj["kind"] == "Pod" and kind == "bare" and rng.random() < 0.1:
            obj["spec"]["nodeSelector"] = {"pool": "fast"}
        if obj["kind"] == "PodGroup" and rng.random() < 0.2:
            obj["spec"]["schedulingPolicy"]["gang"]["minCount"] += 1
        await world.create(known_kind(obj["apiVersion"], obj["kind"]), obj)
    return ("podgroup", "PodGroup") if kind == "gang" else ("pod", "Pod")  # type: ignore[return-value]


async def template(world: World, name: str, **devices: Any) -> None:
    await world.create(TEMPLATES, {"metadata": {"name": name}, "spec": {"spec": {"devices": devices}}})


async def told(world: World, kind: str, kind_name: str) -> Explanation:
    objects = await world.fork()
    subject = next(o for o in objects if o["kind"] == kind_name and o["metadata"]["name"] == QUESTION)
    return explain(SchedulerCache.of(objects).snapshot(), kind, subject)  # type: ignore[arg-type]


async def apply(world: World, remedy: Remedy) -> None:
    """As a person does it: by the remedy's command, if it has one."""
    if remedy.command:
        await Shell(world.api).run(remedy.command)
    else:
        assert not remedy.changes, f"no command makes the changes of {remedy}"


async def play(seed: int, done: Mapping[str, int] | None = None) -> str:
    """One case: the kind of remedy that was applied (one that was applied least so far), or why there was none."""
    rng = random.Random(seed)
    nodes = random_nodes(rng)
    world = World(seed)
    await world.start(nodes)
    try:
        card = {"deviceClassName": "gpu.nvidia.com", "count": 2}
        ampere = 'device.attributes["gpu.nvidia.com"].architecture == "Ampere"'
        selectors = [{"cel": {"expression": ampere}}]
        await template(
            world, "picky", requests=[{"name": "gpu", "exactly": {**card, "count": 1, "selectors": selectors}}]
        )
        aligned = [{"matchAttribute": "gpu.nvidia.com/uuid"}]
        await template(world, "aligned", requests=[{"name": "gpu", "exactly": card}], constraints=aligned)
        await world.create(PRIORITIES, {"metadata": {"name": "p0"}, "value": 0})
        for number in range(rng.randint(0, 4)):
            claim = rng.choice(("one-card", "one-card", "", "one-part"))
            await world.submit(Workload(f"holder-{number}", "bare", 1, rng.randint(1, 3), claim, 2 * number + 2))
            await asyncio.sleep(2)
        await obstruct(world, rng, nodes)
        await asyncio.sleep(5)
        kind, kind_name = await ask(world, rng)
        await asyncio.sleep(REST_SECONDS)
        answer = await told(world, kind, kind_name)
        assert answer.reasons, "everything has a reason"
        if answer.verdict == "Runs":
            return "runs"
        confirmed = [remedy for remedy in answer.remedies if remedy.confirmed and remedy.command]
        if not confirmed:
            return f"{answer.verdict} without remedy"
        counts = done or {}
        remedy = min(confirmed, key=lambda r: (counts.get(r.kind, 0), (confirmed.index(r) + seed) % len(confirmed)))
        before = {pod["metadata"]["name"] for pod in await world.pods() if pod["spec"].get("nodeName")}
        await apply(world, remedy)
        await asyncio.sleep(2 * REST_SECONDS)
        after = await told(world, kind, kind_name)
        assert after.verdict == "Runs", f"seed {seed}: {remedy} made of {answer}\n{after}"
        if remedy.kind == "MoveWork":
            there = {pod["metadata"]["name"] for pod in await world.pods() if pod["spec"].get("nodeName")}
            assert before <= there, f"seed {seed}: {remedy} lost {before - there}"
        return remedy.kind
    finally:
        await world.stop()


@pytest.mark.parametrize("seed", (9, 16, 49))
def test_confirmed_remedy_makes_work_run(seed: int) -> None:
    virtual_time.run(play(seed))


@pytest.mark.nightly
def test_confirmed_remedies_make_the_work_run_in_200_cases() -> None:
    kinds: Counter[str] = Counter()
    for seed in tonight(range(1000, 1200)):
        kinds[virtual_time.run(play(seed, kinds))] += 1
    applied = {kind for kind in kinds if kind in REMEDIES}
    assert len(applied) >= 14 and sum(kinds[kind] for kind in applied) >= 60, kinds
