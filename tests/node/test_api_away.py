"""A node goes on with its pods while the API server does not answer, and tells of them afterwards."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from node_worker import Node, loop_time, node
from slow_runtime import SlowRuntime

import virtual_time
from haru.kube.errors import StatusError
from haru.kube.names import format_time
from haru.node.agent.object_cache import Objects
from haru.node.dra.devices import DevicesError, NoDevices, Prepared

__all__ = ["loop_time"]
Obj = dict[str, Any]
ERRORS = [OSError("no route"), StatusError(503, "ServiceUnavailable", "not yet")]
SILENT = TimeoutError("no answer for long")


class Claimed(NoDevices):
    """Devices of a pod, which are prepared as long as the API server answers."""

    def __init__(self) -> None:
        self.is_away = False

    async def prepare(self, pod: Obj) -> Prepared:
        if self.is_away:
            raise DevicesError("the API server does not answer")
        return Prepared()


@pytest.mark.parametrize("error", [*ERRORS, SILENT])
def test_crashed_container_is_started_again_and_told_of_later(tmp_path: Path, error: Exception) -> None:
    async def away(*_: Any, **__: Any) -> Obj:
        await asyncio.sleep(3600 if error is SILENT else 0)
        raise error

    def count(made: Node) -> int:
        return int(made.api.pod["status"]["containerStatuses"][0]["restartCount"])

    async def work() -> None:
        async with node(SlowRuntime(random.Random(1), 0.0), tmp_path) as made:
            devices = made.context.devices = Claimed()
            await made.until(lambda: made.runtime.running("main"))
            await made.until(lambda: made.api.pod["status"].get("phase") == "Running")
            devices.is_away, made.api.patch = True, away  # type: ignore[method-assign]
            for starts in (2, 3):
                made.runtime.end("main", 1)
                await made.until(lambda starts=starts: made.runtime.starts["main"] == starts, 60)  # type: ignore[misc]
            assert count(made) == 0
            del made.api.patch  # type: ignore[attr-defined]
            await made.until(lambda: count(made) == 2, 60 if error is not SILENT else 4000)

    virtual_time.run(work())


@pytest.mark.parametrize("error", ERRORS)
async def test_token_stays_when_it_can_not_be_renewed(error: Exception) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    answers: list[str | Exception] = ["first", error, "second"]

    async def create_subresource(*_: Any) -> Obj:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"status": {"token": answer, "expirationTimestamp": format_time(now + timedelta(seconds=1000))}}

    client = SimpleNamespace(create_subresource=create_subresource)
    objects = Objects(cast(Any, client), lambda uid: None, lambda: now)
    request = {"path": "t", "expirationSeconds": 1000}
    volume = {"name": "v", "projected": {"sources": [{"serviceAccountToken": request}]}}
    pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"volumes": [volume]}}
    seen = []
    for seconds in (0, 799, 2, 10, 60):
        now += timedelta(seconds=seconds)
        seen.append((await objects.tokens(pod))(request))
    assert seen == ["first", "first", "first", "first", "second"]
