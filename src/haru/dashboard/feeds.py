"""Live pages: one rendering for all who look at the same page, sent to each as what differs from the last one.

A page that 200 people look at is made as often as for one. It is made again when the cluster has changed, at most every
0.7 seconds, and less often if that takes long; one in whose content `data-tail` stands every five seconds also while
nothing changes. Each viewer costs a write to its connection. Who does not read fast enough gets the whole page later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import orjson

from haru.cluster_view import ClusterWatch
from haru.dashboard.patches import content_of, splices
from haru.dashboard.signin.viewer import Viewer
from haru.event_loop import cancelled
from haru.serving import WRITE

PAUSE_SECONDS, SLOWEST_SECONDS, TAIL_SECONDS, LOOK_SECONDS = 0.7, 10.0, 5.0, 15.0
"""Pages whose content does not come from the cluster alone are made again after `LOOK_SECONDS`."""
HEARTBEAT_SECONDS = 40.0
"""Who was told nothing for so long is sent a comment: proxies cut connections that are silent for a minute."""
CHECK_SECONDS = 30.0
"""How often it is asked whether a person may still see what it sees."""
MOST_VIEWERS = 2000
LONGEST_SECONDS = 0.9
"""A change is shown within a second, however many look."""
_MOST_BEYOND = 1.1
"""To how many times the cost of making a page that of telling it to all is held, by waiting for further changes."""
_PAUSES = 4.0
"""How many times what a rendering took has to pass before the next one."""
_TAIL = "data-tail"
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Make = Callable[[], Awaitable[tuple[int, str]]]
_log = logging.getLogger(__name__)


class TooManyViewers(Exception):
    """As many connections are open as may be."""


class _Viewer:
    """One connection. `up_to_date`: it has the content that was sent last."""

    def __init__(self, send: Send, write: Callable[[bytes], bool] | None) -> None:
        self._send, self.write = send, write
        """Writes a framed chunk, unless the client has to read first; None where the server has no such function."""
        self.up_to_date = False
        self.told_at = _now()

    async def send_event(self, event: bytes) -> bool:
        """Send an event by the messages of ASGI."""
        await self._send({"type": "http.response.body", "body": event, "more_body": True})
        return True


class Feed:
    """One page; it ends with its last viewer."""

    def __init__(self, watch: ClusterWatch, make: Make, ended: Callable[[], None]) -> None:
        self._watch, self._make, self._ended = watch, make, ended
        self._viewers: dict[_Viewer, None] = {}
        self._lines: list[str] | None = None
        self._version = -1
        self._making = self._telling = 0.0
        """The processor time that the last rendering took, and telling it to all."""
        self._task: asyncio.Task[None] | None = None

    async def add(self, viewer: _Viewer) -> None:
        """Send a viewer the content as it is known, and from then on what changes."""
        self._viewers[viewer] = None
        if self._lines is not None:
            await self._tell([viewer], self._whole())
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="dashboard page")

    async def remove(self, viewer: _Viewer) -> None:
        """Forget a viewer."""
        self._viewers.pop(viewer, None)
        if not self._viewers and self._task is not None:
            task, self._task = self._task, None
            self._ended()
            await cancelled(task)

    async def _run(self) -> None:
        while True:
            try:
                async with self._watch.viewing():
                    while True:
                        began = time.monotonic()
                        await self._update()
                        took = time.monotonic() - began
                        await asyncio.sleep(min(max(self._pause(), _PAUSES * took), SLOWEST_SECONDS))
                        await self._newer(TAIL_SECONDS if self._is_tail() else LOOK_SECONDS)
                        await self._beat()
            except OSError:
                await asyncio.sleep(PAUSE_SECONDS)  # the API server cannot be reached: browsers keep what they have
            except Exception:
                _log.exception("a live page cannot be made")
                await asyncio.sleep(SLOWEST_SECONDS)

    async def _beat(self) -> None:
        """Let those who were told nothing for a while know that the connection is alive."""
        before = _now() - HEARTBEAT_SECONDS
        await self._tell([viewer for viewer in self._viewers if viewer.told_at < before], b": \n\n", keeps=True)

    def _pause(self) -> float:
        """How long to wait for further changes: longer where telling all viewers costs much beside making the page."""
        beyond = (self._making + self._telling) / (_MOST_BEYOND * self._making) if self._making else 1.0
        return min(max(PAUSE_SECONDS, PAUSE_SECONDS * beyond), LONGEST_SECONDS)

    def _is_tail(self) -> bool:
        return any(_TAIL in line for line in self._lines or ())

    async def _newer(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._watch.changes.newer_than(self._version)

    async def _update(self) -> None:
        """Make the page, and tell what differs."""
        version, began = self._watch.changes.version, time.process_time()
        status, page = await self._make()
        self._making, self._telling = time.process_time() - began, 0.0
        lines, before = content_of(page).split("\n"), self._lines
        self._version = version
        if before is not None and status == 200:
            found = splices(before, lines)
            self._lines = lines
            late = [viewer for viewer in self._viewers if not viewer.up_to_date]
            if found:
                event = _event({"version": version, "lines": found})
                await self._tell([viewer for viewer in self._viewers if viewer.up_to_date], event)
            await self._tell_whole(late)
        elif status == 200:
            self._lines = lines
            await self._tell_whole(list(self._viewers))
        elif status == 404:
            await self._tell(list(self._viewers), _event({"version": version, "gone": True}), keeps=True)

    async def _tell_whole(self, viewers: list[_Viewer]) -> None:
        """Send the whole content to some, one after the other: it is large, and the loop has other things to do."""
        event = self._whole() if viewers else b""
        for viewer in viewers:
            await self._tell([viewer], event)
            await asyncio.sleep(0)

    async def tell_changed(self, viewer: _Viewer) -> None:
        """Tell a viewer that it may see something else from now on."""
        await self._tell([viewer], _event({"changed": True}), keeps=True)

    def _whole(self) -> bytes:
        return _event({"version": self._version, "content": "\n".join(self._lines or ())})

    async def _tell(self, viewers: list[_Viewer], event: bytes, keeps: bool = False) -> None:
        chunk, began, now = b"%x\r\n%b\r\n" % (len(event), event), time.thread_time(), _now()
        for viewer in viewers:
            viewer.told_at = now
            # Most viewers cost no more than this call: 200 of them are told in a few milliseconds.
            write = viewer.write
            try:
                told = write(chunk) if write is not None else await viewer.send_event(event)
            except OSError:
                continue
            if not keeps:
                viewer.up_to_date = told
        self._telling += time.thread_time() - began


def _now() -> float:
    return asyncio.get_running_loop().time()


def _event(value: object) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(value)


class _Person:
    """Asks, for all connections of somebody, whether they may go on; `changed` is done when they may not."""

    def __init__(self, viewer: Viewer) -> None:
        self.connections = 0
        self.changed = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(viewer), name="dashboard person")

    async def _run(self, viewer: Viewer) -> None:
        try:
            while True:
                await asyncio.sleep(CHECK_SECONDS)
                if not await viewer.unchanged():
                    break
        except Exception:
            _log.exception("whether somebody may still see the same cannot be told")
        self.changed.set_result(None)  # in doubt, too: nobody goes on unchecked

    async def end(self) -> None:
        """Ask no more."""
        await cancelled(self._task)


class Feeds:
    """The live pages of a dashboard, by what they show."""

    def __init__(self, watch: ClusterWatch) -> None:
        self._watch = watch
        self._feeds: dict[Hashable, Feed] = {}
        self._people: dict[Hashable, _Person] = {}
        self._connections = 0
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End all connections."""
        self._stopping.set()

    async def follow(
        self,
        key: Hashable,
        make: Make,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Send,
        looks: Viewer,
    ) -> None:
        """Serve one connection until its client goes, or may see something else. Raises TooManyViewers before it."""
        with self._counted():
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            viewer = _Viewer(send, (scope.get("extensions") or {}).get(WRITE))
            feed = self._feeds.get(key)
            if feed is None:
                feed = self._feeds[key] = Feed(self._watch, make, lambda: self._ended(key))
            gone = asyncio.ensure_future(_disconnected(receive))
            stopping = asyncio.ensure_future(self._stopping.wait())
            try:
                await feed.add(viewer)
                async with self._checked(looks) as changed:
                    ends: tuple[asyncio.Future[Any], ...] = (gone, stopping, changed)
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if changed.done() and not (gone.done() or stopping.done()):
                    await feed.tell_changed(viewer)
            finally:
                await cancelled(gone, stopping)
                await feed.remove(viewer)
                with suppress(OSError):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._connections >= MOST_VIEWERS:
            raise TooManyViewers
        self._connections += 1
        try:
            yield
        finally:
            self._connections -= 1

    @asynccontextmanager
    async def _checked(self, viewer: Viewer) -> AsyncIterator[asyncio.Future[None]]:
        """Give what is done when somebody may see something else; one check for all who are the same."""
        key = viewer.session, viewer.visibility
        person = self._people.get(key)
        if person is None or person.changed.done():
            person = self._people[key] = _Person(viewer)
        person.connections += 1
        try:
            yield person.changed
        finally:
            person.connections -= 1
            if not person.connections:
                if self._people.get(key) is person:
                    del self._people[key]
                await person.end()

    def _ended(self, key: Hashable) -> None:
        self._feeds.pop(key, None)


async def _disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
