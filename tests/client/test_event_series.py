"""Events of a scheduler: the same again is a series, which is written now and then, and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from fake_api import FakeApi

import virtual_time
from haru.client.api import ApiClient
from haru.client.event_series import SeriesRecorder

Obj = dict[str, Any]


def pod(name: str = "p", version: str = "5") -> Obj:
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": version}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


class Told:
    """A recorder, and what the API has of it."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.client = ApiClient.in_process(self.api)
        clock = virtual_time.clock()
        self.recorder = SeriesRecorder(self.client, "s", instance="s-1", now=clock.now, monotonic=clock.monotonic)

    async def refused(self, about: Obj | None = None, message: str = "no room") -> None:
        """Tell of a refusal, and wait until it is written."""
        self.recorder.event(about or pod(), "Warning", "FailedScheduling", message, action="Scheduling")
        await self.recorder.flush()

    @property
    def events(self) -> list[Obj]:
        return [obj for (plural, _, _), obj in self.api.objects.items() if plural == "events"]

    @property
    def writes(self) -> list[str]:
        return [method for method, *_ in self.api.log]


def play(scenario: Callable[[Told], Awaitable[None]]) -> None:
    async def whole() -> None:
        told = Told()
        try:
            await scenario(told)
        finally:
            await told.recorder.close()

    virtual_time.run(whole())


def test_single_event_has_the_form_of_events_k8s_io() -> None:
    async def scenario(told: Told) -> None:
        await told.refused()
        (event,) = told.events
        assert event.pop("metadata")["namespace"] == "ns"
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p", "uid": "p", "resourceVersion": "5"}
        assert event.pop("eventTime").startswith("2026-01-01T00:00:00.")
        assert event == {
            "apiVersion": "v1",
            "kind": "Event",
            "involvedObject": about,
            "type": "Warning",
            "reason": "FailedScheduling",
            "message": "no room",
            "action": "Scheduling",
            "reportingComponent": "s",
            "reportingInstance": "s-1",
        }
        assert not [task for task in asyncio.all_tasks() if "series" in task.get_name()]

    play(scenario)


def test_same_event_is_a_series_of_which_the_second_alone_is_written_at_once() -> None:
    async def scenario(told: Told) -> None:
        for number in range(5):
            await told.refused(message=f"attempt {number}")
        (event,) = told.events
        assert (event["message"], event["series"]["count"]) == ("attempt 0", 2)
        assert told.writes == ["POST", "PATCH"]

    play(scenario)


def test_event_about_another_version_or_object_is_another_one() -> None:
    async def scenario(told: Told) -> None:
        for about in (pod(), pod(version="6"), pod("q")):
            await told.refused(about)
        assert ["series" in event for event in told.events] == [False] * 3

    play(scenario)


def test_same_event_that_waits_to_be_written_is_created_as_a_series() -> None:
    async def scenario(told: Told) -> None:
        for _ in range(3):
            told.recorder.event(pod(), "Warning", "FailedScheduling", "no room", action="Scheduling")
        await told.recorder.flush()
        assert ([event["series"]["count"] for event in told.events], told.writes) == ([3], ["POST"])

    play(scenario)


def test_event_after_six_minutes_is_another_one() -> None:
    async def scenario(told: Told) -> None:
        await told.refused()
        await asyncio.sleep(361)
        await told.refused()
        assert [event.get("series") for event in told.events] == [None, None]

    play(scenario)


def test_series_that_goes_on_is_written_every_half_hour_and_once_when_it_ends() -> None:
    async def scenario(told: Told) -> None:
        for _ in range(22):
            await told.refused()
            await asyncio.sleep(100)
        assert [event["series"]["count"] for event in told.events] == [19]
        assert told.writes == ["POST", "PATCH", "PATCH"]
        await asyncio.sleep(720)
        assert [event["series"]["count"] for event in told.events] == [22]
        assert told.writes == ["POST", "PATCH", "PATCH", "PATCH"]
        await told.refused()
        assert len(told.events) == 2
        assert not [task for task in asyncio.all_tasks() if "series" in task.get_name()]

    play(scenario)


def test_series_is_kept_until_an_api_that_is_away_has_its_count() -> None:
    async def scenario(told: Told) -> None:
        for _ in range(3):
            await told.refused()
            await asyncio.sleep(100)
        client = told.client

        async def patch(*_: object) -> None:
            told.recorder._client = client  # the next time it is there
            raise ConnectionError

        told.recorder._client = SimpleNamespace(patch=patch)  # type: ignore[assignment]
        await asyncio.sleep(530)
        assert [event["series"]["count"] for event in told.events] == [2]
        await asyncio.sleep(360)
        assert [event["series"]["count"] for event in told.events] == [3]

    play(scenario)


def test_object_that_causes_ever_other_events_is_held_to_a_trickle() -> None:
    async def scenario(told: Told) -> None:
        for version in range(40):
            await told.refused(pod(version=str(version)))
        assert len(told.events) == 25

    play(scenario)
