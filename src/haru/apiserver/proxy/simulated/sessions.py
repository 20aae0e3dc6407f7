"""One remote command of a simulated container, or one look at its output, from the first byte to the status.

Source: the kubelet's `exec` and `attach`, as behaviour: the Status of a command that failed, the end of a session with
its container.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import orjson

from haru.apiserver.object_store import ObjectStore
from haru.apiserver.proxy.simulated.terminal import LineInput
from haru.apiserver.registry.subresources.simulated_logs import ContainerRun, end_of_run
from haru.apiserver.registry.subresources.simulated_sources import SimulatedPods
from haru.apiserver.request.http import Request
from haru.apiserver.streams import OpenStreams
from haru.event_loop import cancelled
from haru.kube.meta import Obj, name_of, namespace_of, uid_of
from haru.kube.simulated_containers.commands import is_interactive, run_in_container
from haru.kube.simulated_containers.files import NO_SOURCES, Executed, PodSources
from haru.kube.simulated_containers.shell_output import Ran
from haru.kube.simulated_containers.text import as_printed
from haru.remote_command.channels import ERROR, STDERR, STDOUT, Channels
from haru.storage import Compacted

_KILLED: Final = 137
_LOOK_SECONDS: Final = 60.0
_PROMPT: Final = b"/ # "


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
            if reading not in done:
                code = self._work.result() if self._work in done and not self._work.cancelled() else _KILLED
                await self._tell(code, reading)
        except (OSError, TimeoutError):
            return
        finally:
            self._streams.discard(self)
            await cancelled(*tasks)
            await channels.close()

    async def _tell(self, code: int | None, reading: asyncio.Task[None]) -> None:
        """The status, and the end of all streams; then the client closes the connection."""
        if code is not None and (self._channels.has_status or code):
            status = status_of(code)
            text = orjson.dumps(status) if self._channels.has_status else status["message"].encode()
            await self._channels.write(ERROR, text)
        await self._channels.end()
        await asyncio.wait([reading], timeout=5.0)

    def _reads_input(self) -> bool:
        """Whether the command, or the container's own, is a shell that reads its commands, or `cat`."""
        if not self._channels.wanted.stdin:
            return False
        if self._command:
            return is_interactive(self._command) or list(self._command) == ["cat"]
        container = self._target.container
        own = [*(container.get("command") or ()), *(container.get("args") or ())] or ["sh"]
        return bool(container.get("stdin")) and is_interactive(own)

    async def _serve(self) -> int | None:
        """Do what was asked for; the exit code."""
        wanted = self._channels.wanted
        if not self._command:
            return await self._attach()
        if is_interactive(self._command) and wanted.stdin:
            return await self._shell()
        if self._reads_input():
            while data := await self._channels.stdin.get():
                await self._channels.write(STDOUT, data)
            return 0
        return await self._play(self._run(self._command))

    def _run(self, command: Sequence[str]) -> Ran:
        """Run a command in the container as it is now, and keep what it writes."""
        target, now = self._target, self._objects.clock()
        elapsed = (now - target.run.began).total_seconds()
        ran = run_in_container(target.pod, target.container, command, target.sources, elapsed)
        if ran.changes:
            written = Executed(target.container["name"], target.run.restarts, now, ran.changes)
            self._pods.wrote(target.pod, written)
        return ran

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
        return await self._play(self._run(["sh", "-c", text])), False

    # -- the container itself -----------------------------------------------------------------------------------------

    async def _attach(self) -> int | None:
        """What the container prints from now on; its shell, if it is one that reads."""
        run = self._target.run
        if self._reads_input():
            return await self._shell()
        told = self._objects.clock()
        while (left := run.seconds_to_next(told)) is not None:
            await asyncio.sleep(left)
            now = max(self._objects.clock(), told)
            for _, text in run.printed(now, told):
                await self._print(text)
            told = now
        await asyncio.Event().wait()
        return None

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
            self._streams.watches.discard(watch)
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
