"""The way to etcd: a channel to each endpoint, calls that are bounded in time, and which of them may be sent again.

A call waits for an endpoint that is connected, the one used last first. A read that failed on its way goes to another
endpoint, until the time is over. A write is sent once: when its answer is lost nobody knows whether it was made, and
the caller is told so. Keepalives find out about connections that are dead without having been closed.
Source: etcd's client design, as behaviour; gRPC's status codes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from google.protobuf.message import Message

from haru.proto import MessageError, decode
from haru.proto import etcd_pb2 as rpc
from haru.storage.etcd.messages import WATCH, Answer, Method
from haru.storage.interface import StoreError

if TYPE_CHECKING:
    import grpc.aio

REQUEST_SECONDS = 10.0
ATTEMPT_SECONDS = 5.0
"""How long one endpoint may take over a read before another one is asked."""
_PAUSE_SECONDS = 0.02
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


class CallError(StoreError):
    """etcd refused a call, or its answer did not come; `code` is gRPC's name for why."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.passing = code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


@dataclass(frozen=True, slots=True)
class Credentials:
    """PEM: the authority that etcd's certificate is signed by, and the certificate and key that are shown to it."""

    authority: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None


def read_credentials(authority: Path | None, certificate: Path | None, key: Path | None) -> Credentials:
    """Credentials out of files; raises `StoreError` that names the flag of `haru apiserver` and the file."""
    if (certificate is None) != (key is None):
        raise StoreError("--etcd-certfile and --etcd-keyfile belong together: give both or none")
    texts: list[bytes | None] = []
    for flag, path in (("cafile", authority), ("certfile", certificate), ("keyfile", key)):
        try:
            texts.append(path.read_bytes() if path is not None else None)
        except OSError as error:
            raise StoreError(f"--etcd-{flag}: {path}: {error.strerror}") from error
    return Credentials(*texts)


def check_endpoints(endpoints: Sequence[str]) -> None:
    """Raises `StoreError` for what is no list of URLs of etcd."""
    if not endpoints:
        raise StoreError("--etcd-servers: no etcd server is named: write https://HOST:PORT")
    for endpoint in endpoints:
        parts = urlsplit(endpoint)
        try:
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not None
        except ValueError:
            good = False
        if not good or parts.path not in ("", "/"):
            raise StoreError(f'--etcd-servers: Invalid value: "{endpoint}": write https://HOST:PORT')
    if len({urlsplit(endpoint).scheme for endpoint in endpoints}) > 1:
        raise StoreError(
            f'--etcd-servers: Invalid value: "{",".join(endpoints)}": either all servers use https or none does'
        )


class Connection:
    """Channels to the members of one etcd."""

    def __init__(self, endpoints: Sequence[str], credentials: Credentials, seconds: float = REQUEST_SECONDS) -> None:
        check_endpoints(endpoints)
        self.endpoints = tuple(endpoints)
        self._credentials = credentials
        self._seconds = seconds
        self._channels: list[grpc.aio.Channel] = []
        self._calls: list[dict[str, Any]] = []
        self._at = 0

    def open(self) -> None:
        """Begin to connect, within the running loop."""
        import grpc
        import grpc.aio

        given = self._credentials
        for endpoint in self.endpoints:
            parts = urlsplit(endpoint)
            if parts.scheme == "https":
                tls = grpc.ssl_channel_credentials(given.authority, given.key, given.certificate)
                channel = grpc.aio.secure_channel(parts.netloc, tls, options=_OPTIONS)
            else:
                channel = grpc.aio.insecure_channel(parts.netloc, options=_OPTIONS)
            self._channels.append(channel)
        self._calls = [{} for _ in self._channels]

    async def close(self) -> None:
        """Give up all connections."""
        channels, self._channels, self._calls = self._channels, [], []
        for channel in channels:
            await channel.close()

    def leave(self) -> None:
        """Turn to another endpoint: the one in use does not do."""
        self._at += 1

    async def call(self, method: Method[Answer], request: Message, *, again: bool) -> Answer:
        """The answer to a call. `again`: it may be repeated when its fate is unknown. Raises `StoreError`."""
        import grpc

        sent = request.SerializeToString()
        retried = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        while True:
            index = await self._connected(deadline)
            left = max(0.001, deadline - loop.time())
            try:
                call = self._unary(index, method.path)
                answer: bytes = await call(sent, timeout=min(left, ATTEMPT_SECONDS) if again else left)
                return _decoded(method.answer, answer)
            except grpc.aio.AioRpcError as error:
                if error.code() in retried:
                    self._leave_if_at(index)
                    if again and loop.time() < deadline:
                        await asyncio.sleep(_PAUSE_SECONDS)
                        continue
                raise self._failure(error, again) from error

    async def watch(self) -> Stream:
        """A stream of messages both ways. Raises `CallError` when no endpoint can be reached."""
        index = await self._connected(asyncio.get_running_loop().time() + self._seconds)
        return Stream(self._channels[index].stream_stream(WATCH)(), lambda: self._leave_if_at(index), self._failure)

    def _unary(self, index: int, method: str) -> Any:
        calls = self._calls[index]
        if method not in calls:
            calls[method] = self._channels[index].unary_unary(method)
        return calls[method]

    def _leave_if_at(self, index: int) -> None:
        if self._at % len(self.endpoints) == index:
            self._at += 1

    async def _connected(self, deadline: float) -> int:
        """The endpoint to ask: one that is connected, the one in use first."""
        import grpc

        loop = asyncio.get_running_loop()
        while True:
            if not self._channels:
                raise CallError("CANCELLED", "the store is not open")
            for step in range(len(self._channels)):
                index = (self._at + step) % len(self._channels)
                if self._channels[index].get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
                    self._at = index
                    return index
            if loop.time() >= deadline:
                raise CallError(
                    "UNAVAILABLE",
                    f"etcd can not be reached at {', '.join(self.endpoints)}: see that it runs and that the "
                    "certificates are those that it takes",
                )
            await asyncio.sleep(_PAUSE_SECONDS)

    def _failure(self, error: grpc.aio.AioRpcError, again: bool = True) -> CallError:
        code, details = error.code().name, error.details() or ""
        unknown = not again and code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL")
        fate = "; whether the change was made is not known" if unknown else ""
        return CallError(code, f"etcd: {details or code}{_remedies.get(code, '')}{fate}")


_remedies: Mapping[str, str] = {
    "RESOURCE_EXHAUSTED": " (give etcd more room, or compact and defragment it)",
    "UNAUTHENTICATED": " (see --etcd-certfile and --etcd-keyfile)",
    "PERMISSION_DENIED": " (see that the user of --etcd-certfile may read and write below --etcd-prefix)",
}


def _decoded(kind: type[Answer], data: bytes) -> Answer:
    try:
        return decode(kind, data)
    except MessageError as error:
        raise StoreError(f"etcd: an answer can not be read: {error}") from error


class Stream:
    """A watch's stream."""

    def __init__(self, call: Any, left: Callable[[], None], failure: Callable[[Any], CallError]) -> None:
        self._call = call
        self._left = left
        self._failure = failure

    async def write(self, message: rpc.WatchRequest) -> None:
        """Send a message. Raises `CallError`."""
        import grpc.aio

        try:
            await self._call.write(message.SerializeToString())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise self._told(error) from error

    async def read(self) -> rpc.WatchResponse:
        """The next message. Raises `StoreError`, at the end `CallError`."""
        import grpc.aio

        try:
            message = await self._call.read()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise self._told(error) from error
        if not isinstance(message, bytes):
            self._left()
            raise CallError("UNAVAILABLE", "etcd ended the watch")
        return _decoded(rpc.WatchResponse, message)

    def close(self) -> None:
        """End the stream."""
        self._call.cancel()

    def _told(self, error: Exception) -> CallError:
        import grpc.aio

        self._left()
        if isinstance(error, grpc.aio.AioRpcError):
            return self._failure(error)
        return CallError("UNAVAILABLE", f"etcd ended the watch: {error}")
