"""HTTP/2 by python-hyper's `h2` in the place of `haru.http2.connection`: what ADR 12 compares with.

    python -m benchmarks.http2_by_h2 COMMAND [ARGUMENT ...]

runs a command of `haru` whose HTTP/2 is this. `h2` cuts frames, compresses and validates headers, keeps the state of
streams and windows; ours are the ASGI side, the bounds that `h2` does not have, and the gathering of what is sent.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    PingReceived,
    PriorityUpdated,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    UnknownFrameReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from haru import serving
from haru.http2 import MAX_STREAMS
from haru.http2.frames import Http2ConnectionError
from haru.http2.headers import MalformedRequestError, parse_request
from haru.http2.limits import UselessFrameLimit
from haru.serving import ABORT, ANSWER, WRITE_BODY

RECEIVE_BYTES = 256 * 1024
BATCH_BYTES = 256 * 1024
FLUSH_BYTES = 64 * 1024
_CONFIGURATION = H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_inbound_headers=True,
    normalize_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)
_COUNTED = (PingReceived, PriorityUpdated, UnknownFrameReceived)


class Stream:
    """One request: ASGI's channels, and the shorter ways of `haru.serving`."""

    __slots__ = ("_body", "_left", "_ready", "_room", "_told", "closed", "complete", "connection", "ended", "number",
                 "scope", "started")  # fmt: skip

    def __init__(self, connection: Connection, number: int, scope: dict[str, Any]) -> None:
        self.connection, self.number, self.scope = connection, number, scope
        self.ended = self.started = self.complete = self.closed = False
        self._body, self._told = bytearray(), False
        self._left = 0
        self._ready: asyncio.Event | None = None
        self._room: asyncio.Event | None = None

    def take(self, data: bytes, size: int) -> None:
        self._body += data
        self._left += size
        self.wake()

    def wake(self) -> None:
        if self._ready is not None:
            self._ready.set()

    def wake_writer(self) -> None:
        if self._room is not None:
            self._room.set()

    def close(self) -> None:
        self.closed = True
        self.wake()
        self.wake_writer()

    async def run(self, application: Any) -> None:
        try:
            await application(self.scope, self.receive, self.send)
        finally:
            if not self.complete and not self.closed:
                self.connection.reset(self, ErrorCodes.INTERNAL_ERROR)
            self.connection.finished()

    async def receive(self) -> dict[str, Any]:
        while not (self.closed or self.complete):
            if self._body or (self.ended and not self._told):
                body, self._body, self._told = bytes(self._body), bytearray(), self.ended
                self.connection.consumed(self.number, self._left)
                self._left = 0
                return {"type": "http.request", "body": body, "more_body": not self.ended}
            self._ready = self._ready or asyncio.Event()
            self._ready.clear()
            await self._ready.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if self.closed:
            return
        if not self.started:
            if await self._has_room(0):
                self.started = True
                self.connection.send_head(self.number, message["status"], message.get("headers") or (), ends=False)
            return
        body = b"" if self.scope["method"] == "HEAD" else message.get("body") or b""
        view, at, ends = memoryview(body), 0, not message.get("more_body", False)
        while at < len(body):
            if not await self._has_room(1):
                return
            taken = min(len(body) - at, self.connection.window(self.number), BATCH_BYTES)
            self.connection.send_data(self.number, view[at : at + taken], ends=ends and at + taken == len(body))
            at += taken
        if ends and not body and await self._has_room(0):
            self.connection.send_data(self.number, b"", ends=True)
        if ends:
            self._completed()

    async def _has_room(self, size: int) -> bool:
        while not self.closed:
            if not self.connection.paused and self.connection.window(self.number) >= size:
                return True
            self._room = self._room or asyncio.Event()
            self._room.clear()
            self.connection.blocked.add(self)
            await self._room.wait()
        return False

    def _completed(self) -> None:
        if not (self.closed or self.complete):
            self.complete = True
            self.connection.answered(self)
            self.wake()

    def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        connection = self.connection
        if self.started or self.closed or connection.paused or len(body) > connection.window(self.number):
            return False
        self.started = True
        connection.send_head(self.number, status, headers, ends=not body)
        if body:
            connection.send_data(self.number, body, ends=True)
        self._completed()
        return True

    def write_body(self, data: bytes) -> bool:
        if self.closed:
            return True
        if self.connection.paused or len(data) > self.connection.window(self.number):
            return False
        self.connection.send_data(self.number, data, ends=False)
        return True

    def abort(self) -> None:
        if not self.closed:
            self.connection.reset(self, ErrorCodes.INTERNAL_ERROR)


class Connection(asyncio.Protocol):
    """One connection, made by uvicorn."""

    max_streams = MAX_STREAMS

    def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        self._application, self._state = config.loaded_app, server_state
        self.transport: Any = None
        self.loop = asyncio.get_running_loop()
        self._useless = UselessFrameLimit(self.loop)
        self._streams: dict[int, Stream] = {}
        self.blocked: set[Stream] = set()
        self.paused = self._is_scheduled = self._is_leaving = self._is_over = False
        self._running = 0
        self._h2 = H2Connection(_CONFIGURATION)
        values = {
            SettingCodes.MAX_CONCURRENT_STREAMS: self.max_streams,
            SettingCodes.INITIAL_WINDOW_SIZE: RECEIVE_BYTES,
            SettingCodes.MAX_FRAME_SIZE: RECEIVE_BYTES,
            SettingCodes.MAX_HEADER_LIST_SIZE: serving.HEAD_BYTES,
        }
        self._h2.local_settings = Settings(client=False, initial_values=values)
        self._h2.max_inbound_frame_size = RECEIVE_BYTES
        self._h2.decoder.max_header_list_size = serving.HEAD_BYTES

    def extensions(self) -> dict[str, Any]:
        return {}

    def connection_made(self, transport: Any) -> None:
        from uvicorn.protocols.utils import get_local_addr, get_remote_addr

        self.transport = transport
        self._state.connections.add(self)
        self._scope = {"server": get_local_addr(transport), "client": get_remote_addr(transport), "scheme": "https"}
        self._extensions = self.extensions()
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(RECEIVE_BYTES * self.max_streams - 65_535)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._state.connections.discard(self)
        self._close_streams()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        try:
            for event in self._h2.receive_data(data):
                self._take(event)
        except ProtocolError:
            self._end()
        except Http2ConnectionError as fault:
            self._h2.close_connection(int(fault.code))
            self._end()
        else:
            self.flush_soon()

    def _end(self) -> None:
        self._flush()
        self._is_over = True
        self._close_streams()
        self.transport.close()

    def _close_streams(self) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.close()

    def _take(self, event: Any) -> None:
        if isinstance(event, RequestReceived):
            self._open(event)
        elif isinstance(event, DataReceived):
            stream = self._streams.get(event.stream_id)
            if not event.data and event.stream_ended is None:
                self._useless.count()
            if stream is None:
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            else:
                stream.take(event.data, event.flow_controlled_length)
        elif isinstance(event, StreamEnded):
            if (stream := self._streams.get(event.stream_id)) is not None:
                stream.ended = True
                stream.wake()
        elif isinstance(event, WindowUpdated):
            self._wake()
        elif isinstance(event, StreamReset):
            self._useless.count()
            if (stream := self._streams.pop(event.stream_id, None)) is not None:
                stream.close()
        elif isinstance(event, RemoteSettingsChanged):
            self._useless.count()
            self._wake()
        elif isinstance(event, _COUNTED):
            self._useless.count()
        elif isinstance(event, ConnectionTerminated):
            self.shutdown()

    def _open(self, event: RequestReceived) -> None:
        try:
            scope = parse_request(event.headers).scope()
        except MalformedRequestError:
            self._useless.count()
            self._h2.reset_stream(event.stream_id, ErrorCodes.PROTOCOL_ERROR)
            return
        stream = Stream(self, event.stream_id, scope)
        shortcuts = {ABORT: stream.abort, ANSWER: stream.answer, WRITE_BODY: stream.write_body}
        scope.update(self._scope, state={}, extensions={**shortcuts, **self._extensions})
        self._streams[event.stream_id] = stream
        self._running += 1
        task = self.loop.create_task(stream.run(self._application))
        task.add_done_callback(self._state.tasks.discard)
        self._state.tasks.add(task)

    def _wake(self) -> None:
        blocked, self.blocked = self.blocked, set()
        for stream in blocked:
            stream.wake_writer()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._wake()

    def shutdown(self) -> None:
        if not self._is_leaving:
            self._is_leaving = True
            self._h2.close_connection()
            self._flush()
            self.finished(0)

    def window(self, number: int) -> int:
        return self._h2.local_flow_control_window(number)

    def consumed(self, number: int, size: int) -> None:
        if size:
            self._h2.acknowledge_received_data(size, number)
            self.flush_soon()

    def send_head(self, number: int, status: int, headers: Sequence[tuple[bytes, bytes]], *, ends: bool) -> None:
        fields = [(b":status", b"%d" % status), *self._state.default_headers, *headers]
        self._h2.send_headers(number, fields, end_stream=ends)
        self.flush_soon()

    def send_data(self, number: int, data: bytes | memoryview, *, ends: bool) -> None:
        limit = self._h2.max_outbound_frame_size
        if len(data) <= limit:
            self._h2.send_data(number, data, end_stream=ends)  # type: ignore[arg-type]
        else:
            for begin in range(0, len(data), limit):
                is_last = begin + limit >= len(data)
                part: Any = data[begin : begin + limit]
                self._h2.send_data(number, part, end_stream=ends and is_last)
        self.flush_soon()

    def reset(self, stream: Stream, code: ErrorCodes) -> None:
        if self._streams.pop(stream.number, None) is not None:
            self._h2.reset_stream(stream.number, code)
            self.flush_soon()
        stream.close()

    def answered(self, stream: Stream) -> None:
        if self._streams.pop(stream.number, None) is not None and not stream.ended:
            self._h2.reset_stream(stream.number, ErrorCodes.NO_ERROR)

    def finished(self, running: int = 1) -> None:
        self._state.total_requests += running
        self._running -= running
        if self._is_leaving and not self._running and not self._is_over:
            self._end()

    def flush_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        data = self._h2.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)


def main() -> None:
    """Runs `haru` with it."""
    import haru.http2.connection
    from haru.__main__ import main as run

    haru.http2.connection.Connection = Connection  # type: ignore[assignment, misc]
    sys.argv[0] = "haru"
    run()


if __name__ == "__main__":
    main()
