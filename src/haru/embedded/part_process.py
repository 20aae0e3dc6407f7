"""The process of one or several parts of `haru up`, from its start to its end.

It imports what its parts need, and is told the rest by the process of the API server: options, tokens, the path of the
Unix socket. It stops when it is told so. When that process has gone, whatever ended it, this one ends at once: its API
server is no more, and what it was about to write nobody would take.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from haru.client.api import ApiClient
from haru.client.credentials import BearerToken
from haru.client.http import HttpTransport
from haru.embedded.channel import Channel
from haru.embedded.errors import OptionError
from haru.embedded.options import UpOptions
from haru.embedded.part import READERS, Part, Setting, load_part
from haru.embedded.process import loop_factory
from haru.embedded.simulated_nodes import nodes_described_by
from haru.event_loop import cancelled
from haru.garbage import postpone_collection, resume_collection
from haru.loop_lag import LoopLag

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Launch:
    """What a part's process is made of."""

    options: UpOptions
    level: int
    formatter: logging.Formatter | None
    """Level and form of log messages."""

    def as_text(self) -> str:
        """As one value of a message."""
        return base64.b64encode(pickle.dumps(self)).decode()

    @classmethod
    def of_text(cls, text: str) -> Launch:
        """What `as_text` wrote; the writer is the process that started this one."""
        launch = pickle.loads(base64.b64decode(text))
        assert isinstance(launch, cls)
        return launch


def run(names: Sequence[str], channel: socket.socket, lifeline: int) -> NoReturn:
    """Be the process of these parts. `lifeline` is the end of a pipe that the starting process holds open."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: the other process says when to stop
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with, args=(lifeline,), name="lifeline", daemon=True).start()
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"haru {names[0]}"[:15])
    postpone_collection()
    try:
        made = {name: load_part(name) for name in names}
        with asyncio.Runner(loop_factory=loop_factory(serves=READERS in names)) as runner:
            status = runner.run(_serve(made, channel))
    except BaseException:
        _log.exception("%s ended", " and ".join(names))
        status = 1
    logging.shutdown()
    sys.stderr.flush()
    os._exit(status)  # what the other process registered for its end is not ours


def main() -> NoReturn:
    """Be such a process, made anew: names, and the descriptors of channel and lifeline, are the arguments."""
    names, channel, lifeline = sys.argv[1:4]
    logging.basicConfig(level=logging.WARNING)
    run(names.split(","), socket.socket(fileno=int(channel)), int(lifeline))


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


async def _serve(made: dict[str, Any], end: socket.socket) -> int:
    channel = await Channel.over(end)
    process = PartProcess(channel)
    hearing = asyncio.create_task(process.hear(), name="channel")
    measuring = asyncio.create_task(LoopLag().run(), name="loop lag")
    working = asyncio.create_task(process.work(made), name="parts")
    try:
        await asyncio.wait({hearing, working}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return 0
        return working.result()
    finally:
        await process.stop()
        await cancelled(working, hearing, measuring)


class PartProcess:
    """The parts of this process, and what the process of the API server tells them."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._parts: dict[str, Part] = {}
        self._launch: asyncio.Future[Launch] = asyncio.get_running_loop().create_future()
        self._setting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._clients: _Clients | None = None
        self._answers: set[asyncio.Task[None]] = set()

    async def hear(self) -> None:
        """Do what is told until `stop`."""
        async for message, *values in self._channel.messages():
            if message == "launch":
                self._launch.set_result(Launch.of_text(values[0]))
            elif message == "setting":
                self._setting.set_result(values[0])
            elif message == "token" and self._clients is not None:
                self._clients.told(*values)
            elif message == "wait-seen":
                waiting = asyncio.create_task(self._wait_seen(values[0]))
                self._answers.add(waiting)
                waiting.add_done_callback(self._answers.discard)
            elif message == "dump":
                await self._dump()
            elif message == "stop":
                return

    async def work(self, made: dict[str, Any]) -> int:
        """Make the parts, start them, and run until one of them ends, which is a failure; the exit status."""
        launch = await self._launch
        _configure_logging(launch)
        try:
            self._parts = {name: part(launch.options) for name, part in made.items()}
            self._channel.send("checked")
            await self._start(await self._setting)
        except OptionError as error:
            self._channel.send("refused", str(error))
            await asyncio.Event().wait()  # until we are told to stop
        resume_collection()
        parts = self._parts.values()
        phrases = [text for part in parts for text in part.phrases()]
        notes = [text for part in parts for text in part.notes()]
        revisions = {kind: revision for part in parts for kind, revision in part.revisions().items()}
        self._channel.send(
            "ready", phrases, notes, revisions, {name: part.kept() for name, part in self._parts.items()}
        )
        failing = [asyncio.create_task(part.failed()) for part in parts]
        try:
            await asyncio.wait(failing, return_when=asyncio.FIRST_COMPLETED)
            for task in failing:
                if task.done():
                    task.result()
        finally:
            await cancelled(*failing)
        return 1

    async def stop(self) -> None:
        """End the parts, the one started last first."""
        for part in reversed(self._parts.values()):
            await part.stop()
        if self._clients is not None:
            await self._clients.close()

    async def _dump(self) -> None:
        from haru.scheduler.debugger import write

        for part in self._parts.values():
            if (dump := part.dump()) is not None:
                # In a thread: a cluster of thousands of nodes takes seconds to write.
                asyncio.get_running_loop().run_in_executor(None, write, dump)

    async def _start(self, told: dict[str, Any]) -> None:
        self._clients = _Clients(self._channel, Path(told["socket"]), told["tokens"])
        nodes = nodes_described_by(told["nodes"], "simulated nodes")
        setting = Setting(self._clients, Path(told["directory"]), told["authority"], nodes)
        kept = told.get("kept", {})
        starts = [part.start(replace(setting, kept=kept.get(name, {}))) for name, part in self._parts.items()]
        await asyncio.gather(*starts)

    async def _wait_seen(self, revisions: dict[str, int]) -> None:
        for part in self._parts.values():
            await part.wait_seen(revisions)
        self._channel.send("seen")


class _Clients:
    """Clients over the Unix socket, each with the identity of one component; the connections are shared."""

    def __init__(self, channel: Channel, path: Path, tokens: dict[str, str]) -> None:
        self._channel = channel
        self._tokens = tokens
        self._transport = HttpTransport("http://haru.local", unix_socket=path)
        self._known: dict[tuple[str, str], _AskedToken] = {}

    def component(self, name: str) -> ApiClient:
        """The client of a component, or of the administrator."""
        token = BearerToken.of(self._tokens[name])
        return ApiClient(self._transport, token=token, user_agent=f"haru-{name}")

    def controller(self, name: str) -> ApiClient:
        """The client of a controller, with the identity of its ServiceAccount."""
        return ApiClient(self._transport, token=self._asked("controller", name), user_agent="haru-controllers")

    def node(self, name: str) -> ApiClient:
        """The client of a node, with the identity of its kubelet."""
        return ApiClient(self._transport, token=self._asked("node", name), user_agent="haru-fleet")

    def told(self, kind: str, name: str, token: str) -> None:
        """Take a token that was asked for."""
        self._known[kind, name].told(token)

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    def _asked(self, kind: str, name: str) -> _AskedToken:
        token = self._known.get((kind, name))
        if token is None:
            token = self._known[kind, name] = _AskedToken(self._channel, kind, name)
        return token


class _AskedToken:
    """The token of a controller or node, which the API server's process makes when it is first needed."""

    def __init__(self, channel: Channel, kind: str, name: str) -> None:
        self._channel = channel
        self._whose = kind, name
        self._token = ""
        self.number = 1
        self._is_told: asyncio.Event | None = None

    def told(self, token: str) -> None:
        """Take it."""
        self._token = token
        if self._is_told is not None:
            self._is_told.set()

    async def value(self) -> str:
        """The token."""
        if not self._token:
            if self._is_told is None:
                self._is_told = asyncio.Event()
                self._channel.send("token", *self._whose)
            await self._is_told.wait()
        return self._token

    def refused(self, _number: int) -> bool:
        """There is no other one."""
        return False


def _configure_logging(launch: Launch) -> None:
    root = logging.getLogger()
    root.setLevel(launch.level)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    if launch.formatter is not None:
        for handler in root.handlers:
            handler.setFormatter(launch.formatter)
