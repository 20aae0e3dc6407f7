"""What Haru relies on in libraries beyond their documentation: `uvicorn`'s connections, `argparse`'s actions, `ssl`.

A new version that changes one of these fails here, and by name. pyproject.toml bounds `uvicorn` to what was tested.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import logging
import re
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from haru.serving import connection_class, listening_socket, server_class, settings

CONNECTION = {
    "app_state", "config", "connections", "cycle", "flow", "headers", "loop", "parser", "scope", "server_state",
    "tasks", "transport",
}  # fmt: skip
"""Attributes of `HttpToolsProtocol` that `haru.serving` and `haru.upgrade_proxy` read, or that they override."""
CYCLE = {
    "default_headers", "disconnected", "flow", "keep_alive", "on_response", "response_complete", "response_started",
    "scope", "transport", "waiting_for_100_continue", "message_event",
}  # fmt: skip
STATE = {"connections", "default_headers", "tasks", "total_requests"}


@asynccontextmanager
async def running(app: Any, kind: Any) -> AsyncIterator[tuple[Any, int]]:
    listener = listening_socket("127.0.0.1", 0, "--port")
    server = server_class()(settings(app, http=kind))
    task = asyncio.create_task(server.serve([listener]))
    while not server.started:
        assert not task.done()
        await asyncio.sleep(0.001)
    yield server, listener.getsockname()[1]
    server.end()
    await task


async def ask(port: int, *headers: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\r\n".join([b"GET / HTTP/1.1", b"host: h", *headers, b"", b""]))
    found = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return found


async def test_uvicorn_connection_has_what_is_used_of_it() -> None:
    made: list[Any] = []

    class Connection(connection_class()):  # type: ignore[misc]
        def on_message_begin(self) -> None:
            super().on_message_begin()
            made.append(self)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        (connection,) = made
        assert not CONNECTION - vars(connection).keys()
        assert not CYCLE - vars(connection.cycle).keys()
        assert not STATE - vars(connection.server_state).keys()
        assert connection.config.loaded_app is not None and connection.flow.write_paused is False
        assert connection.cycle.scope is connection.scope is scope
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async with running(app, Connection) as (server, port):
        assert (await ask(port)).startswith(b"HTTP/1.1 204 No Content\r\n")
        assert server.server_state.total_requests == 1


async def test_server_leaves_the_signals_of_the_process_alone() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async with running(app, connection_class()) as (_, port):
        assert b" 204 " in await ask(port)


async def test_request_for_an_upgrade_is_answered_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    caplog.set_level(logging.WARNING)
    async with running(app, connection_class()) as (_, port):
        assert b" 403 " in await ask(port, b"connection: upgrade", b"upgrade: websocket")
    assert not caplog.records


def test_argparse_lists_the_actions_of_a_parser() -> None:
    """`haru.cli.main.flags_of` reads them; there is no public way."""
    parser = argparse.ArgumentParser()
    parser.add_subparsers().add_parser("up").add_argument("--port")
    (commands,) = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    assert [action.option_strings for action in commands.choices["up"]._actions] == [["-h", "--help"], ["--port"]]


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Such a repeat matches too much before Python 3.11.5 (python/cpython#100061, #106052); `(?>(?:...)*)` does not."""
    classes, repeat = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"), re.compile(r"\)(?:[*+?]|\{[\d,]*\})\+")
    assert repeat.search(classes.sub("", "([)*+]a)*+")) and not repeat.search(classes.sub("", r"[)*+]\)*+(b)*c+"))
    found = []
    for file in sorted((Path(__file__).parents[1] / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(text)) if repeat.search(text := file.read_text()) else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                value = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
                found += [f"{file}:{node.lineno}"] * ("(?" in value and bool(repeat.search(classes.sub("", value))))
    assert found == []


def test_tls_connection_gives_its_verified_chain() -> None:
    """`haru.apiserver` reads it; it is public from Python 3.13 on."""
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
    if sys.version_info < (3, 13):
        assert callable(tls._sslobj.get_verified_chain)  # type: ignore[attr-defined]
    else:
        assert callable(tls.get_verified_chain)
