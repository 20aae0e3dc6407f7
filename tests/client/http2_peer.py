"""A server of HTTP/2 whose protocol is somebody else's, python-hyper's `h2`: answers as its paths say."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from h2.errors import ErrorCodes

from haru.client.http import HttpTransport, tls_context

BODY = b'{"kind":"Status"}' * 3


class Peer(asyncio.Protocol):
    """One connection. A request to /ok is answered 201, with `BODY` and what it carried; to /wait not at all.

    /refused and /reset are reset, /goaway ends the connection before the request is looked at, /cut during it;
    /NUMBER is answered with so many bytes.
    """

    def __init__(self, server: Server | None = None, settings: dict[Any, int] | None = None) -> None:
        self._server = server
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        if settings:
            self.h2.local_settings = h2.settings.Settings(client=False, initial_values=settings)
        self.h2.initiate_connection()
        self.headers: dict[int, dict[str, str]] = {}
        self.bodies: dict[int, bytes] = {}
        self.resets: list[int] = []
        self._left: dict[int, bytes] = {}
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self._server is not None:
            self._server.peers.append(self)
        self._flush()

    def connection_lost(self, _: Exception | None) -> None:
        self.h2 = None

    def data_received(self, data: bytes) -> None:
        if self.h2 is not None:
            self.take(data)
            self._flush()

    def take(self, data: bytes) -> None:
        """Answer what a client sends; `self.h2.data_to_send()` is to be sent then."""
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self.headers[event.stream_id] = dict(event.headers)
                self.bodies[event.stream_id] = b""
            elif isinstance(event, h2.events.DataReceived):
                self.bodies[event.stream_id] += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                self.resets.append(event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self._answer(event.stream_id, self.headers[event.stream_id][":path"])
            self._send_more()

    def _flush(self) -> None:
        if (data := self.h2.data_to_send()) and self.transport is not None:
            self.transport.write(data)

    def _answer(self, number: int, path: str) -> None:
        if path == "/refused":
            self.h2.reset_stream(number, ErrorCodes.REFUSED_STREAM)
        elif path == "/reset":
            self.h2.reset_stream(number, ErrorCodes.INTERNAL_ERROR)
        elif path == "/goaway":
            self.h2.close_connection(last_stream_id=number - 2)
        elif path == "/cut":
            self.transport.close()
        elif path[1:].isdigit():
            self.respond(number, 200, b"x" * int(path[1:]))
        elif path != "/wait":
            self.respond(number, 201, BODY + self.bodies[number])

    def respond(self, number: int, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.h2.send_headers(number, [(":status", str(status)), ("content-type", "application/json"), *headers])
        self._left[number] = body
        self._send_more()

    def _send_more(self) -> None:
        for number, body in list(self._left.items()):
            while self._left.get(number) is not None:
                size = min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size, len(body))
                if not size and body:
                    break  # the window is closed
                part, body = body[:size], body[size:]
                self.h2.send_data(number, part, end_stream=not body)
                self._left[number] = body
                if not body:
                    del self._left[number]


class Server:
    """What has come to a server, connection by connection; those of HTTP/1.1 are counted."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.peers: list[Peer] = []
        self.over_http1: list[str] = []
        self.http1_body = b"1"

    def paths(self, peer: int = 0) -> list[str]:
        return [headers[":path"] for headers in self.peers[peer].headers.values()]


class _Chosen(asyncio.Protocol):
    """Goes on as what client and server have agreed on."""

    def __init__(self, server: Server, settings: dict[Any, int]) -> None:
        self._server, self._settings, self._transport = server, settings, None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if transport.get_extra_info("ssl_object").selected_alpn_protocol() == "h2":
            peer = Peer(self._server, self._settings)
            transport.set_protocol(peer)
            peer.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if b" HTTP/1.1\r\n" in data:
            self._server.over_http1.append(data.split(b" HTTP", 1)[0].decode())
            body = self._server.http1_body
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


@asynccontextmanager
async def serving(
    folder: Path, *, http2: bool = True, settings: dict[Any, int] | None = None
) -> AsyncIterator[tuple[Server, HttpTransport]]:
    """A server with its client, whose writes are multiplexed."""
    authority, context = _certificate(folder)
    context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    server = Server(0)
    listener = await asyncio.get_running_loop().create_server(
        lambda: _Chosen(server, settings or {}), "127.0.0.1", 0, ssl=context
    )
    server.port = listener.sockets[0].getsockname()[1]
    transport = HttpTransport(
        f"https://localhost:{server.port}",
        tls=tls_context(authority),
        multiplexing=tls_context(authority, http2=True),
    )
    try:
        yield server, transport
    finally:
        await transport.close()
        listener.close()


def _certificate(folder: Path) -> tuple[bytes, ssl.SSLContext]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    form, encoding = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    path = folder / "server.pem"
    path.write_bytes(certificate + key.private_bytes(encoding, form, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return certificate, context
