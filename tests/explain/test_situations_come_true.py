"""The first remedy of a situation is carried out by its command on a cluster in virtual time: then the work runs.

Left out are situations without a command (what nobody does by kubectl), those whose remedy is not confirmed, and
those that need who is not there: Kueue, and who provisions volumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from kubectl_shell import Shell
from situations import Situation
from test_situations import EVERY
from whatif_world import NODES, NS, PRIORITIES, REST_SECONDS, World

import virtual_time
from haru.api.snapshot import Snapshot
from haru.drivers.simulated.objects import PROFILE_LABEL
from haru.drivers.simulated.profiles import Profile, load_profile
from haru.engine import SchedulerCache
from haru.explain import Explanation, explain
from haru.kube.kinds import known_kind

Obj = dict[str, Any]
_ABSENT = frozenset({"Workload", "LocalQueue", "PersistentVolumeClaim", "StorageClass", "Job", "Event", "Lease"})
SHORT = (
    "a nodeSelector with a typing error in its value",
    "a gang in one domain of a key with a typing error",
    "a host port in use on the node that is selected",
)


def is_played(one: Situation) -> bool:
    """Whether everybody whom the situation needs is there."""
    owned = any(obj["metadata"].get("ownerReferences") for obj in one.objects)
    return one.base is not None and not owned and not {obj["kind"] for obj in one.objects} & _ABSENT


PLAYED = {one.name: one for _, one in EVERY if is_played(one)}


def nodes_of(base: Snapshot) -> list[Obj]:
    return [obj for obj in base if obj["kind"] == "Node"]


async def create(world: World, objects: Iterable[Obj]) -> None:
    """As somebody submits it: a priority by a class of its own."""
    for obj in objects:
        kind = known_kind(obj["apiVersion"], obj["kind"])
        spec = obj.get("spec") or {}
        if kind.kind == "Pod" and "priority" in spec:
            level = int(spec["priority"])
            await world.create(PRIORITIES, {"metadata": {"name": f"p{level}"}, "value": level})
            kept = {key: value for key, value in spec.items() if key != "priority"}
            obj = {**obj, "spec": {**kept, "priorityClassName": f"p{level}"}}
        await world.create(kind, {key: value for key, value in obj.items() if key != "status"})


async def told(world: World, about: str) -> Explanation:
    word, _, name = about.partition("/")
    objects = await world.fork()
    subject = next(o for o in objects if o["kind"].lower() == word and o["metadata"]["name"] == name)
    return explain(SchedulerCache.of(objects).snapshot(), word, subject)  # type: ignore[arg-type]


async def play(one: Situation) -> str:
    """The kind of remedy whose command was run; empty if there is none to run."""
    assert one.base is not None
    base = one.base()
    nodes: list[tuple[Profile, str]] = [
        (load_profile(node["metadata"]["labels"][PROFILE_LABEL]), node["metadata"]["name"]) for node in nodes_of(base)
    ]
    world = World(1)
    await world.start(nodes)
    try:
        for node in nodes_of(base):
            body = {"metadata": {"labels": node["metadata"]["labels"]}, "spec": node.get("spec") or {}}
            await world.api.patch(NODES, node["metadata"]["name"], body)
        await create(world, one.objects)
        await asyncio.sleep(REST_SECONDS)
        answer = await told(world, one.about)
        first = next(iter(answer.remedies), None)
        if first is None or not first.confirmed or not first.command:
            return ""
        await Shell(world.api, NS).run(first.command)
        await asyncio.sleep(2 * REST_SECONDS)
        after = await told(world, one.about)
        assert after.verdict == "Runs", f"{one.name}: {first} made of\n{answer}\nthis:\n{after}"
        return first.kind
    finally:
        await world.stop()


@pytest.mark.parametrize("name", SHORT)
def test_command_of_first_remedy_makes_the_work_run(name: str) -> None:
    assert virtual_time.run(play(PLAYED[name]))


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in PLAYED if name not in SHORT])
def test_command_of_every_first_remedy_makes_the_work_run(name: str) -> None:
    virtual_time.run(play(PLAYED[name]))
