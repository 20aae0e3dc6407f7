"""A proxy that knows just enough of HTTP and SOCKS."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


class SmallProxy:
    """Knows HTTP (CONNECT, and requests for http:// servers) and SOCKS5; whoever gives `login` must."""

    def __init__(self, login: str = "") -> None:
        self.asked: list[str] = []
        self.login = login
        self.refusal = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(1)
        try:
            await (self._socks(reader, writer) if first == b"\x05" else self._http(first, reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _http(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = first + await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        self.asked.append(f"{method} {target}")
        if self.refusal or (self.login and f"proxy-authorization: Basic {self.login}".encode() not in head):
            writer.write(self.refusal or b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            await writer.drain()
            return
        host, _, port = target.removeprefix("http://").partition("/")[0].rpartition(":")
        host = host.strip("[]")
        # Names mean this machine.
        host = host if re.fullmatch(r"[0-9.]+|.*:.*", host) else "127.0.0.1"
        to_server, at_server = await asyncio.open_connection(host, int(port))
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\nvia: me\r\n\r\n")
        else:
            at_server.write(head)
        await self._pass_on(reader, writer, to_server, at_server)

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        logins = await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(b"\x05" + (b"\x02" if self.login else b"\x00"))
        if self.login:
            assert logins == b"\x00\x02"
            _, size = await reader.readexactly(2)
            user = await reader.readexactly(size)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            writer.write(b"\x01" + (b"\x00" if f"{user.decode()}:{password.decode()}" == self.login else b"\x01"))
        *_, kind = await reader.readexactly(4)
        host = await self._address(reader, kind)
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append(f"{host}:{port}")
        bound = b"\x03\x04name\x00\x50" if kind == 3 else b"\x01\x00\x00\x00\x00\x00\x50"
        writer.write(b"\x05" + (self.refusal or b"\x00") + b"\x00" + bound)
        if not self.refusal:
            await self._pass_on(reader, writer, *await asyncio.open_connection("127.0.0.1", port))

    @staticmethod
    async def _address(reader: asyncio.StreamReader, kind: int) -> str:
        if kind == 3:
            return (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        return ".".join(map(str, await reader.readexactly(4)))

    @staticmethod
    async def _pass_on(*ends: Any) -> None:
        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()

        reader, writer, to_server, at_server = ends
        ways = [asyncio.ensure_future(pump(reader, at_server)), asyncio.ensure_future(pump(to_server, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            at_server.close()


@asynccontextmanager
async def proxied(proxy: SmallProxy, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Host and port of a running proxy."""
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
