"""A server on a Unix socket: reached whatever the length of the path, and asked for answers as they are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from haru.client.http import HttpTransport
from haru.client.transport import Request

GET = Request("GET", "/api/v1/pods", [("limit", "5")], {"accept": "application/json"})


@pytest.mark.parametrize("folder", ["d", "d" * 120])
async def test_server_on_a_unix_socket_answers_over_one_kept_connection(tmp_path: Path, folder: str) -> None:
    heads: list[bytes] = []
    served: set[asyncio.Task[object] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(asyncio.current_task())
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                heads.append(head)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        finally:
            writer.close()

    (tmp_path / folder).mkdir()
    server = await asyncio.start_unix_server(serve, tmp_path / "s")
    (tmp_path / "s").rename(tmp_path / folder / "api.sock")
    transport = HttpTransport("http://haru.local", unix_socket=tmp_path / folder / "api.sock")
    try:
        answers = [await transport.send(GET, 60) for _ in range(3)]
    finally:
        await transport.close()
        server.close()
        await asyncio.gather(*(task for task in served if task is not None), return_exceptions=True)
    assert [(each.status, each.body) for each in answers] == [(200, b"ok")] * 3
    assert len(served) == 1
    assert heads[0].split(b"\r\n")[:2] == [b"GET /api/v1/pods?limit=5 HTTP/1.1", b"host: haru.local"]
    assert b"accept-encoding" not in heads[0]


async def test_socket_without_a_server_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        await HttpTransport("http://haru.local", unix_socket=tmp_path / "nobody").send(GET, 60)
