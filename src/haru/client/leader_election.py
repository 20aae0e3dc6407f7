"""Work under a Lease: elected, and renewed, in a thread of its own, so that a busy event loop does not cost the Lease.

The thread has an event loop and a connection of its own. It renews as long as the loop of the work comes round; one
that has not for the renew deadline hangs, and its Lease runs out. A loss is told in one line and to the work, which is
cancelled; what has not ended by the time at which another one may begin is ended with the process.
Source: client-go `tools/leaderelection`, as behaviour; the watchdog is our own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from haru.client.api import ApiClient
from haru.client.leases import LeaderElector
from haru.event_loop import cancelled

_log = logging.getLogger(__name__)


class LeaseLostError(Exception):
    """The Lease is not ours any more; that has been logged."""


def _end_process() -> None:
    # Another one leads from now on: nothing of this process may be written any more, not even a farewell.
    os._exit(1)


class Leadership:
    """One candidate, of the loop in which it is made.

    `open_client` and `elector_of` are called in its thread. `since_tick` says for how many seconds the loop of the work
    has not come round. `end` ends a process that still works when its Lease has run out. `tell_loss` is given a logger,
    a text and its arguments.
    """

    def __init__(
        self,
        open_client: Callable[[], ApiClient],
        elector_of: Callable[[ApiClient], LeaderElector],
        since_tick: Callable[[], float],
        end: Callable[[], None] = _end_process,
        tell_loss: Callable[..., None] = logging.Logger.error,
    ) -> None:
        self._open_client = open_client
        self._elector_of = elector_of
        self._since_tick = since_tick
        self._end = end
        self._tell_loss = tell_loss
        self._own_loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run_thread, name="leader election", daemon=True)
        self._loop = asyncio.get_running_loop()
        self._elected: asyncio.Future[None] = self._loop.create_future()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the Lease, then run `work()` to its end, or until the Lease is lost: LeaseLostError.

        The work has ended by then, whatever happens; a Lease that is still held is given up after it.
        """
        self._thread.start()
        try:
            await asyncio.wait([self._elected, self._closed], return_when=asyncio.FIRST_COMPLETED)
            if self._closed.done():
                self._closed.result()
            task = asyncio.create_task(work(), name="work of the leader")
            try:
                await asyncio.wait([task, self._over, self._closed], return_when=asyncio.FIRST_COMPLETED)
                ended = task.done()
            finally:
                await cancelled(task)
        finally:
            await self._stopped()
        if not ended:
            raise LeaseLostError("the Lease is lost")
        if not task.cancelled():
            task.result()

    async def _stopped(self) -> None:
        """Ends the thread, which gives the Lease up if it has it."""
        with contextlib.suppress(RuntimeError):  # its loop is closed already
            self._own_loop.call_soon_threadsafe(self._stop.set)
        await asyncio.shield(asyncio.wait([self._closed]))
        self._thread.join()

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _run_thread(self) -> None:
        problem: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=lambda: self._own_loop) as runner:
                runner.run(self._elect())
        except BaseException as error:
            problem = error
        self._tell(self._closed, problem)

    def _tell(self, future: asyncio.Future[None], problem: BaseException | None = None) -> None:
        def settle() -> None:
            if future.done():
                return
            if problem is None:
                future.set_result(None)
            else:
                future.set_exception(problem)

        with contextlib.suppress(RuntimeError):  # the loop of the work is closed: nobody waits
            self._loop.call_soon_threadsafe(settle)

    async def _elect(self) -> None:
        async with self._open_client() as client:
            elector = self._elector_of(client)
            if await self._before_stop(elector.acquire()) is not None:
                self._tell(self._elected)
                why = await self._before_stop(elector.renew(lambda: self._since_tick() < elector.renew_deadline))
                if why is not None:
                    text = "%s: %s has lost the Lease: %s"
                    self._tell_loss(_log, text, elector.lease_path, elector.identity, why[0])
                    self._tell(self._over)
                    await self._see_it_end(elector)
                    return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(elector.renew_deadline):
                    await elector.release()

    async def _see_it_end(self, elector: LeaderElector) -> None:
        try:
            async with asyncio.timeout(max(elector.seconds_left(), 0.0)):
                await self._stop.wait()
        except TimeoutError:
            self._end()

    async def _before_stop(self, work: Coroutine[Any, Any, Any]) -> tuple[Any] | None:
        """What the work returns, in a tuple; None if the end was asked for first."""
        task, stop = asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
            return (task.result(),) if task.done() else None
        finally:
            await cancelled(task, stop)
