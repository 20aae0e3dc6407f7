"""Parts of `haru up` in a process of their own: started, given what they need, started again if they die, and stopped.

A process that dies is started again after a pause that doubles, as kubelets do with containers; one that dies again
and again ends the whole: a cluster without a scheduler is no cluster.
Source: kubelet's CrashLoopBackOff, with shorter times.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from haru.embedded.channel import Channel
from haru.embedded.errors import OptionError, PartEnded
from haru.embedded.launch import Child, Lifeline, spawn
from haru.embedded.options import UpOptions
from haru.embedded.part import IDENTITIES
from haru.embedded.part_process import Launch
from haru.event_loop import cancelled

if TYPE_CHECKING:
    from haru.embedded.identity import ComponentClients

_PAUSE_SECONDS: Final = 0.2
_DEATHS: Final = 5
_WINDOW_SECONDS: Final = 60.0
"""So many deaths in so many seconds end the whole."""
_STOP_SECONDS: Final = 10.0
_SIGNAL_SECONDS: Final = 0.5
"""A signal to all processes at once may reach a part before it reaches us."""
_log = logging.getLogger(__name__)


class SupervisedParts:
    """Some parts in one process, which `first` is at the start."""

    def __init__(self, names: Sequence[str], options: UpOptions, lifeline: Lifeline, first: Child) -> None:
        self.names = names
        self._what = f"the process of {' and '.join(f'the {name}' for name in names)}"
        self._lifeline = lifeline
        root = logging.getLogger()
        formatter = root.handlers[0].formatter if root.handlers else None
        self._launch = Launch(options, root.level, formatter).as_text()
        self._child = first
        self._channel: Channel | None = None
        self._setting: dict[str, Any] | None = None
        self._clients: ComponentClients | None = None
        self._deaths: deque[float] = deque(maxlen=_DEATHS)
        self._answers: dict[str, asyncio.Future[list[Any]]] = {}
        self._supervising: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._said: list[Any] = [(), (), {}]

    def begin(self) -> None:
        """Tell the process its options, and watch over it from now on."""
        self._answers = {name: asyncio.get_running_loop().create_future() for name in ("checked", "ready")}
        self._supervising = asyncio.create_task(self._supervise(), name=self._what)

    async def check(self) -> None:
        """Wait until the process has checked the options. Raises OptionError."""
        await self._answer("checked")

    async def start(self, setting: Mapping[str, Any], clients: ComponentClients) -> None:
        """Start the parts; return when they are ready. Raises OptionError, PartEnded."""
        tokens = {identity: clients.tokens[identity] for name in self.names for identity in IDENTITIES[name]}
        self._clients, self._setting = clients, {**setting, "tokens": tokens}
        self._tell("setting", self._setting)
        self._said = await self._answer("ready")

    async def failed(self) -> None:
        """Wait until the process is given up, and raise why."""
        assert self._supervising is not None
        await asyncio.shield(self._supervising)

    async def wait_seen(self, revisions: Mapping[str, int]) -> None:
        """Wait until the parts have seen what others wrote."""
        self._answers["seen"] = asyncio.get_running_loop().create_future()
        self._tell("wait-seen", dict(revisions))
        await self._answer("seen")

    def phrases(self) -> Sequence[str]:
        """What runs."""
        return list(self._said[0])

    def notes(self) -> Sequence[str]:
        """What else is to be said."""
        return list(self._said[1])

    def revisions(self) -> Mapping[str, int]:
        """The newest revision that the parts wrote, by kind."""
        return dict(self._said[2])

    def dump(self) -> None:
        """Let the parts write their state into the log."""
        self._tell("dump")

    async def stop(self) -> None:
        """Let the parts end, and the process with them."""
        self._is_stopping = True
        if self._supervising is None:
            self._child.channel.close()
            return
        self._tell("stop")
        await asyncio.wait([self._supervising], timeout=_STOP_SECONDS)
        if not self._supervising.done():
            _log.warning("%s did not end within %g s and is killed", self._what, _STOP_SECONDS)
            os.kill(self._child.pid, signal.SIGKILL)
        await asyncio.wait([self._supervising])
        await cancelled(self._supervising)

    def _tell(self, *message: Any) -> None:
        if self._channel is not None:
            self._channel.send(*message)

    async def _answer(self, name: str) -> list[Any]:
        assert self._supervising is not None
        waiting: list[asyncio.Future[Any]] = [self._answers[name], self._supervising]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if self._answers[name].done():
            return self._answers[name].result()
        self._supervising.result()
        raise PartEnded(f"{self._what} ended")

    # -- the process --------------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        while True:
            status = await self._attend(self._child)
            if not self._is_stopping:
                await asyncio.sleep(_SIGNAL_SECONDS)
            if self._is_stopping:
                return
            pause = self._pause(_ended_by(status))
            # Said also where warnings are not logged: the cluster does not do all that it should.
            print(
                f"{self._what} (process {self._child.pid}) ended ({_ended_by(status)}): "
                f"it is started again in {pause:g} s",
                file=sys.stderr,
                flush=True,
            )
            await asyncio.sleep(pause)
            if self._is_stopping:
                return
            self._child = spawn(self.names, self._lifeline)

    def _pause(self, why: str) -> float:
        """How long to wait before the next start; PartEnded if there is no sense in one."""
        now = time.monotonic()
        if not self._answers["ready"].done():
            raise PartEnded(f"{self._what} ended before it was ready ({why})")
        while self._deaths and now - self._deaths[0] > _WINDOW_SECONDS:
            self._deaths.popleft()
        if len(self._deaths) == _DEATHS:
            raise PartEnded(f"{self._what} ended {_DEATHS + 1} times within {_WINDOW_SECONDS:g} s, at last by {why}")
        self._deaths.append(now)
        return float(_PAUSE_SECONDS * 2 ** (len(self._deaths) - 1))

    async def _attend(self, child: Child) -> int:
        """Tell a process what it needs and hear it, until it ends; its exit status."""
        self._channel = channel = await Channel.over(child.channel)
        try:
            channel.send("launch", self._launch)
            if self._setting is not None:
                channel.send("setting", self._setting)
            async for message, *values in channel.messages():
                self._hear(message, values)
        finally:
            channel.close()
            self._channel = None
        # A process that has closed its channel ends; one that does not is of no use any more.
        waiting = asyncio.ensure_future(asyncio.to_thread(child.wait))
        _, late = await asyncio.wait([waiting], timeout=_STOP_SECONDS)
        if late:
            os.kill(child.pid, signal.SIGKILL)
        return await waiting

    def _hear(self, message: str, values: list[Any]) -> None:
        if message == "token":
            assert self._clients is not None
            kind, name = values
            self._tell("token", kind, name, self._clients.token(kind, name))
            return
        is_again = self._answers["ready"].done()
        if message == "ready" and self._setting is not None:
            self._setting["kept"] = values[3]
        answer = self._answers.get("ready" if message == "refused" else message)
        if message == "refused" and is_again:
            print(f"{self._what} does not start again: {values[0]}", file=sys.stderr, flush=True)
            self._tell("stop")
        elif message == "refused":
            for waiting in self._answers.values():
                if not waiting.done():
                    waiting.set_exception(OptionError(values[0]))
                    waiting.exception()  # not all of them are waited for
        elif answer is not None and not answer.done():
            answer.set_result(values)
        elif message == "ready" and is_again:
            again = "; ".join([f"{self._what} is there again (process {self._child.pid})", *values[1]])
            print(again, file=sys.stderr, flush=True)


def _ended_by(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
