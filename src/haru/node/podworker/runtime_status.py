"""What the runtime reports of a pod, and the termination messages of its containers.

Source: terminationMessagePath and terminationMessagePolicy as documented: 4096 bytes of a file, or the end of the log
(80 lines, 2048 bytes) of a container that failed and said nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from haru.node.cri.client import RuntimeClient
from haru.node.cri.errors import CriError
from haru.node.podworker.observed import EXITED, MESSAGE_POLICY, POD_UID, SeenContainer, SeenPod, SeenSandbox

_MOST_MESSAGE = 4096
_MOST_LOG_BYTES = 2048
_MOST_LOG_LINES = 80


class RuntimeStatus:
    """Observes one pod in the runtime. What has ended stays as it was seen.

    A list may be behind what was just made. So whatever was seen alive, was made here or is told of in the pod's status
    is asked for by its id when a list leaves it out: what is believed to be gone is started again beside itself.
    """

    def __init__(self, runtime: RuntimeClient, uid: str) -> None:
        self._runtime, self._uid = runtime, uid
        self._ended: dict[str, SeenContainer] = {}
        self._alive: dict[str, str] = {}  # container -> sandbox
        self._gone: set[str] = set()

    def expect(self, id_: str, sandbox: str) -> None:
        """A container was made."""
        self._alive[id_] = sandbox

    async def observe(self, told: Iterable[str] = ()) -> SeenPod:
        """List the pod's sandboxes and containers; `told` are ids that should be among them. Raises `CriError`."""
        labels = {POD_UID: self._uid}
        sandboxes, containers = await asyncio.gather(self._runtime.sandboxes(labels), self._runtime.containers(labels))
        seen_sandboxes = await asyncio.gather(*(self._sandbox(one.id) for one in sandboxes))
        places = {**dict.fromkeys(told, ""), **self._alive}
        self._gone.intersection_update(places)
        places = {id_: sandbox for id_, sandbox in places.items() if id_ not in self._gone}
        places |= {one.id: one.pod_sandbox_id for one in containers}
        seen = await asyncio.gather(*(self._container(id_, sandbox) for id_, sandbox in places.items()))
        found = [one for one in seen if one is not None]
        self._alive = {one.id: one.sandbox for one in found if one.state != EXITED}
        self._ended = {one.id: one for one in found if one.state == EXITED}
        return SeenPod.of([one for one in seen_sandboxes if one is not None], found)

    async def _sandbox(self, id_: str) -> SeenSandbox | None:
        try:
            return SeenSandbox.of(await self._runtime.sandbox_status(id_))
        except CriError as error:
            if not error.is_gone:
                raise
            return None

    async def _container(self, id_: str, sandbox: str) -> SeenContainer | None:
        if id_ in self._ended:
            return self._ended[id_]
        try:
            seen = SeenContainer.of(await self._runtime.container_status(id_), sandbox)
        except CriError as error:
            if not error.is_gone:
                raise
            self._gone.add(id_)
            return None
        if seen.state == EXITED:
            return replace(seen, message=await asyncio.to_thread(termination_message, seen))
        return seen


def termination_message(seen: SeenContainer) -> str:
    """The termination message of a container, else the runtime's message."""
    text = ""
    if seen.files.termination_message:
        try:
            with Path(seen.files.termination_message).open("rb") as file:
                text = file.read(_MOST_MESSAGE).decode(errors="replace")
        except OSError:
            text = ""
    if not text and seen.exit_code and seen.annotations.get(MESSAGE_POLICY) == "FallbackToLogsOnError":
        text = _log_end(Path(seen.files.log))
    return text or seen.message


def _log_end(file: Path) -> str:
    try:
        with file.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - 2 * _MOST_LOG_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "".join(_log_texts(lines)[-_MOST_LOG_LINES:])[-_MOST_LOG_BYTES:]


def _log_texts(lines: Sequence[str]) -> list[str]:
    """The texts of lines in the CRI's form: time, stream, F or P (the line goes on), text."""
    found = (parts for line in lines if len(parts := line.split(" ", 3)) == 4)
    return [text if tag == "P" else f"{text}\n" for _, _, tag, text in found]
