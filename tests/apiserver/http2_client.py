"""A client of HTTP/2 whose protocol is somebody else's: python-hyper's `h2` over a socket, and raw frames besides."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
from api_caller import ADMIN


@dataclass
class Answer:
    """What has come of one."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.headers[":status"])

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Http2Client:
    """One connection. `reads` is whether it opens its windows again for what it has got."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reads: bool) -> None:
        config = h2.config.H2Configuration(
            header_encoding="utf-8",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.h2 = h2.connection.H2Connection(config)
        self._reader, self.writer, self.reads = reader, writer, reads
        self.answers: dict[int, Answer] = {}
        self.goaway: int | None = None
        self.closed = False
        self._news = asyncio.Event()
        self._pump = asyncio.create_task(self._read())

    @classmethod
    async def open(
        cls, port: int, trust: ssl.SSLContext, settings: dict[Any, int] | None = None, *, reads: bool = True
    ) -> Http2Client:
        trust.set_alpn_protocols(["h2"])
        client = cls(*await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="localhost"), reads)
        if settings:
            initial = {h2.settings.SettingCodes.ENABLE_PUSH: 0, **settings}
            client.h2.local_settings = h2.settings.Settings(client=True, initial_values=initial)
            client.h2.max_inbound_frame_size = client.h2.local_settings.max_frame_size
        client.h2.initiate_connection()
        client.flush()
        return client

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if data and not self.writer.is_closing():
            self.writer.write(data)

    def begin(self, method: str, path: str, *more: tuple[str, str], ends: bool = True, token: str = ADMIN) -> int:
        """Send the head of a request; its stream."""
        number = int(self.h2.get_next_available_stream_id())
        fields = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)]
        fields += [("authorization", f"Bearer {token}")] if token else []
        self.answers[number] = Answer()
        self.h2.send_headers(number, [*fields, *more], end_stream=ends)
        self.flush()
        return number

    async def send(self, number: int, body: bytes, *, ends: bool = True) -> None:
        """Send a body as far as the server takes it."""
        while True:
            answer = self.answers[number]
            if answer.ended or answer.reset is not None:
                return
            room = min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size)
            part, body = body[:room], body[room:]
            if part or not body:
                self.h2.send_data(number, part, end_stream=ends and not body)
                self.flush()
                await self.writer.drain()
            if not body:
                return
            if not part:
                await self.news()

    async def news(self) -> None:
        """Wait until something comes."""
        self._news.clear()
        if not self.closed:
            await asyncio.wait_for(self._news.wait(), 20)

    async def until(self, is_so: Any) -> None:
        while not is_so():
            assert not self.closed or is_so(), "the connection is gone"
            await self.news()

    async def answer(self, number: int) -> Answer:
        """Wait for the end of an answer."""
        found = self.answers[number]
        await self.until(lambda: found.ended or found.reset is not None)
        return found

    async def ask(self, method: str, path: str, *more: tuple[str, str], body: Any = None, token: str = ADMIN) -> Answer:
        """A request and its answer."""
        if body is None:
            return await self.answer(self.begin(method, path, *more, token=token))
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        more = (*more, ("content-type", "application/json"))
        number = self.begin(method, path, *more, ends=False, token=token)
        await self.send(number, data)
        return await self.answer(number)

    async def over(self) -> int | None:
        """Wait for the end of the connection; the code of the farewell."""
        while not self.closed:
            await self.news()
        return self.goaway

    async def close(self) -> None:
        self._pump.cancel()
        self.writer.transport.abort()
        await asyncio.sleep(0)

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(1 << 20):
                for event in self.h2.receive_data(data):
                    self._take(event)
                self.flush()
                self._news.set()
        except ConnectionError:
            pass
        finally:
            self.closed = True
            self._news.set()

    def _take(self, event: Any) -> None:
        answer = self.answers.get(getattr(event, "stream_id", 0))
        if isinstance(event, h2.events.ConnectionTerminated):
            self.goaway = event.error_code
        if answer is None:
            return
        if isinstance(event, h2.events.ResponseReceived):
            answer.headers = dict(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            answer.body += event.data
            if self.reads:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            # NO_ERROR only tells that the rest of the request is not wanted.
            if not (answer.ended and event.error_code == 0):
                answer.reset = event.error_code
        elif isinstance(event, h2.events.StreamEnded):
            answer.ended = True
