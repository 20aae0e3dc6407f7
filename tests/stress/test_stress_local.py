"""The proxy's faults one by one, and a local cluster that is broken while a plan runs on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from haru.stress.history import Rules
from haru.stress.local.faults import FAULTS, Fault, plan_faults
from haru.stress.local.harness import LocalCluster, local_cluster, run_local
from haru.stress.local.launch import ending_with_this_process
from haru.stress.local.proxy import FaultProxy
from haru.stress.manifests import Target
from haru.stress.plan import Limits
from haru.stress.report import Report
from haru.stress.run import Settings
from haru_process import until
from nights import tonight

TARGET = Target(scheduler="haru", node_selector={"simulated.haru.dev/fleet": "default"})


@contextlib.asynccontextmanager
async def proxied() -> AsyncIterator[tuple[FaultProxy, aiohttp.ClientSession]]:
    """A proxy before a server that answers with what it was sent, and streams a line a moment where it is watched."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "watch=true" not in request.query_string:
            return web.json_response({"path": request.raw_path, "body": (await request.read()).decode()}, status=201)
        response = web.StreamResponse()
        await response.prepare(request)
        for number in range(100_000):
            await response.write(f"{number}\n".encode())
            await asyncio.sleep(0.01)
        return response

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    proxy = FaultProxy(f"http://{host}:{port}", None, random.Random(1))
    await proxy.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield proxy, session
    finally:
        await proxy.stop()
        await runner.cleanup()


async def test_proxy_without_faults_passes_on() -> None:
    async with proxied() as (proxy, session), session.post(f"{proxy.url}/a%2Fb?c=d", data=b"text") as answer:
        assert answer.status == 201
        assert await answer.json() == {"path": "/a%2Fb?c=d", "body": "text"}


async def test_throttled_request_is_told_when_to_come_again() -> None:
    async with proxied() as (proxy, session):
        proxy.refused = 1.0
        async with session.get(f"{proxy.url}/x") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
            assert json.loads(await answer.read())["reason"] == "TooManyRequests"


async def test_expired_watch_ends_and_is_answered_410_once_resumed() -> None:
    async with proxied() as (proxy, session):
        async with session.get(f"{proxy.url}/pods?watch=true") as watch:
            assert await watch.content.readline() == b"0\n"
            proxy.expire()
            await asyncio.wait_for(watch.content.read(), 60)
        async with session.get(f"{proxy.url}/pods?watch=true&resourceVersion=5") as answer:
            assert answer.status == 410
        async with session.get(f"{proxy.url}/pods") as answer:
            assert answer.status == 201


async def test_partition_is_silent_and_closes_nothing_until_it_ends() -> None:
    async with proxied() as (proxy, session), session.get(f"{proxy.url}/pods?watch=true") as watch:
        assert await watch.content.readline() == b"0\n"
        proxy.partition(True)
        asking = asyncio.create_task(session.get(f"{proxy.url}/x"))
        await asyncio.sleep(0.2)
        assert not asking.done() and not watch.content.at_eof()
        proxy.partition(False)
        async with await asyncio.wait_for(asking, 60) as answer:
            assert answer.status == 201
        await asyncio.wait_for(watch.content.read(), 60)


# -- a whole cluster --------------------------------------------------------------------------------------------------


async def broken_run(cluster: LocalCluster, seed: int, limits: Limits, faults: tuple[Fault, ...]) -> Report:
    # A busy machine may take minutes: what is lost never comes.
    settings = Settings(drain_seconds=300, rules=Rules(gang=60, start=240, fit=120, starvation=240))
    return await run_local(cluster, seed, limits, TARGET, settings, faults, lambda run: None)


async def test_leader_killed_mid_binding_and_expired_watches_break_nothing(etcd_binary: str, tmp_path: Path) -> None:
    limits = Limits(units=6, seconds=4, gang_size=4, devices=2)
    async with local_cluster(tmp_path, 1, "dgx-h100:2") as cluster:
        report = await broken_run(cluster, 1, limits, (Fault("expired", 0.5, 0), Fault("leader", 1, 0.5)))
    assert report.broken == (), report.text()
    assert [fault["kind"] for fault in report.facts.faults] == ["expired", "leader"]
    assert report.facts.unscheduled_works == ()


@pytest.mark.nightly
@pytest.mark.parametrize("first", tonight(range(1, 51, 10)))
async def test_ten_seeds_with_all_faults_break_nothing(etcd_binary: str, tmp_path: Path, first: int) -> None:
    limits = Limits(units=20, seconds=40, gang_size=4, devices=4)
    async with local_cluster(tmp_path, 1, "dgx-h100:2,cpu:2") as cluster:
        for seed in range(first, first + 10):
            report = await broken_run(cluster, seed, limits, plan_faults(seed, tuple(FAULTS), 40, 4))
            assert report.broken == (), f"seed {seed}: {report.text()}"


# -- the end ----------------------------------------------------------------------------------------------------------

STARTING = """
import subprocess, sys, time
from haru.stress.local.launch import ending_with_this_process
started = subprocess.Popen(ending_with_this_process(sys.argv[1:]), start_new_session=True)
print(started.pid, flush=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def command_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_process_ends_with_the_killed_one_that_started_it(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTING, "sleep", "600"], stdout=subprocess.PIPE) as starting:
        assert starting.stdout is not None
        started = int(starting.stdout.readline())
        until("the command runs under the same number", lambda: command_of(started) == ["sleep", "600"])
        os.kill(started, signal.SIGSTOP)  # as a fault leaves it
        starting.send_signal(number)
    until("the process has ended", lambda: not alive(started))


def test_program_does_not_start_after_the_end_of_its_parent() -> None:
    command = ending_with_this_process(["sleep", "600"])
    command[command.index(str(os.getpid()))] = "0"
    assert subprocess.run(command, timeout=60, check=False).returncode == 1


@pytest.mark.nightly
def test_nothing_outlives_a_killed_stress_command(etcd_binary: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "haru", "stress", "--local", "--duration", "60"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as stress:
        children = Path(f"/proc/{stress.pid}/task/{stress.pid}/children")
        until(
            "etcd, API server, controllers, fleet, schedulers run", lambda: len(children.read_text().split()) == 6, 120
        )
        started = [int(pid) for pid in children.read_text().split()]
        stress.kill()
    until("all have ended", lambda: not any(map(alive, started)))
