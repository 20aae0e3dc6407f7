"""One remote command of a simulated container, or one look at its output, from the first byte to the status.

Source: the kubelet's `exec` and `attach`, as behaviour: the Status of a command that failed, the end of a session with
its container.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from haru.apiserver.object_store import ObjectStore
from haru.apiserver.proxy.simulated.terminal import LineInput
from haru.apiserver.registry.subresources.simulated_logs import ContainerRun, container_run, end_of_run
from haru.apiserver.registry.subresources.simulated_sources import SimulatedPods
from haru.apiserver.request.http import Request
from haru.apiserver.streams import OpenStreams
from haru.event_loop import cancelled
from haru.kube.errors import StatusError
from haru.kube.meta import Obj, is_being_deleted, name_of, namespace_of, uid_of
from haru.kube.simulated_containers.commands import run_in_container
from haru.kube.simulated_containers.executed import Executed
from haru.kube.simulated_containers.files import NO_SOURCES, PodSources
from haru.kube.simulated_containers.shell_output import Ran
from haru.kube.simulated_containers.standard_input import EMPTY, MOST_INPUT, TOO_MUCH_INPUT, Given
from haru.kube.simulated_containers.text import RESERVED, as_printed
from haru.kube.simulated_containers.trivial_shell import is_interactive
from haru.remote_command.channels import ERROR, STDERR, STDOUT, Channels
from haru.storage import Compacted

_KILLED: Final = 137
_LOOK_SECONDS: Final = 60.0
_PROMPT: Final = b"/ # "
_PAUSE_SECONDS: Final = 0.1
"""Input that comes with shorter pauses is given to a container at once."""


@dataclass(frozen=True, slots=True)
class Target:
    """A container that runs, and which run of it."""

    pod: Obj
    container: Mapping[str, Any]
    run: ContainerRun
    sources: PodSources = NO_SOURCES


class Session:
    """Serve one client. With a command it is `exec`, without one `attach`."""

    def __init__(
        self,
        objects: ObjectStore,
        pods: SimulatedPods,
        streams: OpenStreams,
        target: Target,
        command: Sequence[str],
        channels: Channels,
    ) -> None:
        self._objects, self._pods, self._streams, self._target = objects, pods, streams, target
        self._command, self._channels = command, channels
        self._work: asyncio.Task[int | None] | None = None
        self._told = target.run.began
        self._is_given = asyncio.Event()
        self._owes_end = False
        """Whether the input of the container is to end with the client's, and has not yet."""

    def close(self) -> None:
        """End it: the server stops."""
        if self._work is not None:
            self._work.cancel()

    async def run(self, request: Request) -> None:
        """From the handshake to the end."""
        channels = self._channels
        tasks: list[asyncio.Task[Any]] = []
        self._streams.add(self)
        try:
            channels.takes_input = self._reads_input()
            await channels.open()
            reading = asyncio.create_task(channels.run())
            self._work = asyncio.create_task(self._serve())
            over = asyncio.create_task(self._until_container_ends())
            tasks = [reading, self._work, over]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._owes_end and reading in done:
                await self._give(None)
            if reading not in done:
                await self._tell(await self._end(over), reading)
        except (OSError, TimeoutError):
            return
        finally:
            self._streams.discard(self)
            await cancelled(*tasks)
            await channels.close()

    async def _end(self, over: asyncio.Task[datetime | None]) -> int | None:
        """The exit code, once all is shown that a container has printed that has ended."""
        assert self._work is not None
        if self._work.done():
            return _KILLED if self._work.cancelled() else self._work.result()
        if self._command:
            return _KILLED
        await cancelled(self._work)
        pod = self._target.pod
        found = await self._objects.read("", "pods", namespace_of(pod), name_of(pod))
        same = found if found is not None and uid_of(found) == uid_of(pod) else None
        goes = same is None or is_being_deleted(same)
        await self._look_again(same or pod, self._told if goes else None)
        await self._print_until(over.result() or self._objects.clock())
        return 0

    async def _tell(self, code: int | None, reading: asyncio.Task[None]) -> None:
        """The status, and the end of all streams; then the client closes the connection."""
        if code is not None and (self._channels.has_status or code):
            status = status_of(code)
            text = orjson.dumps(status) if self._channels.has_status else status["message"].encode()
            await self._channels.write(ERROR, text)
        await self._channels.end()
        await asyncio.wait([reading], timeout=5.0)

    def _reads_input(self) -> bool:
        """Whether somebody waits for input: a command, or the container itself."""
        if not self._channels.wanted.stdin:
            return False
        if self._command:
            return is_interactive(self._command) or self._ran(self._command, ()).awaits_input
        awaits = self._is_shell() or self._target.run.script.awaits_input
        return bool(self._target.container.get("stdin")) and awaits

    def _is_shell(self) -> bool:
        """Whether the container itself is a shell at a terminal, or whatever its image has."""
        container = self._target.container
        own = [*(container.get("command") or ()), *(container.get("args") or ())]
        return not own or (bool(container.get("tty")) and is_interactive(own))

    async def _serve(self) -> int | None:
        """Do what was asked for; the exit code."""
        wanted = self._channels.wanted
        if not self._command:
            return await self._attach()
        if is_interactive(self._command) and wanted.stdin:
            return await self._shell()
        if list(self._command) == ["cat"] and wanted.stdin:
            while data := await self._channels.stdin.get():
                await self._channels.write(STDOUT, data)
            return 0
        given = await self._all_input() if self._channels.takes_input else EMPTY
        return await self._play(await self._run(self._command, given))

    async def _run(self, command: Sequence[str], given: Sequence[Given] = EMPTY) -> Ran:
        """Run a command in the container as it is now, and keep what it writes."""
        now, ran = self._objects.clock(), self._ran(command, given)
        if ran.changes:
            written = Executed(self._target.container["name"], self._target.run.restarts, now, ran.changes)
            await self._pods.wrote(self._target.pod, written)
        return ran

    def _ran(self, command: Sequence[str], given: Sequence[Given]) -> Ran:
        target = self._target
        elapsed = (self._objects.clock() - target.run.began).total_seconds()
        return run_in_container(target.pod, target.container, command, target.sources, elapsed, given)

    async def _play(self, ran: Ran) -> int:
        """Print lines when they are due; the exit code, once the command has ended."""
        passed, began = 0.0, self._objects.clock()
        for number, line in enumerate(ran.lines, 1):
            await asyncio.sleep(max(0.0, line.at - passed))
            passed = max(passed, line.at)
            ends_line = ran.ends_line or number < len(ran.lines)
            await self._print(as_printed(line.text, began), is_error=line.is_error, ends_line=ends_line)
        if ran.ends_after is None:
            await asyncio.Event().wait()
        else:
            await asyncio.sleep(max(0.0, ran.ends_after - passed))
        return ran.exit_code

    async def _print(self, text: str, *, is_error: bool = False, ends_line: bool = True) -> None:
        wanted = self._channels.wanted
        end = "" if not ends_line else "\r\n" if wanted.tty else "\n"
        data = f"{text}{end}"
        channel = STDERR if is_error and not wanted.tty else STDOUT
        if wanted.stderr if channel == STDERR else wanted.stdout:
            await self._channels.write(channel, data.encode())

    # -- a shell that reads its commands ------------------------------------------------------------------------------

    async def _shell(self) -> int:
        """Run a line after the other; the code of the last one, or of `exit`."""
        tty = self._channels.wanted.tty
        lines, code = LineInput(tty=tty), 0
        if tty:
            await self._channels.write(STDOUT, _PROMPT)
        while (data := await self._channels.stdin.get()) is not None:
            for typed in lines.feed(data):
                if typed.echo:
                    await self._channels.write(STDOUT, typed.echo)
                if typed.ends:
                    return code
                if typed.line is not None:
                    code, ends = await self._line(typed.line, code)
                    if ends:
                        return code
                    if tty:
                        await self._channels.write(STDOUT, _PROMPT)
        rest = lines.rest()
        return (await self._line(rest, code))[0] if rest else code

    async def _line(self, text: str, code: int) -> tuple[int, bool]:
        """The code of one line, and whether the shell ends with it."""
        words = text.split()
        if not words:
            return code, False
        if words[0] == "exit":
            return (int(words[1]) & 255 if len(words) > 1 and words[1].isdigit() else code), True
        self._target = replace(self._target, sources=await self._pods.sources(self._target.pod, (text,)))
        return await self._play(await self._run(["sh", "-c", text])), False

    # -- the container itself -----------------------------------------------------------------------------------------

    async def _attach(self) -> int | None:
        """What the container prints from now on, and what it is given; its shell, if it is one that reads."""
        if self._is_shell() and self._channels.takes_input:
            code = await self._shell()
            if self._target.container.get("stdinOnce"):
                await self._give(f"exit {code}\n")
                return 0
            return code
        self._told = self._objects.clock() - timedelta(microseconds=1)  # input may come at this very moment
        printing = asyncio.create_task(self._print_on())
        try:
            if self._channels.takes_input and not await self._pass_input():
                await self._print_until(self._objects.clock())
                return 0
            await printing
        finally:
            await cancelled(printing)
        return None

    async def _print_on(self) -> None:
        while True:
            self._is_given.clear()
            now = self._objects.clock()
            await self._print_until(now)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._target.run.seconds_to_next(now)):
                    await self._is_given.wait()

    async def _print_until(self, now: datetime) -> None:
        lines, ends_line = self._target.run.printed(now, self._told), self._target.run.ends_line(now)
        if lines:  # times are cut to microseconds
            self._told = lines[-1][0] + timedelta(microseconds=1)
        for number, (_, text) in enumerate(lines, 1):
            await self._print(text, ends_line=ends_line or number < len(lines))

    async def _pass_input(self) -> bool:
        """Give the container what the client sends; whether the client stays when its input has ended.

        It stays where the input of the container ends as well (`stdinOnce`).
        """
        once, tty = bool(self._target.container.get("stdinOnce")), self._channels.wanted.tty
        decoder, lines = codecs.getincrementaldecoder("utf-8")("replace"), LineInput(tty=tty)
        self._owes_end, goes_on = once, True
        while goes_on:
            data, goes_on = await self._gathered()
            text = decoder.decode(data, final=not goes_on)
            if tty:
                typed = list(lines.feed(data))
                await self._channels.write(STDOUT, b"".join(one.echo for one in typed))
                text = "".join(f"{one.line}\n" for one in typed if one.line is not None)
                goes_on = goes_on and not any(one.ends for one in typed)
            if text and not await self._give(text):
                goes_on = self._channels.takes_input = False
                while not self._channels.stdin.empty():
                    self._channels.stdin.get_nowait()
        if once:
            await self._give(None)
        return once

    async def _gathered(self) -> tuple[bytes, bool]:
        """What the client has sent, up to a pause, and whether more may come."""
        data, found = await self._channels.stdin.get(), bytearray()
        while data is not None:
            found += data
            if len(found) > MOST_INPUT:
                break
            try:
                async with asyncio.timeout(_PAUSE_SECONDS):
                    data = await self._channels.stdin.get()
            except TimeoutError:
                break
        return bytes(found), data is not None

    async def _give(self, text: str | None) -> bool:
        """Give the container input, or its end; False, and a word to the client, if it takes no more."""
        target, now = self._target, self._objects.clock()
        given = Given((now - target.run.began).total_seconds(), text, target.run.restarts)
        self._owes_end = self._owes_end and text is not None
        try:
            pod = await self._pods.give(target.pod, target.container["name"], given)
        except (ValueError, StatusError) as error:
            await self._print(str(error), is_error=True)
            return False
        await self._look_again(pod)
        self._is_given.set()
        return True

    async def _look_again(self, pod: Obj, seen: datetime | None = None) -> None:
        """See what the container does now that it was given input, or told to end, no sooner than that was seen."""
        run = container_run(pod, self._target.container["name"], await self._pods.sources(pod), seen=seen)
        if run is not None and run.restarts == self._target.run.restarts:
            self._target = replace(self._target, pod=pod, run=run)

    async def _all_input(self) -> Sequence[Given]:
        """What the client sends until its input ends, for a command that waits for it."""
        found, goes_on = bytearray(), True
        while goes_on and len(found) <= MOST_INPUT:
            data, goes_on = await self._gathered()
            found += data
        if goes_on:
            await self._print(TOO_MUCH_INPUT, is_error=True)
        text = found.decode(errors="replace")
        return Given(0.0, RESERVED.sub("", text)), Given(0.0, None)

    async def _until_container_ends(self) -> datetime | None:
        """Wait for the end of the run; a pod that is gone has ended."""
        pod, run = self._target.pod, self._target.run
        namespace, name = namespace_of(pod), name_of(pod)
        prefix = self._objects.served.preferred("", "pods").prefix(namespace) + name
        store = self._objects.store
        watch = self._streams.follow(store.watch(prefix, store.revision))
        try:
            while not watch.closed:
                watch.pending()
                found = await self._objects.peek("", "pods", namespace, name)
                same = found if found is not None and uid_of(found) == uid_of(pod) else None
                ended = end_of_run(same, self._target.container["name"], run.restarts, self._objects.clock())
                if ended is not None:
                    return ended
                await watch.wait(_LOOK_SECONDS)
        except Compacted:
            pass
        finally:
            watch.close()
            self._streams.leave(watch)
        return None


def status_of(code: int) -> Obj:
    """The Status that tells how a command ended."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
