"""The audit webhook: events posted as an EventList of audit.k8s.io/v1, in batches, tried five times.

Batches are made on the server's loop and put into bytes by threads. What waits and what is on its way is bounded
together, by events, by bytes and by batches: a webhook that is away costs events, which are counted, not memory.
Source: kube-apiserver's buffered and webhook backends, as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from haru.apiserver.audit.entries import HEAD, Entry, Losses
from haru.apiserver.audit.log import TRUNCATE
from haru.apiserver.audit_options import Delivery, WebhookTarget
from haru.apiserver.upstream_session import unreached
from haru.event_loop import cancelled, imported

if TYPE_CHECKING:
    import aiohttp

PLUGIN = "webhook"
BUFFERED = "buffered"
ATTEMPTS = 5
FACTOR = 1.5
JITTER = 0.2
REQUEST_SECONDS = 30.0
STOP_SECONDS = 20.0
"""How long a server that stops waits until all has been delivered."""
BATCHES = 16
"""How many batches are on their way at a time, those that wait to be tried again among them."""
QUEUE_BYTES = 64 * 1024 * 1024
_ANSWER_BYTES = 64 * 1024
_TOLD_BYTES = 512
_LIST = b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":['
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, */*", "User-Agent": "haru-apiserver"}
_LOG = logging.getLogger("haru.apiserver")


class _Failed(Exception):
    """A webhook did not take a list; `str()` says why."""


class Throttle:
    """A bucket of `burst` tokens that is filled at a rate per second; times are the loop's."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at = float(burst), 0.0

    async def take(self) -> None:
        """Return when there was a token."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now
            if self._tokens >= 1:
                self._tokens -= 1
                return
            await asyncio.sleep((1 - self._tokens) / self._rate)


class AuditWebhook:
    """One webhook, with what waits for it."""

    def __init__(self, target: WebhookTarget, delivery: Delivery, *, size: int = QUEUE_BYTES) -> None:
        self._target, self._delivery = target, delivery
        self._limit = size
        self._throttle = Throttle(delivery.batches_per_second, delivery.burst) if delivery.throttles else None
        self._queue: deque[Entry] = deque()
        self._held = [0, 0]
        """Events and bytes that wait or are on their way."""
        self._some, self._full = asyncio.Event(), asyncio.Event()
        self._slots = asyncio.Semaphore(BATCHES)
        self._session: aiohttp.ClientSession | None = None
        self._collector: asyncio.Task[None] | None = None
        self._deliveries: set[asyncio.Task[bool]] = set()
        self._ending = False
        self._random = Random()
        self.losses = Losses("what the audit webhook was told")

    async def start(self) -> None:
        """Begin; the webhook itself may come later."""
        await imported("aiohttp")
        import aiohttp

        connector = aiohttp.TCPConnector(limit=0, limit_per_host=0)
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False)
        self._ending = False
        if not self._delivery.waits:
            self._collector = asyncio.create_task(self._collect(), name="haru apiserver: audit webhook")

    async def stop(self) -> None:
        """Deliver what waits, within a bound, and end."""
        self._ending = True
        self._some.set()
        self._full.set()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                if self._collector is not None:
                    await asyncio.shield(self._collector)
                while self._deliveries:
                    await asyncio.wait(set(self._deliveries))
        except TimeoutError:
            await self._give_up()
        self._collector = None
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _give_up(self) -> None:
        tasks = [task for task in (self._collector, *self._deliveries) if task is not None]
        await cancelled(*tasks)
        if self._queue:
            self.losses.add(BUFFERED, len(self._queue), "the server stopped before the webhook had taken them")
            self._queue.clear()

    def put(self, entry: Entry) -> asyncio.Future[bool] | None:
        """Have an event posted. In a mode that waits: a future that says whether it was."""
        if self._delivery.waits and not self._ending:
            return self._begin([entry])
        events, size = self._held
        if self._ending or events >= self._delivery.buffer or size + entry.size > self._limit:
            self.losses.add(BUFFERED, 1, "the webhook is slower than the requests")
            return None
        self._held[0] += 1
        self._held[1] += entry.size
        self._queue.append(entry)
        self._some.set()
        if len(self._queue) >= self._delivery.batch_events:
            self._full.set()
        return None

    # --- batches

    async def _collect(self) -> None:
        most = self._delivery.batch_events
        while True:
            await self._some.wait()
            try:
                async with asyncio.timeout(self._delivery.batch_seconds):
                    await self._full.wait()
            except TimeoutError:
                pass  # a batch that is not full goes, too
            if self._throttle is not None:
                await self._throttle.take()
            await self._slots.acquire()
            batch = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
            if len(self._queue) < most and not self._ending:
                self._full.clear()
            if not self._queue and not self._ending:
                self._some.clear()
            if not batch:
                self._slots.release()
                return
            self._begin(batch).add_done_callback(lambda _, batch=batch: self._delivered(batch))  # type: ignore[misc]

    def _delivered(self, batch: Sequence[Entry]) -> None:
        self._held[0] -= len(batch)
        self._held[1] -= sum(entry.size for entry in batch)
        self._slots.release()

    def _begin(self, batch: Sequence[Entry]) -> asyncio.Task[bool]:
        task = asyncio.create_task(self._deliver(batch), name="haru apiserver: audit webhook: a batch")
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)
        return task

    async def _deliver(self, batch: Sequence[Entry]) -> bool:
        """Post events; whether all got there."""
        lists: list[tuple[int, bytes]] | None = None
        whole = True
        try:
            lists, too_large = await asyncio.to_thread(self._lists, batch)
            if too_large:
                self.losses.add(TRUNCATE, too_large, "an event is too large even without its bodies")
            while lists:
                events, body = lists[0]
                whole = await self._post(events, body) and whole
                del lists[0]
        except asyncio.CancelledError:
            missing = len(batch) if lists is None else sum(events for events, _ in lists)
            self.losses.add(PLUGIN, missing, "the server stopped before the webhook had taken them")
            return False
        except Exception as error:
            _LOG.exception("a batch of audit events failed")
            self.losses.add(PLUGIN, len(batch), f"{type(error).__name__}: {error}")
            return False
        return whole

    def _lists(self, batch: Sequence[Entry]) -> tuple[list[tuple[int, bytes]], int]:
        """Lists with how many events they have, and how many events were too large."""
        most, too_large = self._delivery.most_bytes, 0
        lists: list[tuple[int, bytes]] = []
        items: list[bytes] = []
        size = 0
        for entry in batch:
            text = entry.json(most)
            if text is None:
                too_large += 1
                continue
            item = b"{" + text[len(HEAD) :] if text.startswith(HEAD) else text
            if items and most and size + len(item) > self._delivery.batch_bytes:
                lists.append((len(items), _LIST + b",".join(items) + b"]}"))
                items, size = [], 0
            items.append(item)
            size += len(item)
        if items:
            lists.append((len(items), _LIST + b",".join(items) + b"]}"))
        return lists, too_large

    # --- one list

    async def _post(self, events: int, body: bytes) -> bool:
        await imported("aiohttp")
        import aiohttp

        pause, why = self._delivery.backoff, ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(pause * (1 + JITTER * self._random.random()))
                pause *= FACTOR
            try:
                await self._post_once(body)
                return True
            except (_Failed, TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
                why = unreached(error, f"no answer within {REQUEST_SECONDS:g} s")
        self.losses.add(PLUGIN, events, f'Post "{self._target.url}": {why}')
        return False

    async def _post_once(self, body: bytes) -> None:
        target = self._target
        if self._session is None:
            raise _Failed("the server is stopping")
        headers, number = dict(_HEADERS), 0
        if target.token is not None:
            token, number = await target.token.value(), target.token.number
            headers |= {"Authorization": f"Bearer {token}"} if token else {}
        async with self._session.post(
            target.url,
            data=body,
            headers=headers,
            ssl=target.tls if target.tls is not None else True,
            server_hostname=target.server_name or None,
            proxy=target.proxy,
            allow_redirects=False,
        ) as answer:
            said = await answer.content.read(_TOLD_BYTES)
            if not 200 <= answer.status < 300:
                if answer.status == 401 and target.token is not None:
                    target.token.refused(number)
                text = said.decode("utf-8", "replace").strip()
                raise _Failed(f"the server answered with status {answer.status}{': ' if text else ''}{text}")
            left = _ANSWER_BYTES
            # Read to its end the connection can be used again; a long answer costs it.
            while left > 0 and (more := await answer.content.read(left)):
                left -= len(more)
