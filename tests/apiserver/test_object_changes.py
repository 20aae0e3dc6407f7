"""Who waits for changes of several resources has a task for each while it waits, and none afterwards."""

from __future__ import annotations

import asyncio

from api_caller import Caller

from haru.apiserver.aggregation.changes import TASKS, ObjectChanges
from haru.event_loop import cancelled

RESOURCES = (("", "configmaps"), ("", "secrets"), ("", "pods"))


def waiting() -> list[str]:
    """The tasks that wait for these resources; the server itself waits for others."""
    names = [task.get_name() for task in asyncio.all_tasks() if not task.done()]
    return [name for name in names if name in {f"{TASKS} of {plural}/" for _, plural in RESOURCES}]


async def make(api: Caller, number: int) -> None:
    answer = await api("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": f"c{number}"}})
    assert answer.status == 201, answer.json


async def test_hundred_waits_leave_no_task_and_no_future_behind(api: Caller) -> None:
    changes = ObjectChanges(api.app.objects, *RESOURCES)
    changes.start()
    for number in range(100):
        wait = asyncio.create_task(changes.wait(60))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(waiting()) == len(RESOURCES)
        await make(api, number)
        assert await wait
        assert waiting() == []
    changes.stop()
    buckets = api.app.objects.store._buckets
    places = [place for plural in ("pods", "secrets", "configmaps") for place in buckets[plural].places.values()]
    assert not any(place.waiting for place in places)


async def test_cancelled_wait_leaves_no_task_behind(api: Caller) -> None:
    changes = ObjectChanges(api.app.objects, *RESOURCES)
    changes.start()
    wait = asyncio.create_task(changes.wait(60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await cancelled(wait)
    assert waiting() == []
    changes.stop()
