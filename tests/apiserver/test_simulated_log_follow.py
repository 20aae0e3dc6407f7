"""`kubectl logs -f` of a simulated container in virtual time: lines come when they are due; it ends with the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from api_caller import Caller, Stream

import virtual_time
from haru.kube.gates import FeatureGates
from haru.kube.names import format_time
from virtual_server import started_server

Obj = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
SCRIPT = "echo one; sleep 10; echo two; sleep 10; echo three; sleep 10; exit 3"
MERGE = "application/merge-patch+json"


class Play:
    """A pod on a server, whose kubelet is the test."""

    def __init__(self, api: Caller) -> None:
        self.api = api

    async def create(self, script: str = SCRIPT, **more: Any) -> None:
        spec = {"containers": [{"name": "main", "image": "i", "command": ["sh", "-c", script]}], **more}
        answer = await self.api(
            "POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
        )
        assert answer.status == 201, answer.body

    async def status(self, restarts: int = 0, **fields: Any) -> None:
        one = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": restarts, **fields}
        answer = await self.api("PATCH", f"{PODS}/a/status", {"status": {"containerStatuses": [one]}}, type=MERGE)
        assert answer.status == 200, answer.body

    async def start(self, restarts: int = 0, **fields: Any) -> str:
        began = format_time(virtual_time.now())
        await self.status(restarts, state={"running": {"startedAt": began}}, **fields)
        return began

    async def create_on_node(self, script: str, **meta: Any) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
        assert (await self.api("POST", "/api/v1/nodes", node)).status == 201
        await self.create(script, nodeName="n")
        await self.api("PATCH", f"{PODS}/a", {"metadata": meta}, type=MERGE)

    async def end(self, began: str) -> Obj:
        ended = {"terminated": {"exitCode": 3, "startedAt": began, "finishedAt": format_time(virtual_time.now())}}
        await self.status(state=ended)
        return ended

    async def follow(self, options: str = "") -> Stream:
        stream = await self.api.stream(f"{PODS}/a/log?follow=true{options}")
        assert stream.status == 200
        return stream


async def lines_of(stream: Stream) -> list[tuple[int, str]]:
    """Each line, and when it came (seconds)."""
    loop, found = asyncio.get_running_loop(), []
    while (chunk := await stream.queue.get()) is not None:
        found += [(round(loop.time()), line) for line in chunk.decode().splitlines()]
    return found


def played(work: Callable[[Play], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        server = await started_server(FeatureGates())
        try:
            await work(Play(Caller(server, None, "admin")))  # type: ignore[arg-type]
        finally:
            await server.stop()

    virtual_time.run(run())


def test_lines_come_when_they_are_due_and_the_log_ends_with_the_container() -> None:
    async def work(play: Play) -> None:
        await play.create()
        began = await play.start()
        reading = asyncio.create_task(lines_of(await play.follow()))
        await asyncio.sleep(30)
        assert not reading.done()
        await play.end(began)
        assert await reading == [(0, "one"), (10, "two"), (20, "three")]
        assert await lines_of(await play.follow()) == [(30, "one"), (30, "two"), (30, "three")]

    played(work)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("&tailLines=0", [(20, "three")]),
        ("&tailLines=1", [(15, "two"), (20, "three")]),
        ("&sinceSeconds=10", [(15, "two"), (20, "three")]),
        ("&limitBytes=5", [(15, "one"), (15, "t")]),
        ("&stream=Stderr", []),
        ("&timestamps=true&tailLines=0", [(20, "2026-01-01T00:00:20.000000000Z three")]),
    ],
)
def test_options_hold_while_following(options: str, told: list[tuple[int, str]]) -> None:
    async def work(play: Play) -> None:
        await play.create()
        began = await play.start()
        await asyncio.sleep(15)
        reading = asyncio.create_task(lines_of(await play.follow(options)))
        await asyncio.sleep(15)
        await play.end(began)
        assert await reading == told

    played(work)


def test_follow_ends_with_the_run_also_if_the_container_has_restarted_since() -> None:
    async def work(play: Play) -> None:
        await play.create()
        began = await play.start()
        reading = asyncio.create_task(lines_of(await play.follow()))
        await asyncio.sleep(12)
        killed = {"terminated": {"exitCode": 137, "startedAt": began, "finishedAt": format_time(virtual_time.now())}}
        await play.start(restarts=1, lastState=killed)
        assert await reading == [(0, "one"), (10, "two")]
        previous = await lines_of(await play.follow("&previous=true"))
        assert previous == [(12, "one"), (12, "two")]

    played(work)


def test_follow_ends_when_the_pod_is_deleted_the_client_goes_or_the_server_stops() -> None:
    async def work(play: Play) -> None:
        await play.create()
        await play.start()
        gone, stopped, deleted = [await play.follow() for _ in range(3)]
        streams = play.api.app.streams
        assert len(streams.watches) == 3
        gone.gone.set()
        await asyncio.wait_for(gone.task, 1)
        assert len(streams.watches) == 2
        reading = asyncio.create_task(lines_of(deleted))
        await asyncio.sleep(5)
        await play.api("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
        assert await reading == [(0, "one")]
        await asyncio.wait_for(stopped.task, 1)
        assert not streams.watches

    played(work)


def test_follow_of_a_container_that_waits_is_refused() -> None:
    async def work(play: Play) -> None:
        await play.create()
        await play.status(state={"waiting": {"reason": "ErrImagePull"}})
        answer = await play.api("GET", f"{PODS}/a/log?follow=true")
        assert answer.status == 400 and "trying and failing to pull image" in answer.json["message"]

    played(work)


def test_what_was_printed_in_the_second_of_the_end_is_shown() -> None:
    async def work(play: Play) -> None:
        await play.create("sleep 0.4; echo late; sleep 0.2")
        began = await play.start()
        await asyncio.sleep(0.7)
        await play.end(began)
        assert (await play.api("GET", f"{PODS}/a/log")).body == b"late\n"
        assert [line for _, line in await lines_of(await play.follow())] == ["late"]

    played(work)


def test_follow_tells_what_the_network_answers_meanwhile() -> None:
    async def work(play: Play) -> None:
        await play.create("until nslookup web > /dev/null; do echo waiting for web; sleep 5; done; echo found; exit 3")
        began = await play.start()
        reading = asyncio.create_task(lines_of(await play.follow()))
        await asyncio.sleep(8)
        web = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
        created = await play.api(
            "POST", PODS.replace("pods", "services"), {"kind": "Service", "apiVersion": "v1", **web}
        )
        assert created.status == 201, created.body
        await asyncio.sleep(3)
        await play.end(began)
        assert await reading == [(0, "waiting for web"), (5, "waiting for web"), (10, "found")]

    played(work)


TRAP = "trap 'echo saving; sleep 5; echo saved; exit 3' TERM; while true; do echo step; sleep 4; done"


def test_follow_tells_what_the_trap_of_a_deleted_container_prints() -> None:
    async def work(play: Play) -> None:
        await play.create_on_node(TRAP, finalizers=["test/kept"])
        began = await play.start()
        reading = asyncio.create_task(lines_of(await play.follow()))
        await asyncio.sleep(10)
        await play.api("DELETE", f"{PODS}/a")
        await asyncio.sleep(5.5)
        await play.end(began)
        told = await reading
        assert [line for _, line in told] == ["step", "step", "step", "saving", "saved"]
        assert told[3][0] in (10, 11) and told[4][0] in (15, 16)
        again = await play.api("GET", f"{PODS}/a/log")
        assert again.body == b"step\nstep\nstep\nsaving\nsaved\n"

    played(work)


def test_follow_of_a_pod_that_goes_at_once_tells_what_its_trap_prints() -> None:
    async def work(play: Play) -> None:
        await play.create_on_node("trap 'echo bye at $(date +%S); exit 0' TERM; echo up; sleep infinity & wait")
        await play.start()
        reading = asyncio.create_task(lines_of(await play.follow()))
        await asyncio.sleep(10)
        await play.api("DELETE", f"{PODS}/a")
        await play.api("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
        assert await reading == [(0, "up"), (10, "bye at 10")]

    played(work)


@pytest.mark.parametrize(("code", "last"), [(3, "saving\nsaved\n"), (9, "")])
def test_log_of_a_run_before_tells_what_its_trap_has_printed_if_it_was_stopped(code: int, last: str) -> None:
    async def work(play: Play) -> None:
        await play.create_on_node(TRAP)
        began = await play.start()
        await asyncio.sleep(15)
        ended = {"terminated": {"exitCode": code, "startedAt": began, "finishedAt": format_time(virtual_time.now())}}
        await play.start(restarts=1, lastState=ended)
        previous = await play.api("GET", f"{PODS}/a/log?previous=true")
        assert previous.body.decode() == "step\nstep\nstep\n" + (last or "step\n")

    played(work)


@pytest.mark.parametrize(
    ("trap", "told"),
    [
        ("echo saving; sleep 5; echo saved; sleep 60; echo never", ["saving", "saved"]),
        ("echo saving; sleep infinity", ["saving"]),
        ("echo saving; python save.py", ["step", "step"]),  # nobody knows how long it takes
    ],
)
@pytest.mark.parametrize("grace", [{"terminationGracePeriodSeconds": 7}, {}])
def test_log_of_a_run_that_was_killed_in_its_trap_tells_what_that_had_printed(
    trap: str, told: list[str], grace: Obj
) -> None:
    async def work(play: Play) -> None:
        script = f"trap '{trap}' TERM; while true; do echo step; sleep 4; done"
        probe = {"exec": {"command": ["false"]}, **grace}
        main = {"name": "main", "image": "i", "command": ["sh", "-c", script], "livenessProbe": probe}
        await play.create(containers=[main], terminationGracePeriodSeconds=30 if grace else 7)
        began = await play.start()
        await asyncio.sleep(17)
        ended = {"terminated": {"exitCode": 137, "startedAt": began, "finishedAt": format_time(virtual_time.now())}}
        await play.start(restarts=1, lastState=ended)
        previous = await play.api("GET", f"{PODS}/a/log?previous=true")
        assert previous.body.decode().split() == ["step", "step", "step", *told]

    played(work)


def test_log_of_a_run_that_ran_out_of_memory_tells_of_no_trap() -> None:
    async def work(play: Play) -> None:
        script = "trap 'echo saving; sleep 60' TERM; echo step; stress --vm-bytes 250M"
        limits = {"limits": {"memory": "100Mi"}}
        await play.create(
            containers=[{"name": "main", "image": "i", "command": ["sh", "-c", script], "resources": limits}]
        )
        began = await play.start()
        await asyncio.sleep(1)
        ended = {"terminated": {"exitCode": 137, "startedAt": began, "finishedAt": format_time(virtual_time.now())}}
        await play.start(restarts=1, lastState=ended)
        assert (await play.api("GET", f"{PODS}/a/log?previous=true")).body == b"step\n"

    played(work)
