"""Writes over one HTTP/2 connection: what python-hyper's `h2` and raw frames answer, and what goes another way."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import hpack
import pytest
from h2.settings import SettingCodes
from http2_peer import BODY, Peer, serving
from hypothesis import given
from hypothesis import strategies as st
from left_over import left_to_a_collection

from haru.client.exchange import Exchange
from haru.client.http import tls_context
from haru.client.http2_connection import BlockHeaders, Http2Connection, NotTakenError, status_of
from haru.client.transport import Request, RequestHead
from haru.http2 import frames
from haru.http2.headers import response_block

OK = Request("POST", "/ok", body=b"{}")


class _Tls:
    def selected_alpn_protocol(self) -> str:
        return "h2"


class _Written:
    """A transport that remembers what its user did."""

    def __init__(self) -> None:
        self.sent, self.aborted, self.closing = b"", False, False

    def get_extra_info(self, name: str) -> object:
        return _Tls() if name == "ssl_object" else None

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.aborted = self.closing = True


def _connection() -> tuple[Http2Connection, _Written]:
    connection, transport = Http2Connection("localhost:6443", asyncio.get_running_loop()), _Written()
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


def _started(connection: Http2Connection, *requests: Request) -> list[Exchange]:
    exchanges = [Exchange(request, whole=True) for request in requests]
    for exchange in exchanges:
        connection.start(exchange, exchange.request.target())
    return exchanges


def _answer(number: int, status: int = 200, body: bytes = BODY) -> bytes:
    """A complete answer as Haru's own server writes it."""
    head = frames.frame(frames.HEADERS, frames.END_HEADERS, number, response_block(status, [(b"audit-id", b"1")]))
    return head + frames.frame(frames.DATA, frames.END_STREAM, number, body)


SETTINGS = frames.settings({})


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(0, 200))
def test_answers_cut_anywhere_are_the_same(cuts: list[int], size: int) -> None:
    async def run() -> None:
        connection, transport = _connection()
        bodies = [b"y" * size, b"", b"{}"]
        exchanges = _started(connection, *[Request("PUT", "/ok?a b", body=body) for body in bodies])
        await asyncio.sleep(0)
        peer = Peer()
        peer.take(transport.sent)
        answer, position, before = peer.h2.data_to_send(), 0, time.monotonic()
        for cut in [*cuts, len(answer)]:
            if part := answer[position : position + cut]:
                connection.data_received(part)
            position += cut
        assert [await exchange.body() for exchange in exchanges] == [BODY + body for body in bodies]
        assert [exchange.status for exchange in exchanges] == [201] * 3
        assert exchanges[0].headers["content-type"] == "application/json"
        assert dict(exchanges[0].headers) == {"content-type": "application/json"}
        assert connection.is_usable(before)

    asyncio.run(run())


async def test_request_has_its_path_headers_and_length() -> None:
    connection, transport = _connection()
    headers = RequestHead({"Accept": "application/json", "authorization": "Bearer " + "t" * 900})
    requests = [Request(method, "/api/v1/a b", [("x", "1 2")], headers, b"{}") for method in ("POST", "PATCH")]
    _started(connection, *requests, Request("DELETE", "/x", headers={"a": "b"}))
    await asyncio.sleep(0)
    peer = Peer()
    peer.take(transport.sent)
    assert peer.headers[3] == {
        ":method": "PATCH",
        ":scheme": "https",
        ":authority": "localhost:6443",
        ":path": "/api/v1/a%20b?x=1%202",
        "accept": "application/json",
        "authorization": "Bearer " + "t" * 900,
        "content-length": "2",
    }
    assert peer.headers[1] == {**peer.headers[3], ":method": "POST"}
    assert peer.headers[5][":method"] == "DELETE" and peer.headers[5]["a"] == "b"
    assert peer.bodies == {1: b"{}", 3: b"{}", 5: b""}


async def test_header_of_several_lines_is_refused_and_leaves_no_stream() -> None:
    connection, transport = _connection()
    before = transport.sent
    with pytest.raises(ValueError, match="x-name has several lines"):
        _started(connection, Request("POST", "/", headers={"x-name": "a\r\nb: c"}))
    await asyncio.sleep(0)
    assert transport.sent == before
    (exchange,) = _started(connection, OK)
    connection.data_received(SETTINGS + _answer(1))
    assert await exchange.body() == BODY


async def test_requests_of_one_turn_are_one_write() -> None:
    connection, transport = _connection()
    writes: list[bytes] = []
    transport.write = writes.append  # type: ignore[method-assign]
    _started(connection, *[OK] * 10)
    await asyncio.sleep(0)
    assert len(writes) == 1


@pytest.mark.parametrize("status", [200, 201, 202, 299, 404, 409, 422, 429, 500, 503])
def test_status_is_read_however_it_is_compressed(status: int) -> None:
    fields = [(":status", str(status)), ("retry-after", "2")]
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    for huffman in (True, False):
        block = encoder.encode(fields, huffman=huffman)
        assert status_of(block) == status
        assert dict(BlockHeaders(block)) == {"retry-after": "2"}
    assert status_of(response_block(status, [(b"retry-after", b"2")])) == status


def test_status_that_was_read_once_is_not_decompressed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [
        bytes.fromhex("200e821003") + b"\x00\x01a\x01b",
        bytes.fromhex("0e821003") + b"\x00\x01a\x01c",
    ]  # as in Go
    assert status_of(blocks[0]) == 201
    monkeypatch.setattr(hpack.Decoder, "decode", None)
    assert status_of(blocks[1]) == 201
    assert status_of(response_block(200, [])) == 200


@pytest.mark.parametrize("block", [b"", b"\x20", b"\x08", b"\xbe", b"\x08\x02xy", b"\x82", b"\xff\xff\xff\xff\xff\xff"])
async def test_answer_without_a_status_is_a_connection_error(block: bytes) -> None:
    connection, _ = _connection()
    bad, good = _started(connection, OK, OK)
    connection.data_received(SETTINGS + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block) + _answer(3))
    with pytest.raises(ConnectionError, match="POST /ok: "):
        await bad.body()
    assert await good.body() == BODY


async def test_body_without_headers_is_a_connection_error() -> None:
    connection, _ = _connection()
    (exchange,) = _started(connection, OK)
    connection.data_received(SETTINGS + frames.frame(frames.DATA, frames.END_STREAM, 1, BODY))
    with pytest.raises(ConnectionError, match="without a status"):
        await exchange.body()


async def test_padding_continuations_early_answers_trailers_and_unknown_frames_are_understood() -> None:
    connection, _ = _connection()
    (exchange,) = _started(connection, OK)
    block = response_block(201, [(b"warning", b"w" * 50)])
    connection.data_received(
        SETTINGS
        + frames.frame(77, 0xFF, 5, b"?")
        + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\x08\x03100")
        + frames.frame(frames.HEADERS, frames.PADDED, 1, b"\x03" + block[:7] + b"\0\0\0")
        + frames.frame(frames.CONTINUATION, 0, 1, block[7:30])
        + frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[30:])
        + frames.frame(frames.DATA, frames.PADDED, 1, b"\x04" + BODY + b"\0" * 4)
        + frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, b"\x00\x01a\x01b")
    )
    assert await exchange.body() == BODY
    assert exchange.status == 201 and exchange.headers["warning"] == "w" * 50


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3,
        frames.frame(frames.PUSH_PROMISE, frames.END_HEADERS, 1, b"\0\0\0\2"),
        frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, b""),
        frames.frame(frames.HEADERS, 0, 1, b"\x88") + _answer(1),
        frames.frame(frames.DATA, frames.PADDED, 1, b"\x09abc"),
        frames.frame(frames.WINDOW_UPDATE, 0, 0, b"\0"),
        frames.frame(frames.GOAWAY, 0, 0, b"\0"),
        frames.frame(frames.RST_STREAM, 0, 1, b""),
        frames.frame(frames.SETTINGS, 0, 0, b"abc"),
    ],
)
async def test_answer_that_is_not_http2_ends_all_requests_and_the_connection(answer: bytes) -> None:
    connection, transport = _connection()
    exchanges = _started(connection, OK, OK)
    connection.data_received(answer)
    for exchange in exchanges:
        with pytest.raises(ConnectionError, match="POST /ok: the answer is not HTTP/2"):
            await exchange.body()
    assert transport.aborted and not connection.is_usable(time.monotonic())


async def test_pings_and_settings_are_acknowledged() -> None:
    connection, transport = _connection()
    before = len(transport.sent)
    connection.data_received(SETTINGS + frames.frame(frames.PING, 0, 0, b"12345678"))
    connection.data_received(frames.frame(frames.PING, frames.ACK, 0, b"12345678"))
    connection.data_received(frames.frame(frames.SETTINGS, frames.ACK, 0))
    await asyncio.sleep(0)
    assert transport.sent[before:] == frames.frame(frames.SETTINGS, frames.ACK, 0) + frames.frame(
        frames.PING, frames.ACK, 0, b"12345678"
    )


async def test_only_what_the_server_takes_at_once_has_room() -> None:
    connection, _ = _connection()
    assert connection.has_room(1 << 14) and not connection.has_room((1 << 14) + 1)
    limits = {frames.Setting.MAX_FRAME_SIZE: 1 << 20, frames.Setting.INITIAL_WINDOW_SIZE: 40_000}
    connection.data_received(frames.settings({**limits, frames.Setting.MAX_CONCURRENT_STREAMS: 2}))
    assert connection.has_room(40_000) and not connection.has_room(40_001)
    _started(connection, Request("PUT", "/x", body=b"x" * 40_000))
    assert connection.has_room(25_535) and not connection.has_room(25_536)
    connection.data_received(frames.number_frame(frames.WINDOW_UPDATE, 1, 10_000))
    assert not connection.has_room(25_536)
    connection.data_received(frames.number_frame(frames.WINDOW_UPDATE, 0, 10_000))
    assert connection.has_room(35_535) and not connection.has_room(35_536)
    _started(connection, OK)
    assert not connection.has_room(0)
    connection.data_received(_answer(3))
    assert connection.has_room(2)


async def test_goaway_gives_younger_requests_back_and_the_others_are_answered() -> None:
    connection, transport = _connection()
    old, young = _started(connection, OK, OK)
    connection.data_received(SETTINGS + frames.goaway(1, frames.ErrorCode.NO_ERROR, ""))
    with pytest.raises(NotTakenError):
        await young.body()
    assert not connection.is_usable(time.monotonic()) and not transport.closing
    connection.data_received(_answer(1))
    assert await old.body() == BODY
    assert transport.closing


@pytest.mark.parametrize(("error", "text"), [(None, "POST /ok: the server closed"), (ConnectionResetError("x"), "x")])
async def test_end_of_the_connection_ends_its_requests(error: OSError | None, text: str) -> None:
    connection, _ = _connection()
    exchanges = _started(connection, OK, OK)
    connection.data_received(SETTINGS + _answer(1)[:-3])
    connection.eof_received()
    connection.connection_lost(error)
    for exchange in exchanges:
        with pytest.raises(ConnectionError, match=text):
            await exchange.body()
    assert not connection.is_usable(time.monotonic())


# -- over sockets -----------------------------------------------------------------------------------------------------


async def test_writes_at_once_share_a_connection_and_reads_have_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, transport):
        bodies = [b"%d" % number for number in range(90)]
        answers = await asyncio.gather(*(transport.send(Request("POST", "/ok", body=b), 60) for b in bodies))
        assert [answer.body for answer in answers] == [BODY + body for body in bodies]
        assert (await transport.send(Request("GET", "/x"), 60)).body == b"1"
        assert len(server.peers) == 1 and server.over_http1 == ["GET /x"]


async def test_answers_longer_than_every_window_come_whole(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, transport):
        for size in (0, 1, 70_000, 3 << 20):
            assert (await transport.send(Request("PUT", f"/{size}", body=b"x"), 60)).body == b"x" * size


async def test_writes_go_over_another_connection_once_tls_settings_are_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, transport):
        first = await transport.send(OK, 60)
        await transport.use(tls_context(insecure=True), tls_context(insecure=True, http2=True))
        assert await transport.send(OK, 60) == first
        assert [server.paths(peer) for peer in range(len(server.peers))] == [["/ok"], ["/ok"]]


async def test_write_that_does_not_fit_goes_over_http1(tmp_path: Path) -> None:
    async with serving(tmp_path, settings={SettingCodes.MAX_CONCURRENT_STREAMS: 2}) as (server, transport):
        assert (await transport.send(OK, 60)).status == 201
        assert (await transport.send(Request("PUT", "/big", body=b"x" * 100_000), 60)).body == b"1"
        waiting = [asyncio.create_task(transport.send(Request("PUT", "/wait"), 60)) for _ in range(2)]
        await asyncio.sleep(0)
        assert (await transport.send(Request("PUT", "/third"), 60)).body == b"1"
        assert server.over_http1 == ["PUT /big", "PUT /third"]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_server_without_http2_is_asked_for_it_once(tmp_path: Path) -> None:
    async with serving(tmp_path, http2=False) as (server, transport):
        for _ in range(3):
            assert (await transport.send(OK, 60)).body == b"1"
        assert server.over_http1 == ["POST /ok"] * 3


@pytest.mark.parametrize("path", ["/refused", "/goaway"])
async def test_write_that_the_server_has_not_looked_at_goes_over_http1(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path) as (server, transport):
        assert (await transport.send(OK, 60)).status == 201
        assert (await transport.send(Request("POST", path, body=b"{}"), 60)).body == b"1"
        assert server.over_http1 == [f"POST {path}"]
        assert (await transport.send(OK, 60)).status == 201
        assert len(server.peers) == (1 if path == "/refused" else 2)


@pytest.mark.parametrize("path", ["/reset", "/cut"])
async def test_write_that_may_have_been_carried_out_is_not_repeated(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path) as (server, transport):
        with pytest.raises(ConnectionError, match=f"POST {path}: the server"):
            await transport.send(Request("POST", path, body=b"{}"), 60)
        assert (await transport.send(OK, 60)).status == 201
        assert server.over_http1 == []


async def test_write_without_an_answer_is_a_timeout_and_reset(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, transport):
        assert (await transport.send(OK, 60)).status == 201
        waiting = asyncio.create_task(transport.send(Request("PUT", "/wait"), 0.3))
        await asyncio.sleep(0.05)
        assert (await transport.send(OK, 60)).status == 201
        with pytest.raises(TimeoutError):
            await waiting
        assert (await transport.send(OK, 60)).status == 201
        # An answer came meanwhile: the connection is good.
        assert len(server.peers) == 1 and server.peers[0].resets == [3]


async def test_connection_on_which_nothing_came_for_a_whole_timeout_is_not_used_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, transport):
        assert (await transport.send(OK, 60)).status == 201
        with pytest.raises(TimeoutError):
            await transport.send(Request("PUT", "/wait"), 0.1)
        assert (await transport.send(OK, 60)).status == 201
        assert len(server.peers) == 2


async def test_cancelled_write_is_reset_and_leaves_the_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, transport):
        assert (await transport.send(OK, 60)).status == 201
        waiting = asyncio.create_task(transport.send(Request("PUT", "/wait"), 60))
        assert (await transport.send(OK, 60)).status == 201
        waiting.cancel()  # it was sent second
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await transport.send(OK, 60)).status == 201
        assert len(server.peers) == 1 and server.peers[0].resets == [5]


async def test_write_after_the_server_has_closed_its_connection_takes_another(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, transport):
        assert (await transport.send(OK, 60)).status == 201
        server.peers[0].transport.close()
        await asyncio.sleep(0.2)
        assert (await transport.send(OK, 60)).status == 201
        assert len(server.peers) == 2


async def test_server_that_is_not_there_is_an_os_error_for_all_who_ask(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, transport):
        pass
    outcomes = await asyncio.gather(*(transport.send(OK, 60) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(outcome, OSError) for outcome in outcomes)


async def test_first_writer_may_leave_while_the_connection_opens(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, transport):
        first, second = (asyncio.create_task(transport.send(OK, 60)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).status == 201
        assert len(server.peers) == 1
        with contextlib.suppress(asyncio.CancelledError):
            await first


async def test_writes_that_fail_need_no_garbage_collection(tmp_path: Path) -> None:
    async def asked(transport: Any) -> None:
        for path, seconds in (("/cut", 10), ("/reset", 10), ("/refused", 10), ("/wait", 0.05)):
            with contextlib.suppress(OSError):
                await transport.send(Request("POST", path, body=b"{}"), seconds)

    async with serving(tmp_path) as (_, transport):
        await asked(transport)
        with left_to_a_collection() as garbage:
            for _ in range(3):
                await asked(transport)
            await asyncio.sleep(0.05)
        assert [kind for kind in garbage if kind.startswith("haru.")] == []
