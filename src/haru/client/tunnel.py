"""A connection to a server through a proxy, which passes on what both say.

Source: CONNECT of RFC 9110; SOCKS version 5 of RFC 1928 and RFC 1929, where the proxy looks up the server's name.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final, TypeVar

from haru.event_loop import abort
from haru.proxy_settings import Proxy, authority
from haru.tls import client_context

P = TypeVar("P", bound=asyncio.Protocol)
_NAME, _NO_LOGIN, _LOGIN = 3, 0, 2
_REFUSALS: Final = (
    "general failure",
    "not allowed by its rules",
    "network unreachable",
    "host unreachable",
    "connection refused",
    "too many hops",
    "command not supported",
    "kind of address not supported",
)


async def connect_through(
    proxy: Proxy, make: Callable[[], P], server: tuple[str, int] | None, tls: ssl.SSLContext | None, name: str | None
) -> P:
    """Open a connection to a server (None: to the proxy itself) for a protocol, with TLS for `name`. Raises OSError."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    # What is trusted of the server is trusted of the proxy, as client-go does.
    secure = (tls or client_context()) if proxy.scheme == "https" else None
    to_proxy: asyncio.Transport | None = None
    try:
        to_proxy, _ = await loop.create_connection(
            lambda: asyncio.StreamReaderProtocol(reader),
            proxy.host,
            proxy.port,
            ssl=secure,
            server_hostname=proxy.host if secure else None,
        )
        if server is not None:
            await (_ask_socks if proxy.is_socks else _ask_http)(proxy, to_proxy, reader, *server)
        return await _handed_over(loop, to_proxy, make(), tls, name)
    except asyncio.CancelledError:
        _cut(to_proxy)
        raise
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
        _cut(to_proxy)
        why = str(error) if isinstance(error, OSError) else "it closed the connection, or does not speak the protocol"
        raise ConnectionError(f"{proxy}: {why}") from error


async def _handed_over(
    loop: asyncio.AbstractEventLoop,
    transport: asyncio.Transport,
    protocol: P,
    tls: ssl.SSLContext | None,
    name: str | None,
) -> P:
    if tls is None:
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
    else:
        secured = await loop.start_tls(transport, protocol, tls, server_hostname=name)
        assert secured is not None
        protocol.connection_made(secured)
    return protocol


def _cut(transport: asyncio.Transport | None) -> None:
    if transport is not None:
        abort(transport)


async def _ask_http(
    proxy: Proxy, transport: asyncio.Transport, reader: asyncio.StreamReader, host: str, port: int
) -> None:
    place = authority(host, port)
    transport.write(f"CONNECT {place} HTTP/1.1\r\nhost: {place}\r\n{proxy.authorization()}\r\n".encode("latin-1"))
    line, _, _ = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
    _, _, answer = line.decode("latin-1").partition(" ")
    if not answer.startswith("2"):
        raise ConnectionError(f"it does not connect to {place}: {answer or line.decode('latin-1')}")


async def _ask_socks(
    proxy: Proxy, transport: asyncio.Transport, reader: asyncio.StreamReader, host: str, port: int
) -> None:
    logins = bytes([_NO_LOGIN, _LOGIN] if proxy.user else [_NO_LOGIN])
    transport.write(bytes([5, len(logins)]) + logins)
    version, login = await reader.readexactly(2)
    if version != 5 or login not in logins:
        raise ConnectionError("it is no SOCKS5 proxy" if version != 5 else "it takes no login that we have")
    if login == _LOGIN:
        transport.write(b"\x01" + _sized(proxy.user) + _sized(proxy.password))
        if (await reader.readexactly(2))[1]:
            raise ConnectionError("it refuses user and password")
    transport.write(b"\x05\x01\x00" + _socks_address(host) + port.to_bytes(2, "big"))
    _, refusal, _, kind = await reader.readexactly(4)
    if refusal:
        why = _REFUSALS[refusal - 1] if refusal <= len(_REFUSALS) else f"code {refusal}"
        raise ConnectionError(f"it does not connect to {authority(host, port)}: {why}")
    bound = (await reader.readexactly(1))[0] if kind == _NAME else 4 if kind == 1 else 16
    await reader.readexactly(bound + 2)


def _sized(text: str) -> bytes:
    data = text.encode()
    return bytes([len(data)]) + data


def _socks_address(host: str) -> bytes:
    try:
        address = ip_address(host)
    except ValueError:
        return bytes([_NAME]) + _sized(host)
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed
