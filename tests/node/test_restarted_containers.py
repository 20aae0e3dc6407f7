"""A container that is started again and again, for weeks: its pod's worker knows its last starts only."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from haru.node.agent.context import Context
from haru.node.cri.client import RuntimeClient
from haru.node.cri.errors import CriError
from haru.node.podworker.container_kill import ContainerKiller, KillTarget
from haru.node.podworker.observed import EXITED, SeenContainer
from haru.node.podworker.resize import PodResizer
from haru.node.podworker.runtime_status import RuntimeStatus
from haru.node.podworker.sandboxes import Sandboxes

STARTS = 20
MAIN = {"name": "main", "image": "i", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}
POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"containers": [MAIN]}}


async def test_killed_starts_are_forgotten_and_the_hook_runs_once_for_each() -> None:
    hooks: list[str] = []

    async def run_hook(hook: object, container: object, id_: str, *_: object) -> Any:
        hooks.append(id_)
        return SimpleNamespace(well=True)

    async def stop_container(id_: str, seconds: int) -> None:
        await asyncio.sleep(0)

    context = SimpleNamespace(
        runtime=SimpleNamespace(stop_container=stop_container),
        recorder=SimpleNamespace(event=lambda *_: None),
        handler_runner=SimpleNamespace(run_hook=run_hook),
    )
    killer = ContainerKiller(cast(Context, context), lambda: None)
    for number in range(STARTS):
        target = KillTarget(SeenContainer(f"id-{number}", "main"), POD, MAIN)
        for _ in range(2):
            killer.kill(target, 30.0, "why")
            assert killer.is_killing(f"id-{number}")
            for _ in range(5):
                await asyncio.sleep(0)
            assert not killer.is_busy
    assert hooks == [f"id-{number}" for number in range(STARTS)]
    assert len(killer._tasks) == 0 and len(killer._hooked) == 1


async def test_removed_containers_are_ended_first_if_they_run_without_their_hook() -> None:
    done: list[tuple[object, ...]] = []

    async def stop_container(id_: str, seconds: int) -> None:
        done.append(("stop", id_, seconds))

    async def remove_container(id_: str) -> None:
        done.append(("remove", id_))

    context = SimpleNamespace(
        runtime=SimpleNamespace(stop_container=stop_container, remove_container=remove_container),
        recorder=SimpleNamespace(event=lambda about, *event: done.append(event)),
    )
    ended = SeenContainer("old", "main", state=EXITED)
    await ContainerKiller(cast(Context, context), lambda: None).remove(POD, [SeenContainer("new", "main"), ended])
    killing = ("Normal", "Killing", "killing")
    assert done == [killing, ("stop", "new", 2), ("remove", "new"), ("remove", "old")]


async def test_starts_that_the_runtime_has_removed_are_forgotten() -> None:
    async def nothing(_: object) -> list[Any]:
        return []

    asked: list[str] = []

    async def no_container(id_: str) -> Any:
        asked.append(id_)
        raise CriError("ContainerStatus", "NOT_FOUND", "no such container")

    runtime = SimpleNamespace(sandboxes=nothing, containers=nothing, container_status=no_container)
    status = RuntimeStatus(cast(RuntimeClient, runtime), "u")
    for number in range(STARTS):
        for _ in range(2):
            await status.observe([f"id-{number}"])
    assert asked == [f"id-{number}" for number in range(STARTS)]
    assert len(status._gone) == 1


def test_resources_are_known_of_the_last_start_only() -> None:
    resizer = PodResizer(cast(Context, SimpleNamespace()), cast(Sandboxes, SimpleNamespace()))
    for number in range(STARTS):
        resizer.started(f"id-{number}", MAIN)
    assert len(resizer._actuated) == 1
