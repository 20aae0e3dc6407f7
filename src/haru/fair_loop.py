"""An event loop that looks at its sockets every few milliseconds, and first runs what a client waits for.

uvloop runs everything that is ready before it looks at a socket again, in the order in which it came. Where a whole
cluster shares one loop that may be hundreds of steps: a commit wakes everybody whose change is in it, and a request
from outside would wait for all of them each time that it waits for anything. Here steps wait in two queues. A few
milliseconds of each are run by turns, and sockets are looked at after each turn.

Whether a step is done for a client, is told by its context: see `haru.event_loop.is_for_a_client`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Final, TypeVarTuple

import uvloop

from haru.event_loop import is_for_a_client

Arguments = TypeVarTuple("Arguments")
SLICE_SECONDS: Final = 0.005
"""So long one queue is run before the other one, or a socket, has its turn."""


class Step(asyncio.Handle):
    """A callback that is to be run once, unless it is cancelled."""

    __slots__ = ("arguments", "callback", "context")

    def __init__(self, callback: Callable[..., object], arguments: tuple[Any, ...], context: Context) -> None:
        # Not those of asyncio's handle: this is made for every step of every task.
        self.callback: Callable[..., object] | None = callback
        self.arguments = arguments
        self.context = context

    def cancel(self) -> None:
        """Have it not run."""
        self.callback, self.arguments = None, ()

    def cancelled(self) -> bool:
        """Whether it is not to be run."""
        return self.callback is None

    def get_context(self) -> Context:
        """Return the context in which it is run."""
        return self.context

    def __repr__(self) -> str:
        return f"<Step {self.callback!r}>"


class _Connected:
    """A connected socket for uvloop: once libuv has its descriptor, which it closes, Python's object has none.

    uvloop has the object let go when the connection is closed, but hears of the object in a step after the one that
    opens the connection. A connection closed between the two left the object with the number of a closed descriptor:
    garbage collection closed whatever had that number by then.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.family, self.type = sock.family, sock.type

    def setblocking(self, flag: bool) -> None:
        """Set whether calls wait."""
        self._sock.setblocking(flag)

    def fileno(self) -> int:
        """Hand the descriptor over."""
        return self._sock.detach()

    def detach(self) -> None:
        """Do nothing: the descriptor is libuv's."""

    close = detach


class FairLoop(uvloop.Loop):
    """uvloop with two queues of steps: of what a client waits for, and of everything else."""

    def __init__(self, slice_seconds: float = SLICE_SECONDS) -> None:
        super().__init__()
        self._slice = slice_seconds
        self._for_clients: deque[Step] = deque()
        self._others: deque[Step] = deque()
        self._is_turn_due = False

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> Step:
        """Run a callback in its queue's turn, behind those that are there."""
        context = copy_context() if context is None else context
        step = Step(callback, args, context)
        (self._for_clients if context.get(is_for_a_client) else self._others).append(step)
        if not self._is_turn_due:
            self._is_turn_due = True
            super().call_soon(self._turn)
        return step

    async def create_connection(self, *args: Any, sock: socket.socket | None = None, **options: Any) -> Any:
        """Connect as every loop does; a given socket is the connection's from the start."""
        connected: Any = None if sock is None else _Connected(sock)
        return await super().create_connection(*args, sock=connected, **options)

    def _turn(self) -> None:
        """Run what is ready, first what is for clients, each for a slice; go on after a look at the sockets."""
        try:
            # With what comes meanwhile: an answer does not wait for the others at each of its steps.
            self._run(self._for_clients, most=sys.maxsize)
            # What comes meanwhile has to wait, as in every event loop: `sleep(0)` lets sockets have their turn.
            self._run(self._others, most=len(self._others))
        finally:
            self._is_turn_due = bool(self._for_clients or self._others)
            if self._is_turn_due:
                super().call_soon(self._turn)

    def _run(self, queue: deque[Step], most: int) -> None:
        until = time.perf_counter() + self._slice
        for _ in range(most):
            if not queue:
                return
            step = queue.popleft()
            callback = step.callback
            if callback is None:
                continue
            try:
                step.context.run(callback, *step.arguments)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                told = {"message": f"Exception in callback {callback!r}", "exception": error, "handle": step}
                self.call_exception_handler(told)
            if time.perf_counter() >= until:
                return
