"""A container's log as it is shown: its lines, its end, what is written while somebody follows, a rotated file."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubelet_pieces import kubelet

from haru.node.api.handlers import log_options
from haru.node.api.log_files import PIECE_BYTES, read_log, tail_start
from haru.node.api.log_lines import LogLine, parse
from haru.node.api.runtime_streams import without_log
from haru.node.api.sources import LogOptions
from haru.secure_serving.http import HttpError, Request
from waiting import until

Obj = dict[str, Any]

SECONDS = [f"2026-01-02T03:04:0{n}.{n}00000000Z" for n in range(6)]
LINES = [f"{time} {'stderr' if n == 3 else 'stdout'} F line {n}\n".encode() for n, time in enumerate(SECONDS)]


async def ended() -> bool:
    return False


async def all_of(path: Path, options: LogOptions) -> bytes:
    return b"".join([piece async for piece in read_log(path, options, ended)])


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"2026-01-02T03:04:05.123456789Z stdout F a b\n", b"a b\n"),
        (b"2026-01-02T03:04:05.123456789Z stderr P part\n", b"part"),
        (b"2026-01-02T03:04:05.1+02:00 stdout F:more \n", b"\n"),
        (b"2026-01-02T03:04:05Z stdout F\n", b"\n"),
        (b"2026-01-02T03:04:05Z stdin F x\n", None),
        (b"nonsense\n", None),
        (b"", None),
    ],
)
def test_cri_log_lines_are_parsed(line: bytes, text: bytes | None) -> None:
    found = parse(line)
    assert (found.text if found else None) == text
    assert found is None or isinstance(found, LogLine)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (LogOptions(), b"line 0\nline 1\nline 2\nline 3\nline 4\nline 5\n"),
        (LogOptions(tail_lines=2), b"line 4\nline 5\n"),
        (LogOptions(tail_lines=0), b""),
        (LogOptions(tail_lines=99), b"line 0\nline 1\nline 2\nline 3\nline 4\nline 5\n"),
        (LogOptions(limit_bytes=10), b"line 0\nlin"),
        (LogOptions(limit_bytes=7), b"line 0\n"),
        (LogOptions(tail_lines=1, timestamps=True), SECONDS[5].encode() + b" line 5\n"),
        (LogOptions(tail_lines=1, timestamps=True, limit_bytes=5), b"2026-"),
        (LogOptions(since=datetime(2026, 1, 2, 3, 4, 4, tzinfo=UTC)), b"line 4\nline 5\n"),
        (LogOptions(since=datetime(2026, 1, 2, 3, 4, 4, 400000, tzinfo=UTC)), b"line 4\nline 5\n"),
        (LogOptions(since=datetime(2026, 1, 2, 3, 4, 4, 400001, tzinfo=UTC)), b"line 5\n"),
        (LogOptions(since=datetime(2027, 1, 1, tzinfo=UTC)), b""),
        (LogOptions(stream="Stderr"), b"line 3\n"),
        (LogOptions(stream="Stdout", limit_bytes=14), b"line 0\nline 1\n"),
    ],
)
async def test_log_options_select_lines(tmp_path: Path, options: LogOptions, shown: bytes) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(b"".join(LINES))
    assert await all_of(log, options) == shown


async def test_partial_lines_are_joined_with_first_timestamp(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(f"{SECONDS[0]} stdout P ab\n{SECONDS[1]} stdout F cd\n{SECONDS[2]} stdout F e\n".encode())
    shown = await all_of(log, LogOptions(timestamps=True))
    assert shown == f"{SECONDS[0]} abcd\n{SECONDS[2]} e\n".encode()


async def test_large_log_and_unterminated_last_line_are_read(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    line = f"{SECONDS[0]} stdout F {'x' * 1000}\n".encode()
    log.write_bytes(line * 500 + f"{SECONDS[1]} stdout F last".encode())
    shown = await all_of(log, LogOptions())
    assert shown == (b"x" * 1000 + b"\n") * 500 + b"last\n"
    assert await all_of(log, LogOptions(tail_lines=100)) == (b"x" * 1000 + b"\n") * 99 + b"last\n"
    assert len(line) * 500 > 5 * PIECE_BYTES


@pytest.mark.parametrize("lines", [0, 1, 2, 5, 6, 7, 1000])
@pytest.mark.parametrize("size", [1, 40, PIECE_BYTES // 3, PIECE_BYTES - 1, PIECE_BYTES])
@pytest.mark.parametrize("ends", [True, False])
def test_tail_start_finds_last_lines(lines: int, size: int, ends: bool) -> None:
    data = b"\n".join(b"%d" % n * size for n in range(6)) + (b"\n" if ends else b"")
    start = tail_start(io.BytesIO(data), lines)
    whole = data.splitlines(keepends=True)
    assert data[start:] == b"".join(whole[-lines:] if lines else [])


def test_tail_of_empty_file_starts_at_zero() -> None:
    assert tail_start(io.BytesIO(b""), 5) == 0


class Follower:
    """Somebody who follows a log; `heard` grows."""

    def __init__(self, path: Path, options: LogOptions) -> None:
        self.heard = b""
        self.running = True
        self.looks = 0
        self._pieces: AsyncGenerator[bytes, None] = read_log(path, options, self._is_running, self._sleep)
        self.task = asyncio.create_task(self._follow())

    async def _is_running(self) -> bool:
        return self.running

    async def _sleep(self, seconds: float) -> None:
        self.looks += 1
        await asyncio.sleep(seconds / 20)

    async def _follow(self) -> None:
        async for piece in self._pieces:
            self.heard += piece

    async def hears(self, text: bytes) -> None:
        async def heard() -> bool:
            return self.heard == text

        try:
            await until(heard)
        except TimeoutError:
            raise AssertionError(f"heard {self.heard!r}, not {text!r}") from None


def add(log: Path, *lines: bytes) -> None:
    with log.open("ab") as file:
        file.writelines(lines)


async def test_follow_delivers_appended_lines(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(LINES[0])
    follower = Follower(log, LogOptions(follow=True))
    await follower.hears(b"line 0\n")
    add(log, LINES[1], LINES[2][:20])  # in the midst of a line
    await follower.hears(b"line 0\nline 1\n")
    add(log, LINES[2][20:])
    await follower.hears(b"line 0\nline 1\nline 2\n")
    add(log, LINES[3])
    follower.running = False
    await asyncio.wait_for(follower.task, 30)
    assert follower.heard == b"line 0\nline 1\nline 2\nline 3\n"


async def test_lines_written_before_container_end_are_delivered(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(b"")

    async def ends() -> bool:
        # The container writes and ends between the last look at its log and the question.
        if not log.stat().st_size:
            add(log, LINES[0])
        return False

    pieces = [piece async for piece in read_log(log, LogOptions(follow=True), ends)]
    assert pieces == [b"line 0\n"]


async def test_follow_continues_across_rotation(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(LINES[0])
    follower = Follower(log, LogOptions(follow=True))
    await follower.hears(b"line 0\n")
    log.rename(tmp_path / "0.log.1")
    add(tmp_path / "0.log.1", LINES[1])  # the runtime still writes there
    await follower.hears(b"line 0\nline 1\n")
    add(tmp_path / "0.log.1", LINES[2])
    log.write_bytes(LINES[3])
    await follower.hears(b"line 0\nline 1\nline 2\nline 3\n")
    log.write_bytes(b"")  # cut short in place

    looks = follower.looks

    async def has_looked() -> bool:
        return follower.looks >= looks + 2

    await until(has_looked)
    add(log, LINES[4])
    await follower.hears(b"line 0\nline 1\nline 2\nline 3\nline 4\n")
    follower.running = False
    await asyncio.wait_for(follower.task, 30)


async def test_follow_stops_at_byte_limit(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(LINES[0])
    follower = Follower(log, LogOptions(follow=True, limit_bytes=10))
    await follower.hears(b"line 0\n")
    add(log, LINES[1])
    await asyncio.wait_for(follower.task, 30)
    assert follower.heard == b"line 0\nlin"


def options_of(query: str) -> LogOptions:
    async def receive() -> dict[str, object]:
        return {}

    request = Request({"method": "GET", "path": "/", "headers": [], "query_string": query.encode()}, receive)
    return log_options(request, datetime(2026, 1, 2, tzinfo=UTC))


def test_log_query_is_parsed() -> None:
    assert options_of("") == LogOptions()
    assert options_of("follow=true&previous=1&timestamps=T&tailLines=3&limitBytes=9") == LogOptions(
        True, True, True, None, 3, 9
    )
    assert options_of("sinceSeconds=60").since == datetime(2026, 1, 1, 23, 59, tzinfo=UTC)
    assert options_of("sinceTime=2026-01-01T00:00:00Z").since == datetime(2026, 1, 1, tzinfo=UTC)
    assert options_of("sinceSeconds=9223372036854775807").since is None


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("tailLines=-1", 422, "tailLines"),
        ("limitBytes=0", 422, "limitBytes"),
        ("sinceSeconds=0", 422, "sinceSeconds"),
        ("sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", 422, "sinceTime"),
        ("sinceTime=yesterday", 400, "sinceTime"),
        ("tailLines=many", 400, "tailLines"),
        ("tailLines=" + "9" * 30, 400, "tailLines"),
        ("follow=maybe", 400, "follow"),
        ("stream=Both", 422, "stream"),
        ("stream=Stdout&tailLines=1", 422, "tailLines"),
    ],
)
def test_invalid_log_query_is_refused(query: str, status: int, field: str) -> None:
    with pytest.raises(HttpError, match=field) as found:
        options_of(query)
    assert found.value.status == status


async def test_logs_are_served_over_http(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as node, node.session() as session:
        headers = node.grant("root", ("get", "proxy"))
        log = node.source.log("main")
        log.write_bytes(b"".join(LINES[:2]))
        path = "/containerLogs/default/web/"
        async with session.get(path + "main?tailLines=1", headers=headers) as answer:
            assert (answer.status, await answer.read()) == (200, b"line 1\n")
        for query, status in (("side", 400), ("none", 404), ("main?tailLines=-1", 422), ("", 404)):
            async with session.get(path + query, headers=headers) as answer:
                assert answer.status == status
        async with session.get(path + "main?follow=true&tailLines=1", headers=headers) as answer:
            assert await answer.content.readexactly(7) == b"line 1\n"
            add(log, LINES[2])
            assert await answer.content.readexactly(7) == b"line 2\n"
            node.source.running_now = False
            assert await asyncio.wait_for(answer.content.read(), 30) == b""


async def test_follower_that_disconnects_is_released(tmp_path: Path) -> None:
    async with kubelet(tmp_path) as node:
        headers = node.grant("root", ("get", "proxy"))
        node.source.log("main").write_bytes(LINES[0])
        streams = node.server._app._streams
        async with node.session() as session:
            answer = await session.get("/containerLogs/default/web/main?follow=true", headers=headers)
            assert await answer.content.readexactly(7) == b"line 0\n"
            assert len(streams) == 1
            answer.close()

            async def nobody_left() -> bool:
                return not streams

            await until(nobody_left)


@pytest.mark.parametrize(
    ("state", "last", "said"),
    [
        ({"waiting": {"reason": "CreateContainerConfigError"}}, {}, "waiting to start: CreateContainerConfigError"),
        ({"waiting": {"reason": "ErrImagePull"}}, {}, "waiting to start: image can't be pulled"),
        ({"waiting": {"reason": "ImagePullBackOff"}}, {}, "waiting to start: trying and failing to pull image"),
        ({"terminated": {"reason": "ContainerStatusUnknown"}}, {}, "terminated"),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": {"exitCode": 137}}, "terminated"),
    ],
)
def test_container_without_a_log_is_what_its_status_says(state: Obj, last: Obj, said: str) -> None:
    status = {"containerStatuses": [{"name": "main", "state": state, "lastState": last}]}
    assert without_log({"status": status}, "main") == said
    assert without_log({"status": status}, "other") == without_log({}, "main") == "not available"
