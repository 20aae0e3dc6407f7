"""Load on an HTTP server, from a process of its own: raw HTTP over TLS, as little work of our own as possible.

    python -m benchmarks.http_load < JOB

JOB is JSON: `host`, `port`, `ca` and `token`, and `job`: `rate` (`requests` of `method`, `path` and `body`, on
`connections` at once; `{n}` is the number of the request) or `watch` (`watchers` of `path`, each until it has seen
`events` lines) or `large` (`requests` of `path` one after the other on one connection, read into the same place in
memory by a socket that waits: a reader that costs less than what it reads). With `streams` all of them go over HTTP/2,
where so many requests share a connection: `connections` times as many at once, and watchers by as many on each. The
answer is JSON too: `seconds`, and the slowest request, the time of each watcher's last line, or the seconds and the
bytes of each request.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.http2_load import Answers, Client, Opener, ServerError, open_waiting, read_whole

Job = dict[str, Any]


def _context(job: Job) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=job["ca"])
    context.check_hostname = False
    return context


def _head(job: Job, method: str, path: str, body: bytes) -> bytes:
    kind = "application/json" if method == "POST" else "application/merge-patch+json"
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {job['host']}:{job['port']}",
        f"Authorization: Bearer {job['token']}",
        "Accept: application/json",
        f"Accept-Encoding: {job.get('encoding', 'identity')}",
    ]
    if body:
        lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _answer(reader: asyncio.StreamReader) -> int:
    """Read one answer; the length of its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    body = await reader.readexactly(length)
    if not 200 <= status < 300:
        raise ServerError(f"{status}: {body[:500]!r}")
    return length


async def _rate(job: Job) -> Job:
    body, path = job.get("body", ""), job["path"]
    numbers = iter(range(job.get("first", 0), job.get("first", 0) + job["requests"]))
    slowest, taken = 0.0, 0

    async def over_http2() -> None:
        client = await Client.connect(job, _context(job))

        async def ask() -> None:
            nonlocal slowest, taken
            for number in numbers:
                text = str(number)
                began = time.perf_counter()
                sent = body.replace("{n}", text).encode()
                taken += await client.ask(job["method"], path.replace("{n}", text), sent)
                slowest = max(slowest, time.perf_counter() - began)

        await asyncio.gather(*(ask() for _ in range(job["streams"])))
        client.transport.close()

    async def work() -> None:
        nonlocal slowest, taken
        reader, writer = await asyncio.open_connection(job["host"], job["port"], ssl=_context(job), limit=1 << 24)
        for number in numbers:
            text = str(number)
            began = time.perf_counter()
            writer.write(_head(job, job["method"], path.replace("{n}", text), body.replace("{n}", text).encode()))
            taken += await _answer(reader)
            slowest = max(slowest, time.perf_counter() - began)
        writer.close()

    began, used = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(job["connections"]):
            group.create_task(over_http2() if job.get("streams") else work())
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "slowest": slowest, "bytes": taken, "cpu": time.process_time() - used}


class _Follower(asyncio.BufferedProtocol):
    """A watcher: what comes is read into one place and its lines are counted, nothing more."""

    def __init__(self, request: bytes, events: int, listening: Callable[[], None], room: bytearray) -> None:
        self._request, self._left, self._listening, self._room = request, events, listening, room
        self._head: bytes | None = b""  # what has come of it; None once it was whole
        self._split = False  # whether the last byte may be the first one of a line's end
        self.done: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        """When the last event came."""

    def connection_made(self, transport: Any) -> None:
        """Ask."""
        transport.write(self._request)

    def get_buffer(self, sizehint: int) -> bytearray:
        """The same place for all watchers: nothing stays there."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Count the ends of lines; one may lie across two reads."""
        room, begin = self._room, 0
        if self._head is not None:
            self._head += room[:nbytes]
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            if b" 200 " not in self._head[:16]:
                self.done.set_exception(ServerError(self._head.decode()))
                return
            begin, self._head = nbytes - (len(self._head) - end - 4), None
            self._listening()
        self._left -= room.count(b"}\n", begin, nbytes) + (self._split and begin < nbytes and room[begin] == 10)
        self._split = nbytes > begin and room[nbytes - 1] == 125
        if self._left <= 0 and not self.done.done():
            self.done.set_result(time.time())

    def connection_lost(self, exc: Exception | None) -> None:
        """The server must not end it."""
        if not self.done.done():
            self.done.set_exception(ServerError(f"a watcher was cut off {self._left} events before the end"))


async def _watch(job: Job) -> Job:
    """Each watcher counts lines until it has seen them all; `ready` is printed when all of them listen."""
    loop, context, listening = asyncio.get_running_loop(), _context(job), 0
    room, request = bytearray(1 << 18), _head(job, "GET", job["path"], b"")

    def listens() -> None:
        nonlocal listening
        listening += 1
        if listening == job["watchers"]:
            print("ready", flush=True)

    if job.get("streams"):
        return await _watch_over_http2(job, listens)
    followers = []
    for _ in range(job["watchers"]):
        _, follower = await loop.create_connection(
            lambda: _Follower(request, job["events"], listens, room), job["host"], job["port"], ssl=context
        )
        followers.append(follower)
    last = await asyncio.gather(*(follower.done for follower in followers))
    return {"last": max(last), "first": min(last)}


async def _watch_over_http2(job: Job, listens: Callable[[], None]) -> Job:
    """The same with many watchers on a connection."""
    done: list[asyncio.Future[float]] = []

    def follower() -> Callable[[bytes], None]:
        """Counts the lines of one watcher: the first call says that it listens."""
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        done.append(future)
        left: int | None = None

        def take(data: bytes) -> None:
            nonlocal left
            if left is None:
                left = job["events"]
                listens()
            left -= data.count(b"}\n")
            if left <= 0 and not future.done():
                future.set_result(time.time())

        return take

    for begin in range(0, job["watchers"], job["streams"]):
        client = await Client.connect(job, _context(job))
        for _ in range(min(job["streams"], job["watchers"] - begin)):
            client.follow(job["path"], follower())
    last = await asyncio.gather(*done)
    return {"last": max(last), "first": min(last)}


def _large_over_http2(job: Job) -> Job:
    seconds, answers, opener = [], Answers(), Opener(job)
    with open_waiting(job, _context(job)) as connection:
        for _ in range(job["requests"]):
            began = time.perf_counter()
            connection.sendall(opener.request("GET", job["path"])[1])
            length = read_whole(connection, answers)
            seconds.append(time.perf_counter() - began)
    return {"seconds": seconds, "bytes": length}


def _large(job: Job) -> Job:
    if job.get("streams"):
        return _large_over_http2(job)
    seconds, head = [], _head(job, "GET", job["path"], b"")
    room = memoryview(bytearray(1 << 20))
    with socket.create_connection((job["host"], job["port"])) as plain, _context(job).wrap_socket(plain) as connection:
        for _ in range(job["requests"]):
            began = time.perf_counter()
            connection.sendall(head)
            got = connection.recv_into(room)
            while (end := bytes(room[:got]).find(b"\r\n\r\n")) < 0:
                got += connection.recv_into(room[got:])
            length = int(bytes(room[:end]).lower().split(b"content-length:")[1].split(b"\r\n")[0])
            if bytes(room[9:12]) != b"200":
                raise ServerError(bytes(room[:got]).decode())
            missing = end + 4 + length - got
            while missing:
                if not (got := connection.recv_into(room, min(missing, len(room)))):
                    raise ServerError(f"cut off {missing} bytes before the end")
                missing -= got
            seconds.append(time.perf_counter() - began)
    return {"seconds": seconds, "bytes": length}


def main() -> None:
    """Does the job of stdin."""
    import uvloop

    job: Job = json.loads(sys.stdin.readline())
    if job["job"] == "large":
        print(json.dumps(_large(job)))
        return
    work = _rate if job["job"] == "rate" else _watch
    print(json.dumps(uvloop.run(work(job))))


if __name__ == "__main__":
    main()
