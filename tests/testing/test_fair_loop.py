"""An event loop with turns: whose step is next, and when sockets are looked at."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import aiohttp
import pytest

from haru.apiserver.auth import new_authority, server_pair
from haru.apiserver.serving import HttpServer, TlsFiles
from haru.event_loop import for_clients, in_background, is_for_a_client
from haru.fair_loop import FairLoop
from waiting import until

T = TypeVar("T")
ONE_STEP = 0.0
"""A slice that is over after one step."""


def run(work: Coroutine[Any, Any, T], slice_seconds: float = ONE_STEP) -> T:
    with asyncio.Runner(loop_factory=lambda: FairLoop(slice_seconds)) as runner:
        return runner.run(work)


async def steps(name: str, count: int, done: list[str]) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
        done.append(name)


def test_step_of_a_client_is_run_before_those_that_were_ready_earlier() -> None:
    async def main() -> list[str]:
        done: list[str] = []
        others = [asyncio.create_task(steps("other", 1, done)) for _ in range(50)]
        with for_clients():
            client = asyncio.create_task(steps("client", 3, done))
        await asyncio.gather(client, *others)
        return done

    done = run(main())
    assert len(done) == 53
    # By turns: before its last step at most one of the others has had one for each of its own, and one at its start.
    assert done.index("client") <= 4 and done[: done.index("client") + 8].count("client") == 3


def test_others_have_their_turn_while_clients_keep_coming() -> None:
    async def main() -> list[str]:
        done: list[str] = []
        with for_clients():
            clients = [asyncio.create_task(steps("client", 10, done)) for _ in range(20)]
        other = asyncio.create_task(steps("other", 3, done))
        await asyncio.gather(other, *clients)
        return done

    done = run(main())
    assert done.count("client") == 200 and done[:20].count("other") == 3


def test_answer_of_many_steps_does_not_wait_for_others_at_each_of_them() -> None:
    async def main() -> list[str]:
        done: list[str] = []
        others = [asyncio.create_task(steps("other", 20, done)) for _ in range(50)]
        with for_clients():
            client = asyncio.create_task(steps("client", 5, done))
        await asyncio.gather(client, *others)
        return done

    done = run(main(), slice_seconds=10.0)
    assert done.index("client") <= 50 and set(done[done.index("client") :][:5]) == {"client"}


def test_socket_is_looked_at_while_many_steps_are_ready() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        left: list[int] = []
        waiting, over = 200, asyncio.Event()
        loop.add_reader(ours, lambda: left.append(waiting))

        def step() -> None:
            nonlocal waiting
            waiting -= 1

        theirs.send(b"x")
        for _ in range(waiting):
            loop.call_soon(step)
        loop.call_soon(over.set)
        await over.wait()
        loop.remove_reader(ours)
        ours.close()
        theirs.close()
        return left[0]

    assert run(main()) > 190


def test_steps_of_one_kind_are_run_in_their_order_each_once() -> None:
    async def main() -> list[int]:
        done: list[int] = []
        loop = asyncio.get_running_loop()
        handles = [loop.call_soon(done.append, number) for number in range(100)]
        handles[50].cancel()
        assert handles[50].cancelled() and not handles[51].cancelled()
        over = asyncio.Event()
        loop.call_soon(over.set)
        await over.wait()
        return done

    for seconds in (ONE_STEP, 1.0):
        assert run(main(), seconds) == [number for number in range(100) if number != 50]


def test_step_that_fails_is_told_and_others_go_on() -> None:
    async def main() -> tuple[list[str], list[int]]:
        told: list[str] = []
        done: list[int] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))
        loop.call_soon(int, "no number")
        over = asyncio.Event()
        loop.call_soon(done.append, 1)
        loop.call_soon(over.set)
        await over.wait()
        return told, done

    told, done = run(main())
    assert done == [1] and len(told) == 1 and "no number" in told[0]


def test_interrupt_ends_the_loop_and_what_was_ready_is_run_once() -> None:
    done: list[int] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    loop = FairLoop(1.0)
    loop.call_soon(interrupt)
    loop.call_soon(done.append, 1)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    loop.run_until_complete(asyncio.sleep(0))
    assert done == [1]
    loop.close()


def test_task_in_background_is_not_for_the_client_who_started_it() -> None:
    async def seen() -> bool:
        return is_for_a_client.get()

    async def main() -> tuple[bool, bool, bool]:
        with for_clients():
            inherited = asyncio.create_task(seen())
            background = asyncio.create_task(seen(), context=in_background())
        return await inherited, await background, await asyncio.create_task(seen())

    assert run(main()) == (True, False, False)


class _App:
    """Answers whether it runs for a client."""

    def __init__(self) -> None:
        self.peers = None
        self.streams = SimpleNamespace(stop=lambda: None)
        self.seen: list[bool] = []

    async def serve_on(self, address: tuple[str, int]) -> None:
        pass

    async def __call__(self, scope: Any, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        await asyncio.sleep(0)
        self.seen.append(is_for_a_client.get())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


def tls_files(directory: Path) -> TlsFiles:
    now = datetime.now(UTC)
    authority = new_authority(now)
    pair = server_pair(authority, ["localhost", "127.0.0.1"], now)
    for name, data in (("ca", authority.certificate), ("crt", pair.certificate), ("key", pair.key)):
        (directory / name).write_bytes(data)
    return TlsFiles(directory / "crt", directory / "key", directory / "ca")


def test_requests_from_outside_are_for_clients_those_of_the_parts_are_not(tmp_path: Path) -> None:
    async def main() -> list[bool]:
        app: Any = _App()
        server = HttpServer(app, tls=tls_files(tmp_path))
        await server.start()
        await server.serve_locally(str(tmp_path / "api.sock"))
        trusted = ssl.create_default_context(cafile=str(tmp_path / "ca"))
        for connector, url in (
            (aiohttp.TCPConnector(ssl=trusted), f"https://localhost:{server.port}/"),
            (aiohttp.UnixConnector(str(tmp_path / "api.sock")), "http://haru.local/"),
        ):
            async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as answer:
                assert answer.status == 200
        await server.stop()
        return list(app.seen)

    assert run(main()) == [True, False]


def test_socket_of_a_connection_that_is_cut_at_once_does_not_close_the_next_one_with_its_number() -> None:
    """uvloop attaches a socket to its connection a step later: to one that is cut before, it did so for good."""

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        left: list[int] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for _ in range(20):
                connected = socket.create_connection(listener.getsockname())
                accepted, _ = listener.accept()
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                accepted.close()
                for _ in range(6):
                    loop.call_soon(time.sleep, 0.002)
                with suppress(OSError):
                    transport, _ = await loop.create_connection(asyncio.Protocol, sock=connected)
                    await until(transport.is_closing)
                    await asyncio.sleep(0)
                left.append(connected.fileno())
                connected.detach()
        return left

    assert set(run(main(), 0.001)) == {-1}
