"""Whatever a client sends, the connection answers, waits or ends: it does not fail, hang or grow."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hpack
import pytest

from haru.http2 import MAX_STREAMS, frame_writer, frames
from haru.http2.connection import Connection
from haru.http2.frames import ErrorCode, FrameReader, frame, number_frame
from haru.http2.stream import BATCH_BYTES, RECEIVE_BYTES
from virtual_time import run as run_virtual

ENDS = frames.END_HEADERS | frames.END_STREAM


class Transport:
    """A socket whose other side is read by hand."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.is_closed = False
        self.is_paused = False
        self.after_write: Callable[[], None] = lambda: None

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.sent += data
        self.after_write()

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def get_extra_info(self, name: str) -> Any:
        return None

    def get_write_buffer_size(self) -> int:
        return len(self.sent) if self.is_paused else 0


def connected(application: Any) -> tuple[Connection, Transport]:
    state = SimpleNamespace(connections=set(), tasks=set(), total_requests=0, default_headers=[(b"date", b"now")])
    connection = Connection(SimpleNamespace(loaded_app=application, timeout_keep_alive=90), state, {})
    transport = Transport()
    connection.connection_made(transport)
    return connection, transport


def received(transport: Transport) -> list[tuple[int, int, int, bytes]]:
    """What the client has got."""
    return list(FrameReader(1 << 24).feed(frames.PREFACE + bytes(transport.sent)))


async def echo(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Says how long the body was, and as much again."""
    size = 0
    while (message := await receive())["type"] == "http.request":
        size += len(message["body"])
        if not message["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * size, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


class Odd:
    """Frames that are often right, often nearly so, and sometimes anything."""

    def __init__(self, source: random.Random, *, bends: bool) -> None:
        self._r, self._encoder, self._next, self._bends = source, hpack.Encoder(), 1, bends

    def frame(self) -> bytes:
        r = self._r
        kinds = [self._request, self._data, self._control, self._window, self._bent]
        made: bytes = r.choices(kinds, [6, 8, 3, 6, 0.2 * self._bends])[0]() if self._next > 1 else self._request()
        if self._bends and r.random() < 0.003:
            at = r.randrange(len(made))
            made = made[:at] + bytes((r.randrange(256),)) + made[at + 1 :]
        return made

    def _stream(self) -> int:
        r = self._r
        if self._bends and r.random() < 0.01:
            return r.choice([0, self._next, r.randrange(1 << 31)])
        return max(1, self._next - 2 * r.randrange(1, 8))

    def _request(self) -> bytes:
        r = self._r
        fields = [
            (":method", r.choice(["GET", "POST", "HEAD"])),
            (":scheme", "https"),
            (":path", "/" + "a" * r.randrange(9)),
        ]
        if r.random() < 0.1:
            fields.append(
                (r.choice(["content-length", "connection", "te", "A", ":x"]), r.choice(["1", "100", "x", ""]))
            )
        block = self._encoder.encode(fields)
        if self._next == 1 or r.random() < 0.97:
            number, self._next = self._next, self._next + 2
        else:
            number = self._stream()
        flags = frames.END_STREAM if r.random() < 0.4 else 0
        if r.random() < 0.2:
            cut = r.randrange(len(block) + 1)
            rest = frame(frames.CONTINUATION, frames.END_HEADERS, number, block[cut:])
            return frame(frames.HEADERS, flags, number, block[:cut]) + rest
        return frame(frames.HEADERS, flags | frames.END_HEADERS, number, block)

    def _data(self) -> bytes:
        r = self._r
        flags = r.choice([0, 0, frames.END_STREAM])
        size = r.choice([0, 1, 100, 5_000, 60_000])
        if r.random() < 0.1:
            return frame(frames.DATA, flags | frames.PADDED, self._stream(), bytes((r.randrange(4),)) + bytes(size + 3))
        return frame(frames.DATA, flags, self._stream(), bytes(size))

    def _window(self) -> bytes:
        r = self._r
        return number_frame(frames.WINDOW_UPDATE, r.choice([0, self._stream()]), r.choice([1, 100, 70_000]))

    def _control(self) -> bytes:
        r = self._r
        return r.choice([
            lambda: frame(frames.PING, 0, 0, bytes(8)),
            lambda: frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: r.choice([0, 10, 65_535, 1 << 20])}),
            lambda: frames.settings({frames.Setting.MAX_FRAME_SIZE: r.choice([16_384, 20_000])}),
            lambda: frame(frames.SETTINGS, frames.ACK, 0),
            lambda: number_frame(frames.RST_STREAM, self._stream(), r.randrange(14)),
            lambda: frame(frames.PRIORITY, 0, self._stream(), bytes(5)),
            lambda: frame(r.randrange(11, 256), r.randrange(256), self._stream(), bytes(5)),
        ])()  # fmt: skip

    def _bent(self) -> bytes:
        r = self._r
        return frame(r.randrange(12), r.randrange(256), r.choice([0, self._stream()]), r.randbytes(r.randrange(40)))


def check_answer(answers: list[tuple[int, int, int, bytes]], longest: int) -> None:
    """What was sent is sound by itself: heads before data, one end, no answer to what was reset, no GOAWAY recalled."""
    decoder, begun, ended, last = hpack.Decoder(), set[int](), set[int](), frames.LARGEST_WINDOW
    for kind, flags, number, payload in answers:
        if kind == frames.GOAWAY:
            before, last = last, int.from_bytes(payload[:4], "big")
            assert last <= before and max(begun, default=0) <= last
        if kind == frames.HEADERS:
            fields = dict(decoder.decode(payload))
            assert fields[":status"] == "200" and number not in begun | ended
            begun.add(number)
        elif kind == frames.DATA:
            assert number in begun and number not in ended and len(payload) <= longest
        elif kind == frames.RST_STREAM:
            ended.add(number)
            continue
        if number and kind in (frames.HEADERS, frames.DATA) and flags & frames.END_STREAM:
            ended.add(number)


async def run_of(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """A connection of that seed, from its beginning to its end."""
    source = random.Random(seed)
    connection, transport = connected(echo)
    bends = seed % 2 == 1
    odd, data = Odd(source, bends=bends), frames.PREFACE + frames.settings({})
    for _ in range(400):
        data += odd.frame()
        while data and not transport.is_closed and source.random() < 0.9:
            cut = source.choice([1, 9, 100, len(data)])
            connection.data_received(data[:cut])
            data = data[cut:]
        if source.random() < 0.3:
            await settle()
        assert len(connection.streams) <= MAX_STREAMS and connection.handlers.running <= MAX_STREAMS
        assert sum(len(stream.body) for stream in connection.streams.values()) <= MAX_STREAMS * RECEIVE_BYTES
        if transport.is_closed:
            break
    await settle()
    answers = received(transport)
    # A bent byte may have asked for longer ones.
    check_answer(answers, frames.LARGEST_LIMIT if bends else 20_000)
    # Faults in a stream are no faults of the connection.
    assert bends or (not transport.is_closed and sum(kind == frames.HEADERS for kind, *_ in answers) > 20)
    connection.connection_lost(None)
    for _ in range(50):
        await settle()
    assert not connection.handlers.running and not connection._state.tasks, "nobody waits for a client that is gone"
    assert not caplog.records, caplog.text


@pytest.mark.parametrize("seed", [*range(60), 63430414164475, 82378029810143])
async def test_random_frames_are_answered_without_error_log(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    await run_of(seed, caplog)


@pytest.mark.nightly
async def test_random_frames_are_answered_without_error_log_in_long_run(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    end = time.monotonic() + float(os.environ.get("HARU_FUZZ_SECONDS", "600"))
    while time.monotonic() < end:
        seed = secrets.randbits(48)
        try:
            await run_of(seed, caplog)
        except BaseException as error:
            error.add_note(f"the run of seed {seed}")
            raise


@pytest.mark.parametrize("seed", range(20))
async def test_request_bodies_are_echoed_with_any_window_sizes(seed: int) -> None:
    """Bodies of any length, in any order and any pieces, come back whole; windows are kept to on both sides."""
    source = random.Random(seed)
    connection, transport = connected(echo)
    encoder = hpack.Encoder()
    window = source.choice([1_000, 65_535, 300_000])
    connection.data_received(frames.PREFACE + frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: window}))
    bodies = {number: source.choice([0, 1, 5_000, 250_000]) for number in range(1, 41, 2)}
    left, rooms = dict(bodies), dict.fromkeys(bodies, RECEIVE_BYTES)
    for number, size in bodies.items():
        fields = [(":method", "POST"), (":scheme", "https"), (":path", "/")]
        fields += [("content-length", str(size))] if source.random() < 0.5 else []
        connection.data_received(frame(frames.HEADERS, frames.END_HEADERS, number, encoder.encode(fields)))
    opened, taken = dict.fromkeys(bodies, window), dict.fromkeys(bodies, 0)
    seen, room, ended = 0, frames.WINDOW, set[int]()
    for _ in range(5_000):
        if len(ended) == len(bodies):
            break
        unsent = [number for number in left if rooms[number] > 0 or not left[number]]
        if unsent:
            number = source.choice(unsent)
            size = min(left[number], rooms[number], source.choice([10, 20_000, 200_000]))
            left[number], rooms[number] = left[number] - size, rooms[number] - size
            flags = 0 if left[number] else frames.END_STREAM
            connection.data_received(frame(frames.DATA, flags, number, bytes(size)))
            if not left[number]:
                del left[number]
        await settle()
        answers = received(transport)
        for kind, flags, number, payload in answers[seen:]:
            if kind == frames.WINDOW_UPDATE and number:
                rooms[number] += int.from_bytes(payload, "big")
            if kind == frames.DATA:
                room, opened[number] = room - len(payload), opened[number] - len(payload)
                assert room >= 0 and opened[number] >= 0
                taken[number] += len(payload)
                if flags & frames.END_STREAM:
                    ended.add(number)
        seen = len(answers)
        for number in bodies:
            if number not in ended and opened[number] < window // 2:
                more = source.choice([1, window])
                opened[number] += more
                connection.data_received(number_frame(frames.WINDOW_UPDATE, number, more))
        if room < 30_000:
            room += 40_000
            connection.data_received(number_frame(frames.WINDOW_UPDATE, 0, 40_000))
    assert taken == bodies and not connection.streams
    connection.connection_lost(None)


async def never(scope: Any, receive: Any, send: Any) -> None:
    """Reads nothing and says nothing."""
    await asyncio.Event().wait()


async def test_body_beyond_window_resets_stream() -> None:
    connection, transport = connected(never)
    block = hpack.Encoder().encode([(":method", "POST"), (":scheme", "https"), (":path", "/")])
    connection.data_received(frames.PREFACE + frames.settings({}) + frame(frames.HEADERS, frames.END_HEADERS, 1, block))
    await settle()
    for _ in range(4):
        connection.data_received(frame(frames.DATA, 0, 1, bytes(100_000)))
    await settle()
    reset = [(number, payload) for kind, _, number, payload in received(transport) if kind == frames.RST_STREAM]
    assert reset == [(1, int(ErrorCode.FLOW_CONTROL_ERROR).to_bytes(4, "big"))]
    connection.connection_lost(None)


async def test_last_stream_of_goaway_does_not_grow() -> None:
    """What came after the first GOAWAY may have been sent again elsewhere (RFC 9113, 6.8)."""
    connection, transport = connected(never)
    block = hpack.Encoder().encode([(":method", "GET"), (":scheme", "https"), (":path", "/")])
    connection.data_received(frames.PREFACE + frames.settings({}) + frame(frames.HEADERS, ENDS, 1, block))
    await settle()
    connection.shutdown()
    connection.data_received(frame(frames.HEADERS, ENDS, 3, block) + frame(frames.PING, 0, 0, bytes(7)))
    await settle()
    told = [payload[:8] for kind, _, _, payload in received(transport) if kind == frames.GOAWAY]
    assert [int.from_bytes(payload[:4], "big") for payload in told] == [1, 1] and transport.is_closed
    connection.connection_lost(None)


async def test_unread_replies_close_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_writer, "UNREAD_BYTES", 1000)
    connection, transport = connected(never)
    connection.data_received(frames.PREFACE + frames.settings({}))
    await settle()
    transport.is_paused = True
    connection.pause_writing()
    for _ in range(100):
        if transport.is_closed:
            break
        connection.data_received(frame(frames.PING, 0, 0, bytes(8)))
        await settle()
    assert transport.is_closed and len(transport.sent) < 3000


@pytest.mark.parametrize(("opened", "is_reset"), [(1, True), (200, False)])
def test_response_taken_byte_by_byte_is_reset(opened: int, is_reset: bool) -> None:
    """A window update every second: after a minute the client must have taken a few thousand bytes."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(30_000)})

    async def run() -> None:
        connection, transport = connected(answer)
        block = hpack.Encoder().encode([(":method", "GET"), (":scheme", "https"), (":path", "/")])
        narrow = frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 0})
        connection.data_received(frames.PREFACE + narrow + frame(frames.HEADERS, ENDS, 1, block))
        for _ in range(120):
            await asyncio.sleep(1)
            connection.data_received(number_frame(frames.WINDOW_UPDATE, 1, opened))
        resets = [number for kind, _, number, _ in received(transport) if kind == frames.RST_STREAM]
        assert resets == ([1] if is_reset else []) and not transport.is_closed
        connection.connection_lost(None)
        await settle()

    run_virtual(run())


async def test_streams_take_turns_when_the_socket_is_slow() -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(8 * BATCH_BYTES)})

    connection, transport = connected(answer)
    wide = frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: frames.LARGEST_WINDOW})
    opened = number_frame(frames.WINDOW_UPDATE, 0, frames.LARGEST_WINDOW - frames.WINDOW)
    connection.data_received(frames.PREFACE + wide + opened)
    encoder = hpack.Encoder()
    for number in (1, 3, 5, 7):
        block = encoder.encode([(":method", "GET"), (":scheme", "https"), (":path", "/")])
        connection.data_received(frame(frames.HEADERS, ENDS, number, block))
    connection.pause_writing()
    await settle()
    transport.after_write = connection.pause_writing
    for _ in range(8):
        connection.resume_writing()
        await settle()
    got = dict.fromkeys((1, 3, 5, 7), 0)
    for kind, _, number, payload in received(transport):
        got[number] = got.get(number, 0) + (len(payload) if kind == frames.DATA else 0)
    assert max(got[number] for number in (1, 3, 5, 7)) <= 2 * min(got[number] for number in (1, 3, 5, 7)) > 0
    connection.connection_lost(None)


async def test_data_after_connection_error_is_not_buffered() -> None:
    connection, transport = connected(never)
    for data in (b"GET / HTTP/1.1\r\n\r\n", *[bytes(100_000)] * 20):
        connection.data_received(data)
    assert transport.is_closed and len(connection._reader._rest) < 100
    connection.connection_lost(None)


async def test_application_exception_resets_stream_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/late":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"short"})
        raise ValueError("it failed")

    connection, transport = connected(failing)
    encoder = hpack.Encoder()
    connection.data_received(frames.PREFACE + frames.settings({}))
    for number, path in ((1, "/soon"), (3, "/late")):
        block = encoder.encode([(":method", "GET"), (":scheme", "https"), (":path", path)])
        connection.data_received(frame(frames.HEADERS, ENDS, number, block))
    await settle()
    found = {(kind, number): payload for kind, _, number, payload in received(transport)}
    assert dict(hpack.Decoder().decode(found[frames.HEADERS, 1]))[":status"] == "500"
    assert found[frames.DATA, 1] == b"Internal Server Error"
    assert found[frames.RST_STREAM, 3] == int(ErrorCode.INTERNAL_ERROR).to_bytes(4, "big")
    assert "it failed" in caplog.text and "another length" in caplog.text
    connection.connection_lost(None)
