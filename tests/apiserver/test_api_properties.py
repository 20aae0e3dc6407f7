"""Whatever writers do, watchers see one consistent history."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_caller import MAPS, Caller, Clock, config_map, make_config
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from begun_store import begun
from haru.storage import SqliteStore

MERGE = "application/merge-patch+json"
NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.sampled_from(["x", "y"])),
        st.tuples(st.just("label"), NAMES, st.sampled_from(["x", "y"])),
        st.tuples(st.just("touch"), NAMES, st.sampled_from(["1", "2"])),
        st.tuples(st.just("delete"), NAMES, st.just("")),
        st.tuples(st.just("pause"), NAMES, st.just("")),
    ),
    max_size=25,
)


async def do(api: Caller, step: tuple[str, str, str]) -> None:
    what, name, value = step
    if what == "create":
        await api("POST", MAPS, config_map(name, {"l": value}))
    elif what == "label":
        await api("PATCH", f"{MAPS}/{name}", {"metadata": {"labels": {"l": value}}}, type=MERGE)
    elif what == "touch":
        await api("PATCH", f"{MAPS}/{name}", {"data": {"k": value}}, type=MERGE)
    elif what == "delete":
        await api("DELETE", f"{MAPS}/{name}")
    else:
        await asyncio.sleep(0)


class Follower:
    """What a client knows from a watch alone."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.revision = 0

    def see(self, event: Any) -> None:
        obj = event["object"]
        name, revision = obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])
        assert revision > self.revision, "revisions grow from event to event"
        self.revision = revision
        if event["type"] == "ADDED":
            assert name not in self.objects
            self.objects[name] = obj
        elif event["type"] == "MODIFIED":
            assert name in self.objects
            self.objects[name] = obj
        else:
            assert event["type"] == "DELETED"
            del self.objects[name]


async def run(writers: list[list[tuple[str, str, str]]], selector: str) -> None:
    store = SqliteStore(":memory:")
    app = await begun(make_config(store, Clock()), store)
    api = Caller(app, Clock())
    query = f"&labelSelector={selector}" if selector else ""
    start = (await api.get(f"{MAPS}?{query[1:]}"))["metadata"]["resourceVersion"]
    stream = await api.stream(f"{MAPS}?watch=1&resourceVersion={start}{query}")

    async def write(steps: list[tuple[str, str, str]]) -> None:
        for step in steps:
            await do(api, step)
            await asyncio.sleep(0)

    await asyncio.gather(*(write(steps) for steps in writers))
    final = (await api.get(f"{MAPS}?{query[1:]}"))["items"]
    app.streams.stop()
    follower = Follower()
    while (event := await stream.next()) is not None:
        follower.see(event)
    named = {"apiVersion": "v1", "kind": "ConfigMap"}  # which items of a list do not say
    assert follower.objects == {obj["metadata"]["name"]: {**named, **obj} for obj in final}
    await stream.close()
    await app.stop()


@pytest.mark.parametrize("selector", ["", "l%3Dx"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(writers=st.lists(STEPS, min_size=1, max_size=3))
def test_watch_events_lead_to_listed_state(selector: str, writers: list[list[tuple[str, str, str]]]) -> None:
    asyncio.run(run(writers, selector))
