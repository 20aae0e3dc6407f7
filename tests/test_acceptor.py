"""A server without free descriptors leaves clients in the queue, says so once, and serves them when there are some."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from haru.acceptor import Acceptor
from haru.fair_loop import FairLoop
from waiting import until

GREETING = b"hello"


class Greets(asyncio.Protocol):
    """Says one word to each client."""

    def __init__(self, greeted: list[Any]) -> None:
        self._greeted = greeted

    def connection_made(self, transport: Any) -> None:
        self._greeted.append(transport)
        transport.write(GREETING)


@contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """Leave so many descriptors to this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    filled: list[int] = []
    try:
        while not filled or filled[-1] < highest:
            filled.append(os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(highest, filled[-1]) + count + 1, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in filled:
            os.close(descriptor)


@pytest.fixture(params=[asyncio.SelectorEventLoop, uvloop.new_event_loop, FairLoop])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner


async def crowd(reserved: int, free: int, check: Callable[[], None]) -> tuple[int, int]:
    """Have twelve clients come and each go when it is served; how many were served at first, and in the end."""
    greeted: list[Any] = []
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(12)]
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(free_descriptors(free))
        acceptor = Acceptor(listener, lambda: Greets(greeted), backlog=64, reserved=reserved)
        for client in clients:
            client.connect(listener.getsockname())
            client.setblocking(False)
        await until(lambda: greeted)
        await asyncio.sleep(0.2)
        first = len(greeted)
        check()
        for number, client in enumerate(clients):
            assert await loop.sock_recv(client, 16) == GREETING
            client.close()
            greeted[number].close()
        acceptor.close()
        await asyncio.sleep(0.01)
    return first, len(greeted)


def test_clients_beyond_the_limit_wait_and_are_served_when_others_have_gone(
    runner: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    first, served = runner.run(crowd(0, 5, lambda: None))

    assert (first, served) == (5, 12)
    (record,) = caplog.records
    assert ": too many open files (limit " in record.getMessage()


def test_connections_leave_descriptors_for_files(runner: asyncio.Runner) -> None:
    def check() -> None:
        opened = [os.dup(0) for _ in range(3)]
        for descriptor in opened:
            os.close(descriptor)

    # libuv opens one of the four for itself, with its first connection.
    assert runner.run(crowd(4, 9, check)) == (5, 12)


def test_client_that_fails_in_tls_is_no_error_of_the_server(
    runner: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> bytes:
        listener = socket.create_server(("127.0.0.1", 0))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        acceptor = Acceptor(listener, asyncio.Protocol, context, backlog=8, handshake_seconds=5)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        rest = await reader.read()
        writer.close()
        acceptor.close()
        return rest

    with caplog.at_level(logging.WARNING):
        runner.run(run())
    assert not caplog.records
